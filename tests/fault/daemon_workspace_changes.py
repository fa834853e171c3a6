#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 240
# TAKES: 70
"""Workspaces made, deleted, taken back and purged while the front dies at any instant, or the record cannot be written:
what was acknowledged holds, no workspace is without its tree, and there is one change of it at a time."""
import os
import random
import shutil
import signal
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "integration"))
from carreltest import PATIENCE, ROOT, carrel, write  # noqa: E402
from daemon_audit import Cramped  # noqa: E402
from daemontest import DaemonTest  # noqa: E402

KILLS = 24 if os.environ.get("LONG") == "1" else 9
THREADS = 4
LIVE, TRASH, GONE = "live", "trash", "gone"
FRONT_UID = 0x6ffffffe


class Changes(DaemonTest):
    def threads(self):
        return set(os.listdir(f"{self.daemon.state}/main/threads"))

    def trash(self):
        """Ids of what lies in the trash."""
        return [name.rsplit(".", 1)[0] for name in os.listdir(f"{self.daemon.state}/main/.carrel/trash")]

    def rows(self, deleted):
        found, cursor = {}, ""
        while cursor is not None:
            answer = self.daemon.get(f"/v1/workspaces?limit=1000&deleted={deleted}&cursor={cursor}").json
            found.update({w["id"]: w for w in answer["workspaces"]})
            cursor = answer["next"]
        return found

    def until(self, condition, what):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.02)

    def status(self, method, path, body=None):
        return self.daemon.request(method, f"/v1/workspaces{path}", body).status

    def verify(self):
        done = carrel("audit", "verify", "--state", self.daemon.state)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)


class Worker(threading.Thread):
    """Changes workspaces of its own, and keeps what may have become of each."""
    STEPS = {LIVE: [("DELETE", "", TRASH), ("DELETE", "?purge=1", GONE)],
             TRASH: [("POST", "/undelete", LIVE), ("POST", "/undelete", LIVE), ("DELETE", "?purge=1", GONE)]}

    def __init__(self, daemon, number, stop):
        super().__init__()
        self.daemon, self.number, self.stopping = daemon, number, stop
        self.random = random.Random(number)
        self.made = 0
        self.states = {}  # id -> all that it may be
        self.done = 0
        self.odd = []

    def run(self):
        while not self.stopping.is_set():
            known = [i for i, s in self.states.items() if len(s) == 1 and s != {GONE}]
            if len(known) < 6 or self.random.random() < 0.2:
                self.made += 1
                self.step(f"t{self.number}-{self.made}", {GONE}, "POST", None, LIVE)
            else:
                one = self.random.choice(known)
                before = self.states[one]
                method, tail, after = self.random.choice(self.STEPS[next(iter(before))])
                self.step(one, before, method, tail, after)

    def step(self, one, before, method, tail, after):
        path = "/v1/workspaces" if tail is None else f"/v1/workspaces/{one}{tail}"
        self.states[one] = before | {after}
        if (before, after) == ({LIVE}, GONE):
            self.states[one].add(TRASH)  # for a while
        try:
            answer = self.daemon.request(method, path, {"id": one} if tail is None else {} if method == "POST" else None)
        except Exception:  # noqa: BLE001 - the connection died with the front, in one of many ways
            time.sleep(0.005)
            return
        if answer.status in (200, 201, 204):
            self.states[one] = {after}
            self.done += 1
        elif answer.status in (409, 503):
            self.states[one] = before
            time.sleep(0.005)
        else:
            self.odd.append((method, path, answer.status, answer.bytes))


class FrontDies(Changes):
    options = ("--set", "max_execs=500")

    def test_a_front_that_dies_at_any_instant_leaves_nothing_half_done(self):
        stop = threading.Event()
        workers = [Worker(self.daemon, number, stop) for number in range(THREADS)]
        for worker in workers:
            worker.start()
        try:
            for number in range(KILLS):
                # Those that live shorter than a second are started again after a pause, which grows.
                time.sleep(random.uniform(0.02, 0.35) if number % 3 == 0 else random.uniform(1, 1.3))
                self.daemon.kill_front()
            time.sleep(0.3)
        finally:
            stop.set()
            for worker in workers:
                worker.join()
        self.assertEqual([], [odd for worker in workers for odd in worker.odd])
        self.assertGreater(sum(worker.done for worker in workers), 100)
        states = {one: s for worker in workers for one, s in worker.states.items()}
        self.daemon.kill_front()  # one more start with all that is left
        time.sleep(1)
        self.settled(states)
        self.usable(states)
        self.verify()

    def settled(self, states):
        """Rows and trees agree, with each other and with what was acknowledged."""
        def in_order():
            live, deleted = self.rows(0), self.rows(1)
            return (live.keys() <= self.threads() and sorted(deleted) == sorted(self.trash())
                    and not deleted.keys() & self.threads())
        self.until(in_order, f"rows and trees do not agree: {sorted(self.rows(0).keys() - self.threads())} without a tree, "
                             f"in the trash: {sorted(self.rows(1))} and {sorted(self.trash())}")
        live, deleted = self.rows(0), self.rows(1)
        for one, may_be in states.items():
            is_now = LIVE if one in live else TRASH if one in deleted else GONE
            self.assertIn(is_now, may_be, one)
        unknown = self.threads() - live.keys() - deleted.keys()
        self.assertLessEqual(unknown, {one for one, may_be in states.items() if may_be == {GONE, LIVE}}, "a tree without a row")
        self.assertLessEqual(len(unknown), KILLS * THREADS)
        print(f"{len(states)} workspaces, {sum(len(s) > 1 for s in states.values())} in doubt, {len(unknown)} trees of nobody")
        for one in unknown:
            self.assertEqual(201, self.status("POST", "", {"id": one}), "a tree of nobody keeps its id for ever")

    def changed(self, method, path, body=None):
        """The status, when the front's own look through the trash does not have that workspace at this moment."""
        answers = []
        self.until(lambda: answers.append(self.status(method, path, body)) or answers[-1] != 409, f"{path}: always 409")
        return answers[-1]

    def usable(self, states):
        doubtful = [one for one, may_be in states.items() if len(may_be) > 1]
        for number, one in enumerate(sorted(self.rows(1))):
            if number % 2:
                self.assertEqual(204, self.changed("DELETE", f"/{one}?purge=1"), one)
                self.assertEqual(404, self.status("GET", f"/{one}"))
            else:
                self.assertEqual(200, self.changed("POST", f"/{one}/undelete", {}), one)
        live = self.rows(0)
        for one in [*(one for one in doubtful if one in live), *list(live)[:20]]:
            self.assertEqual("ok\n", self.daemon.execute(one, "echo ok")["stdout"], one)
            self.assertEqual(200, self.status("POST", f"/{one}/sleep", {}))
        self.assertEqual([], self.trash())


class OneAtATime(Changes):
    def fill(self, ws, files=20000):
        """Takes long enough to remove that it is seen."""
        top = f"{self.daemon.state}/main/threads/{ws}"
        for number in range(files):
            if number % 1000 == 0:
                os.mkdir(f"{top}/{number}")
            write(f"{top}/{number // 1000 * 1000}/{number}")

    def purge_and_freeze(self, ws):
        """Begins a purge whose client leaves, and stops the process that removes the tree; its id."""
        known = set(self.broker_children())
        connection = self.daemon.connect()
        connection.request("DELETE", f"/v1/workspaces/{ws}?purge=1")
        deadline = time.monotonic() + PATIENCE
        while not (found := set(self.broker_children()) - known):
            self.assertLess(time.monotonic(), deadline, "nobody removes it")
        remover = found.pop()
        while len(os.listdir(f"/proc/{remover}/fd")) > 8:
            self.assertLess(time.monotonic(), deadline, "it keeps what is the broker's")
        os.kill(remover, signal.SIGSTOP)
        connection.close()
        time.sleep(0.1)
        return remover

    def broker_children(self):
        with open(f"/proc/{self.daemon.process.pid}/task/{self.daemon.process.pid}/children", encoding="ascii") as file:
            return [int(pid) for pid in file.read().split()]

    def test_while_it_is_purged_nothing_else_is_done_to_it_and_a_client_that_leaves_changes_nothing(self):
        ws, other = self.workspace(id="big"), self.workspace(id="other")
        self.fill(ws)
        cat = self.daemon.post(f"/v1/workspaces/{other}/exec", {"command": "cat; echo end", "stdin_open": True,
                                                               "background": True}).json["exec_id"]
        remover = self.purge_and_freeze(ws)
        try:
            for method, path, body in [("POST", "/undelete", {}), ("DELETE", "", None), ("DELETE", "?purge=1", None),
                                       ("PATCH", "", {"labels": {}}), ("POST", "/exec", {"command": "true"})]:
                self.assertEqual(409, self.status(method, f"/{ws}{path}", body), f"{method} {path}")
            self.assertEqual(409, self.status("POST", "", {"id": ws}))
            self.assertIsNotNone(self.daemon.get(f"/v1/workspaces/{ws}").json["deleted"])
            # Its copy of the other command's stdin would keep that from its end.
            self.assertEqual(204, self.daemon.post(f"/v1/workspaces/{other}/exec/{cat}/stdin?eof=1", {}).status)
            out = self.daemon.get(f"/v1/workspaces/{other}/exec/{cat}/output?follow=1&format=raw").bytes
            self.assertEqual(b"{}end\n", out)
        finally:
            os.kill(remover, signal.SIGCONT)
        self.until(lambda: self.status("GET", f"/{ws}") == 404, "the purge is not finished without its client")
        self.assertEqual([], self.trash())
        self.assertEqual(ws, self.workspace(id=ws), "its id is still under change")

    def test_a_purge_that_was_interrupted_is_finished(self):
        self.daemon.stop()
        for options in ((), ("--set", "trash=0")):
            self.daemon.options = options
            self.daemon.start()
            ws = self.workspace(id="big")
            self.fill(ws)
            remover = self.purge_and_freeze(ws)
            os.kill(self.daemon.front_pid(), signal.SIGKILL)
            os.kill(remover, signal.SIGKILL)
            self.daemon.wait_ready()
            self.assertIn(self.status("POST", f"/{ws}/undelete", {}), (404, 409), "what is half removed came back")
            self.until(lambda: self.status("GET", f"/{ws}") == 404, "nobody finishes it")
            self.assertEqual([], self.trash())
            self.daemon.stop()
        self.daemon.start()

    def test_a_body_that_comes_late_does_not_bring_it_back(self):
        ws = self.workspace()
        body = b'{"labels": {"late": "yes"}}'
        late = self.daemon.connect()
        late.putrequest("PATCH", f"/v1/workspaces/{ws}")
        late.putheader("Content-Length", str(len(body)))
        late.endheaders(body[:5])
        time.sleep(0.2)
        self.assertEqual(204, self.status("DELETE", f"/{ws}"))
        late.send(body[5:])
        self.assertEqual(409, late.getresponse().status)
        late.close()
        now = self.daemon.get(f"/v1/workspaces/{ws}").json
        self.assertIsNotNone(now["deleted"])
        self.assertEqual({}, now["labels"])
        self.assertEqual(200, self.status("POST", f"/{ws}/undelete", {}))
        self.assertEqual("ok\n", self.daemon.execute(ws, "echo ok")["stdout"])

    def test_output_goes_with_its_workspace_and_what_nobody_knows_at_the_next_start(self):
        top = f"{self.daemon.state}/execs"

        def spools():
            return {name.split(".")[0] for name in os.listdir(top)}
        for _ in range(2):
            ws = self.workspace()
            one = self.daemon.execute(ws, "seq 10; seq 10 >&2")["exec_id"]
            self.assertIn(one, spools())
            self.assertEqual(204, self.status("DELETE", f"/{ws}?purge=1"))
            self.assertEqual(set(), spools())
        kept = self.daemon.execute(self.workspace(), "seq 10")["exec_id"]
        self.daemon.stop()
        for name in ("out", "turns"):
            path = write(f"{top}/x{'a' * 26}.{name}")
            if ROOT:
                os.chown(path, FRONT_UID, FRONT_UID)
        self.daemon.start()
        self.until(lambda: spools() == {kept}, "the output of a command that nobody knows is kept")

    def test_a_directory_of_nobodys_is_taken_over_if_nothing_is_in_it(self):
        threads = f"{self.daemon.state}/main/threads"
        os.mkdir(f"{threads}/bare")
        os.mkdir(f"{threads}/full")
        write(f"{threads}/full/file", "kept")
        self.assertEqual("bare", self.workspace(id="bare"))
        self.assertEqual(".bashrc\n", self.daemon.execute("bare", "ls -A | grep bashrc; touch made")["stdout"])
        self.assertEqual(409, self.status("POST", "", {"id": "full"}))
        self.assertEqual(["file"], os.listdir(f"{threads}/full"))
        self.assertEqual(404, self.status("GET", "/full"))
        self.assertEqual(400, self.status("POST", "", {"id": "bare.carrel-img"}))

    def test_a_tree_that_somebody_removed_by_hand_does_not_keep_its_row_for_ever(self):
        ws, second = self.workspace(), self.workspace()
        for one in (ws, second):
            shutil.rmtree(f"{self.daemon.state}/main/threads/{one}")
        self.assertEqual(404, self.daemon.post(f"/v1/workspaces/{ws}/exec", {"command": "true"}).status)
        self.assertEqual(204, self.status("DELETE", f"/{ws}"))
        self.assertEqual(404, self.status("POST", f"/{ws}/undelete", {}))
        self.assertEqual(204, self.status("DELETE", f"/{ws}?purge=1"))
        self.assertEqual(204, self.status("DELETE", f"/{second}?purge=1"))

    def test_a_row_in_the_trash_whose_tree_is_not_is_put_right_at_the_next_start(self):
        ws = self.workspace()
        self.daemon.execute(ws, "echo kept > file")
        self.assertEqual(204, self.status("DELETE", f"/{ws}"))
        self.daemon.stop()
        top = f"{self.daemon.state}/main"
        os.rename(f"{top}/.carrel/trash/{os.listdir(f'{top}/.carrel/trash')[0]}", f"{top}/threads/{ws}")
        self.daemon.start()
        self.until(lambda: self.trash() == [ws] and not self.threads(), "it lies where it does not belong")
        self.until(lambda: self.status("POST", f"/{ws}/undelete", {}) == 200, "it is still being moved")
        self.assertEqual("kept\n", self.daemon.execute(ws, "cat file")["stdout"])


class NoRecord(Changes):
    def setUp(self):
        super().setUp()
        self.daemon.stop()
        shutil.rmtree(self.daemon.state)
        self.daemon = Cramped(self.path("s"))

    def everything(self):
        return self.rows(0), self.rows(1), sorted(self.threads()), sorted(self.trash())

    def test_what_cannot_be_recorded_changes_nothing(self):
        for name in ("desk", "deleted"):
            self.workspace(id=name)
        self.assertEqual(204, self.status("DELETE", "/deleted"))
        self.daemon.execute("desk", "true")
        self.daemon.order(b"f")
        while self.status("POST", "", {}) == 201:
            pass
        before = self.everything()
        steps = [("POST", "", {"id": "new"}), ("PATCH", "/desk", {"labels": {"a": "b"}}), ("POST", "/desk/sleep", {}),
                 ("DELETE", "/desk", None), ("DELETE", "/desk?purge=1", None), ("POST", "/deleted/undelete", {}),
                 ("DELETE", "/deleted?purge=1", None)]
        for method, path, body in steps:
            self.assertIn(self.status(method, path, body), (500, 503, 507), f"{method} {path}")
            self.assertEqual(before, self.everything(), f"{method} {path} was done all the same")
        self.daemon.order(b"r")
        self.until(lambda: self.status("POST", "", {"id": "new"}) == 201, "it does not recover")
        for method, path, body in [steps[1], steps[2], steps[5], steps[3], ("DELETE", "/desk?purge=1", None), steps[6]]:
            self.assertIn(self.status(method, path, body), (200, 204), f"{method} {path}: still under change")
        self.assertNotIn("desk", self.threads())


if __name__ == "__main__":
    unittest.main(verbosity=0)
