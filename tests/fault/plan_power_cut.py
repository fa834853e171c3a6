#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 3000
# ALONE
# AS: root
"""The power goes while a plan is applied or undone: the disk has any beginning of what was written to it. After the next
mount and recovery the tree is the old or the new one.

The disk is a loop device on a file that write_log.c keeps, and that remembers every write in its order. The file system is
ext4 with its journal, as made by default. Somebody else's fsync, all the time, lets it commit in the middle of things.
Without a journal ("^has_journal") ext4 promises no order, and nothing is promised here."""
import os
import random
import shutil
import struct
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "integration"))
from carreltest import PATIENCE, CarrelTest, mount, umount  # noqa: E402
from plan_killed import make_scene  # noqa: E402
from planmodel import carrel_plan, content, difference  # noqa: E402

LONG = bool(os.environ.get("LONG"))
SAMPLES = 10**9 if LONG else 8
SIZE = 24 << 20


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=20 * PATIENCE).stdout.strip()


class Fsyncs(threading.Thread):
    """A neighbour who wants his file on disk, all the time."""

    def __init__(self, path):
        super().__init__()
        self.path, self.stop = path, threading.Event()

    def run(self):
        with open(self.path, "wb", buffering=0) as file:
            while not self.stop.is_set():
                file.write(b"x")
                os.fsync(file.fileno())


class PowerCut(CarrelTest):
    def setUp(self):
        super().setUp()
        self.mounted, self.loops = [], []
        self.image, self.point = self.path("start.img"), self.path("point")
        os.mkdir(self.point)
        with open(self.image, "wb") as file:
            file.truncate(SIZE)
        run("mkfs.ext4", "-q", "-F", "-b", "4096", "-m", "0", self.image)
        self.tree, self.plan = f"{self.point}/tree", f"{self.point}/plan"
        self.mount(self.image)
        os.mkdir(self.tree)
        self.model, self.hash, _ = make_scene(self.tree, self.plan)
        self.before, self.planned = content(self.tree, times=True), self.model.content()
        self.unmount()

    def tearDown(self):
        while self.mounted:
            self.unmount()
        super().tearDown()

    def mount(self, image):
        device = run("losetup", "-f", "--show", image)
        self.mounted.append(device)
        mount(device, self.point, "ext4")

    def unmount(self):
        device = self.mounted.pop()
        try:
            self.leave(self.point)
        finally:
            run("losetup", "-d", device)

    def leave(self, point):
        """A loop device lets go of its file a moment after it was told to; who looks at mounts keeps them busy."""
        deadline = time.monotonic() + PATIENCE
        while os.path.ismount(point):
            try:
                umount(point)
            except OSError:
                if time.monotonic() > deadline:
                    umount(point, lazily=True)
                    self.fail(f"{point} stays busy")
                time.sleep(0.02)

    def recorded(self, *verbs):
        """Applies and undoes on the remembering disk; returns what was written to it."""
        disk, log, folder = self.path("disk.img"), self.path("log"), self.path("folder")
        shutil.copy(self.image, disk)
        os.mkdir(folder)
        program = self.path("write_log")
        source = os.path.join(os.path.dirname(os.path.realpath(__file__)), "write_log.c")
        run("cc", "-O1", "-Wall", "-o", program, source)
        with subprocess.Popen([program, disk, log, folder]) as server:
            try:
                while not os.path.exists(f"{folder}/image"):
                    self.assertIsNone(server.poll(), "it ended")
                    time.sleep(0.01)
                self.mount(f"{folder}/image")
                self.carry_out(verbs)
            finally:
                try:
                    while self.mounted:
                        self.unmount()
                    self.leave(folder)
                    server.wait(timeout=PATIENCE)
                finally:
                    server.kill()  # or leaving this block would wait for it
        with open(log, "rb") as file:
            data = file.read()
        return parse(data)

    def carry_out(self, verbs):
        neighbour = Fsyncs(f"{self.point}/neighbour")
        neighbour.start()
        try:
            for verb in verbs:
                answer = carrel_plan(verb, self.tree, self.plan, {"hash": self.hash})
                self.assertEqual(0, answer.status, answer.text)
        finally:
            neighbour.stop.set()
            neighbour.join()

    def check_prefix(self, what, records, known, outcomes):
        """Mounts a disk that has just these writes, which replays the file system's journal; then recovers."""
        self.mount(known)
        try:
            answer = carrel_plan("recover", self.tree, self.plan)
            self.assertEqual(0, answer.status, f"{what}: {answer.text}")
            outcome = "new" if answer.json["in_force"] else "old"
            outcomes[outcome + (", taken back" if answer.json["taken_back"] else "")] = \
                outcomes.get(outcome + (", taken back" if answer.json["taken_back"] else ""), 0) + 1
            text = difference(self.planned, content(self.tree)) if outcome == "new" else difference(self.before, content(self.tree, times=True))
            self.assertEqual("", text, f"{what}: neither the old nor the new tree ({len(records)} writes in all)")
        finally:
            self.unmount()

    def replayed(self, *verbs):
        records = self.recorded(*verbs)
        writes = [number for number, record in enumerate(records) if record[0] == 1]
        self.assertGreater(len(writes), 30)
        chosen = sorted(random.Random(2).sample(writes, min(SAMPLES, len(writes))))
        disk, copy, outcomes, done = self.path("prefix.img"), self.path("copy.img"), {}, 0
        shutil.copy(self.image, disk)
        for number in chosen:
            with open(disk, "r+b") as file:
                for _, offset, data in (record for record in records[done:number + 1] if record[0] == 1):
                    file.seek(offset)
                    file.write(data)
            done = number + 1
            shutil.copy(disk, copy)
            self.check_prefix(f"{verbs} cut after write {number}", records, copy, outcomes)
        print(f"{verbs}: {len(writes)} writes, {sum(r[0] == 2 for r in records)} syncs; {len(chosen)} beginnings replayed: {outcomes}")
        return outcomes

    def test_cut_while_applying(self):
        self.assertTrue(self.replayed("apply"))

    def test_cut_while_undoing(self):
        self.assertTrue(self.replayed("apply", "undo"))


def parse(data):
    records, at = [], 0
    while at + 24 <= len(data):
        kind, offset, length = struct.unpack_from("=3Q", data, at)
        records.append((kind, offset, data[at + 24:at + 24 + length]))
        at += 24 + length
    return records


if __name__ == "__main__":
    if not os.path.exists("/dev/fuse") or not shutil.which("mkfs.ext4") or not os.path.exists("/dev/loop-control"):
        print("needs /dev/fuse, loop devices and mkfs.ext4")
        sys.exit(77)
    unittest.main()
