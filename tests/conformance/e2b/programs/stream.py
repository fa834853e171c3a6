# SPDX-License-Identifier: Apache-2.0
"""A long job prints; its follower loses the connection more than once, and goes on where it can. How it ended is known at last."""
import os

from e2b import Sandbox

LINES = int(os.environ.get("STREAM_LINES", "60"))
sandbox = Sandbox.create(timeout=3600)
job = sandbox.commands.run(f"for i in $(seq {LINES}); do echo $i | tee -a log; sleep 0.05; done; echo over >&2; exit 3", background=True, timeout=0)
last, turns, ended = 0, 0, False
while not ended:
    seen = 0
    for out, err, _ in job:
        for line in (out or "").split():
            assert int(line) > last, (line, last)
            last, seen = int(line), seen + 1
        ended = ended or bool(err)
        if seen >= LINES // 4 and not ended and turns < 3:
            break
    if ended:
        break
    turns += 1
    job.disconnect()
    job = sandbox.commands.connect(job.pid, timeout=0)
assert last == LINES and turns == 3, (last, turns)
assert sandbox.files.read("log").split() == [str(n + 1) for n in range(LINES)]
sandbox.kill()
print("done")
