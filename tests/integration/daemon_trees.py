#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 180
"""Trees that were there before the daemon: their links, what stands in the way of a mount, and where the state may be."""
import os
import shutil
import unittest

from carreltest import ROOT, TMP, CarrelTest, write
from daemontest import Daemon, DaemonTest


def own(top):
    """As root the trees are an ordinary user's, as they are in a real installation."""
    if os.geteuid() != 0:
        return
    for where, dirs, files in os.walk(top):
        for name in (".", *dirs, *files):
            os.chown(os.path.join(where, name), 1000, 1000, follow_symlinks=False)


class Links(DaemonTest):
    def setUp(self):
        super().setUp()
        self.bucket = f"{self.daemon.state}/agents"
        for name, text in (("skills/system", "for all"), ("skills/u1", "for u1"), ("skills/u2", "for u2"),
                           ("threads/ticket", "the ticket"), ("threads/other", "another's")):
            os.makedirs(f"{self.bucket}/{name}")
            write(f"{self.bucket}/{name}/word", text)

    def thread(self, name, system=None, user=None, ticket=None):
        """A tree with links of old."""
        top = f"{self.bucket}/threads/{name}"
        os.makedirs(f"{top}/.solven/skills")
        for at, target in ((".solven/skills/system", system), (".solven/skills/user", user), (".ticket", ticket)):
            if target:
                os.symlink(target, f"{top}/{at}")
        return top

    def adopt(self, dry=False, owner="u1"):
        own(self.bucket)
        answer = self.daemon.post("/v1/adopt", {"path": self.bucket, "owner": owner, "dry_run": dry})
        self.assertEqual(200, answer.status, answer.bytes)
        return {w["id"]: w for w in answer.json["workspaces"]}

    def links(self, name):
        return self.daemon.get(f"/v1/workspaces/{name}").json["links"]

    LOOK = "cat .solven/skills/system/word; echo; cat .solven/skills/user/word; echo; cat .ticket/word"

    def test_links_to_skills_and_a_ticket_go_on_to_work(self):
        self.thread("absolute", f"{self.bucket}/skills/system", f"{self.bucket}/skills/u1/", f"{self.bucket}/threads/ticket")
        self.thread("relative", "../../../../skills/system", "../../../../skills/u1", "../ticket")
        self.thread("around", "../../../../../agents/skills/system", "../../../../skills//u1", "./../../threads/ticket")
        planned = self.adopt(dry=True)
        self.assertEqual("skills/system", planned["relative"]["links"]["places"]["system"])
        self.assertLessEqual({"skills/system", "skills/u1", "ticket"}, set(planned["relative"]["made"]))
        self.assertEqual([], [w["why"] for w in planned.values() if "why" in w])
        self.assertEqual(404, self.daemon.get("/v1/workspaces/absolute").status)
        done = self.adopt()
        for name in ("absolute", "relative", "around"):
            with self.subTest(name=name):
                before = os.readlink(f"{self.bucket}/threads/{name}/.ticket")
                self.assertEqual(planned[name]["links"]["places"], done[name]["links"]["places"])
                self.assertNotIn("links_unused", done[name])
                seen = self.daemon.execute(name, f"{self.LOOK}; for d in .solven/skills/system .solven/skills/user .ticket; "
                                                 "do touch $d/x; done")
                self.assertEqual("for all\nfor u1\nthe ticket", seen["stdout"])
                self.assertEqual(3, seen["stderr"].count("Read-only"), seen["stderr"])
                self.assertEqual(before, os.readlink(f"{self.bucket}/threads/{name}/.ticket"))
                self.assertEqual("ticket", self.links(name)["ticket"])
        # The links are part of the sandbox spec, so they are on record.
        records = {r["workspace"]: r for r in self.daemon.audit() if r["operation"] == "workspace.adopt"}
        self.assertEqual("ticket", records["relative"]["details"]["links"]["ticket"])
        # What is only shown inside is not part of an archive.
        archive = self.daemon.get("/v1/workspaces/absolute/backup").bytes
        self.assertNotIn(b"for all", archive)
        self.assertNotIn(b"the ticket", archive)

    def test_an_archive_has_what_the_workspace_keeps_beside_the_skills(self):
        os.makedirs(f"{self.daemon.state}/main/skills/system")
        write(f"{self.daemon.state}/main/skills/system/word", "for all")
        self.workspace(id="shown")
        self.daemon.execute("shown", "echo the ticket > word")
        for name in ("from", "to"):
            self.workspace(id=name, links={"ticket": "shown"})
        self.assertEqual("for all\nthe ticket\n", self.daemon.execute("from", "cat .solven/skills/system/word; echo; cat .ticket/word")["stdout"])
        self.daemon.execute("from", "mkdir .solven/skills/own && echo mine > .solven/skills/own/word")
        archive = self.daemon.get("/v1/workspaces/from/backup").bytes
        self.assertNotIn(b"for all", archive)
        self.assertNotIn(b"the ticket", archive)
        self.assertEqual(0, self.daemon.request("POST", "/v1/workspaces/to/restore", archive).json["exit_code"])
        self.assertEqual("mine\n", self.daemon.execute("to", "cat .solven/skills/own/word")["stdout"])

    def test_a_link_gives_nothing_that_the_settings_do_not(self):
        secret = write(self.path("secret"), "the host's")
        os.makedirs(self.path("outside"))
        self.thread("theirs", "../../../../skills/u2", f"{self.bucket}/skills/u2", f"{self.bucket}/threads/nobody")
        self.thread("host", "/etc", self.path("outside"), secret)
        self.thread("state", f"{self.daemon.state}/db", f"{self.daemon.state}", f"{self.bucket}/threads")
        self.thread("dots", f"{self.bucket}/skills/../skills/system", f"{self.bucket}/threads/../skills/u1", "../ticket/../other")
        self.thread("self", ticket="../self")
        done = self.adopt()
        for name in ("theirs", "host", "state", "dots", "self"):
            with self.subTest(name=name):
                self.assertEqual({}, done[name]["links"], done[name])
                self.assertIn(".ticket", done[name]["links_unused"])
                if name == "self":
                    continue
                answer = self.daemon.post(f"/v1/workspaces/{name}/exec", {"command": "true"})
                self.assertEqual((409, "conflict"), (answer.status, answer.code))
                self.assertIn("'.solven/skills/system' in the workspace is a symlink", answer.json["error"]["message"])
                # Without skills it works, and the links lead nowhere.
                patched = self.daemon.request("PATCH", f"/v1/workspaces/{name}", {"links": {"skills_at": ""}})
                self.assertEqual(200, patched.status, patched.bytes)
                self.assertEqual("", self.daemon.execute(name, f"{self.LOOK}; ls .ticket/")["stdout"].strip())

    def test_another_owners_thread_is_not_given(self):
        self.adopt(owner="u2")
        self.thread("mine", ticket="../other")
        done = self.adopt(owner="u1")
        self.assertEqual({}, done["mine"]["links"])
        self.assertEqual({".ticket": "what it leads to is not the owner's, or hides another link"}, done["mine"]["links_unused"])
        self.assertEqual("", self.daemon.execute("mine", "cat .ticket/word")["stdout"])

    def test_what_settings_give_later_works_by_the_link(self):
        self.thread("late", f"{self.bucket}/skills/system", f"{self.bucket}/skills/u2", "../other")
        self.adopt(owner="boss")
        self.assertEqual("for all\n\nanother's", self.daemon.execute("late", self.LOOK)["stdout"])
        links = {"skills_user": "u2", "ticket": "other", "ticket_mode": "rw", "places": {"system": "usr/lib", "ticket": "x"}}
        changed = self.daemon.request("PATCH", "/v1/workspaces/late", {"links": links})
        self.assertEqual(200, changed.status, changed.bytes)
        places = changed.json["links"]["places"]
        self.assertEqual({"system", "user", "ticket"}, set(places))
        self.assertEqual("other", places["ticket"])
        self.daemon.post("/v1/workspaces/late/sleep")
        self.assertEqual("for all\nfor u2\nanother's", self.daemon.execute("late", self.LOOK)["stdout"])
        self.daemon.execute("late", "echo more > .ticket/more")
        self.assertTrue(os.path.exists(f"{self.bucket}/threads/other/more"))
        # A command cannot move them: what they are is in the settings, not in the tree.
        self.daemon.execute("late", "rm .solven/skills/system .ticket; "
                                    "ln -s /skills/u1 .solven/skills/system; ln -s ../ticket .ticket")
        self.daemon.post("/v1/workspaces/late/sleep")
        self.assertEqual("\nfor u2\n", self.daemon.execute("late", self.LOOK)["stdout"])
        self.assertEqual(places, self.links("late")["places"])

    def test_nothing_of_the_workspaces_own_is_covered(self):
        top = self.thread("full", "../../../../skills/system", None, "../ticket")
        os.makedirs(f"{top}/skills/system")
        write(f"{top}/skills/system/mine", "mine")
        write(f"{top}/ticket", "mine too")
        done = self.adopt()
        self.assertEqual({}, done["full"]["links"])
        self.assertEqual({".solven/skills/system", ".ticket"}, set(done["full"]["links_unused"]))
        given = self.daemon.post("/v1/workspaces", {"id": "given", "links": {"places": {"system": "usr"}}})
        self.assertEqual({}, given.json["links"])

    def test_places_that_would_hide_something_are_not_used(self):
        for name in ("skills", "tmp", "usr"):
            os.makedirs(f"{self.bucket}/threads/{name}")
            self.thread(f"to-{name}", "../../../../skills/system", "../../../../skills/system", f"../{name}")
        done = self.adopt(owner="system")
        for name in ("to-skills", "to-tmp", "to-usr"):
            self.assertEqual({"places": {"system": "skills/system"}}, done[name]["links"], done[name])
            self.assertEqual({".solven/skills/user", ".ticket"}, set(done[name]["links_unused"]))
            seen = self.daemon.execute(name, "cat .solven/skills/system/word; touch /tmp/x")
            self.assertEqual(("for all", 0), (seen["stdout"], seen["exit_code"]))

    def test_the_way_the_state_was_named_counts(self):
        self.daemon.stop()
        os.symlink(self.daemon.state, self.path("named"))
        self.thread("named", f"{self.path('named')}/agents/skills/system")
        self.daemon = Daemon(self.path("named"))
        self.bucket = f"{os.path.realpath(self.path('named'))}/agents"
        self.adopt()
        self.assertEqual("for all", self.daemon.execute("named", "cat .solven/skills/system/word")["stdout"])


class InTheWay(DaemonTest):
    """Whatever stands where something is to be mounted is told by its name, before anything is started."""

    def setUp(self):
        super().setUp()
        os.makedirs(f"{self.daemon.state}/main/skills/system")
        self.bucket = f"{self.daemon.state}/main"
        self.workspace(id="other")

    def refused(self, name, words):
        for _ in range(2):
            answer = self.daemon.post(f"/v1/workspaces/{name}/exec", {"command": "true"})
            self.assertEqual((409, "conflict"), (answer.status, answer.code), answer.bytes)
            for word in words:
                self.assertIn(word, answer.json["error"]["message"])
        self.assertEqual("asleep", self.daemon.get(f"/v1/workspaces/{name}").json["state"])

    def test_what_is_no_directory(self):
        kinds = {"a symlink": lambda path: os.symlink("/nowhere", path), "a file": write, "a FIFO": os.mkfifo,
                 "a symlink ": lambda path: os.symlink(self.dir, path)}
        places = (".solven", ".solven/skills", ".solven/skills/system", ".ticket")
        number = 0
        for kind, plant in kinds.items():
            for place in places:
                with self.subTest(kind=kind, place=place):
                    number += 1
                    name = self.workspace(id=f"w{number}", links={"ticket": "other"})
                    top = f"{self.bucket}/threads/{name}"
                    os.makedirs(os.path.dirname(f"{top}/{place}"), exist_ok=True)
                    plant(f"{top}/{place}")
                    own(top)
                    self.refused(name, (f"'{place}' in the workspace is {kind.strip()}", "rename it"))

    def test_what_is_closed(self):
        for place in (".solven", ".solven/skills"):
            with self.subTest(place=place):
                name = self.workspace()
                top = f"{self.bucket}/threads/{name}"
                self.daemon.execute(name, "true")
                self.daemon.post(f"/v1/workspaces/{name}/sleep")
                os.chmod(f"{top}/{place}", 0)
                self.refused(name, (f"'{place}' in the workspace", "chmod u+rwx"))
                os.chmod(f"{top}/{place}", 0o755)
                self.assertEqual(0, self.daemon.execute(name, "true")["exit_code"])

    def test_from_inside(self):
        name = self.workspace(links={"skills_at": "", "ticket": "other"})
        self.daemon.execute(name, "mkdir -p .solven; mkfifo .solven/skills; chmod 0 .solven")
        changed = self.daemon.request("PATCH", f"/v1/workspaces/{name}", {"links": {"ticket": "other"}})
        self.assertEqual(200, changed.status, changed.bytes)
        self.daemon.post(f"/v1/workspaces/{name}/sleep")
        self.refused(name, ("'.solven' in the workspace", "chmod u+rwx"))
        os.chmod(f"{self.bucket}/threads/{name}/.solven", 0o700)
        self.refused(name, ("'.solven/skills' in the workspace is a FIFO",))


class Places(CarrelTest):
    def test_a_state_below_directories_that_are_closed_to_others(self):
        for above in (TMP, self.dir):
            os.chmod(above, 0o711)
        os.makedirs(self.path("closed/way"))
        os.chmod(self.path("closed/way"), 0o700)
        os.chmod(self.path("closed"), 0o700)
        daemon = Daemon(self.path("closed/way/s"))
        try:
            daemon.post("/v1/workspaces", {"id": "desk"})
            self.assertEqual("hello\n", daemon.execute("desk", "echo hello | tee kept")["stdout"])
            daemon.kill_front()
            self.assertEqual("hello\n", daemon.execute("desk", "cat kept")["stdout"])
            self.assertTrue(daemon.get("/v1/audit").json["records"])
            self.assertIn("carrel_", daemon.get("/metrics").bytes.decode())
            self.assertEqual(daemon.state + "/main/threads/desk", daemon.get("/v1/workspaces/desk").json["path"])
        finally:
            daemon.stop()
        again = Daemon(daemon.state)
        self.assertEqual("hello\n", again.execute("desk", "cat kept")["stdout"])
        again.stop()


class Bashrc(DaemonTest):
    def test_a_shell_says_where_it_is(self):
        self.workspace(id="desk")
        path = f"{self.daemon.state}/main/threads/desk/.bashrc"
        seen = self.daemon.execute("desk", "bash -i -c 'echo \"${PS1@P}\"; alias ll'", pty={"cols": 80, "rows": 24})["stdout"]
        self.assertIn("desk", seen)
        self.assertIn("ls -l", seen)
        plain = self.daemon.execute("desk", "TERM=dumb bash -ic 'echo \"<${PS1@P}>\"' 2>/dev/null")["stdout"]
        self.assertRegex(plain, r"<desk:[~/][$#] >")
        quiet = self.daemon.execute("desk", "bash -c '. ./.bashrc; echo \"${PS1-none}\"; alias'")
        self.assertEqual(("none\n", ""), (quiet["stdout"], quiet["stderr"]))
        self.assertEqual(0o644, os.stat(path).st_mode & 0o777)

    def test_one_that_is_there_stays_and_adopting_makes_none(self):
        bucket = f"{self.daemon.state}/main"
        for name in ("with", "without"):
            os.makedirs(f"{bucket}/threads/{name}")
        write(f"{bucket}/threads/with/.bashrc", "PS1='mine '\n")
        own(bucket + "/threads")
        self.assertEqual(2, self.daemon.post("/v1/adopt", {}).json["adopted"])
        self.daemon.execute("without", "true")
        self.assertFalse(os.path.exists(f"{bucket}/threads/without/.bashrc"))
        self.assertEqual("PS1='mine '\n", self.daemon.execute("with", "cat .bashrc")["stdout"])
        # A tree that an interrupted create has left is taken over as it is.
        os.makedirs(f"{bucket}/threads/left")
        shutil.copy(f"{bucket}/threads/with/.bashrc", f"{bucket}/threads/left/.bashrc")
        self.workspace(id="left")
        self.assertEqual("PS1='mine '\n", self.daemon.execute("left", "cat .bashrc")["stdout"])

    def test_with_a_disk_in_an_image_it_gives_way_and_what_is_somebodys_does_not(self):
        for name in ("new", "changed"):
            self.workspace(id=name, policy={"limits": {"disk": "image:64M"}})
        changed = f"{self.daemon.state}/main/threads/changed/.bashrc"
        write(changed, "PS1='mine '\n")
        answer = self.daemon.post("/v1/workspaces/changed/exec", {"command": "true"})
        self.assertGreaterEqual(answer.status, 400, answer.bytes)
        self.assertTrue(os.path.exists(changed))
        if not ROOT:
            return  # only root may mount an image
        self.assertEqual("kept\n", self.daemon.execute("new", "echo kept > a; cat a")["stdout"])
        self.daemon.post("/v1/workspaces/new/sleep")
        self.assertEqual("kept\n", self.daemon.execute("new", "cat a")["stdout"])


if __name__ == "__main__":
    unittest.main()
