#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 180
"""What may be had at a time, of one owner and of the host: commands, sandboxes, what their policies allow in sum, and
output that is kept. Each is a 429 that names its setting, or a wait in the queue; together they exceed none."""
import hashlib
import json
import os
import random
import re
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

from carreltest import PATIENCE, ROOT, mount, umount
from daemontest import DaemonTest


class QuotaTest(DaemonTest):
    def restart(self, **settings):
        self.daemon.stop()
        self.daemon.options = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        self.daemon.start()

    def owner(self, name, *workspaces, **limits):
        key = self.daemon.key(name)
        for ws in workspaces:
            answer = self.daemon.post("/v1/workspaces", {"id": ws, "policy": {"limits": limits} if limits else {}}, key=key)
            self.assertEqual(201, answer.status, answer.bytes)
        return key

    def begin(self, ws, key=None, command="sleep 1000"):
        return self.daemon.post(f"/v1/workspaces/{ws}/exec", {"command": command, "background": True}, key=key)

    def started(self, *args, **kwargs):
        answer = self.begin(*args, **kwargs)
        self.assertEqual(202, answer.status, answer.bytes)
        return answer.json["exec_id"]

    def refused(self, setting, answer):
        self.assertEqual((429, "quota_exceeded"), (answer.status, answer.code), answer.bytes)
        self.assertEqual(setting, answer.json["error"]["details"]["reason"], answer.bytes)

    def kill(self, ws, exec_id, key=None):
        self.assertEqual(204, self.daemon.post(f"/v1/workspaces/{ws}/exec/{exec_id}/kill", key=key).status)

    def waits(self, ws, key=None, command="echo at last"):
        """A request that finds no room; the connection that its answer will come on."""
        before = self.queued()
        waiting = self.daemon.stream("POST", f"/v1/workspaces/{ws}/exec", {"command": command}, key=key, wait=False)
        self.until(lambda: self.queued() > before)
        return waiting

    def queued(self):
        return self.daemon.get("/v1/host").json["queued"]

    def until(self, condition):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def answered(self, waiting, status=200):
        answer = waiting.getresponse()
        body = json.loads(answer.read())
        waiting.close()
        self.assertEqual(status, answer.status, body)
        return body


class Refused(QuotaTest):
    def test_files_wake_no_more_sandboxes_than_may_live(self):
        self.restart(owner_sandboxes=2)
        names = [f"a{i}" for i in range(8)]
        alice = self.owner("alice", *names)
        look = lambda ws: self.daemon.get(f"/v1/workspaces/{ws}/files/?list=1", key=alice)  # noqa: E731
        with ThreadPoolExecutor(len(names)) as pool:
            answers = dict(zip(names, pool.map(look, names)))
        awake = [ws for ws, answer in answers.items() if answer.status == 200]
        self.assertEqual(2, len(awake), {ws: answer.bytes for ws, answer in answers.items()})
        for ws in names:
            if ws in awake:
                self.assertEqual(200, look(ws).status)
            else:
                self.refused("owner_sandboxes", answers[ws])
                self.refused("owner_sandboxes", self.begin(ws, alice))

    def test_commands_and_workspaces(self):
        self.restart(owner_execs=2, owner_workspaces=2, max_execs=3)
        alice, bob = self.owner("alice", "a1", "a2"), self.owner("bob", "b1")
        self.refused("owner_workspaces", self.daemon.post("/v1/workspaces", {"id": "a3"}, key=alice))
        self.started("a1", alice)
        one = self.started("a2", alice)
        self.refused("owner_execs", self.begin("a1", alice))
        self.started("b1", bob)
        self.refused("max_execs", self.begin("b1", bob))
        self.kill("a2", one, alice)
        self.until(lambda: self.begin("b1", bob).status == 202)

    def test_what_a_command_leaves_running_counts_as_long_as_it_does(self):
        self.restart(owner_execs=1)
        alice = self.owner("alice", "a1")
        self.assertEqual(0, self.daemon.execute("a1", "sleep 1000 >/dev/null 2>&1 &", key=alice)["exit_code"])
        self.refused("owner_execs", self.begin("a1", alice))
        self.daemon.post("/v1/workspaces/a1/sleep", key=alice)
        self.until(lambda: self.begin("a1", alice).status == 202)

    def test_sandboxes_and_what_their_policies_allow_in_sum(self):
        self.restart(owner_sandboxes=2, owner_pids=100, max_sandboxes=3, max_pids=150)
        alice, bob = self.owner("alice", "a1", "a2", "a3", pids=40), self.owner("bob", "b1", "b2", pids=50)
        self.owner("alice", "free")
        self.owner("alice", "huge", pids=101)
        self.refused("owner_pids", self.begin("free", alice))
        self.refused("owner_pids", self.begin("huge", alice))
        self.started("a1", alice)
        self.started("a2", alice)
        self.started("a1", alice)  # lives already
        self.refused("owner_sandboxes", self.begin("a3", alice))
        self.started("b1", bob)
        self.refused("max_sandboxes", self.begin("b2", bob))
        self.daemon.post("/v1/workspaces/a2/sleep", key=alice)
        self.assertEqual(200, self.daemon.request("PATCH", "/v1/workspaces/a3", {"policy": {"limits": {"pids": 70}}},
                                                  key=alice).status)
        self.refused("owner_pids", self.begin("a3", alice))
        self.assertEqual(200, self.daemon.request("PATCH", "/v1/workspaces/b2", {"policy": {"limits": {"pids": 90}}},
                                                  key=bob).status)
        self.refused("owner_pids", self.begin("b2", bob))
        carol = self.owner("carol", "c1", pids=70)
        self.refused("max_pids", self.begin("c1", carol))
        # A front that begins anew knows what lives and how large it is, whatever the policies say by now.
        self.assertEqual(200, self.daemon.request("PATCH", "/v1/workspaces/a1", {"policy": {"limits": {"pids": 5}}}).status)
        self.daemon.kill_front()
        self.refused("owner_pids", self.begin("a3", alice))
        self.refused("max_pids", self.begin("c1", carol))

    @unittest.skipUnless(ROOT, "needs a cgroup for the memory")
    def test_memory(self):
        self.restart(owner_memory="300M", max_memory="500M")
        alice, bob = self.owner("alice", "a1", "a2", memory="200M"), self.owner("bob", "b1", "b2", memory="250M")
        self.owner("bob", "free")
        self.refused("owner_memory", self.begin("free", bob))
        self.started("a1", alice)
        self.refused("owner_memory", self.begin("a2", alice))
        self.started("b1", bob)
        carol = self.owner("carol", "c1", memory="100M")
        self.refused("max_memory", self.begin("c1", carol))
        self.daemon.post("/v1/workspaces/a1/sleep", key=alice)
        self.started("c1", carol)

    def test_requests_that_come_together_exceed_nothing_together(self):
        self.restart(owner_sandboxes=8, owner_pids=100, owner_execs=12)
        names = [f"w{i}" for i in range(16)]
        alice = self.owner("alice", *names, pids=30)
        with ThreadPoolExecutor(32) as pool:
            answers = list(pool.map(lambda ws: (ws, self.begin(ws, alice)), names * 4))
        begun = [ws for ws, answer in answers if answer.status == 202]
        self.assertLessEqual(len(set(begun)), 3, "more processes than the quota has")
        self.assertEqual(3, len(set(begun)))
        self.assertLessEqual(len(begun), 12)
        for _, answer in answers:
            if answer.status != 202:
                self.assertIn(answer.json["error"]["details"]["reason"], ("owner_pids", "owner_execs"))


class Queue(QuotaTest):
    def test_who_waits_for_its_own_quota_holds_up_nobody(self):
        self.restart(queue=4, owner_execs=1, owner_sandboxes=1)
        alice, bob = self.owner("alice", "a1", "a2"), self.owner("bob", "b1")
        running = self.started("a1", alice)
        first = self.waits("a1", alice)   # owner_execs
        second = self.waits("a2", alice)  # owner_sandboxes, too
        self.assertEqual("ok\n", self.daemon.execute("b1", "echo ok", key=bob)["stdout"])
        self.kill("a1", running, alice)
        self.assertEqual("at last\n", self.answered(first)["stdout"])
        self.assertEqual(1, self.queued(), "its sandbox lives, so the other waits on")
        self.daemon.post("/v1/workspaces/a1/sleep", key=alice)
        self.assertEqual("at last\n", self.answered(second)["stdout"])

    def test_bodies_of_those_that_wait_are_counted(self):
        """However large: those that another thread has parsed, too."""
        self.restart(queue=4, owner_execs=1)
        alice = self.owner("alice", "a1")
        running = self.started("a1", alice)
        waiting = [self.waits("a1", alice, f": {'x' * size}") for size in (50000, 100000, 1000000)]
        kept = re.search(r"^carrel_http_body_bytes (\d+)$", self.daemon.get("/metrics").bytes.decode(), re.MULTILINE)
        self.assertGreaterEqual(int(kept[1]), 1150000)
        self.kill("a1", running, alice)
        for one in waiting:
            self.answered(one)
        self.assertIn("\ncarrel_http_body_bytes 0\n", self.daemon.get("/metrics").bytes.decode())

    def test_in_turn_for_what_is_the_hosts(self):
        self.restart(queue=4, max_sandboxes=1, max_execs=3)
        alice, bob = self.owner("alice", "a1"), self.owner("bob", "b1")
        self.started("a1", alice)
        waiting = self.waits("b1", bob)
        # One that needs no sandbox need not wait for one.
        self.assertEqual("ok\n", self.daemon.execute("a1", "echo ok", key=alice)["stdout"])
        behind = self.waits("b1", bob, "echo second")
        self.daemon.post("/v1/workspaces/a1/sleep", key=alice)
        self.assertEqual("at last\n", self.answered(waiting)["stdout"])
        self.assertEqual("second\n", self.answered(behind)["stdout"])

    def test_archives_wait_too(self):
        self.restart(queue=4, max_execs=1)
        ws = self.workspace()
        self.daemon.execute(ws, "echo kept > file")
        running = self.started(ws)
        backup = self.daemon.stream("GET", f"/v1/workspaces/{ws}/backup", wait=False)
        self.until(lambda: self.queued() == 1)
        self.kill(ws, running)
        archive = backup.getresponse()
        self.assertEqual(200, archive.status)
        packed = archive.read()
        backup.close()
        other = self.workspace()
        running = self.started(ws)
        restore = self.daemon.connect()
        restore.request("POST", f"/v1/workspaces/{other}/restore", body=packed)
        self.until(lambda: self.queued() == 1)
        self.kill(ws, running)
        self.assertEqual(200, restore.getresponse().status)
        restore.close()
        self.assertEqual("kept\n", self.daemon.execute(other, "cat file")["stdout"])

    def test_it_is_bounded_and_one_owner_does_not_fill_it(self):
        self.restart(queue=2, max_execs=1)
        alice, bob = self.owner("alice", "a1"), self.owner("bob", "b1")
        running = self.started("a1", alice)
        first, last = self.waits("a1", alice), self.waits("a1", alice)
        self.refused("max_execs", self.begin("a1", alice))
        theirs = self.daemon.stream("POST", "/v1/workspaces/b1/exec", {"command": "echo at last"}, key=bob, wait=False)
        self.assertEqual("max_execs", self.answered(last, 429)["error"]["details"]["reason"])
        self.assertEqual(2, self.queued())
        self.refused("max_execs", self.begin("a1", alice))
        self.kill("a1", running, alice)
        self.assertEqual("at last\n", self.answered(first)["stdout"])
        self.assertEqual("at last\n", self.answered(theirs)["stdout"])

    def test_who_leaves_waits_no_longer_and_what_changed_meanwhile_counts(self):
        self.restart(queue=4, max_execs=1)
        alice, bob = self.owner("alice", "a1"), self.owner("bob", "b1")
        running = self.started("a1", alice)
        self.waits("a1", alice, "touch left").close()
        self.until(lambda: self.queued() == 0)
        waiting = self.waits("b1", bob)
        mine = self.daemon.get("/v1/keys", key=bob).json["keys"][0]["id"]
        self.assertEqual(204, self.daemon.request("DELETE", f"/v1/keys/{mine}").status)
        self.kill("a1", running, alice)
        self.answered(waiting, 401)
        self.assertEqual("", self.daemon.execute("a1", "ls left 2>/dev/null", key=alice)["stdout"])


class Output(QuotaTest):
    def print(self, ws, key, kib):
        """A command that prints so much, and is over; its id."""
        result = self.daemon.execute(ws, f"head -c {kib << 10} /dev/zero", key=key)
        self.assertEqual(0, result["exit_code"])
        return result["exec_id"]

    def output(self, ws, exec_id, key, **query):
        path = f"/v1/workspaces/{ws}/exec/{exec_id}/output?format=raw"
        return self.daemon.get(path + "".join(f"&{k}={v}" for k, v in query.items()), key=key)

    def on_disk(self):
        return sum(entry.stat().st_blocks * 512 for entry in os.scandir(f"{self.daemon.state}/execs"))

    def gone(self, ws, exec_id, key):
        answer = self.output(ws, exec_id, key)
        if answer.status == 200:
            return False
        self.assertEqual((410, "gone"), (answer.status, answer.code))
        self.assertEqual(200, self.daemon.get(f"/v1/workspaces/{ws}/exec/{exec_id}", key=key).status)
        return True

    def test_beyond_an_owners_share_the_oldest_is_gone(self):
        self.restart(owner_output="1M")
        alice, bob = self.owner("alice", "a1"), self.owner("bob", "b1")
        theirs = self.print("b1", bob, 400)
        ids = [self.print("a1", alice, 400) for _ in range(4)]
        self.until(lambda: [self.gone("a1", one, alice) for one in ids] == [True, True, False, False])
        self.assertEqual(400 << 10, len(self.output("a1", ids[3], alice).bytes))
        self.assertFalse(self.gone("b1", theirs, bob))
        # Also of what was there before a start, and in the same order.
        self.daemon.stop()
        self.daemon.start()
        last = self.print("a1", alice, 400)
        self.until(lambda: self.gone("a1", ids[2], alice))
        self.assertFalse(self.gone("a1", ids[3], alice))
        self.assertFalse(self.gone("a1", last, alice))

    def test_beyond_the_hosts_share_the_oldest_of_all_is_gone(self):
        self.restart(max_output="1M")
        alice, bob = self.owner("alice", "a1"), self.owner("bob", "b1")
        first, second, third = self.print("b1", bob, 400), self.print("a1", alice, 400), self.print("a1", alice, 400)
        self.until(lambda: self.gone("b1", first, bob))
        self.assertFalse(self.gone("a1", second, alice) or self.gone("a1", third, alice))

    def test_running_commands_keep_less_and_no_more_are_started(self):
        self.restart(owner_output="512K")
        alice, bob = self.owner("alice", "a1"), self.owner("bob", "b1")
        running = self.started("a1", alice, "head -c 40000000 /dev/zero; echo done; sleep 1000")
        self.until(lambda: self.daemon.get(f"/v1/workspaces/a1/exec/{running}", key=alice).json.get("output_bytes") == 40000005)
        self.assertLess(self.on_disk(), 3 << 20)
        self.assertEqual(b"done\n", self.output("a1", running, alice, **{"from": 40000000}).bytes)
        self.refused("owner_output", self.begin("a1", alice))
        self.started("b1", bob)
        self.kill("a1", running, alice)
        self.until(lambda: self.begin("a1", alice).status == 202)

    def test_a_reader_loses_nothing_by_it(self):
        self.restart(owner_output="512K")
        alice = self.owner("alice", "a1")
        seed = random.Random(5).randbytes(16)
        script = (f"import hashlib, sys\nb = bytes.fromhex('{seed.hex()}')\nfor i in range(20):\n"
                  " b = hashlib.shake_128(b).digest(1 << 20)\n sys.stdout.buffer.write(b)")
        response = self.daemon.stream("POST", "/v1/workspaces/a1/exec", {"argv": ["python3", "-c", script], "stream": "raw"},
                                      key=alice)
        expected, seen, piece = hashlib.sha256(), hashlib.sha256(), seed
        for _ in range(20):
            piece = hashlib.shake_128(piece).digest(1 << 20)
            expected.update(piece)
        time.sleep(0.5)
        while some := response.read(1 << 16):
            seen.update(some)
        response.keep.close()
        self.assertEqual(expected.hexdigest(), seen.hexdigest())

    @unittest.skipUnless(ROOT, "mounts a disk of its own")
    def test_output_does_not_take_what_the_disk_floor_keeps(self):
        ws = self.workspace()
        self.daemon.stop()
        place = f"{self.daemon.state}/execs"
        owner = os.stat(place)
        mount("tmpfs", place, "tmpfs", "size=64m,mode=700")
        try:
            os.chown(place, owner.st_uid, owner.st_gid)
            self.restart(disk_floor="24M")
            result = self.daemon.execute(ws, "echo begun; sleep 0.3; head -c 60000000 /dev/zero; sleep 1000")
            self.assertEqual("disk", result["reason"])
            free = os.statvfs(place)
            self.assertGreater(free.f_bavail * free.f_frsize, 4 << 20)
            self.assertEqual("small\n", self.daemon.execute(ws, "echo small")["stdout"])
        finally:
            self.daemon.stop()
            umount(place)

    def test_below_the_disk_floor_files_can_still_be_deleted(self):
        ws = self.workspace()
        self.assertEqual(0, self.daemon.execute(ws, "echo much > /much")["exit_code"])
        self.restart(disk_floor="1000000G")
        answer = self.daemon.post(f"/v1/workspaces/{ws}/exec", {"argv": ["true"]})
        self.assertIn("disk_floor", answer.json["error"]["message"])
        answer = self.daemon.post(f"/v1/workspaces/{ws}/exec", {"argv": ["rm", "/much"]})
        self.assertEqual((507, "disk_full"), (answer.status, answer.code))
        self.assertIn("not even rm: delete files by calls, which still work (carrel rm, or DELETE .../files/PATH), or make room on the host",
                      answer.json["error"]["message"])
        self.assertEqual(204, self.daemon.request("DELETE", f"/v1/workspaces/{ws}/files/much").status)


if __name__ == "__main__":
    unittest.main(verbosity=0)
