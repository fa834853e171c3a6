# SPDX-License-Identifier: Apache-2.0
"""A notebook that lasts: its variables are there after the sandbox was paused, found again by its metadata, and resumed."""
import os

from e2b_code_interpreter import Sandbox
from e2b import SandboxQuery, SandboxState

sandbox = Sandbox.create(timeout=300, metadata={"user": "ann", "thread": "17"})
assert sandbox.run_code("total = sum(range(10)); total").text == "45"
sandbox.files.write("note.txt", "kept")
sandbox.pause()
[found] = Sandbox.list(query=SandboxQuery(metadata={"user": "ann", "thread": "17"}, state=[SandboxState.PAUSED])).next_items()
again = Sandbox.connect(found.sandbox_id, timeout=300)
assert again.files.read("note.txt") == "kept"
if os.environ.get("E2B_TEST_FREEZES"):
    assert again.run_code("total + 1").text == "46"
again.kill()
print("done")
