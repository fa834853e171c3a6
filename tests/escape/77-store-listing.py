#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 240
# ATTACK 77: a bucket that lists names which lead out of the tree, onto Carrel's mount points, twice, as file and directory, with a false size, of a megabyte
# MUST: nothing is made but below the new tree, no name of Carrel's, no link is written through; a false size is told, and nothing is taken for whole
# CONTROL: outside
"""carrel-mover makes a tree from what a server of S3 lists; the control makes it as a program does that believes the list."""
import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading
import urllib.parse
from xml.sax.saxutils import escape

OUTSIDE = os.environ.get("CARREL_WEAKEN") == "outside"
HOME = "threads/desk/"
GOOD = {"good": b"good\n", "deep/er/file": b"deep\n"}
BAD = ("../out", "a/../../../out2", "deep/../../out3", "/absolute", "//absolute", "a//b", "usr/bin/ls", "proc/x", "clash", "clash/in", "dot/./x", "x" * 1_000_000,
       "n" * 300, "link.rclonelink", "link/through", "new\nline", "nul\x01", "..", ".", "")
LINKS = {"link.rclonelink": b"/"}
MANIFEST = {"carrel": 1, "workspace": "desk", "dirs": [["../outdir", 0o777], ["ok", 0o755]], "modes": [["../../mark", 0o777]],
            "hardlinks": [["../../mark", "stolen"]], "raw": [["../raw", "0" * 64, "file"]]}


class Bucket(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, body=b"", kind="application/xml"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"0"')
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self):
        parts = urllib.parse.urlsplit(self.path)
        query, key = urllib.parse.parse_qs(parts.query), urllib.parse.unquote(parts.path).partition("/bucket/")[2]
        if "prefix" in query or "list-type" in query or "max-keys" in query:
            prefix = query.get("prefix", [""])[0]
            rows = "".join(f"<Contents><Key>{escape(urllib.parse.quote(name) if 'encoding-type' in query else name)}</Key><Size>{size}</Size>"
                           "<ETag>&quot;0&quot;</ETag><LastModified>2026-01-01T00:00:00.000Z</LastModified><StorageClass>STANDARD</StorageClass></Contents>"
                           for name, size in self.server.listed() if name.startswith(prefix))
            self.answer(200, f'<?xml version="1.0" encoding="UTF-8"?><ListBucketResult><Name>bucket</Name><EncodingType>url</EncodingType><IsTruncated>false</IsTruncated>{rows}'
                             "</ListBucketResult>".encode())
        elif key in self.server.objects:
            self.answer(200, self.server.objects[key], "application/octet-stream")
        else:
            self.answer(404, b'<?xml version="1.0"?><Error><Code>NoSuchKey</Code></Error>')

    do_HEAD = do_GET

    def do_PUT(self):
        key, body = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path).partition("/bucket/")[2], self.rfile.read(int(self.headers.get("Content-Length", 0)))
        there = key in self.server.objects and self.headers.get("If-None-Match")
        if not there:
            self.server.objects[key] = body
        self.answer(412 if there else 200)

    def log_message(self, *_):
        pass


def serve(names, lie=0):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Bucket)
    server.objects = {HOME + name: LINKS.get(name, GOOD.get(name, b"evil")) for name in names}
    server.objects[".carrel/desk/manifest.json"] = json.dumps(MANIFEST).encode()
    rows = [(HOME + name, len(server.objects[HOME + name]) + lie) for name in (*names, "good")]  # the last one twice
    rows.append((".carrel/desk/manifest.json", len(server.objects[".carrel/desk/manifest.json"])))
    server.listed = lambda: rows
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def believe(top, names):
    """What the control does."""
    for name in names:
        path = f"{top}/{name}"
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(b"evil")
        except (OSError, ValueError):
            continue


def make(server, top, state):
    conf = f"{os.path.dirname(top)}/conf"
    with open(conf, "w", encoding="ascii") as file:
        file.write("@path = bucket\n" + f"type = s3\nprovider = Other\nendpoint = http://127.0.0.1:{server.server_port}\nregion = us-east-1\n"
                   "access_key_id = x\nsecret_access_key = yyyyyyyy\n")
    program = f"{os.path.dirname(os.environ['CARREL'])}/carrel-mover"
    with open(conf, "rb") as file:
        done = subprocess.run(["/bin/sh", "-c", 'exec 3<&0 </dev/null; exec "$0" hydrate --daemon 0123456789abcdef0123456789abcdef --workspace desk --tree "$1" --state "$2"',
                               program, top, state], stdin=file, capture_output=True, text=True, timeout=200, check=False)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")][-1:] or [{"error": done.stderr[-300:]}]


def main():
    place = tempfile.mkdtemp(dir=os.environ["TMP"])
    above, top, state = f"{place}/above", f"{place}/above/deeper/tree", f"{place}/state"
    os.makedirs(top)
    os.mkdir(state)
    with open(f"{place}/mark", "w", encoding="ascii") as file:
        file.write("mine")
    if OUTSIDE:
        believe(top, BAD)
        last = [{"done": 1}]
    else:
        last = make(serve((*GOOD, *BAD)), top, state)
    escapes = [name for name in ("out", "out2", "out3", "outdir", "raw") for folder in (place, above, os.path.dirname(top)) if os.path.lexists(f"{folder}/{name}")]
    escapes += [name for name in ("usr", "proc", "link/through", "a", "dot", "stolen", "clash/in") if os.path.lexists(f"{top}/{name}") and name != "link"]
    escapes += [name for name in ("/absolute", "/through") if os.path.lexists(name)]
    if os.stat(f"{place}/mark").st_mode & 0o777 == 0o777 or os.stat(f"{place}/mark").st_nlink > 1:
        escapes.append("mark")
    if not OUTSIDE:
        lied = make(serve(tuple(GOOD), lie=3), f"{above}/deeper/other", state) if not os.mkdir(f"{above}/deeper/other") else None
        if "error" not in lied[0]:
            escapes.append(f"a false size is taken for whole: {lied}")
    for one in escapes:
        print(f"ESCAPED: {one}")
    if not escapes and ("done" not in last[0] or open(f"{top}/good", "rb").read() != b"good\n"):
        print(f"UNCLEAR: {str(last)[:500]}")
        sys.exit(2)
    print("contained" if not escapes else f"{len(escapes)} escapes")
    sys.exit(1 if escapes else 0)


main()
