#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 900
# TAKES: 20
# AS: user
"""Each system call of carrel-sink and carrel-export that touches a file or the network fails, or is where they are killed.

Whatever happens, the next order or the next start makes it good: every record is exported, none twice; every head is
whole and of the record, none is in the state directory twice, and each of those is in the sink's file as well.
By default the first, a middle and the last of each kind of call; with LONG all of them.
"""
import collections
import errno
import hashlib
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["SRC"], "tests", "integration"))
from bulktest import Bulk  # noqa: E402
from carreltest import CARREL, PATIENCE, carrel, read  # noqa: E402
from daemontest import DaemonTest  # noqa: E402

FAILING = {
    "open": "EMFILE", "openat": "EMFILE", "read": "EIO", "pread64": "EIO", "write": "ENOSPC", "fsync": "EIO", "fdatasync": "EIO",
    "rename": "EIO", "renameat": "EIO", "ftruncate": "EIO", "fstat": "EIO", "newfstatat": "EIO", "lseek": "EIO", "unlink": "EIO",
    "getdents64": "EIO", "connect": "ECONNREFUSED", "sendto": "ECONNRESET", "recvfrom": "ECONNRESET",
}
SIGNED = 0
RECORDS = 12


def names_of_calls():
    lines = subprocess.run(["cc", "-E", "-dM", "-include", "sys/syscall.h", "-x", "c", "/dev/null"],
                           capture_output=True, text=True, check=True).stdout
    return {int(number): name for name, number in re.findall(r"#define __NR_(\w+) (\d+)\n", lines)}


class AuditHelpersFail(DaemonTest):
    def setUp(self):
        super().setUp()
        self.daemon.stop()  # at once: nobody else is to look at the record
        self.daemon.start()
        for number in range(RECORDS):
            self.assertEqual(201, self.daemon.post("/v1/keys", {"owner": f"o{number}", "scopes": ["user"]}).status)
        self.daemon.stop()
        self.record = f"{self.daemon.state}/audit"
        self.lines = [line for name in sorted(os.listdir(self.record))
                      for line in read(f"{self.record}/{name}").splitlines()]
        self.ids = [f"{json.loads(line)['seq']}-{hashlib.sha256(line.encode()).hexdigest()}" for line in self.lines]
        self.last = json.loads(self.lines[-1])["seq"]
        self.assertGreater(self.last, RECORDS)
        self.fail_call, self.log, self.work = (os.path.join(self.dir, name) for name in ("fail_call", "log", "work"))
        source = os.path.join(os.environ["SRC"], "tests", "fault", "fail_call.c")
        subprocess.run(["cc", "-O1", "-Wall", "-static", "-o", self.fail_call, source], check=True)
        self.names = names_of_calls()

    def program(self, name):
        return os.path.join(os.path.dirname(CARREL), name)

    def anew(self):
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.copytree(self.record, f"{self.work}/audit")
        for name in ("heads", "sink", "spool"):
            os.mkdir(f"{self.work}/{name}")

    def every_call(self, run, check, least, never_fail=()):
        """Runs it undisturbed, then with each call failing and with a kill there; `check` makes it good and says what is wrong."""
        self.anew()
        run(())
        calls = [self.names[int(line.split()[1])] for line in read(self.log).splitlines() if line != "failed"]
        before = collections.Counter(calls[:calls.index("umask")])  # of the program's start, which is not ours
        counts, tried, wrong = collections.Counter(calls), 0, []
        for name in sorted(set(counts) & set(FAILING)):
            numbers = range(before[name] + 1, counts[name] + 1)
            if not os.environ.get("LONG"):
                numbers = sorted({*numbers[:1], *numbers[len(numbers) // 2:len(numbers) // 2 + 1], *numbers[-1:]})
            number_of = next(number for number, known in self.names.items() if known == name)
            for number in numbers:
                for error in (0,) if name in never_fail else (getattr(errno, FAILING[name]), 0):
                    self.anew()
                    run((0, number_of, number, error))
                    tried += 1
                    if problem := check():
                        wrong.append(f"{name} number {number}, {errno.errorcode.get(error, 'killed')}: {problem}")
        print(f"{tried} calls failed or were the last")
        self.assertGreater(tried, least)
        self.assertEqual([], wrong, "\n" + "\n".join(wrong))

    # --- the sink ---

    def sink(self, disturbed, orders):
        """The answers to these orders; one that failed is given again, as the broker does later."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(PATIENCE)
        copy = os.open(f"{self.work}/sink.jsonl", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        high = [os.dup2(fd, at, inheritable=False) for fd, at in ((theirs.fileno(), 200), (copy, 201))]

        def place():
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)
        command = [self.fail_call, self.log, *map(str, disturbed or (-1, 0, 0, 0)), self.program("carrel-sink"), "file"]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              cwd=self.work, close_fds=False, preexec_fn=place) as process:
            for fd in (*high, copy):
                os.close(fd)
            theirs.close()
            answers = []
            for seq, forget in orders:
                for _ in range(3):
                    try:
                        ours.send(struct.pack("QQ", seq, forget))
                        answer = ours.recv(4096)
                    except (BrokenPipeError, ConnectionResetError):
                        answer = b""
                    if not answer:
                        break
                    _, status, text = struct.unpack("QI480s", answer[:492])
                    answers.append((status, text.split(b"\0")[0].decode()))
                    if status == SIGNED:
                        break
            ours.close()
        return answers

    def heads_of(self, path):
        text = read(f"{self.work}/{path}")
        return [json.loads(line) for line in text.splitlines()], text == "" or text.endswith("\n")

    def check_sink(self):
        status, text = (self.sink((), [(self.last, 0)]) or [(-1, "it ended")])[-1]
        if status != SIGNED:
            return f"the next one does not sign: {text}"
        heads, whole = self.heads_of("heads/heads.jsonl")
        copies, copy_whole = self.heads_of("sink.jsonl")
        numbers = [head["seq"] for head in heads]
        if not whole or not copy_whole or numbers != sorted(set(numbers)) or numbers[-1:] != [self.last]:
            return f"heads of {numbers}, whole {whole} and {copy_whole}"
        if missing := [head["seq"] for head in heads if head not in copies]:
            return f"not in the sink's file: {missing}"
        done = carrel("audit", "verify", "--state", self.work, "--head", f"{self.work}/sink.jsonl")
        return None if done.returncode == 0 else f"verify: {done.stdout}{done.stderr}"

    def test_the_sink_signs_on_whatever_fails(self):
        orders = [(0, 0), (self.last // 2, 0), (self.last - 1, self.last // 2), (self.last, 0)]

        # An answer that never comes we would wait for, as the broker does not.
        self.every_call(lambda disturbed: self.sink(disturbed, orders), self.check_sink, 20, ("sendto",))

    # --- the exporter ---

    def export(self, disturbed, to):
        command = [self.fail_call, self.log, *map(str, disturbed or (-1, 0, 0, 0)), self.program("carrel-export"), "--once",
                   "--record", f"{self.work}/audit", "--spool", f"{self.work}/spool", "--to", to]
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE, check=False,
                              cwd=self.work)

    def made_good(self, to):
        done = self.export((), to)
        return None if done.returncode == 0 else f"the next one fails: {done.stderr}"

    def test_a_file_has_every_record_once_whatever_fails(self):
        to = f"file:{self.work}/out.jsonl"

        def check():
            problem = self.made_good(to)
            found = [] if problem else [json.loads(line)["event"]["id"] for line in read(f"{self.work}/out.jsonl").splitlines()]
            return problem or (None if found == self.ids else f"{len(found)} of {len(self.ids)}, {len(set(found))} different")
        self.every_call(lambda disturbed: self.export(disturbed, to), check, 20)

    def test_a_server_has_every_record_once_whatever_fails(self):
        bulk = Bulk()
        self.addCleanup(bulk.stop)

        def run(disturbed):
            bulk.documents.clear()
            bulk.order.clear()
            self.export(disturbed, bulk.url)

        def check():
            problem = self.made_good(bulk.url)
            return problem or (None if bulk.order == self.ids else f"{len(bulk.order)} of {len(self.ids)}")
        self.every_call(run, check, 20)
        self.assertEqual([], bulk.problems)


if __name__ == "__main__":
    unittest.main()
