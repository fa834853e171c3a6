# SPDX-License-Identifier: Apache-2.0
"""100 MB up and down with equal hashes, and a watch in a storm: of thousands of files none is missed."""
import hashlib
import os

from e2b import Sandbox

PIECE, FILES = os.urandom(1 << 20), 2000


class Pieces:
    """A file that is nowhere as a whole."""

    def __init__(self, count):
        self.left, self.digest = count, hashlib.sha256()

    def read(self, size=-1):
        if not self.left:
            return b""
        self.left -= 1
        self.digest.update(PIECE)
        return PIECE


sandbox = Sandbox.create(timeout=600)
sent, got = Pieces(100), hashlib.sha256()
sandbox.files.write("large", sent, request_timeout=300)
for piece in sandbox.files.read("large", format="stream", request_timeout=300):
    got.update(piece)
assert sandbox.commands.run("sha256sum large", timeout=120).stdout.split()[0] == sent.digest.hexdigest() == got.hexdigest()

sandbox.files.make_dir("storm")
watch = sandbox.files.watch_dir("storm", recursive=True)
storm = sandbox.commands.run(f"for i in $(seq {FILES}); do echo $i > storm/$i; done; mkdir storm/over", background=True, timeout=0)
seen = set()
while "over" not in seen:
    seen |= {event.name for event in watch.get_new_events() if event.type.name == "CREATE"}
assert seen == {str(n + 1) for n in range(FILES)} | {"over"}, len(seen)
storm.wait()
watch.stop()
sandbox.kill()
print("done")
