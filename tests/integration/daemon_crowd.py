#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 900
# ALONE: LONG
"""Many at once: commands over many workspaces, all alive at one instant as the kernel sees it, every byte right; idle
workspaces that cost nothing; much output in little memory. CROWD=full (make test-long) is the size of the promise."""
import hashlib
import json
import os
import random
import selectors
import socket
import threading
import time
import unittest

from daemontest import DaemonTest

FULL = os.environ.get("LONG") == "1"
SPACES, EXECS, IDLE, OUTPUT = (200, 1000, 10000, 500 << 20) if FULL else (10, 50, 300, 100 << 20)
SECONDS = 10 if FULL else 3
BYTES = 1 << 20
# Seeded bytes a little at a time; the name makes it countable from outside.
WRITER = ("import random, sys, time\n"
          "r = random.Random(int(sys.argv[1])); end = time.monotonic() + {seconds}\n"
          "for i in range(16):\n"
          "    sys.stdout.buffer.write(r.randbytes({piece})); sys.stdout.buffer.flush()\n"
          "    time.sleep(max(0, (end - time.monotonic()) / (16 - i)))\n").format(seconds=SECONDS, piece=BYTES // 16)


def expected(seed):
    r = random.Random(seed)
    return hashlib.sha256(b"".join(r.randbytes(BYTES // 16) for _ in range(16))).hexdigest()


def alive(marker):
    """Processes whose command line has the marker, as the kernel lists them now."""
    count = 0
    for pid in os.listdir("/proc"):
        if pid.isdigit():
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    words = file.read().split(b"\0")
            except OSError:
                continue
            count += marker in words
    return count


def below(pid):
    """How many processes there are that it has started, or one of these."""
    found = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
                found += file.read().split()
    except OSError:
        pass  # it has gone
    return len(found) + sum(map(below, found))


def resident(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmRSS"))


class Crowd(DaemonTest):
    options = ("--set", "max_sandboxes=1000", "--set", "max_execs=5000", "--set", "idle=10m")

    def processes_of_the_daemon(self):
        return [self.daemon.process.pid, self.daemon.front_pid()]

    def test_many_commands_at_once(self):
        """A slow machine may end the first before it has begun the last: it has three tries to begin a hundred a second."""
        spaces = [self.workspace() for _ in range(SPACES)]
        most = [self.run_many(spaces)]
        while FULL and most[-1] < EXECS and len(most) < 3:
            most.append(self.run_many(spaces))
        if FULL:
            self.assertEqual(EXECS, most[-1], f"they were not all alive at one instant: {most}")
        print(f"{EXECS} commands in {SPACES} workspaces: {most[-1]} alive at one instant, all hashes right; front "
              f"{resident(self.daemon.front_pid()) >> 20} MiB, broker {resident(self.daemon.process.pid) >> 20} MiB")

    def run_many(self, spaces):
        """How many of them were alive at one instant; every byte of all is right."""
        marker = f"crowd-{os.getpid()}".encode()
        streams, hashes = selectors.DefaultSelector(), {}
        for seed in range(EXECS):
            body = json.dumps({"argv": ["python3", "-S", "-c", WRITER, str(seed), marker.decode()], "stream": "raw"}).encode()
            s = socket.socket(socket.AF_UNIX)
            s.connect(self.daemon.socket)
            s.sendall(f"POST /v1/workspaces/{spaces[seed % SPACES]}/exec HTTP/1.0\r\nHost: x\r\n"
                      f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
            s.setblocking(False)
            streams.register(s, selectors.EVENT_READ, [seed, b"", hashlib.sha256()])
        most, stop = [0], threading.Event()

        def watch():
            while not stop.is_set():
                most[0] = max(most[0], alive(marker))
                time.sleep(0.3)
        watcher = threading.Thread(target=watch)
        watcher.start()
        deadline = time.monotonic() + (600 if FULL else 120)
        while streams.get_map():
            self.assertLess(time.monotonic(), deadline, f"{len(streams.get_map())} streams do not end")
            for key, _ in streams.select(1):
                state = key.data
                piece = key.fileobj.recv(1 << 18)
                if not piece:
                    streams.unregister(key.fileobj)
                    key.fileobj.close()
                    hashes[state[0]] = state[2].hexdigest()
                elif state[1] is not None:
                    state[1] += piece
                    head, gap, rest = state[1].partition(b"\r\n\r\n")
                    if gap:
                        self.assertIn(b" 200 ", head.split(b"\r\n")[0], state[1][:500])
                        state[1] = None
                        state[2].update(rest)
                else:
                    state[2].update(piece)
        stop.set()
        watcher.join()
        wrong = [seed for seed in range(EXECS) if hashes[seed] != expected(seed)]
        self.assertEqual([], wrong, f"{len(wrong)} of {EXECS} have wrong bytes")
        return most[0]

    def test_idle_workspaces_cost_no_process_and_little_memory(self):
        before = {pid: resident(pid) for pid in self.processes_of_the_daemon()}
        count = below(self.daemon.process.pid)
        one = self.daemon.connect()
        for i in range(IDLE):
            self.assertEqual(201, self.daemon.post("/v1/workspaces", {"id": f"i{i}"}, connection=one).status)
        seen, cursor = 0, ""
        while cursor is not None:
            page = self.daemon.get(f"/v1/workspaces?limit=1000&cursor={cursor}", connection=one).json
            seen, cursor = seen + len(page["workspaces"]), page["next"]
        one.close()
        self.assertEqual(IDLE, seen)
        added = sum(resident(pid) - before[pid] for pid in before)
        self.assertLess(added, 50 << 20, f"{added >> 20} MiB for {IDLE} idle workspaces")
        self.assertLess(below(self.daemon.process.pid), count + 20)
        print(f"{IDLE} idle workspaces: {added / (1 << 20):.1f} MiB more in the daemon, no process")

    def test_much_output_in_little_memory(self):
        ws = self.workspace()
        response = self.daemon.stream("POST", f"/v1/workspaces/{ws}/exec", {
            "argv": ["head", "-c", str(OUTPUT), "/dev/zero"], "stream": "raw"})
        before = sum(resident(pid) for pid in self.processes_of_the_daemon())
        most = total = 0
        while piece := response.read(1 << 20):
            total += len(piece)
            if total % (16 << 20) < 1 << 20:
                most = max(most, sum(resident(pid) for pid in self.processes_of_the_daemon()))
        self.assertEqual(OUTPUT, total)
        self.assertLess(most - before, 16 << 20, f"{(most - before) >> 20} MiB more with {OUTPUT >> 20} MiB of output")
        print(f"{OUTPUT >> 20} MiB of output: {max(0, most - before) / (1 << 20):.1f} MiB more at most")


if __name__ == "__main__":
    unittest.main(verbosity=0)
