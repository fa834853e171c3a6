# SPDX-License-Identifier: Apache-2.0
"""clientcalls.py PORT KEY COUNT: calls through the Python package beside the same by bare httpx, and a deepagents backend beside one that
starts a process for each call. A line each: NAME COUNT BARE_MS OURS_MS ADDS_MS, medians, the last of the processor time of this program. Run in an environment that has the package."""
import asyncio
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import httpx
from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse
from deepagents.backends.sandbox import BaseSandbox

import carrel
from carrel.deepagents import CarrelBackend

FILES = "/v1/workspaces/w0/files"
KIB = "needle\n" + "x" * 63 + "\n" + ("y" * 63 + "\n") * 63


class ProcessBackend(BaseSandbox):
    """What deepagents does of itself: each operation is a shell command."""

    def __init__(self, top):
        self.top = top

    id = "local"

    def execute(self, command, *, timeout=None):
        done = subprocess.run(command, shell=True, cwd=self.top, capture_output=True, text=True, timeout=timeout, check=False)
        return ExecuteResponse(output=done.stdout + done.stderr, exit_code=done.returncode, truncated=False)

    def upload_files(self, files):
        for path, content in files:
            with open(path, "wb") as file:
                file.write(content)
        return [FileUploadResponse(path=path) for path, _ in files]

    def download_files(self, paths):
        found = []
        for path in paths:
            with open(path, "rb") as file:
                found.append(FileDownloadResponse(path=path, content=file.read()))
        return found


def timed(call):
    begin = time.perf_counter(), time.thread_time()
    call()
    return (time.perf_counter() - begin[0]) * 1000, (time.thread_time() - begin[1]) * 1000


def in_turns(name, count, base, ours):
    for call in (base, ours):
        for _ in range(5):
            call()
    pairs = []
    for number in range(count):  # who comes second finds everything warm: in turns
        if number % 2:
            pairs.append((timed(base), timed(ours)))
        else:
            second, first = timed(ours), timed(base)
            pairs.append((first, second))
    told(name, pairs)


def told(name, pairs):
    wall = [statistics.median(times[0] for times in one) for one in zip(*pairs, strict=True)]
    print(name, len(pairs), *wall, statistics.median(ours[1] - base[1] for base, ours in pairs), flush=True)


def bare_exec(http):
    with http.stream("POST", "/v1/workspaces/w0/exec", json={"command": "true", "stream": "ndjson"}) as answer:
        return [json.loads(line) for line in b"".join(answer.iter_bytes()).splitlines()]


def sync_calls(http, ws, count):
    http.put(f"{FILES}/four", content=KIB).raise_for_status()
    in_turns("stat", count, lambda: http.get(f"{FILES}/four?stat=1").json(), lambda: ws.files.stat("/four"))
    in_turns("read", count, lambda: http.get(f"{FILES}/four").content, lambda: ws.files.read_bytes("/four"))
    in_turns("write", count // 5, lambda: http.put(f"{FILES}/w?parents=1", content=KIB).json(), lambda: ws.files.write("/w", KIB))
    in_turns("exec", count // 5, lambda: bare_exec(http), lambda: ws.run("true"))


async def async_calls(url, key, count):
    headers = {"Authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=url, headers=headers) as http, carrel.AsyncCarrel(url, key) as c:
        files = (await c.workspace("w0")).files

        async def bare(path, is_json):
            answer = await http.get(path)
            return answer.json() if is_json else answer.content

        async def timed_async(call, *how):
            begin = time.perf_counter(), time.thread_time()
            await call(*how)
            return (time.perf_counter() - begin[0]) * 1000, (time.thread_time() - begin[1]) * 1000

        for name, path, ours in (("stat-async", f"{FILES}/four?stat=1", files.stat), ("read-async", f"{FILES}/four", files.read_bytes)):
            pairs = []
            for number in range(count + 5):
                jobs = [(bare, path, name == "stat-async"), (ours, "/four")]
                times = [await timed_async(*job) for job in (jobs if number % 2 else reversed(jobs))]
                if number >= 5:
                    pairs.append(times if number % 2 else times[::-1])
            told(name, pairs)


def agents(c, count):
    ours = CarrelBackend("agents", client=c)
    top = tempfile.mkdtemp()
    try:
        theirs = ProcessBackend(top)
        for backend, at in ((ours, "/tree"), (theirs, f"{top}/tree")):
            backend.execute(f"mkdir -p {at}")
            backend.upload_files([(f"{at}/{n}.txt", (KIB if n == 7 else KIB.replace("needle", "nothing")).encode()) for n in range(100)])
        count = max(3, count // 25)
        assert theirs.grep("needle", f"{top}/tree").matches and ours.grep("needle", "/tree").matches
        in_turns("agent-read", count, lambda: theirs.read(f"{top}/tree/7.txt"), lambda: ours.read("/tree/7.txt"))
        in_turns("agent-grep", count, lambda: theirs.grep("needle", f"{top}/tree"), lambda: ours.grep("needle", "/tree"))

        def edit(backend, path):
            word = backend.word = "b" if getattr(backend, "word", "a") == "a" else "a"
            old = "needle" if word == "b" else "noodle"
            assert backend.edit(path, old, "noodle" if word == "b" else "needle").error is None
        in_turns("agent-edit", count, lambda: edit(theirs, f"{top}/tree/7.txt"), lambda: edit(ours, "/tree/7.txt"))
    finally:
        shutil.rmtree(top)


def main():
    port, key, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    url = f"http://127.0.0.1:{port}"
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=90) as http, carrel.Carrel(url, key) as c:
        sync_calls(http, c.workspace("w0"), count)
        asyncio.run(async_calls(url, key, count))
        agents(c, count)


main()
