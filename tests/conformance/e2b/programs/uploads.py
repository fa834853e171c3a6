# SPDX-License-Identifier: Apache-2.0
"""A project goes up in one call, is built and packed there, and its result comes back by an address that needs no key."""
import hashlib
import io
import ssl
import tarfile
import urllib.request

from e2b import Sandbox

sandbox = Sandbox.create(timeout=120)
sources = {f"src/part{n}.py": f"VALUE = {n}\n" for n in range(20)}
sources["src/main.py"] = "".join(f"import part{n}\n" for n in range(20)) + "print(sum(m.VALUE for m in (" + ", ".join(f"part{n}" for n in range(20)) + ")))\n"
sandbox.files.write_files([{"path": f"/home/user/project/{name}", "data": text} for name, text in sources.items()])
assert sandbox.commands.run("python3 src/main.py", cwd="/home/user/project").stdout == "190\n"
sandbox.commands.run("tar czf ../dist.tgz .", cwd="/home/user/project")
with urllib.request.urlopen(sandbox.download_url("dist.tgz", use_signature_expiration=60), context=ssl.create_default_context()) as answer:
    packed = answer.read()
assert hashlib.sha256(packed).hexdigest() == sandbox.commands.run("sha256sum dist.tgz").stdout.split()[0]
with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
    assert {m.name.removeprefix("./") for m in archive if m.isfile()} >= set(sources)
sandbox.files.write("data.bin", io.BytesIO(b"\0\1" * (4 << 20)))
assert sandbox.files.get_info("data.bin").size == 8 << 20
sandbox.kill()
print("done")
