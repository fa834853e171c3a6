#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 240
# ATTACK 78: an archive that writes through a symlink of its own, links to what is outside, has a path in a pax header, a device, a set-id file, a hole of a terabyte, a negative size
# MUST: nothing outside the workspace is read, written or linked to; no device, no set-id file; a terabyte takes no room; what is no archive is refused
# CONTROL: outside
"""A daemon unpacks it into a workspace; the control is tar, told to believe names."""
import io
import os
import stat
import subprocess
import sys
import tarfile

sys.path.insert(0, f"{os.environ['SRC']}/tests/integration")
from daemontest import Daemon

OUTSIDE = os.environ.get("CARREL_WEAKEN") == "outside"
PLACE = os.environ["TMP"]
SECRET = f"{PLACE}/secret"


def archive(*members, pax=None):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT, pax_headers=pax or {}) as tar:
        for name, kind, more in members:
            one = tarfile.TarInfo(name)
            one.type, one.mode = kind, more.get("mode", 0o644)
            one.linkname, one.pax_headers = more.get("to", ""), more.get("pax", {})
            data = more.get("data", b"evil") if kind == tarfile.REGTYPE else b""
            one.size = len(data)
            one.devmajor, one.devminor = more.get("device", (0, 0))
            tar.addfile(one, io.BytesIO(data))
    return out.getvalue()


def negative():
    head = bytearray(archive(("negative", tarfile.REGTYPE, {})))
    head[124:136] = b"\xff" * 12  # -1, in base 256
    head[148:156] = b"        "
    head[148:156] = b"%06o\0 " % sum(head[:512])
    return bytes(head)


def sparse():
    """A file of a terabyte, of which 512 bytes are there, as GNU writes it."""
    text = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "sparse", "GNU.sparse.realsize": str(1 << 40)}
    body = b"1\n%d\n512\n" % ((1 << 40) - 512)
    return archive(("GNUSparseFile.0/sparse", tarfile.REGTYPE, {"pax": text, "data": body.ljust(512, b"\0") + b"x" * 512}))


def attacks():
    file, link, hard = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE
    return {
        "through a link": archive(("out", link, {"to": PLACE}), ("out/through", file, {})),
        "through two": archive(("one", link, {"to": ".."}), ("two", link, {"to": "one/.."}), ("two/through", file, {})),
        "over a link": archive(("over", link, {"to": SECRET}), ("over", file, {})),
        "a hard link": archive(("stolen", hard, {"to": SECRET})),
        "a hard link up": archive(("stolen2", hard, {"to": "../" * 12 + SECRET.lstrip("/")})),
        "dots": archive(("../through", file, {}), ("a/../../through", file, {})),
        "absolute": archive((f"{PLACE}/through", file, {})),
        "pax": archive(("harmless", file, {"pax": {"path": f"{PLACE}/through"}})),
        "devices": archive(("device", tarfile.BLKTYPE, {"device": (8, 0)}), ("null", tarfile.CHRTYPE, {"device": (1, 3)}), ("pipe", tarfile.FIFOTYPE, {})),
        "set-id": archive(("setid", file, {"mode": 0o6755})),
        "negative": negative(),
        "sparse": sparse(),
        "cut": archive(("cut", file, {"data": b"x" * 4000}))[:1500],
        "nothing": b"\xff" * 2048,
    }


def look(top):
    found = [name for name in (f"{PLACE}/through", f"{os.path.dirname(top)}/through", "/through") if os.path.lexists(name)]
    with open(SECRET, encoding="ascii") as file:
        if file.read() != "secret" or os.stat(SECRET).st_nlink > 1:
            found.append("the secret was written to, or linked")
    for folder, _, names in os.walk(top):
        for name in names:
            st = os.lstat(f"{folder}/{name}")
            if stat.S_ISBLK(st.st_mode) or stat.S_ISCHR(st.st_mode) or (stat.S_ISREG(st.st_mode) and st.st_mode & 0o6000) or st.st_blocks > 1 << 20:
                found.append(f"{name}: {oct(st.st_mode)} {st.st_blocks}")
    return found


def main():
    escapes, works = [], False
    with open(SECRET, "w", encoding="ascii") as file:
        file.write("secret")
    daemon = None
    if OUTSIDE:
        top = f"{PLACE}/believes/tree"
        os.makedirs(top)
        for data in attacks().values():
            subprocess.run(["tar", "-xP", "--overwrite", "-C", top], input=data, capture_output=True, check=False, timeout=60)
    else:
        os.chmod(PLACE, 0o711)
        daemon = Daemon(f"{PLACE}/s")
        try:
            assert daemon.post("/v1/workspaces", {"id": "desk"}).status == 201
            top = f"{daemon.state}/main/threads/desk"
            for name, data in attacks().items():
                answer = daemon.request("POST", "/v1/workspaces/desk/files-unpack?path=/&format=tar", data)
                if answer.status >= 500 or (name in ("negative", "nothing", "cut") and answer.status == 200):
                    escapes.append(f"{name}: {answer.status} {answer.bytes[:200]}")
            good = daemon.request("POST", "/v1/workspaces/desk/files-unpack?path=/&format=tar", archive(("good", tarfile.REGTYPE, {"data": b"good"})))
            works = good.status == 200 and open(f"{top}/good", "rb").read() == b"good"
        finally:
            daemon.stop()
    escapes += look(top)
    for one in escapes:
        print(f"ESCAPED: {one}")
    if not escapes and not works:
        print("UNCLEAR: not even a harmless archive was unpacked")
        sys.exit(2)
    print("contained" if not escapes else f"{len(escapes)} escapes")
    sys.exit(1 if escapes else 0)


main()
