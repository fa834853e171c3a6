#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 300
# TAKES: 40
"""Attacks that need a daemon: on what starts commands in a living sandbox (18, 19, 22, 83), with what a command may do to
its streams (43, 44), to the host's processes (36), and with what a dead daemon could leave (79)."""
import contextlib
import json
import os
import re
import signal
import subprocess
import threading
import time
import unittest

from carreltest import PATIENCE, host_state, read, write
from daemontest import DaemonTest

FOREVER = f"{200000 + os.getpid()}"  # seconds, and a mark that no other test has

# Inside: everything that reaches into another process, with what the kernel answers.
REACH = r"""
import ctypes, errno, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)
PTRACE, PTRACE_ATTACH, PTRACE_SEIZE, READV, WRITEV, PIDFD_OPEN, PIDFD_GETFD, KCMP = 101, 16, 0x4206, 310, 311, 434, 438, 312

class Iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]

def call(*args):
    result = libc.syscall(*(ctypes.c_long(a) if isinstance(a, int) else a for a in args))
    return "done" if result >= 0 else errno.errorcode[ctypes.get_errno()]

def reach(pid):
    kept = ctypes.create_string_buffer(16)
    here = Iovec(ctypes.addressof(kept), 16)
    there = Iovec(ctypes.addressof(kept), 16)
    found = {"attach": call(PTRACE, PTRACE_ATTACH, pid, 0, 0), "seize": call(PTRACE, PTRACE_SEIZE, pid, 0, 0),
             "read": call(READV, pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0),
             "write": call(WRITEV, pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0),
             "kcmp": call(KCMP, pid, os.getpid(), 0, 0, 0)}
    try:
        fd = os.pidfd_open(pid)
        found["getfd"] = call(PIDFD_GETFD, fd, 0, 0)
        os.close(fd)
    except OSError as error:
        found["getfd"] = errno.errorcode[error.errno]
    for name in ("mem", "maps", "environ", "auxv", "pagemap", "fd", "fdinfo", "map_files", "exe", "cwd", "root", "ns/mnt",
                 "setgroups", "uid_map"):
        path = f"/proc/{pid}/{name}"
        try:
            if name in ("exe", "cwd", "root", "ns/mnt"):
                found[name] = os.readlink(path)
            elif name in ("fd", "fdinfo", "map_files"):
                found[name] = [os.readlink(f"{path}/{one}") for one in os.listdir(path)] or "empty"
            elif name == "mem":
                os.close(os.open(path, os.O_RDWR)); found[name] = "opened"
            elif name in ("setgroups", "uid_map"):
                os.close(os.open(path, os.O_WRONLY)); found[name] = "opened"
            else:
                with open(path, "rb") as file:
                    found[name] = "read" if file.read(64) else "empty"
        except OSError as error:
            found[name] = errno.errorcode[error.errno]
    return found

def name_of(pid):
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read().strip()
    except OSError as error:
        return errno.errorcode[error.errno]

def pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]
"""
REFUSED = {"EPERM", "EACCES", "ENOENT", "ESRCH", "ENOSYS", "empty"}
CALLS = ("attach", "seize", "read", "write", "getfd", "kcmp")
PRIVATE = ("mem", "environ", "exe", "cwd", "root", "fd", "fdinfo", "map_files", "maps", "auxv", "pagemap", "ns/mnt",
           "setgroups", "uid_map")


class EscapeExecs(DaemonTest):
    options = ("--set", "max_execs=1000")

    def python(self, ws, script, **more):
        done = self.daemon.post(f"/v1/workspaces/{ws}/exec", {"argv": ["python3", "-c", REACH + script], **more})
        self.assertEqual(200, done.status, done.bytes)
        self.assertEqual((0, "exit"), (done.json["exit_code"], done.json["reason"]), done.json.get("stderr"))
        return json.loads(done.json["stdout"])

    def begin(self, ws, command, **more):
        answer = self.daemon.post(f"/v1/workspaces/{ws}/exec", {"command": command, "background": True, **more})
        self.assertEqual(202, answer.status, answer.bytes)
        return answer.json["exec_id"]

    def memory(self):
        """Most that the broker and the front have ever had, in bytes."""
        return sum(int(re.search(r"VmHWM:\s+(\d+) kB", read(f"/proc/{pid}/status")).group(1)) << 10
                   for pid in (self.daemon.process.pid, self.daemon.front_pid()))

    def refused(self, told):
        """None of it got anything from the process of that name."""
        for key in CALLS:
            self.assertIn(told[key], REFUSED, f"{key}: {told}")
        for key in PRIVATE:
            self.assertIn(str(told.get(key, "ENOENT")), REFUSED, f"{key}: {told}")

    def test_18_what_starts_commands_cannot_be_traced_read_or_robbed_of_its_files(self):
        ws = self.workspace()
        self.begin(ws, f"exec sleep {FOREVER}")
        told = self.python(ws, "ours = [p for p in pids() if name_of(p).startswith('carrel')]\n"
                               "print(json.dumps({p: reach(p) for p in {1, os.getppid(), *ours} if p > 0}))")
        self.assertIn("1", told)
        self.assertGreaterEqual(len(told), 2, "no keeper was seen: the test looks at nothing")
        for pid, found in told.items():
            with self.subTest(pid=pid):
                self.refused(found)
        # Another command's process is of the same user, and may be traced as one's own; its descriptors are not given.
        other = self.python(ws, "print(json.dumps([reach(p) for p in pids() if name_of(p) == 'sleep']))")
        self.assertEqual(1, len(other))
        self.assertEqual(("done", "EPERM", "EPERM"), tuple(other[0][call] for call in ("attach", "getfd", "kcmp")), other)
        # That these questions can be answered, a child of one's own shows.
        own = self.python(ws, "import subprocess\nchild = subprocess.Popen(['sleep', '9'])\nfound = reach(child.pid)\n"
                              "child.kill()\nprint(json.dumps(found))")
        self.assertEqual(("/usr/bin/sleep", "/", "read"), tuple(own[k] for k in ("exe", "root", "environ")), own)
        self.assertIn("opened", (own["mem"], own["uid_map"]))
        self.assertEqual("done", own["attach"], "a debugger can do its work")
        # What runs in another workspace is not there at all.
        other = self.workspace()
        seen = self.python(other, "print(json.dumps([open(f'/proc/{p}/cmdline').read() for p in pids() if p != os.getpid()]))")
        self.assertNotIn(FOREVER, "".join(seen))
        self.assertEqual("ok\n", self.daemon.execute(ws, "echo ok")["stdout"])

    def test_18_nor_as_root_inside(self):
        ws = self.workspace(policy={"user": "root"})
        told = self.python(ws, "print(json.dumps({p: reach(p) for p in pids() if p == 1 or name_of(p).startswith('carrel')}))")
        for pid, found in told.items():
            with self.subTest(pid=pid):
                self.refused(found)

    def test_18_who_traces_a_command_cannot_hold_up_its_end(self):
        ws = self.workspace()
        traced = self.begin(ws, f"exec sleep {FOREVER}")
        self.begin(ws, "exec python3 -c '" + REACH.replace("'", '"') + f"""
import time
while True:
    for pid in pids():
        if name_of(pid) == "sleep":
            print(call(PTRACE, PTRACE_ATTACH, pid, 0, 0), file=open("/attached", "w"), flush=True)
            time.sleep({FOREVER})
    time.sleep(0.01)
'""")
        begun = time.monotonic()
        while self.daemon.execute(ws, "cat /attached 2>/dev/null")["stdout"] != "done\n":
            self.assertLess(time.monotonic() - begun, PATIENCE, "nobody traces it")
        began = time.monotonic()
        answer = self.daemon.post(f"/v1/workspaces/{ws}/exec/{traced}/kill")
        self.assertEqual(204, answer.status, answer.bytes)
        end = json.loads(self.daemon.get(f"/v1/workspaces/{ws}/exec/{traced}/output?follow=1").bytes.splitlines()[-1])
        self.assertEqual(9, end["signal"], end)
        self.assertLess(time.monotonic() - began, 8, "it was held up")
        self.assertEqual("ok\n", self.daemon.execute(ws, "echo ok")["stdout"])

    def test_19_proc_during_a_storm_of_commands_shows_nothing_of_the_host(self):
        ws = self.workspace()
        stop = threading.Event()
        count = [0]

        def storm():
            while not stop.is_set():
                self.daemon.execute(ws, "true")
                count[0] += 1
        threads = [threading.Thread(target=storm) for _ in range(6)]
        for thread in threads:
            thread.start()
        try:
            told = self.python(ws, r"""
import time
names, links, ours, nspid, most = {}, {}, {}, set(), 0
until = time.monotonic() + 5
while time.monotonic() < until:
    for pid in pids():
        if pid == os.getpid():
            continue
        name = name_of(pid)
        names[name] = names.get(name, 0) + 1
        most = max(most, pid)
        try:
            with open(f"/proc/{pid}/status") as file:
                nspid |= {len(line.split()) for line in file if line.startswith("NSpid")}
        except OSError:
            pass
        for which in ("exe", "cwd", "root", "fd"):
            path = f"/proc/{pid}/{which}"
            try:
                got = [os.readlink(path)] if which != "fd" else [os.readlink(f"{path}/{n}") for n in os.listdir(path)]
            except OSError:
                continue
            again = name_of(pid)
            for link in got:
                if name.startswith("carrel") and again == name:
                    ours.setdefault(which, []).append([pid, link])
                links.setdefault(which, {})[link] = links.get(which, {}).get(link, 0) + 1
print(json.dumps({"names": names, "ours": ours, "links": links, "nspid": sorted(nspid), "most": most}))
""")
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        print(f"{count[0]} commands meanwhile; seen: {told['names']}")
        self.assertGreater(count[0], 50)
        self.assertGreater(sum(told["names"].values()), 100, "nothing was seen of the storm")
        self.assertEqual({}, told["ours"], "of what starts commands")
        self.assertEqual([2], told["nspid"], "a process with a number outside as well")
        links = [link for kind in told["links"].values() for link in kind]
        host = [link for link in links if self.dir in link or "carrel" in link or "memfd:" in link or link.startswith("(")]
        self.assertEqual([], host, "of the host")
        self.assertEqual({"/"}, set(told["links"]["root"]))
        for link in told["links"]["exe"]:
            self.assertRegex(link, r"^/usr/")
        outside = {"carrel-serve", "carrel-front", "tests", "systemd"} & set(told["names"])
        self.assertEqual(set(), outside)

    def test_22_a_working_directory_is_never_one_that_somebody_was_handed(self):
        ws = self.workspace()
        secret = write(self.path("secret"), "the host's\n")
        at = f"/v1/workspaces/{ws}/exec"
        direct = ["/proc/self/cwd", "/proc/self/root", "/proc/1/root", "/proc/1/cwd", "/proc", "/proc/", "/proc/self/fd"]
        direct += [f"{p}/{n}" for p in ("/proc/self/fd", "//proc/self/fd", "/./proc/self/fd", "/proc/thread-self/fd")
                   for n in range(3, 16)]
        for cwd in direct:
            answer = self.daemon.post(at, {"command": "pwd -P; cat secret ../secret", "cwd": cwd})
            with self.subTest(cwd=cwd):
                self.assertEqual(400, answer.status, answer.bytes)
                self.assertEqual("invalid_request", answer.code)
        self.daemon.execute(ws, "for i in $(seq 0 40); do ln -s /proc/self/fd/$i l$i; done; ln -s /proc/1/root r; "
                                "ln -s /proc/self/root s; ln -s /proc p; ln -s /dev/fd d")
        climb = (f"cat {'../' * 40}{secret.lstrip('/')} ../s/admin.key ../../admin.key 2>/dev/null; "
                 '[ . -ef "$(pwd -P)" ] || echo lost')
        around = [f"{p}{n}" for p in ("/l", "/tmp/../proc/self/fd/", "/dev/fd/") for n in range(41)]
        for cwd in [*around, "/r", "/s", "/p/1/root", "/p/self/fd/5", "/d/7"]:
            answer = self.daemon.post(at, {"command": climb, "cwd": cwd})
            if answer.status == 200:  # it led nowhere, which the result says, or to somewhere inside
                self.assertEqual("", answer.json["stdout"], cwd)
            else:
                self.assertEqual(400, answer.status, f"{cwd}: {answer.bytes}")
        self.assertEqual("/\n", self.daemon.execute(ws, "pwd")["stdout"])

    def test_36_a_fork_bomb_does_not_stop_the_others(self):
        bomb = self.workspace(policy={"limits": {"pids": 64, "timeout": "8s"}})
        other = self.workspace()

        def median():
            times = []
            for _ in range(20):
                began = time.monotonic()
                self.assertEqual("ok\n", self.daemon.execute(other, "echo ok")["stdout"])
                times.append(time.monotonic() - began)
            self.assertLess(max(times), PATIENCE)
            return sorted(times)[10]
        alone = median()
        one = self.begin(bomb, "f() { f | f & }; f; sleep 100")
        time.sleep(0.5)
        beside = median()
        print(f"latency beside a fork bomb: {beside / alone:.1f} times ({alone * 1000:.1f} ms alone)")
        self.assertEqual(200, self.daemon.get(f"/v1/workspaces/{bomb}").status)
        result = json.loads(self.daemon.get(f"/v1/workspaces/{bomb}/exec/{one}/output?follow=1").bytes.splitlines()[-1])
        self.assertIn(result["reason"], ("pids", "timeout"), result)
        self.assertEqual("ok\n", self.daemon.execute(bomb, "echo ok")["stdout"], "its own workspace is of no use any more")

    def test_43_floods_are_cut_escaped_and_cost_no_memory(self):
        ws = self.workspace()
        self.daemon.execute(ws, "true")
        before = self.memory()
        floods = {"NUL": "cat /dev/zero", "what is not UTF-8": "tr '\\0' '\\377' </dev/zero",
                  "no newline": "tr '\\0' x </dev/zero",
                  "commands to a terminal": "yes \"$(printf '\\033]52;c;cm0gLXJm\\007')\"", "on stderr": "cat /dev/zero >&2",
                  "both": "cat /dev/zero & cat /dev/zero >&2", "cut characters": "yes '\u00e9\u20ac' | tr -d '\\n'"}
        for name, command in floods.items():
            with self.subTest(flood=name):
                answer = self.daemon.post(f"/v1/workspaces/{ws}/exec", {"command": command, "limits": {"max_output": "1M"}})
                done = answer.json
                self.assertEqual((122, "output", True), (done["exit_code"], done["reason"], done["truncated"]))
                size = sum(len(done.get(s, "").encode()) + len(done.get(f"{s}_b64", "")) * 3 // 4 for s in ("stdout", "stderr"))
                self.assertLessEqual(size, (1 << 20) + 8)
                self.assertNotRegex(answer.bytes, rb"[\x00-\x09\x0b-\x1f]")
                for how in ("ndjson", "sse"):
                    answer = self.daemon.post(f"/v1/workspaces/{ws}/exec", {"command": command, "stream": how,
                                                                            "limits": {"max_output": "256K"}})
                    self.assertNotRegex(answer.bytes, rb"[\x00-\x09\x0b-\x1f]")
                    if how == "ndjson":
                        self.assertEqual("output", json.loads(answer.bytes.splitlines()[-1])["reason"])
        grown = self.memory() - before
        print(f"grown by {grown >> 20} MiB with floods that are cut")
        self.assertLess(grown, 64 << 20)
        done = self.daemon.execute(ws, "head -c 2000000000 /dev/zero | tr '\\0' x")  # the daemon's own bound
        print(f"and by {(self.memory() - before) >> 20} MiB with its own bound")
        self.assertLess(self.memory() - before, 128 << 20)
        self.assertEqual(("exit", True), (done["reason"], done["truncated"]))  # it runs on, the answer is cut
        self.assertLessEqual(len(done["stdout"]), 1 << 20)

    def test_43_two_gigabytes_pass_through_in_little_memory(self):
        ws = self.workspace()
        self.daemon.execute(ws, "true")
        before = self.memory()
        stream = self.daemon.stream("POST", f"/v1/workspaces/{ws}/exec",
                                    {"command": "head -c 2000000000 /dev/zero", "stream": "raw"})
        total = 0
        while piece := stream.read(1 << 20):
            total += len(piece)
        self.assertEqual(2000000000, total)
        grown = self.memory() - before
        print(f"grown by {grown >> 20} MiB")
        self.assertLess(grown, 32 << 20)
        used = subprocess.run(["du", "-sk", f"{self.daemon.state}/execs"], capture_output=True, check=True)
        self.assertLess(int(used.stdout.split()[0]), 200 << 10, "KiB kept of it")

    def test_44_who_closes_holds_or_never_reads_a_stream_is_ended_by_the_deadline(self):
        ws = self.workspace()
        for body in ({"command": "exec >&- 2>&- <&-; exec sleep 1000"},
                     {"command": "exec >&- 2>&-; exec sleep 1000", "stdin": "x" * (4 << 20)},
                     {"command": "(trap '' TERM HUP; exec setsid sleep 999) & exit 0"}, {"command": "kill -STOP $$"},
                     {"command": "cat <(sleep 1000)"}, {"command": "exec sleep 1000", "stdin_open": True},
                     {"command": "yes", "stream": "raw", "limits": {"max_output": "1G"}}):
            with self.subTest(body={**body, "stdin": len(body.get("stdin", ""))}):
                began = time.monotonic()
                if "stream" in body:  # a client that does not read
                    stuck = self.daemon.stream("POST", f"/v1/workspaces/{ws}/exec", {**body, "timeout_ms": 700})
                    one = stuck.headers["X-Exec-Id"]
                    self.wait_end(ws, one)
                    result = self.daemon.get(f"/v1/workspaces/{ws}/exec/{one}").json["result"]
                    stuck.keep.close()
                else:
                    result = self.daemon.post(f"/v1/workspaces/{ws}/exec", {**body, "timeout_ms": 700}).json
                self.assertIn(result["reason"], ("timeout", "exit"), result)
                self.assertLess(time.monotonic() - began, PATIENCE / 2)
        one = self.begin(ws, "exec sleep 1000", stdin_open=True, timeout_ms=3000)
        for _ in range(64):  # nobody reads it: refused at some point, and never all kept
            answer = self.daemon.request("POST", f"/v1/workspaces/{ws}/exec/{one}/stdin", b"x" * (1 << 20))
            if answer.status != 204:
                break
        self.assertIn((answer.status, answer.code), ((429, "too_many"), (409, "conflict")), answer.bytes)
        self.wait_end(ws, one)
        self.assertEqual("timeout", self.daemon.get(f"/v1/workspaces/{ws}/exec/{one}").json["result"]["reason"])
        self.assertEqual("0\n", self.daemon.execute(ws, "ps -eo args | grep -c '[s]leep 1000'")["stdout"])

    def wait_end(self, ws, one):
        deadline = time.monotonic() + PATIENCE
        while self.daemon.get(f"/v1/workspaces/{ws}/exec/{one}").json["state"] != "ended":
            self.assertLess(time.monotonic(), deadline, "it does not end")
            time.sleep(0.05)

    def test_79_a_daemon_that_is_killed_leaves_nothing_of_twenty_sandboxes(self):
        before = host_state()
        execs = [(ws, self.begin(ws, f"(setsid sleep {FOREVER} &); trap '' TERM; sleep {FOREVER}"))
                 for ws in (self.workspace() for _ in range(20))]
        self.assertEqual(20, self.daemon.get("/v1/host").json["sandboxes"])
        deadline = time.monotonic() + PATIENCE
        while len(self.marked()) < 40:
            self.assertLess(time.monotonic(), deadline, "they do not start")
            time.sleep(0.05)
        self.daemon.stop(signal.SIGKILL)
        while left := self.marked():
            self.assertLess(time.monotonic(), deadline, f"{len(left)} outlived the daemon")
            time.sleep(0.05)
        more = {what for what in host_state() - before if not what.startswith("/sys/fs/cgroup/")}
        self.assertEqual(set(), more, "left behind")
        self.daemon.start()  # which takes the empty control groups away
        for ws, one in execs:
            self.assertEqual("broker_ended", self.daemon.get(f"/v1/workspaces/{ws}/exec/{one}").json["result"]["reason"])
        self.assertEqual("ok\n", self.daemon.execute(execs[0][0], "echo ok")["stdout"])
        self.assertEqual(0, self.daemon.stop())
        self.unchanged(before)

    @staticmethod
    def marked():
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if read(f"/proc/{pid}/cmdline") == f"sleep\0{FOREVER}\0":
                    found.append(pid)
            except OSError:
                pass
        return found

    def test_83_what_lies_in_a_workspace_runs_inside_only(self):
        ws = self.workspace()
        canary = self.path("canary")
        os.chmod(self.dir, 0o777)
        evil = f"echo $$ >> /ran; id -u >> /ran; touch {canary}; cat {self.daemon.state}/admin.key >> /stolen; true\n"
        self.daemon.execute(ws, "cat > evil.sh; cp evil.sh .bash_profile; cp evil.sh .profile; cp evil.sh .bash_logout; "
                                "cat evil.sh >> .bashrc; mkdir -p bin .config/git etc; "
                                "printf '#!/bin/sh\\n. /evil.sh\\n' > tar; chmod +x tar evil.sh; cp tar git", stdin=evil)
        library = ('#include <fcntl.h>\n#include <unistd.h>\n__attribute__((constructor)) static void run(void) {\n'
                   'close(open("/preloaded", O_CREAT | O_WRONLY, 0644));\n'
                   f'close(open("{canary}", O_CREAT | O_WRONLY, 0644)); }}\n')
        built = self.daemon.execute(ws, "gcc -shared -fPIC -x c -o evil.so - && echo built", stdin=library)
        self.assertEqual("built\n", built["stdout"], built)
        hostile = {"BASH_ENV": "/evil.sh", "ENV": "/evil.sh", "LD_PRELOAD": "/evil.so", "LD_LIBRARY_PATH": "/",
                   "PATH": "/:/usr/bin:/bin", "GIT_EXTERNAL_DIFF": "/evil.sh", "PROMPT_COMMAND": ". /evil.sh",
                   "GCONV_PATH": "/", "MALLOC_CHECK_": "3"}
        self.daemon.execute(ws, "git --version; tar --version", env=hostile)
        self.daemon.execute(ws, "true", env=hostile)
        self.daemon.post(f"/v1/workspaces/{ws}/exec", {"argv": ["bash", "-l", "-i", "-c", "true"], "pty": {}, "env": hostile})
        ran = self.daemon.execute(ws, "ls /ran /preloaded && rm -f /ran /preloaded")
        self.assertEqual("/preloaded\n/ran\n", ran["stdout"], "nothing of it ran at all: the test shows nothing")
        # The same in the policy, so that what the daemon runs there itself has it.
        self.assertEqual(200, self.daemon.request("PATCH", f"/v1/workspaces/{ws}", {"policy": {"env": hostile}}).status)
        self.daemon.post(f"/v1/workspaces/{ws}/sleep")
        archive = self.daemon.get(f"/v1/workspaces/{ws}/backup")
        self.assertEqual(200, archive.status)
        self.daemon.request("POST", f"/v1/workspaces/{ws}/restore", archive.bytes)
        self.daemon.execute(ws, "true", pty={"cols": 80, "rows": 24})
        self.assertFalse(os.path.exists(canary), "something ran outside")
        self.assertEqual("", self.daemon.execute(ws, "cat /stolen", env={"LD_PRELOAD": ""})["stdout"])
        for pid in (self.daemon.process.pid, self.daemon.front_pid()):
            for name in ("maps", "environ"):
                with contextlib.suppress(PermissionError):  # the front shows nobody
                    self.assertNotIn("evil", read(f"/proc/{pid}/{name}"))


if __name__ == "__main__":
    unittest.main(verbosity=0)
