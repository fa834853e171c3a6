# SPDX-License-Identifier: Apache-2.0
"""What the tests of environments share: a registry of our own on loopback, tools that only look like uv and bun, and
whether the real registries can be reached."""
import base64
import hashlib
import http.server
import io
import json
import os
import re
import socket
import subprocess
import sys
import tarfile
import threading
import time
import urllib.request
import zipfile

from carreltest import CARREL, PATIENCE, write
from daemontest import DaemonTest

HOST = ".".join(map(str, sys.version_info[:3]))  # Python of this host

# As much of uv as the script inside asks for.
UV = """#!/bin/sh
while [ "${1#--}" != "$1" ]; do
    [ "$1" != --version ] || { echo "uv ${UV_STUB_VERSION:-0.0.1} (a stub)"; exit; }
    shift
done
case "$1 $2" in
"python list")
    v=$(/usr/bin/python3 -c 'import platform; print(platform.python_version())')
    echo "cpython-$v-linux-x86_64-gnu    /usr/bin/python3" ;;
"python find")
    for last; do :; done
    case $last in
    find | --*) echo /usr/bin/python3 ;;
    *)
        /usr/bin/python3 -c 'import platform, sys
sys.exit(not (platform.python_version() + ".").startswith(sys.argv[1] + "."))' "$last" && echo /usr/bin/python3 ||
            { echo "error: No interpreter found for Python $last in search path" >&2; exit 2; } ;;
    esac ;;
"venv "*)
    for last; do :; done
    [ ! -e /uv-slow ] || { touch /uv-began; sleep "$(cat /uv-slow)"; }
    [ ! -e /uv-big ] || { mkdir "$last"; while head -c 1000000 /dev/zero; do sleep 0.1; done >"$last/big"; }
    /usr/bin/python3 -m venv --prompt workspace --without-pip "$last" && [ ! -e /uv-fails ] || { echo "error: $(cat /uv-fails)" >&2; exit 2; } ;;
"pip install")
    [ -e /uv-pip-half ] || exit 0
    for at in /.venv/lib/python3*/site-packages; do mkdir -p "$at/pip" "$at/pip-1.0.dist-info" && echo half >"$at/pip/x.py"; done
    touch /.venv/bin/pip3
    echo "No space left on device (os error 28)" >&2
    exit 2 ;;
*) echo "stub: $*" >&2; exit 2 ;;
esac
"""
BUN = "#!/bin/sh\necho 0.0.2\n"


def put_stubs(state):
    """Tools in a state directory, as `carrel env setup` would leave them."""
    top = f"{state}/.carrel/tools"
    os.makedirs(f"{top}/bin", exist_ok=True)
    os.makedirs(f"{top}/libexec", exist_ok=True)
    os.makedirs(f"{top}/wheels", exist_ok=True)
    for name, text in (("libexec/uv", UV), ("bin/bun", BUN), ("bin/uv", UV)):
        os.chmod(write(f"{top}/{name}", text), 0o755)
    for path in (top, f"{top}/bin", f"{top}/libexec", f"{top}/wheels"):
        os.chmod(path, 0o755)
    write(f"{top}/tools.json", "{}")


def reachable(url):
    """Whether anybody answers there, whatever it is."""
    try:
        urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=PATIENCE).close()
        return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


def said_by(pattern, *command):
    try:
        found = re.search(pattern, subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False).stdout)
    except OSError:
        return None
    return found.group(1) if found else None


def registries():
    """What keeps a test that needs them from running; None: nothing."""
    index = next((os.environ[name] for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL") if os.environ.get(name)), None)
    index = index or said_by(r"(http\S+)", "pip3", "config", "get", "global.index-url") \
        or said_by(r"\(default\s+(http[^\s)]+)\)", "pip3", "download", "--help")
    registry = os.environ.get("npm_config_registry") or said_by(r"(http\S+)", "npm", "config", "get", "registry")
    if not index or not registry:
        return "neither pip3 nor npm of this host tells where packages come from" if not index else "npm of this host, to tell where its packages come from, is not there"
    missing = [what for what, url in (("the index of Python packages", f"{index.rstrip('/')}/pip/"),
                                      ("npm's registry", f"{registry.rstrip('/')}/is-odd")) if not reachable(url)]
    return f"{' and '.join(missing)} cannot be reached" if missing else None


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def wheel(*members):
    """A zip of names and contents."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return out.getvalue()


def tarball(*members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            if content is None:
                info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
                archive.addfile(info)
            else:
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


class Registry:
    """An index of Python packages and a registry of npm's kind in one, on loopback. `files` is path -> bytes or a function
    of the request handler; `pages` likewise."""
    TAG = f"py3-none-musllinux_1_1_{os.uname().machine}"

    def __init__(self):
        registry = self
        self.asked = []
        self.paths = {}
        self.bun_names = [f"@oven%2fbun-linux-{kind}{libc}" for kind in ("x64", "x64-baseline", "aarch64")
                          for libc in ("", "-musl")] + ["@oven%2fbun-linux-x64-musl-baseline"]

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_GET(self):
                registry.asked.append((self.path, dict(self.headers)))
                what = registry.paths.get(self.path)
                if callable(what):
                    what(self)
                elif what is None:
                    self.send_error(404)
                else:
                    self.reply(what, "text/html" if what.startswith(b"<!DOCTYPE") else "application/octet-stream")

            def do_HEAD(self):
                self.send_error(405)  # uv then does without

            def reply(self, data, kind="application/octet-stream", claim=None):
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(claim or len(data)))
                self.end_headers()
                self.wfile.write(data)

            def close_now(self):
                self.close_connection = True
                self.wfile.flush()
                self.connection.shutdown(socket.SHUT_RDWR)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *args: None  # clients that leave are meant to
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def add_wheel(self, project, version, data, digest=None, **more):
        name = f"{project}-{version}-{more.get('tag', self.TAG)}.whl"
        self.paths[f"/files/{name}"] = more.get("serve", data)
        hashed = f"#sha256={digest or sha256(data)}" if digest != "" else ""
        line = f'<a href="../../files/{name}{hashed}" data-requires-python="&gt;=3.8"{more.get("extra", "")}>{name}</a><br/>\n'
        page = f"/simple/{project}/"
        self.paths[page] = self.paths.get(page, b"<!DOCTYPE html>\n<html><body>\n") + line.encode()

    def add_uv(self, version="1.2.3", text="#!/bin/sh\necho uv\n", **more):
        members = [(f"uv-{version}.data/scripts/uv", text), (f"uv-{version}.data/scripts/uvx", text),
                   *more.pop("members", ())]
        self.add_wheel("uv", version, more.pop("data", None) or wheel(*members), **more)

    def add_pip(self, version="25.0", **more):
        self.add_wheel("pip", version, wheel(("pip/__init__.py", "x = 1\n")), tag="py3-none-any", **more)

    def add_bun(self, version="1.0.1", data=None, integrity=None, serve=None):
        data = data or tarball(("package/package.json", b"{}"), ("package/bin/bun", b"#!/bin/sh\necho bun\n"))
        digest = integrity or "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()
        url = f"/tar/bun-{version}.tgz"
        self.paths[url] = serve or data
        page = json.dumps({"dist-tags": {"latest": version}, "versions": {version: {
            "version": version, "dist": {"tarball": self.url + url, "integrity": digest}}}}).encode()
        for name in self.bun_names:
            self.paths[f"/npm/{name}"] = page

    def add_all(self):
        self.add_uv()
        self.add_pip()
        self.add_bun()

    def setup(self, state, *options, **kwargs):
        """Runs `carrel env setup` against it."""
        env = {name: value for name, value in os.environ.items()
               if not name.lower().endswith("_proxy") and name not in ("SSL_CERT_FILE",)}
        env.update(kwargs.pop("env", {}))
        return subprocess.run([CARREL, "env", "setup", "--state", state, "--index", f"{self.url}/simple",
                               "--registry", f"{self.url}/npm", *options], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=PATIENCE * 4,
                              check=False, env=env, **kwargs)


class EnvTest(DaemonTest):
    def setUp(self):
        super().setUp()
        self.ws = self.workspace(id="desk")

    def make(self, what, status, body=None, ws="desk"):
        answer = self.daemon.post(f"/v1/workspaces/{ws}/env/{what}", body or {})
        self.assertEqual(status, answer.status, answer.bytes)
        return answer.json

    def env(self, ws="desk"):
        answer = self.daemon.get(f"/v1/workspaces/{ws}/env")
        self.assertEqual(200, answer.status, answer.bytes)
        return answer.json

    def run_inside(self, line, ws="desk", code=0, **more):
        result = self.daemon.execute(ws, line, **more)
        self.assertEqual(code, result["exit_code"], (line, result["stdout"], result["stderr"]))
        return result["stdout"]

    def carrel(self, *args, **kwargs):
        return subprocess.run([CARREL, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, timeout=kwargs.pop("timeout", PATIENCE), check=False,
                              env={**os.environ, "CARREL_SOCKET": self.daemon.socket}, **kwargs)

    def kill(self, ws, started):
        """A command in the background; what it had locked is free then."""
        at = f"/v1/workspaces/{ws}/exec/{started.json['exec_id']}"
        answer = self.daemon.post(f"{at}/kill")
        self.assertLess(answer.status, 300, answer.bytes)
        deadline = time.monotonic() + PATIENCE
        while self.daemon.get(at).json["state"] != "ended":
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def await_name(self, name, ws="desk"):
        """In the root."""
        deadline = time.monotonic() + PATIENCE
        while name not in self.root_names(ws):
            self.assertLess(time.monotonic(), deadline, name)

    def root_names(self, ws="desk"):
        return set(self.run_inside("ls -A /", ws).split())
