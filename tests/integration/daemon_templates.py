#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 180
"""Templates: a workspace that is frozen, and others on it, which share its environments and see nothing of each other's
changes; and the package cache that all share."""
import hashlib
import http.client
import io
import os
import re
import signal
import sqlite3
import tarfile
import threading
import time
import unittest

from carreltest import PATIENCE, ROOT, carrel, read, write
from daemontest import DaemonTest

FILL = """
mkdir -p /.venv/bin /.venv/lib /node_modules/m /data/deep
echo 'one = 1' > /.venv/lib/one.py; echo 'two = 2' > /.venv/lib/two.py; ln -s lib/one.py /.venv/link
echo 'module.exports = 1' > /node_modules/m/index.js
echo notes > /notes.txt; echo deep > /data/deep/file; ln -s data/deep/file /short; chmod 750 /data
"""


class TemplateTest(DaemonTest):
    def top(self, *names):
        return os.path.join(self.daemon.state, ".carrel", *names)

    def run_in(self, ws, command, **more):
        done = self.daemon.execute(ws, command, **more)
        self.assertEqual(0, done["exit_code"], done)
        return done["stdout"]

    def freeze(self, ws, name="base", **body):
        return self.daemon.post("/v1/templates", {"name": name, "workspace": ws, **body})

    def build(self, name="base", fill=FILL, **body):
        ws = self.workspace(id=f"build-{name}")
        self.run_in(ws, fill)
        made = self.freeze(ws, name, **body)
        self.assertEqual(201, made.status, made.bytes)
        return made.json

    def on(self, template="base", **body):
        answer = self.daemon.post("/v1/workspaces", {"template": template, **body})
        self.assertEqual(201, answer.status, answer.bytes)
        return answer.json["id"]

    def templates(self):
        return os.listdir(self.top("templates"))

    def generations(self):
        return sorted(int(name) for name in os.listdir(self.top("cache")) if name.isdigit())

    def until(self, condition, what):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.02)

    @staticmethod
    def digest(top):
        """Of all that is below it."""
        found = hashlib.sha256()
        for at, dirs, files in os.walk(top):
            dirs.sort()
            for name in sorted(files):
                path = os.path.join(at, name)
                found.update(os.path.relpath(path, top).encode())
                if os.path.islink(path):
                    found.update(os.readlink(path).encode())
                else:
                    with open(path, "rb") as file:
                        found.update(file.read())
        return found.hexdigest()


class Shared(TemplateTest):
    def test_workspaces_on_it_share_its_environments_and_see_nothing_of_each_other(self):
        made = self.build()
        self.assertEqual(404, self.daemon.get("/v1/workspaces/build-base").status)
        self.assertNotIn("build-base", os.listdir(f"{self.daemon.state}/main/threads"))
        self.assertNotIn("build-base", os.listdir(f"{self.daemon.state}/main/.carrel/workspaces")
                         if os.path.exists(f"{self.daemon.state}/main/.carrel/workspaces") else [])
        self.assertGreater(made["files"], 5)
        self.assertGreater(made["bytes"], 0)
        tree = self.top("templates", made["id"], "tree")
        before = self.digest(tree)
        one, two = self.on(id="one"), self.on(id="two")
        self.assertEqual({"id": made["id"], "name": "base"}, self.daemon.get("/v1/workspaces/one").json["template"])
        self.assertIsNone(self.daemon.get(f"/v1/workspaces/{self.workspace()}").json["template"])
        self.assertEqual(2, self.daemon.get("/v1/templates/base").json["workspaces"])
        self.assertEqual("one = 1\nmodule.exports = 1\n/.venv\n",
                         self.run_in(one, "cat /.venv/link /node_modules/m/index.js; echo $VIRTUAL_ENV"))
        # In place, by another name, by deleting and by adding.
        self.run_in(one, "printf X | dd of=/.venv/lib/one.py conv=notrunc status=none; rm /.venv/lib/two.py; "
                         "mv /.venv/bin /.venv/tools || cp -r /.venv/bin /.venv/tools; echo 3 > /.venv/lib/three.py; "
                         "chmod 700 /node_modules/m/index.js; rm -r /node_modules/m; mkdir /node_modules/m; "
                         "echo mine > /node_modules/m/other.js; echo changed > /notes.txt")
        told = "cat /.venv/lib/one.py; ls /.venv/lib /node_modules/m; cat /notes.txt"
        mine = "Xne = 1\n/.venv/lib:\none.py\nthree.py\n\n/node_modules/m:\nother.js\nchanged\n"
        self.assertEqual(mine, self.run_in(one, told))
        theirs = "one = 1\n/.venv/lib:\none.py\ntwo.py\n\n/node_modules/m:\nindex.js\nnotes\n"
        self.assertEqual(theirs, self.run_in(two, told))
        self.assertEqual(before, self.digest(tree), "the template was changed")
        # Asleep, after a restart, back from the trash: it is what it was.
        self.assertEqual(200, self.daemon.post(f"/v1/workspaces/{one}/sleep").status)
        self.assertEqual(mine, self.run_in(one, told))
        self.daemon.stop()
        self.daemon.start()
        self.assertEqual(mine, self.run_in(one, told))
        self.assertEqual(204, self.daemon.request("DELETE", f"/v1/workspaces/{one}").status)
        self.assertEqual(200, self.daemon.post(f"/v1/workspaces/{one}/undelete").status)
        self.assertEqual(mine, self.run_in(one, told))
        self.assertEqual(theirs, self.run_in(self.on(id="three"), told))
        self.assertEqual(204, self.daemon.request("DELETE", f"/v1/workspaces/{one}?purge=1").status)
        self.assertNotIn(one, os.listdir(f"{self.daemon.state}/main/.carrel/workspaces"), "its layers are left")
        self.assertEqual(theirs, self.run_in(self.on(id="one"), told), "somebody else's layers")
        self.assertEqual(before, self.digest(tree))

    def test_its_other_files_are_copied_with_their_modes_and_links(self):
        self.build()
        ws = self.on(id="desk")
        self.assertEqual("deep\ndata/deep/file\n750 user\n",
                         self.run_in(ws, "cat /short; readlink /short; stat -c '%a %U' /data"))
        self.assertIn("desk:", self.run_in(ws, "cat /.bashrc"))
        tree = f"{self.daemon.state}/main/threads/desk"
        self.assertEqual([".bashrc", "data", "notes.txt", "short"],
                         sorted(name for name in os.listdir(tree) if os.path.isfile(f"{tree}/{name}")
                                or os.listdir(f"{tree}/{name}")))
        self.assertEqual(os.stat(tree).st_uid, os.stat(f"{tree}/data/deep/file").st_uid)

    def test_a_bashrc_of_its_own_is_copied(self):
        self.build(fill="echo 'echo hello' > /.bashrc; echo x > /x; mkdir /.venv.carrel-next /.venv.carrel-old; echo x > /.venv.carrel-next/x")
        ws = self.on()
        self.assertEqual("echo hello\n", self.run_in(ws, "cat /.bashrc"))
        self.assertNotIn("carrel-", self.run_in(ws, "ls -A /"), "what was half made is not for every workspace")

    def test_what_only_some_templates_have_is_the_workspaces_own(self):
        self.build(fill="mkdir /.venv; echo 1 > /.venv/a")
        one, two = self.on(), self.on()
        self.run_in(one, "mkdir -p /node_modules; echo mine > /node_modules/a")
        self.assertEqual("", self.run_in(two, "ls /node_modules 2>/dev/null; true"))
        self.assertEqual("mine\n", self.run_in(one, "cat /node_modules/a"))

    def test_a_plans_command_sees_the_environment_and_cannot_change_it(self):
        self.build()
        ws = self.on()
        self.run_in(ws, "echo mine > /.venv/lib/own.py")
        done = self.daemon.execute(ws, "cat /.venv/lib/one.py /.venv/lib/own.py; echo new > /made; "
                                       "echo bad > /.venv/lib/one.py || echo refused", mode="plan")
        self.assertEqual("one = 1\nmine\nrefused\n", done["stdout"], done)
        self.assertEqual(["made"], [o["path"] for o in self.daemon.get(
            f"/v1/workspaces/{ws}/plans/{done['plan']['id']}?operations=1").json["items"]])
        self.assertEqual("one = 1\n", self.run_in(ws, "cat /.venv/lib/one.py"))

    def test_a_backup_has_what_the_workspace_sees_and_can_be_restored(self):
        self.build()
        ws, other = self.on(), self.workspace()
        self.run_in(ws, "echo mine > /.venv/lib/own.py; rm /.venv/lib/two.py")
        packed = self.daemon.get(f"/v1/workspaces/{ws}/backup").bytes
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            names = archive.getnames()
        self.assertIn("./.venv/lib/own.py", names)
        self.assertIn("./.venv/lib/one.py", names)
        self.assertNotIn("./.venv/lib/two.py", names)
        self.assertEqual(200, self.daemon.request("POST", f"/v1/workspaces/{other}/restore", packed).status)
        self.assertEqual("one = 1\nmine\n", self.run_in(other, "cat /.venv/lib/one.py /.venv/lib/own.py"))

    def test_files_are_served_as_the_commands_see_them(self):
        self.build()
        ws = self.on()
        path = f"/v1/workspaces/{ws}/files/.venv/lib/one.py"
        self.assertEqual(b"one = 1\n", self.daemon.get(path).bytes)
        self.assertIn(self.daemon.request("PUT", path, b"put\n").status, (200, 201, 204))
        self.assertEqual("put\n", self.run_in(ws, "cat /.venv/lib/one.py"))
        self.assertEqual("one = 1\n", self.run_in(self.on(), "cat /.venv/lib/one.py"))

    def test_its_variables_are_below_the_policys_and_the_requests(self):
        self.build(spec={"env": {"A": "template", "B": "template", "C": "template"}, "python": {"packages": ["x"]}})
        ws = self.on(policy={"env": {"B": "policy"}})
        self.assertEqual("request policy template\n", self.run_in(ws, "echo $A $B $C", env={"A": "request"}))
        self.assertEqual(["x"], self.daemon.get("/v1/templates/base").json["spec"]["python"]["packages"])

    def test_its_start_command_runs_whenever_the_sandbox_starts(self):
        self.build(spec={"start": "echo $A >> /started; sleep 1000", "env": {"A": "begun"}})
        ws = self.on()
        for answer in (self.daemon.post("/v1/workspaces", {"id": "fresh", "template": "base", "policy": {"tmp": "exec"}}),
                       self.daemon.request("PATCH", f"/v1/workspaces/{ws}", {"policy": {"tmp": "exec"}})):
            self.assertEqual(400, answer.status, answer.bytes)  # it would run on, or wake one sandbox after the other
        for times in (1, 2):
            self.run_in(ws, "true")
            self.until(lambda times=times: self.run_in(ws, "cat /started 2>/dev/null; true") == "begun\n" * times,
                       "it is not started")
            running = self.daemon.get(f"/v1/workspaces/{ws}/exec?state=running").json["execs"]
            self.assertEqual(["echo $A >> /started; sleep 1000"], [one["command"] for one in running])
            self.assertEqual(200, self.daemon.post(f"/v1/workspaces/{ws}/sleep").status)

    def test_one_is_ready_in_milliseconds(self):
        self.build()
        times = []
        for _ in range(20):
            began = time.monotonic()
            self.on()
            times.append(1000 * (time.monotonic() - began))
        print(f"a workspace on a template: {sorted(times)[10]:.1f} ms")
        self.assertLess(min(times), 250)  # the others may have had to wait for a busy machine


class Life(TemplateTest):
    def test_one_in_use_cannot_be_deleted_and_says_by_whom_it_is_used(self):
        made = self.build()
        users = [self.on(id=f"user-{number}") for number in range(7)]
        self.daemon.request("DELETE", f"/v1/workspaces/{users[0]}")
        refused = self.daemon.request("DELETE", "/v1/templates/base")
        self.assertEqual((409, "conflict"), (refused.status, refused.code))
        self.assertIn("7 workspaces use", refused.json["error"]["message"])
        self.assertIn("user-0, user-1", refused.json["error"]["message"])
        self.assertEqual("one = 1\n", self.run_in(users[1], "cat /.venv/lib/one.py"))
        for one in users:
            self.assertEqual(204, self.daemon.request("DELETE", f"/v1/workspaces/{one}?purge=1").status)
        self.assertEqual(204, self.daemon.request("DELETE", "/v1/templates/base").status)
        self.assertEqual(404, self.daemon.get("/v1/templates/base").status)
        self.assertNotIn(made["id"], self.templates())
        self.assertEqual(404, self.daemon.request("DELETE", "/v1/templates/base").status)
        self.assertEqual(404, self.daemon.post("/v1/workspaces", {"template": "base"}).status)

    def test_a_name_means_the_newest_and_the_older_goes_when_nobody_uses_it(self):
        first = self.build()
        old = self.on(id="old")
        second = self.build(fill="mkdir /.venv; echo second > /.venv/which")
        self.assertEqual("second\n", self.run_in(self.on(), "cat /.venv/which"))
        self.assertEqual("one = 1\n", self.run_in(old, "cat /.venv/lib/one.py"))
        self.assertEqual([second["id"]], [t["id"] for t in self.daemon.get("/v1/templates").json["templates"]])
        self.assertEqual({first["id"], second["id"]}, set(self.templates()))
        self.assertEqual({"id": first["id"], "name": "base"}, self.daemon.get("/v1/workspaces/old").json["template"])
        self.assertEqual(204, self.daemon.request("DELETE", "/v1/workspaces/old?purge=1").status)
        self.until(lambda: self.templates() == [second["id"]], "the older one stays for ever")
        third = self.build(name="other")
        self.build(name="other")
        self.until(lambda: third["id"] not in self.templates(), "one that nobody used stays")

    def test_of_two_at_once_of_one_name_one_is_made_and_the_other_stays_a_workspace(self):
        names = ["first", "second"]
        for name in names:
            self.workspace(id=name)
            self.run_in(name, f"mkdir /.venv; echo {name} > /.venv/which")
        answers = {}

        def one(name):
            answers[name] = self.freeze(name)
        threads = [threading.Thread(target=one, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        made = [name for name in names if answers[name].status == 201]
        which = self.run_in(self.on(), "cat /.venv/which").strip()
        self.assertEqual(made[-1] if len(made) == 1 else which, which)
        for name in set(names) - set(made):  # not when one came after the other
            self.assertEqual(409, answers[name].status, answers[name].bytes)
            self.assertIn("'base'", answers[name].json["error"]["message"])
            self.assertEqual(f"{name}\n", self.run_in(name, "cat /.venv/which"))

    def build_of(self, name, **body):
        return self.daemon.post("/v1/workspaces", {"builds": name, **body})

    def test_a_name_is_taken_from_the_beginning_of_its_build_to_the_end(self):
        before = self.build()
        first = self.build_of("base", id="first")
        self.assertEqual((201, "base"), (first.status, first.json["builds"]), first.bytes)
        second = self.build_of("base", id="second")
        self.assertEqual((409, "conflict"), (second.status, second.code))
        for words in ("'base'", "'first'", "carrel ws rm --purge first"):
            self.assertIn(words, second.json["error"]["message"])
        self.assertEqual(404, self.daemon.get("/v1/workspaces/second").status)
        self.assertEqual(409, self.freeze(self.workspace(id="third")).status, "by another than its build")
        self.assertEqual(409, self.freeze("first", "other").status, "another than it builds")
        self.assertEqual(before["id"], self.daemon.get("/v1/templates/base").json["id"], "it is not as it was")
        self.assertEqual(201, self.build_of("other", id="fourth").status)
        # A build that fails deletes its workspace; one that is restored from the trash builds nothing.
        self.assertEqual(204, self.daemon.request("DELETE", "/v1/workspaces/first").status)
        self.assertEqual(201, self.build_of("base", id="second").status)
        self.assertEqual(200, self.daemon.post("/v1/workspaces/first/undelete").status)
        self.assertEqual(201, self.freeze("second").status)
        self.assertEqual(201, self.freeze("first").status)
        for body, status in (({"builds": "../x"}, 400), ({"builds": 5}, 400), ({"builds": "x", "template": "base"}, 400)):
            self.assertEqual(status, self.daemon.post("/v1/workspaces", body).status, body)
        self.assertEqual(403, self.daemon.post("/v1/workspaces", {"builds": "x"}, key=self.daemon.key("ann")).status)

    def test_what_a_killed_build_has_left_goes_with_the_next_start_or_when_nothing_happens_in_it(self):
        self.assertEqual(201, self.build_of("base", id="first").status)
        self.run_in("first", "echo half > /half")
        self.daemon.stop(signal.SIGKILL)
        self.daemon.start()
        self.until(lambda: self.daemon.get("/v1/workspaces/first").json["deleted"], "it is left")
        self.assertEqual(["first"], [w["id"] for w in self.daemon.get("/v1/workspaces?deleted=1").json["workspaces"]])
        said = [r for r in self.daemon.audit() if r["operation"] == "workspace.delete"]
        self.assertEqual([("first", "base")], [(r["workspace"], r["details"]["builds"]) for r in said])
        self.assertEqual(201, self.build_of("base", id="second").status)
        self.assertEqual(200, self.daemon.post("/v1/workspaces/first/undelete").status)
        self.assertEqual("half\n", self.run_in("first", "cat /half"))
        database = sqlite3.connect(f"{self.daemon.state}/db/carrel.db", isolation_level=None)
        database.execute("UPDATE workspaces SET updated_ms = updated_ms - 3600000 WHERE id = 'second'")
        database.close()
        refused = self.build_of("base", id="third")
        self.assertEqual(409, refused.status)
        self.assertIn("abandoned build", refused.json["error"]["message"])
        self.until(lambda: self.build_of("base", id="third").status == 201, "its name is taken for ever")
        self.assertTrue(self.daemon.get("/v1/workspaces/second").json["deleted"])
        self.assertIsNone(self.daemon.get("/v1/workspaces/third").json["deleted"])

    def test_what_is_not_decided_is_told_so_and_its_workspace_stays_until_it_is(self):
        ws = self.workspace(id="desk")
        self.run_in(ws, FILL)
        self.daemon.post(f"/v1/workspaces/{ws}/sleep")
        os.makedirs(self.top("templates"), mode=0o700, exist_ok=True)
        os.rename(self.top("templates"), self.top("away"))
        write(self.top("templates"), "")  # then the broker can neither begin nor see how far it is
        answer = self.freeze(ws)
        self.assertEqual((202, "freezing"), (answer.status, answer.json.get("state")), answer.bytes)
        began = time.monotonic()
        known = f"/v1/templates/{answer.json['id']}"
        self.assertEqual((200, "freezing"), (self.daemon.get(known).status, self.daemon.get(known).json["state"]))
        self.assertEqual(404, self.daemon.get("/v1/templates/base").status)
        for query in ("", "?purge=1"):
            refused = self.daemon.request("DELETE", f"/v1/workspaces/{ws}{query}")
            self.assertEqual((409, "conflict"), (refused.status, refused.code))
            self.assertIn(answer.json["id"], refused.json["error"]["message"])
        self.assertEqual(409, self.freeze(self.workspace(id="other")).status, "the name is not taken")
        time.sleep(max(0, began + 4 - time.monotonic()))
        tries = self.daemon.said().count("event=template_unfinished")
        self.assertLessEqual(tries, 2 + (time.monotonic() - began) / 1.2, "it is tried again and again without a pause")
        os.unlink(self.top("templates"))
        os.rename(self.top("away"), self.top("templates"))
        self.until(lambda: self.daemon.get(known).status == 404, "it is undecided for ever")
        self.until(lambda: self.freeze(ws).status == 201, "it cannot be frozen any more")
        said = [r["result"] for r in self.daemon.audit() if r["operation"] == "template.create"]
        self.assertEqual(["asked", "undecided", "failed", "asked", "ok"], said)

    def test_a_deletion_that_fails_is_on_record_as_that(self):
        made = self.build()
        os.rename(self.top("templates"), self.top("away"))
        write(self.top("templates"), "")
        self.assertEqual(500, self.daemon.request("DELETE", "/v1/templates/base").status)

        def results():
            return [r["result"] for r in self.daemon.audit() if r["operation"] == "template.delete"]
        self.assertEqual(["asked", "failed"], results())
        os.unlink(self.top("templates"))
        os.rename(self.top("away"), self.top("templates"))
        self.daemon.kill_front()  # the next one looks at once
        self.until(lambda: results() == ["asked", "failed", "ok"], "it is not finished, or not recorded")
        self.assertNotIn(made["id"], self.templates())

    def test_why_its_sandbox_ended_is_on_record(self):
        self.build()
        ends = [r["details"]["why"] for r in self.daemon.audit() if r["operation"] == "sandbox.end"]
        self.assertEqual(["its workspace becomes a template"], ends)

    def test_what_cannot_be_frozen_is_refused_and_stays(self):
        ws = self.workspace(id="desk")
        self.run_in(ws, "echo kept > /file")
        self.assertEqual(404, self.freeze("nobodys").status)
        for body in ({"name": "../x", "workspace": ws}, {"workspace": ws}, {"name": "a", "workspace": ws, "nope": 1},
                     {"name": "a", "workspace": ws, "spec": []}, {"name": "a", "workspace": ws, "spec": {"env": {"A": 1}}}):
            self.assertEqual(400, self.daemon.post("/v1/templates", body).status, body)
        running = self.daemon.post(f"/v1/workspaces/{ws}/exec", {"command": "sleep 1000", "background": True}).json
        refused = self.freeze(ws)
        self.assertEqual(409, refused.status, refused.bytes)
        self.assertIn(running["exec_id"], refused.json["error"]["message"])
        self.daemon.post(f"/v1/workspaces/{ws}/exec/{running['exec_id']}/kill")
        self.run_in(ws, "for i in $(seq 101); do mkdir /d$i; (cd /d$i; touch $(seq 100)); done")
        self.until(lambda: self.freeze(ws).json["error"]["code"] != "workspace_busy", "it is busy for ever")
        refused = self.freeze(ws)
        self.assertEqual(409, refused.status, refused.bytes)
        self.assertIn("10000 files", refused.json["error"]["message"])
        self.run_in(ws, "rm -r /d*; echo no > /.venv")
        refused = self.freeze(ws)
        self.assertEqual(409, refused.status, refused.bytes)
        self.run_in(ws, "rm /.venv; mkdir -p /node_modules/" + "/".join(["d"] * 150))
        refused = self.freeze(ws)
        self.assertEqual(409, refused.status, refused.bytes)
        self.assertIn("too deep", refused.json["error"]["message"])
        self.run_in(ws, "rm -r /node_modules; ln -s /etc /opt")
        self.assertEqual(409, self.freeze(ws).status, "a link where Carrel mounts")
        self.run_in(ws, "rm /opt")
        plan = self.daemon.execute(ws, "echo x > /planned", mode="plan", keep_open=True)["plan"]["id"]
        self.assertEqual(409, self.freeze(ws).status)
        self.assertEqual(200, self.daemon.request("DELETE", f"/v1/workspaces/{ws}/plans/{plan}").status)
        self.assertEqual("kept\n", self.run_in(ws, "cat /file"))
        self.assertEqual([], self.daemon.get("/v1/templates").json["templates"])
        self.daemon.request("DELETE", f"/v1/workspaces/{ws}")
        self.assertEqual(409, self.freeze(ws).status, "one in the trash")
        self.daemon.post(f"/v1/workspaces/{ws}/undelete")
        self.until(lambda: self.freeze(ws).status == 201, "it cannot be frozen any more")  # the sweep may be at it
        self.assertEqual(409, self.freeze(self.on()).status, "one on a template")
        self.assertEqual([], [name for name in self.templates() if not os.path.exists(self.top("templates", name, "tree"))])

    def test_only_an_administrator_makes_and_deletes_them_and_all_see_them(self):
        self.build(spec={"env": {"TOKEN": "secret"}})
        alice, bob = self.daemon.key("alice"), self.daemon.key("bob")
        mine = self.daemon.post("/v1/workspaces", {"template": "base"}, key=alice)
        self.assertEqual(201, mine.status, mine.bytes)
        ws = mine.json["id"]
        self.assertEqual(403, self.daemon.post("/v1/templates", {"name": "x", "workspace": ws}, key=alice).status)
        self.assertEqual(403, self.daemon.request("DELETE", "/v1/templates/base", key=alice).status)
        self.assertEqual(1, self.daemon.get("/v1/templates/base", key=alice).json["workspaces"])
        self.assertEqual({}, self.daemon.get("/v1/templates/base", key=alice).json["spec"])
        self.assertEqual({"env": {"TOKEN": "secret"}}, self.daemon.get("/v1/templates/base").json["spec"])
        self.assertEqual(0, self.daemon.get("/v1/templates", key=bob).json["templates"][0]["workspaces"])
        self.assertEqual(401, self.daemon.get("/v1/templates", headers={"Authorization": "Bearer ck_no"}).status)
        self.assertEqual("one = 1\n", self.run_in(ws, "cat /.venv/lib/one.py", key=alice))
        self.assertEqual(404, self.daemon.post("/v1/workspaces", {"template": "nope"}, key=bob).status)
        self.assertEqual(400, self.daemon.post("/v1/workspaces", {"template": 5}, key=bob).status)

    def test_it_is_on_record_before_and_after(self):
        made = self.build()
        self.on(id="desk")
        said = [r for r in self.daemon.audit() if r["operation"] == "template.create"]
        self.assertEqual(["asked", "ok"], [r["result"] for r in said])
        self.assertEqual({made["id"]}, {r["details"]["template"] for r in said})
        created = [r for r in self.daemon.audit() if r["operation"] == "workspace.create" and r["workspace"] == "desk"]
        self.assertEqual(made["id"], created[0]["details"]["template"])
        self.daemon.request("DELETE", "/v1/workspaces/desk?purge=1")
        self.daemon.request("DELETE", "/v1/templates/base")
        said = [(r["operation"], r["result"]) for r in self.daemon.audit()[-2:]]
        self.assertEqual([("template.delete", "asked"), ("template.delete", "ok")], said)
        done = carrel("audit", "verify", "--state", self.daemon.state)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)


class Cache(TemplateTest):
    def setUp(self):
        super().setUp()
        os.makedirs(self.top("tools", "bin"), mode=0o755, exist_ok=True)
        os.chmod(self.top("tools"), 0o755)
        tool = write(self.top("tools", "bin", "tool"), "#!/bin/sh\necho a tool\n")
        os.chmod(tool, 0o755)

    def test_tools_are_on_the_path_and_cannot_be_changed(self):
        ws = self.workspace()
        self.assertEqual("a tool\n/opt/carrel/bin/tool\n", self.run_in(ws, "tool; command -v tool"))
        self.assertEqual("refused\n", self.run_in(ws, "echo > /opt/carrel/bin/tool 2>/dev/null || echo refused"))
        self.run_in(ws, "echo mine > /opt/mine")  # the rest of it is the workspace's
        packed = self.daemon.get(f"/v1/workspaces/{ws}/backup").bytes
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            self.assertEqual([], [name for name in archive.getnames() if "opt/carrel" in name])

    def test_what_a_template_was_made_of_is_shared_and_nobody_changes_it_for_others(self):
        ws = self.workspace(id="maker")
        self.run_in(ws, "mkdir -p /.cache/uv/wheels/a /.cache/bun/b; echo wheel > /.cache/uv/wheels/a/w; "
                        "ln -s ../../../../../../etc /.cache/uv/out; ln -s wheels/a /.cache/uv/in; echo b > /.cache/bun/b/f; "
                        "echo gone > /.cache/uv/gone; rm /.cache/uv/gone; mkfifo /.cache/uv/pipe; mkdir /.venv")
        self.assertEqual("wheel\n", self.run_in(ws, "cat /.cache/uv/wheels/a/w"))
        self.assertEqual(200, self.daemon.post(f"/v1/workspaces/{ws}/sleep").status)
        self.assertEqual("wheel\n", self.run_in(ws, "cat /.cache/uv/in/w"), "it is not kept")
        other = self.workspace(id="other")
        self.assertEqual("", self.run_in(other, "ls -A /.cache/uv"), "another workspace sees it before it is shared")
        self.assertEqual([1], self.generations())
        self.assertEqual(201, self.freeze(ws, share_cache=True).status)
        self.assertEqual([1, 2], self.generations(), "a sandbox shows the older one")
        self.assertEqual("", self.run_in(other, "ls -A /.cache/uv"))
        self.assertEqual(200, self.daemon.post(f"/v1/workspaces/{other}/sleep").status)
        self.until(lambda: self.generations() == [2], "the older one stays")
        self.assertEqual("wheel\nb\nin\nout\nwheels\n",
                         self.run_in(other, "cat /.cache/uv/wheels/a/w /.cache/bun/b/f; ls -A /.cache/uv"))
        top = self.top("cache", "2")
        before = self.digest(top)
        self.assertTrue(os.path.islink(f"{top}/uv/out") and not os.path.exists(f"{top}/uv/passwd"))
        self.run_in(other, "printf X | dd of=/.cache/uv/wheels/a/w conv=notrunc status=none; rm -r /.cache/bun/b; "
                           "echo more > /.cache/uv/more")
        self.assertEqual("wheel\nb\n", self.run_in(self.workspace(), "cat /.cache/uv/wheels/a/w /.cache/bun/b/f; "
                                                                     "ls /.cache/uv/more 2>/dev/null; true"))
        self.assertEqual("Xheel\n", self.run_in(other, "cat /.cache/uv/wheels/a/w"))
        self.assertEqual(before, self.digest(top), "the shared cache was changed")
        # What it has made of it becomes the next one, where it adds something: deletions do not.
        self.assertEqual(201, self.freeze(other, "second", share_cache=True).status)
        self.daemon.stop()
        self.daemon.start()
        self.until(lambda: self.generations() == [3], "older ones are left at a start")
        self.assertEqual("Xheel\nb\nmore\n", self.run_in(self.workspace(), "cat /.cache/uv/wheels/a/w /.cache/bun/b/f "
                                                                          "/.cache/uv/more"))

    def test_what_is_in_its_caches_is_shared_only_if_that_is_said(self):
        ws = self.workspace(id="agents")
        self.run_in(ws, "mkdir -p /.cache/uv /.venv; echo planted > /.cache/uv/wheel; echo x > /.venv/x")
        self.assertEqual(400, self.freeze(ws, share_cache="yes").status)
        self.assertEqual(201, self.freeze(ws).status)
        for one in (self.workspace(), self.on()):
            self.assertEqual("", self.run_in(one, "ls -A /.cache/uv"))
        self.assertEqual([1], self.generations())

    def test_nothing_half_made_is_left_by_one_that_was_killed(self):
        self.daemon.stop()
        os.makedirs(self.top("cache", "new", "uv"))
        os.makedirs(self.top("cache", "7", "uv"))
        os.makedirs(self.top("cache", "7", "bun"))
        os.makedirs(self.top("cache", "3", "uv"))
        write(self.top("cache", "7", "uv", "file"), "seven")
        if ROOT:
            owner = os.stat(f"{self.daemon.state}/db")
            for name in ("uv", "bun", "uv/file"):
                os.chown(self.top("cache", "7", name), owner.st_uid, owner.st_gid)
        self.daemon.start()
        self.until(lambda: os.listdir(self.top("cache")) == ["7"], "they are left")
        self.assertEqual("seven", self.run_in(self.workspace(), "cat /.cache/uv/file"))


class Bounds(TemplateTest):
    START = "echo begun >> /started; sleep 1000"

    def restart(self, *settings):
        self.daemon.stop()
        self.daemon.options = tuple(word for setting in settings for word in ("--set", setting))
        self.daemon.start()

    def running(self, ws):
        return [one["command"] for one in self.daemon.get(f"/v1/workspaces/{ws}/exec?state=running").json["execs"]]

    def test_its_start_command_counts_as_any_other(self):
        self.build(spec={"start": self.START})
        ws = self.on()
        self.restart("owner_execs=1")
        self.run_in(ws, "sleep 0.3")
        self.assertEqual([], self.running(ws), "it has passed the quota")
        refused = [r for r in self.daemon.audit() if r["operation"] == "template.start"]
        self.assertEqual([("refused", ws)], [(r["result"], r["workspace"]) for r in refused])
        self.assertIn("which is the quota", refused[0]["details"]["error"])
        # With a queue it waits, and then it counts.
        self.restart("owner_execs=1", "queue=2")
        self.run_in(ws, "sleep 0.3")
        self.until(lambda: self.running(ws) == [self.START], "it is not started when there is room")
        self.restart("owner_execs=2", "queue=2")
        self.run_in(ws, "true")
        self.until(lambda: self.running(ws) == [self.START], "it is not started")
        holds = self.daemon.post(f"/v1/workspaces/{ws}/exec", {"command": "sleep 1000", "background": True})
        self.assertEqual(202, holds.status)
        waits = self.daemon.stream("POST", f"/v1/workspaces/{ws}/exec", {"command": "true"}, wait=False)
        waits.sock.settimeout(0.5)
        self.assertRaises(OSError, waits.getresponse)
        waits.close()


    def sandboxes(self):
        """The pid 1 of each, as the host counts."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                status = read(f"/proc/{pid}/status")
                parent = int(re.search(r"PPid:\t(\d+)", status).group(1))
            except OSError:
                continue
            if re.search(r"Name:\tcarrel-init\n", status) and re.search(r"NSpid:.*\t1\n", status) \
                    and parent == self.daemon.process.pid:
                found.append(int(pid))
        return found

    def test_what_another_workspace_writes_in_it_ends_before_it_is_frozen(self):
        self.restart("pool=0")
        self.workspace(id="shown")
        self.workspace(id="desk", links={"ticket": "shown", "ticket_mode": "rw"})
        self.run_in("desk", "mkdir .ticket/.venv")
        own = self.daemon.connect()
        own.putrequest("PUT", "/v1/workspaces/desk/files/.ticket/.venv/late")
        own.putheader("Content-Length", "2")
        own.endheaders(b"1")
        time.sleep(0.3)  # it is under way
        inits = self.sandboxes()
        self.assertEqual(1, len(inits), inits)
        os.kill(inits[0], signal.SIGKILL)  # its file server may finish what it does
        self.until(lambda: self.daemon.get("/v1/workspaces/desk").json["state"] == "asleep", "it lives")
        made = self.freeze("shown")
        self.assertEqual(201, made.status, made.bytes)
        try:
            own.send(b"2")
            own.getresponse()
        except (OSError, http.client.HTTPException):
            pass
        own.close()
        time.sleep(0.2)
        self.assertEqual([], os.listdir(self.top("templates", made.json["id"], "tree", ".venv")), "the template was changed")


class Settings(TemplateTest):
    def setUp(self):
        super().setUp()
        self.daemon.stop()
        self.daemon.options = ("--set", "package_index=https://index.example/simple", "--set",
                               "package_registry=https://npm.example", "--set", "package_offline=yes", "--set",
                               "package_ca=" + write(self.path("ca.pem"), "CA"))
        os.chmod(self.path("ca.pem"), 0o644)
        self.daemon.start()

    def test_where_packages_come_from_is_told_inside(self):
        said = self.run_in(self.workspace(), "echo $UV_DEFAULT_INDEX $PIP_INDEX_URL $npm_config_registry "
                                             "$BUN_CONFIG_REGISTRY $UV_OFFLINE; cat $SSL_CERT_FILE")
        self.assertEqual("https://index.example/simple https://index.example/simple https://npm.example "
                         "https://npm.example 1\nCA", said)
        ws = self.workspace(policy={"env": {"UV_DEFAULT_INDEX": "https://other.example"}})
        self.assertEqual("https://other.example\n", self.run_in(ws, "echo $UV_DEFAULT_INDEX"))


if __name__ == "__main__":
    unittest.main(verbosity=0)
