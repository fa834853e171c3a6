#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 1800
"""Much at once through the files API: a large file up and down, many small ones, a search of a large tree. Figures are
printed; what is judged are hashes and memory."""
import hashlib
import io
import json
import os
import random
import shutil
import subprocess
import tarfile
import time
import unittest
import zipfile

from filestest import LONG, Files, FilesTest, processes_of, snapshot

MIB = 1 << 20
LARGE = 1024 * MIB if LONG else 64 * MIB
SMALL_FILES = 10000 if LONG else 1000
TREE = 2048 * MIB if LONG else 32 * MIB
FLAT = 16 * MIB  # a process may grow by so much, whatever the size of what passes through it


def memory(pid):
    """The most it has ever had, in bytes."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM:"))


class Pattern(io.RawIOBase):
    """So many bytes that are nowhere all at once; their hash when they have been read."""

    def __init__(self, size):
        self.left = self.size = size
        self.block = random.Random(1).randbytes(MIB)
        self.hash = hashlib.sha256()

    def read(self, size=-1):  # pylint: disable=arguments-differ
        data = self.block[:min(size if size >= 0 else MIB, self.left, MIB)]
        self.left -= len(data)
        self.hash.update(data)
        return data


class Sizes(FilesTest):
    def seconds(self, what, size, function):
        begun = time.monotonic()
        result = function()
        took = time.monotonic() - begun
        print(f"{what}: {took:.2f} s" + (f", {size / MIB / took:.0f} MiB/s" if size else ""))
        return result

    def watched(self):
        """The processes that bytes pass through, and what they have had so far."""
        self.files.stat("/")
        pids = [self.daemon.front_pid(), *processes_of(self.daemon, "carrel-files")]
        return {pid: memory(pid) for pid in pids}

    def flat(self, before):
        grown = {pid: memory(pid) - had for pid, had in before.items()}
        print("grown by", ", ".join(f"{growth / MIB:.1f} MiB" for growth in grown.values()))
        self.assertLess(max(grown.values()), FLAT)

    def upload(self, path, size, query=""):
        pattern = Pattern(size)
        connection = self.daemon.connect()
        connection.request("PUT", self.files.url + path + query, body=pattern, headers={"Content-Length": str(size)})
        response = connection.getresponse()
        self.assertIn(response.status, (200, 201), response.read())
        connection.close()
        return pattern.hash.hexdigest()

    def download(self, path):
        seen = hashlib.sha256()
        connection = self.daemon.connect()
        connection.request("GET", self.files.url + path)
        response = connection.getresponse()
        self.assertEqual(200, response.status)
        while data := response.read(MIB):
            seen.update(data)
        connection.close()
        return seen.hexdigest()

    def test_a_large_file_goes_up_and_down_in_flat_memory(self):
        self.files.put("/warm", bytes(MIB))
        before = self.watched()
        sent = self.seconds(f"{LARGE // MIB} MiB up", LARGE, lambda: self.upload("/large", LARGE))
        self.assertEqual(LARGE, os.stat(self.host + "/large").st_size)
        self.assertEqual(sent, self.seconds(f"{LARGE // MIB} MiB down", LARGE, lambda: self.download("/large")))
        sent = self.seconds(f"{LARGE // 4 // MIB} MiB appended", LARGE // 4, lambda: self.upload("/more", LARGE // 4, "?append=1"))
        self.assertEqual(sent, self.download("/more"))
        self.flat(before)

    def test_a_large_archive_goes_out_and_in_in_flat_memory(self):
        self.upload("/tree/large", LARGE // 2)
        before = self.watched()
        for kind in ("tar", "zip"):
            packed = self.path(f"packed.{kind}")
            connection = self.daemon.connect()
            connection.request("GET", f"{self.files.url}/tree?archive={kind}")
            with open(packed, "wb") as file:
                self.seconds(f"{LARGE // 2 // MIB} MiB as {kind} out", LARGE // 2,
                             lambda c=connection, f=file: shutil.copyfileobj(c.getresponse(), f, MIB))
            connection.close()
            with open(packed, "rb") as file:
                connection = self.daemon.connect()
                connection.request("POST", f"{self.files.url}-unpack?path=/{kind}&format={kind}", body=file,
                                   headers={"Content-Length": str(os.stat(packed).st_size)})
                answer = connection.getresponse()
                self.assertEqual(200, answer.status, answer.read())
                connection.close()
            found = [path for path, (what, _, _) in snapshot(f"{self.host}/{kind}").items() if what == "file"]
            self.assertEqual([b"large"], [os.path.basename(path) for path in found])
            unpacked = f"/{kind}/" + os.fsdecode(found[0])
            self.assertEqual(self.download("/tree/large"), self.download(unpacked))
        self.flat(before)

    def small(self, number):
        return f"d{number % 100}/f{number}", f"content of {number}\n" * 20

    def check_small(self, top):
        found = {path.decode(): data for path, (kind, _, data) in snapshot(self.host + top).items() if kind == "file"}
        self.assertEqual({name: text.encode() for name, text in map(self.small, range(SMALL_FILES))}, found)

    def test_many_small_files_in_one_call(self):
        body = {"files": [{"path": f"/batch/{name}", "content": text} for name, text in map(self.small, range(SMALL_FILES))]}
        answer = self.seconds(f"{SMALL_FILES} files in one batch", 0, lambda: self.files.act("write", body))
        self.assertEqual(200, answer.status, answer.bytes[:300])
        self.assertEqual(SMALL_FILES, sum(one.get("ok", False) for one in answer.json["results"]))
        self.check_small("/batch")
        paths = [f"/batch/{self.small(number)[0]}" for number in range(SMALL_FILES)]
        answer = self.seconds(f"{SMALL_FILES} files read in one batch", 0, lambda: self.files.act("read", {"paths": paths}))
        self.assertEqual([self.small(number)[1] for number in range(SMALL_FILES)], [one["content"] for one in answer.json["results"]])
        tar, zipped = io.BytesIO(), io.BytesIO()
        with tarfile.open(fileobj=tar, mode="w") as archive, zipfile.ZipFile(zipped, "w") as other:
            for name, text in map(self.small, range(SMALL_FILES)):
                member = tarfile.TarInfo(name)
                member.size = len(text)
                archive.addfile(member, io.BytesIO(text.encode()))
                other.writestr(name, text)
        for kind, packed in (("tar", tar), ("zip", zipped)):
            answer = self.seconds(f"{SMALL_FILES} files in one {kind}", 0, lambda k=kind, p=packed: self.files.request(
                "POST", f"{self.files.url}-unpack?path=/{k}&format={k}", p.getvalue()))
            self.assertEqual((200, SMALL_FILES), (answer.status, answer.json.get("files")), answer.bytes[:300])
            self.check_small(f"/{kind}")
        single = Files(self.daemon, self.space)
        self.seconds(f"{SMALL_FILES // 10} files one by one", 0, lambda: [single.put(f"/single/{name}", text.encode()) for name, text in
                                                                     map(self.small, range(SMALL_FILES // 10))])
        single.close()
        before = len(snapshot(self.host + "/batch"))
        lines = self.files.act("inventory", {"path": "/batch"}).bytes.splitlines()
        self.assertEqual(before, len(lines) - 1)
        self.assertEqual(SMALL_FILES, json.loads(lines[-1])["summary"]["files"])

    def test_a_search_beside_the_one_it_is_measured_against(self):
        """The mark is 1.2 times ripgrep run directly; here it is printed, on a busy machine nothing more."""
        words = [f"word{n}" for n in range(500)]
        dice = random.Random(3)
        text = "\n".join(" ".join(dice.choices(words, k=12)) for _ in range(10000)).encode()
        os.makedirs(self.host + "/tree")
        for number in range(TREE // len(text)):
            os.makedirs(f"{self.host}/tree/{number % 20}", exist_ok=True)
            with open(f"{self.host}/tree/{number % 20}/{number}.txt", "wb") as file:
                file.write(text + (b"\nneedle here\n" if number % 50 == 0 else b"\n"))
        subprocess.run(["chmod", "-R", "a+rX", self.host + "/tree"], check=True)
        expected = len(range(0, TREE // len(text), 50))
        for kind, pattern, regex in (("literal", "needle", False), ("regex", "need[l]e h[aeiou]re", True)):
            times = {"API": [], "ripgrep": []}
            for _ in range(3):
                begun = time.monotonic()
                answer = self.files.act("grep", {"pattern": pattern, "path": "/tree", "regex": regex})
                times["API"].append(time.monotonic() - begun)
                self.assertEqual(expected, len(answer.json["matches"]))
                if shutil.which("rg"):
                    begun = time.monotonic()
                    done = subprocess.run(["rg", "--no-config", "-uu", pattern, self.host + "/tree"], check=True, capture_output=True)
                    times["ripgrep"].append(time.monotonic() - begun)
                    self.assertEqual(expected, len(done.stdout.splitlines()))
            api = min(times["API"])
            ratio = f"{api / min(times['ripgrep']):.2f} times ripgrep" if times["ripgrep"] else "no ripgrep here"
            print(f"grep of {TREE // MIB} MiB, {kind}: {api * 1000:.0f} ms, {ratio}")


if __name__ == "__main__":
    unittest.main(verbosity=0)
