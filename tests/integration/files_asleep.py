#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 300
# TAKES: 20
"""Files of a workspace that sleeps: read without waking it where that gives the same answer, and woken for all else."""
import contextlib
import glob
import os
import signal
import threading
import time
import unittest

from filestest import Files, FilesTest, content

MADE = """
mkdir -p /d/deep/er /closed /unsearchable /links "/odd names"; cd /d
printf 'one\\ntwo\\nthree\\n' > text; head -c 4096 /dev/zero > zeros; : > empty; printf '\\0\\377' > binary
printf 'x' > deep/er/x; printf 'y' > "/odd names/$(printf 'a\\nb\\377')"; head -c 300000 /dev/urandom > large
ln -s text here; ln -s ../d/deep over; ln -s /usr/bin/env env; ln -s /tmp/t tmp; ln -s nowhere broken; ln -s loop loop
ln -s / root; mkfifo pipe; printf s > secret; chmod 000 secret; touch /closed/in /unsearchable/in
chmod 000 /closed; chmod 444 /unsearchable; mkdir -p /data/in; printf top > /data/top
"""
PATHS = ["/d", "/d/text", "/d/zeros", "/d/empty", "/d/binary", "/d/deep", "/d/deep/er", "/d/deep/er/x", "/d/large", "/d/here", "/d/over",
         "/d/over/er/x", "/d/env", "/d/broken", "/d/broken/x", "/d/loop", "/d/root/d/text", "/d/pipe", "/d/secret", "/d/text/x",
         "/d/missing", "/missing", "/closed", "/closed/in", "/unsearchable", "/unsearchable/in", "/.bashrc", "/data", "/data/top",
         "/data/in", "/odd names", b"/odd names/a\nb\xff", "/" + "n" * 255, "/" + "n" * 256]
OUTSIDE = ["/", "/d/root", "/d/tmp", "/d/root/etc/hostname", "/usr", "/etc/passwd", "/tmp", "/proc/version", "/dev/null"]  # new with each start
QUERIES = ["", "?stat=1", "?stat=1&follow=1", "?list=1", "?list=1&brief=1", "?list=1&depth=5", "?list=1&depth=2&limit=3", "?format=text&offset=1&limit=1"]
PLAIN = ["/d/text", "/d/zeros", "/d/empty", "/d/binary", "/d/deep/er/x", "/d/large", "/.bashrc", b"/odd names/a\nb\xff"]
TREES = ["/d", "/d/deep", "/odd names", "/unsearchable"]
UNLIKE = {"date", "x-request-id", "request-id"}


def told(answer):
    """All that a client can tell one answer from another by."""
    return answer.status, {name: value for name, value in answer.headers.items() if name.lower() not in UNLIKE}, answer.bytes


class Asleep(FilesTest):
    def setUp(self):
        super().setUp()
        self.assertEqual(0, self.inside(MADE)["exit_code"])

    def tearDown(self):
        for name in ("closed", "unsearchable"):  # to be removed by an ordinary user
            for top in glob.glob(f"{self.daemon.state}/main/threads/*") + glob.glob(f"{self.daemon.state}/main/.carrel/trash/*"):
                with contextlib.suppress(FileNotFoundError):
                    os.chmod(f"{top}/{name}", 0o755)
        super().tearDown()

    def state(self):
        return self.daemon.get(f"/v1/workspaces/{self.space}").json["state"]

    def sleep(self):
        self.assertIn(self.daemon.post(f"/v1/workspaces/{self.space}/sleep").status, (200, 204))
        self.assertEqual("asleep", self.state())

    def readers(self):
        """Who makes them, and all that were made."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                stat = content(f"/proc/{pid}/stat").decode(errors="replace")
                if "(carrel-asleep)" in stat:
                    found.append((int(pid), int(stat.rsplit(")", 1)[1].split()[1])))
        makers = {pid for pid, parent in found if parent == self.daemon.process.pid}
        return makers, {pid for pid, parent in found if parent in makers}

    def test_every_answer_is_the_one_of_a_workspace_that_is_awake(self):
        asked = [(path, query) for path in PATHS for query in QUERIES] + [(path, query) for path in OUTSIDE for query in QUERIES[:2]]
        asleep = []
        for path, query in asked:
            self.sleep()
            asleep.append(told(self.files.get(path, query)))
        self.inside("true")
        for (path, query), answer in zip(asked, asleep):
            with self.subTest(path=path, query=query):
                expected = told(self.files.get(path, query))
                self.assertEqual(*((expected[0], answer[0]) if path in OUTSIDE else (expected, answer)))
        self.assertEqual("awake", self.state())

    def test_what_lies_in_the_tree_is_read_without_waking_it(self):
        self.sleep()
        for path in PLAIN:
            for query in ("", "?stat=1", "?stat=1&follow=1"):
                self.assertEqual(200, self.files.get(path, query).status, path)
        for path in TREES:
            self.assertEqual(200, self.files.get(path, "?list=1").status, path)
        self.assertEqual(200, self.files.get("/d", "?list=1&depth=9").status)
        self.assertEqual("symlink", self.files.stat("/d/broken").json["type"])
        part = self.files.get("/d/text", Range="bytes=4-6")
        self.assertEqual((206, b"two"), (part.status, part.bytes))
        etag = self.files.get("/d/text").headers["ETag"]
        self.assertEqual(304, self.files.get("/d/text", If_None_Match=etag).status)
        self.assertEqual("asleep", self.state())
        started = [one for one in self.daemon.audit() if one["operation"] == "sandbox.start" and one["workspace"] == self.space]
        self.assertEqual(1, len(started), "for the command that made the files, and nothing since")

    def test_what_needs_the_sandbox_wakes_it(self):
        for path, expected in (("/d/over/er/x", 200), ("/usr/bin/env", 200), ("/d/missing", 404), ("/tmp", 409)):
            self.sleep()
            self.assertEqual(expected, self.files.get(path).status, path)
            self.assertEqual("awake", self.state(), path)
        self.sleep()
        self.assertEqual(201, self.files.put("/d/new", b"n").status)
        self.assertEqual("awake", self.state())

    def test_mounts_are_seen_as_inside(self):
        """What a policy mounts hides what lies below, and a list of the directory it is in shows it; however it is spelled."""
        source = self.path("mounted")
        os.mkdir(source)
        for place, text in ((source, "mounted"), (f"{self.host}/data/in", "hidden")):
            with open(f"{place}/shown", "w", encoding="ascii") as file:
                file.write(text)
        os.chmod(source, 0o755)
        self.daemon.stop()
        self.daemon.options = ("--set", f"mount_roots={source}")
        self.daemon.start()
        for target in ("/data/in", "//data//in"):
            changed = self.daemon.request("PATCH", f"/v1/workspaces/{self.space}", {"policy": {"mounts": [
                {"source": source, "target": target}]}})
            self.assertEqual(200, changed.status, changed.bytes)
            self.sleep()
            self.assertEqual(b"mounted", self.files.get("/data/in/shown").bytes, target)
            self.sleep()
            listed = self.files.get("/data", "?list=1&depth=2").json["entries"]
            self.assertEqual([7], [one["size"] for one in listed if one["path"] == "/data/in/shown"], target)

    def busy(self):
        """Sleeping readers that have a job; and, for a moment, one that is being made and tries whether it can have a thread."""
        return {pid for pid in self.readers()[1] if len(self.tasks(pid)) > 1}

    def the_busy_one(self):
        """Who reads, when the others have been made."""
        seen = []
        self.until(lambda: len(seen.append(self.busy()) or seen[-1]) == 1, "not one sleeping reader has a job")
        return seen[-1]

    def tasks(self, pid):
        try:
            return os.listdir(f"/proc/{pid}/task")
        except OSError:
            return []

    def test_nothing_of_it_stays(self):
        self.sleep()
        self.assertEqual(b"x", self.files.get("/d/deep/er/x").bytes)
        self.assertEqual(1, len(self.readers()[0]))
        self.until(lambda: not self.busy(), "a sleeping reader stays though nobody asks")
        self.assertEqual("asleep", self.state())

    def slow(self, workspace=None, path="/d/large"):
        """Somebody who does not read what he has asked for."""
        return self.daemon.stream("GET", f"/v1/workspaces/{workspace or self.space}/files{path}")

    def grow(self, workspace):
        with open(f"{self.host_path(workspace)}/large", "wb") as file:
            file.truncate(64 << 20)

    def test_sleep_and_deletion_end_it_at_once(self):
        self.grow(self.space)
        for _ in range(3):
            self.sleep()
            slow = self.slow(path="/large")
            reader = self.the_busy_one()
            self.sleep()
            self.until(lambda: not reader & self.busy(), "it goes on in a workspace that was put to sleep", 2)
            slow.keep.close()
        slow = self.slow(path="/large")
        self.assertIn(self.daemon.request("DELETE", f"/v1/workspaces/{self.space}").status, (200, 202, 204))
        self.until(lambda: not self.busy(), "it goes on in a workspace that was deleted", 2)
        self.assertIn(self.files.get("/d/deep/er/x").status, (404, 409))
        slow.keep.close()

    def test_a_plan_has_the_tree_alone(self):
        self.grow(self.space)
        self.sleep()
        slow = self.slow(path="/large")
        reader = self.the_busy_one()
        made = self.daemon.post(f"/v1/workspaces/{self.space}/plans", {"creations": [{"path": "/d/planned", "content": "p"}]})
        self.assertIn(made.status, (200, 201), made.bytes)
        plan = f"/v1/workspaces/{self.space}/plans/{made.json['id']}"
        applied = self.daemon.post(f"{plan}/apply")
        self.assertLess(applied.status, 300, applied.bytes)
        self.until(lambda: self.daemon.get(plan).json["state"] == "applied", "the plan is not applied")
        self.assertEqual(set(), reader & self.busy(), "a reader from before is still there")
        slow.keep.close()
        self.assertEqual(b"p", self.files.get("/d/planned").bytes)

    def test_a_killed_one_is_replaced(self):
        self.sleep()
        self.assertEqual(b"x", self.files.get("/d/deep/er/x").bytes)
        makers, lookers = self.readers()
        for pid in lookers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.until(lambda: len(self.readers()[1] - lookers) >= 4, "no others are made")
        self.sleep()
        self.assertEqual(b"x", self.files.get("/d/deep/er/x").bytes)
        self.assertEqual("asleep", self.state())
        self.grow(self.space)
        slow = self.slow(path="/large")
        for pid in makers:
            os.kill(pid, signal.SIGKILL)
        self.assertEqual(64 << 20, len(slow.read()), "who has begun does not end with its maker")
        slow.keep.close()
        self.sleep()
        for path in PLAIN:  # woken for it: no others are made for a minute
            self.assertEqual(200, self.files.get(path).status)

    def test_no_more_sandboxes_than_the_owner_may_have(self):
        self.daemon.stop()
        self.daemon.options = ("--set", "owner_sandboxes=2")
        self.daemon.start()
        key = self.daemon.key("somebody")
        spaces = [self.daemon.post("/v1/workspaces", {}, key=key).json["id"] for _ in range(6)]
        answers = []

        def ask(space):
            with contextlib.closing(Files(self.daemon, space, key)) as files:
                answers.append(files.get("/missing").status)
        self.at_once(ask, spaces)
        self.assertEqual({404, 429}, set(answers), answers)
        awake = [space for space in spaces if self.daemon.get(f"/v1/workspaces/{space}").json["state"] == "awake"]
        self.assertLessEqual(len(awake), 2)
        asleep = [space for space in spaces if space not in awake][0]
        with contextlib.closing(Files(self.daemon, asleep, key)) as files:
            self.assertEqual(200, files.get("/.bashrc").status, "which needs no sandbox")

    def at_once(self, function, arguments):
        threads = [threading.Thread(target=function, args=(argument,)) for argument in arguments]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def test_many_workspaces_at_once(self):
        spaces = [self.space] + [self.workspace() for _ in range(11)]
        for space in spaces[1:]:
            with contextlib.closing(Files(self.daemon, space)) as files:
                self.assertEqual(201, files.put("/mine", space.encode()).status)
            self.daemon.post(f"/v1/workspaces/{space}/sleep")
        wrong = []

        def read(space):
            files = Files(self.daemon, space)
            for _ in range(30):
                if files.get("/mine").bytes != space.encode():
                    wrong.append(space)
            files.close()
        self.at_once(read, spaces[1:])
        self.assertEqual([], wrong)
        self.assertEqual({"asleep"}, {self.daemon.get(f"/v1/workspaces/{space}").json["state"] for space in spaces[1:]})

    def test_slow_readers_hold_up_nobody(self):
        """More of them than sleeping readers wait, each the first to ask; and one beside whom others ask the same sleeping reader."""
        spaces = [self.workspace() for _ in range(6)]
        for space in spaces:
            self.grow(space)
        slow = [self.slow(space, "/large") for space in spaces]
        self.sleep()
        self.grow(self.space)
        self.assertEqual(b"x", self.files.get("/d/deep/er/x").bytes)
        time.sleep(1.5)
        self.assertEqual(b"x", self.files.get("/d/deep/er/x").bytes)
        time.sleep(1.6)  # threads of the sleeping reader have given up waiting by now
        slow.append(self.slow(path="/large"))
        for _ in range(4):
            begun = time.monotonic()
            self.assertEqual(b"x", self.files.get("/d/deep/er/x").bytes)
            self.assertLess(time.monotonic() - begun, 5)
            time.sleep(0.7)
        self.assertEqual("asleep", self.state())
        for one in slow:
            self.assertEqual(64 << 20, len(one.read()))
            one.keep.close()

    def test_a_link_swapped_in_leads_nowhere_else(self):
        """Attack 52, with the host's files for a prize: the one who swaps acts from outside, as while it sleeps nobody can inside."""
        os.makedirs(f"{self.host}/swap/a")
        os.symlink("/etc", f"{self.host}/swap/link")
        with open(f"{self.host}/swap/a/hostname", "w", encoding="ascii") as file:
            file.write("ours")
        theirs, stop = content("/etc/hostname"), threading.Event()

        def swap():
            while not stop.is_set():
                os.rename(f"{self.host}/swap/a", f"{self.host}/swap/b")
                os.rename(f"{self.host}/swap/link", f"{self.host}/swap/a")
                os.rename(f"{self.host}/swap/a", f"{self.host}/swap/link")
                os.rename(f"{self.host}/swap/b", f"{self.host}/swap/a")
        thread = threading.Thread(target=swap)
        self.sleep()
        thread.start()
        try:
            inside = set()
            for _ in range(100):
                answer = self.files.get("/swap/a/hostname")
                inside.add((answer.status, answer.bytes if answer.status == 200 else b""))
                if self.state() == "awake":
                    self.sleep()
        finally:
            stop.set()
            thread.join()
        self.assertNotIn((200, theirs), inside)
        self.assertIn((200, b"ours"), inside)


if __name__ == "__main__":
    unittest.main()
