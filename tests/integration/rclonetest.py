# SPDX-License-Identifier: Apache-2.0
"""A current rclone, built once from its Go module and kept between runs: Debian 12's loses what is written through a mount after a
directory was renamed. Only the kinds of stores and the verbs that the tests use: the whole of it takes three times as long.

Go is the host's, where that is new enough; else the one that the Go module proxy has, as a module."""
import fcntl
import os
import re
import shutil
import subprocess
import urllib.request
import zipfile

RCLONE = "v1.75.1"
TOOLCHAIN = "go1.26.0"
LEAST = (1, 25)
PLACE = "/var/tmp/carrel-tests-rclone" if os.geteuid() == 0 else f"/var/tmp/carrel-tests-rclone-{os.geteuid()}"
BACKENDS = ("local", "s3", "sftp", "webdav")
VERBS = ("cat", "copy", "copyto", "deletefile", "lsf", "lsjson", "mkdir", "mount", "obscure", "rcat", "rmdirs", "serve", "version")
MAIN = "package main\n\nimport (\n\t\"github.com/rclone/rclone/cmd\"\n" + "".join(
    f"\t_ \"github.com/rclone/rclone/{where}/{name}\"\n" for where, names in (("backend", BACKENDS), ("cmd", VERBS)) for name in names) + (
    ")\n\nfunc main() { cmd.Main() }\n")


def run(*command, env=None, cwd=None):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env, cwd=cwd, timeout=1500, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout.strip()


def go():
    """The path of a Go that is new enough."""
    for path in (shutil.which("go"), "/usr/local/go/bin/go", f"{PLACE}/sdk/bin/go"):
        found = path and os.path.exists(path) and re.search(r"go(\d+)\.(\d+)", run(path, "version"))
        if found and (int(found[1]), int(found[2])) >= LEAST:
            return path
    old = shutil.which("go")
    assert old, "a current rclone is built with Go: apt-get install golang-go (which brings a newer one, if it is old)"
    proxy = re.split("[,|]", run(old, "env", "GOPROXY"))[0]
    archive = f"{PLACE}/go.zip"
    with urllib.request.urlopen(f"{proxy}/golang.org/toolchain/@v/v0.0.1-{TOOLCHAIN}.linux-amd64.zip", timeout=600) as source, open(archive, "wb") as to:
        shutil.copyfileobj(source, to)
    with zipfile.ZipFile(archive) as names:
        names.extractall(f"{PLACE}/toolchain")
    os.remove(archive)
    os.rename(f"{PLACE}/toolchain/golang.org/toolchain@v0.0.1-{TOOLCHAIN}.linux-amd64", f"{PLACE}/sdk")
    for folder in ("bin", "pkg/tool/linux_amd64"):
        for name in os.listdir(f"{PLACE}/sdk/{folder}"):
            os.chmod(f"{PLACE}/sdk/{folder}/{name}", 0o755)
    return f"{PLACE}/sdk/bin/go"


def build(binary):
    source = f"{PLACE}/source"
    shutil.rmtree(source, ignore_errors=True)
    os.makedirs(source)
    with open(f"{source}/main.go", "w", encoding="ascii") as file:
        file.write(MAIN)
    tool = go()
    cache = f"{PLACE}/cache"
    env = {"PATH": f"{os.path.dirname(tool)}:/usr/bin:/bin", "HOME": PLACE, "GOCACHE": f"{cache}/build", "GOMODCACHE": f"{cache}/modules", "GOTOOLCHAIN": "local",
           "GOFLAGS": "-modcacherw", "CGO_ENABLED": "0", "GOPROXY": run(tool, "env", "GOPROXY"), "GOSUMDB": run(tool, "env", "GOSUMDB")}
    run(tool, "mod", "init", "carrel-tests-rclone", env=env, cwd=source)
    run(tool, "mod", "edit", f"-require=github.com/rclone/rclone@{RCLONE}", env=env, cwd=source)
    run(tool, "mod", "tidy", env=env, cwd=source)
    run(tool, "build", "-trimpath", "-ldflags", "-s -w", "-o", f"{binary}.new", ".", env=env, cwd=source)
    os.rename(f"{binary}.new", binary)
    shutil.rmtree(cache, ignore_errors=True)


def rclone():
    """Its path; made by the first who asks."""
    os.makedirs(PLACE, mode=0o755, exist_ok=True)
    os.chmod(PLACE, 0o755)  # others than we start it
    binary = f"{PLACE}/rclone-{RCLONE}"
    with open(f"{PLACE}/lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(binary):
            build(binary)
    return binary
