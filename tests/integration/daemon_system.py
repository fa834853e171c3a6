#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 300
# BASE
"""A workspace whose policy says "system": root inside, what it changes stays with the workspace, and is its alone."""
import concurrent.futures
import os
import signal
import time
import unittest

from carreltest import PATIENCE, read
from systemtest import BASE, FIRST, SystemDaemonTest

SYSTEM = {"policy": {"system": True}}


class System(SystemDaemonTest):
    def refused(self, **body):
        return self.daemon.post("/v1/workspaces/desk/exec", {"command": "id -u", **body})

    def test_root_changes_the_system_and_the_user_sees_it(self):
        self.workspace(id="desk", **SYSTEM)
        self.assertEqual((0, "0\n"), self.run_as("root", "id -u && echo mine > /usr/local/mine && chown 7:7 /usr/local/mine"))
        self.assertEqual((0, "1000\nmine\n7\n"), self.run_as("user", "id -u; cat /usr/local/mine; stat -c %u /usr/local/mine"))
        self.assertEqual((0, read(f"{BASE}/etc/debian_version")), self.run_as("user", "cat /etc/debian_version"))

    def test_it_stays_over_sleep_and_kill(self):
        self.workspace(id="desk", **SYSTEM)
        self.run_as("root", "echo 1 > /var/one; sync")
        self.assertEqual(200, self.daemon.post("/v1/workspaces/desk/sleep").status)
        self.assertEqual((0, "1\n"), self.run_as("user", "cat /var/one"))
        self.daemon.stop(signal.SIGKILL)
        self.daemon.start()
        self.assertEqual((0, "1\n"), self.run_as("user", "cat /var/one"))

    def test_another_workspace_and_the_base_do_not_have_it(self):
        self.workspace(id="desk", **SYSTEM)
        self.workspace(id="other", **SYSTEM)
        self.run_as("root", "touch /usr/mine")
        self.assertEqual((2, "ls: cannot access '/usr/mine': No such file or directory\n"),
                         self.run_as("root", "ls /usr/mine", "other"))
        self.assertFalse(os.path.exists(f"{BASE}/usr/mine"))

    def test_files_show_what_the_commands_see(self):
        self.workspace(id="desk", **SYSTEM)
        self.run_as("root", "echo text > /etc/mine; echo x > /home/h")
        for _ in range(2):  # awake, and woken for it
            answer = self.daemon.get("/v1/workspaces/desk/files/etc/mine")
            self.assertEqual((200, b"text\n"), (answer.status, answer.bytes))
            self.assertEqual(200, self.daemon.get("/v1/workspaces/desk/files/home/h").status)
            self.daemon.post("/v1/workspaces/desk/sleep")

    def test_what_root_leaves_running_ends_with_sleep(self):
        self.workspace(id="desk", **SYSTEM)
        self.run_as("root", "setpriv --reuid 33 --regid 33 --clear-groups sleep 1000 >/dev/null 2>&1 & sleep 0.1")
        self.assertEqual(200, self.daemon.post("/v1/workspaces/desk/sleep").status)

    def test_commands_as_root_are_on_record(self):
        self.workspace(id="desk", **SYSTEM)
        self.run_as("root", "true")
        self.run_as("user", "true")
        users = [r["details"].get("user") for r in self.daemon.audit() if r["operation"] == "exec.start"]
        self.assertEqual(["root", None], users)

    def test_a_policy_can_forbid_root(self):
        self.workspace(id="desk", policy={"system": {"base": "debian-12", "root": False}})
        answer = self.refused(user="root")
        self.assertEqual((403, "forbidden"), (answer.status, answer.code))
        self.assertEqual((0, "1000\n"), self.run_as("user", "id -u"))

    def sudos(self):
        return [(r["details"]["exec"], r["details"]["command"]) for r in self.daemon.audit() if r["operation"] == "exec.sudo"]

    def test_sudo_is_on_record_with_the_command_that_asked(self):
        self.workspace(id="desk", **SYSTEM)
        commands = [f"for i in 1 2 3; do sudo echo {number}; done" for number in (1, 2)]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            done = list(pool.map(lambda command: self.daemon.execute("desk", command), commands))
        self.assertEqual([0, 0], [one["exit_code"] for one in done], done)
        wanted = [(one["exec_id"], f"echo {number}") for number, one in enumerate(done, 1)] * 3
        self.assertEqual(sorted(wanted), sorted(self.sudos()))

    def test_sudo_has_what_root_has_and_ends_with_its_command(self):
        self.workspace(id="desk", **SYSTEM)
        self.assertEqual((0, "0\n"), self.run_as("user", "sudo id -u"))
        answer = self.daemon.post("/v1/workspaces/desk/exec", {"command": "sudo sh -c 'setsid sleep 1000 & echo; exec sleep 1000'", "timeout_ms": 1000})
        self.assertEqual(124, answer.json["exit_code"], answer.bytes)
        self.assertEqual((1, ""), self.run_as("root", "pidof sleep"))

    def test_a_policy_can_forbid_sudo(self):
        for number, system in enumerate(({"sudo": False}, {"root": False})):
            self.workspace(id=f"desk{number}", policy={"system": {"base": "debian-12", **system}})
            code, said = self.run_as("user", "sudo id -u", f"desk{number}")
            self.assertEqual(1, code)
            self.assertIn("no command of this workspace can be root's", said)
        self.assertEqual((0, "0\n"), self.run_as("root", "id -u", "desk0"))
        self.assertEqual([], self.sudos())

    def test_sudo_is_no_longer_there_when_the_policy_forbids_it(self):
        self.workspace(id="desk", **SYSTEM)
        self.assertEqual((0, "0\n"), self.run_as("user", "sudo id -u"))
        self.daemon.request("PATCH", "/v1/workspaces/desk", {"policy": {"system": {"sudo": False}}})
        self.assertEqual(1, self.run_as("user", "sudo id -u")[0])

    def test_root_is_refused_without_a_system(self):
        self.workspace(id="desk")
        self.assertEqual(403, self.refused(user="root").status)

    def test_a_base_that_is_not_there_is_named(self):
        self.workspace(id="desk", policy={"system": "slackware"})
        self.assertIn("carrel base build slackware", self.refused().json["error"]["message"])

    def test_a_workspace_stays_on_its_base(self):
        self.workspace(id="desk", **SYSTEM)
        self.run_as("root", "true")
        self.daemon.post("/v1/workspaces/desk/sleep")
        self.daemon.request("PATCH", "/v1/workspaces/desk", {"policy": {"system": "other"}})
        message = self.refused().json["error"]["message"]
        self.assertIn("stands on 'debian-12.1'", message)

    def test_a_workspace_that_is_purged_leaves_nothing(self):
        self.workspace(id="desk", **SYSTEM)
        self.run_as("root", "install -d -m 700 -o 33 /var/deep /deep; touch /var/deep/f /deep/f")
        self.assertEqual(204, self.daemon.request("DELETE", "/v1/workspaces/desk?purge=1").status)
        left = [os.path.join(where, name) for where, folders, files in os.walk(self.daemon.state) for name in folders + files
                if name in ("desk", "deep")]
        self.assertEqual([], left)

    def reset(self):
        return self.daemon.post("/v1/workspaces/desk/reset-system")

    def test_a_system_is_reset_when_asleep(self):
        self.workspace(id="desk", **SYSTEM)
        self.assertEqual(200, self.reset().status)  # nothing yet
        self.run_as("root", "install -d -m 700 -o 33 /var/deep; touch /var/deep/f /etc/mine; rm -rf /usr/share/doc; echo kept > /note")
        refused = self.reset()
        self.assertEqual((409, "workspace_busy"), (refused.status, refused.code))
        self.assertIn("carrel ws sleep desk", refused.json["error"]["message"])
        self.daemon.post("/v1/workspaces/desk/sleep")
        self.assertEqual(200, self.reset().status)
        self.assertEqual((0, "kept\n"), self.run_as("user", "test ! -e /etc/mine && test ! -e /var/deep && test -d /usr/share/doc && cat /note"))
        left = [where for where, folders, _ in os.walk(self.daemon.state) if "system.gone" in folders]
        self.assertEqual([], left)
        self.assertIn("workspace.reset_system", [r["operation"] for r in self.daemon.audit()])

    def test_a_reset_that_was_killed_is_finished(self):
        self.workspace(id="desk", **SYSTEM)
        self.run_as("root", "install -d -m 700 -o 33 /var/deep; touch /var/deep/f")
        self.daemon.post("/v1/workspaces/desk/sleep")
        env = next(where for where, folders, _ in os.walk(f"{self.daemon.state}/main/.carrel") if where.endswith("/desk/env"))
        os.rename(f"{env}/system", f"{env}/system.gone")  # as far as it had come
        self.assertEqual((0, "gone\n"), self.run_as("user", "test -e /var/deep || echo gone"))
        end = time.monotonic() + PATIENCE
        while os.path.lexists(f"{env}/system.gone"):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)

    def test_a_snapshot_is_refused_where_it_would_be_without_the_system(self):
        self.workspace(id="desk", **SYSTEM)
        self.run_as("user", "echo 1 > /note")
        self.assertEqual(201, self.daemon.post("/v1/workspaces/desk/snapshots", {}).status)
        self.run_as("root", "touch /etc/mine")
        refused = self.daemon.post("/v1/workspaces/desk/snapshots", {})
        self.assertEqual((409, "conflict"), (refused.status, refused.code))
        self.assertIn("which a snapshot would be without", refused.json["error"]["message"])
        self.daemon.post("/v1/workspaces/desk/sleep")
        self.assertEqual(200, self.reset().status)
        self.assertEqual(201, self.daemon.post("/v1/workspaces/desk/snapshots", {}).status)

    def test_the_limit_on_disk_counts_the_system(self):
        self.workspace(id="desk", policy={"system": True, "limits": {"disk": "20M"}})
        done = self.daemon.execute("desk", "dd if=/dev/zero of=/var/big bs=1M count=60 2>&1; sleep 30", user="root")
        self.assertEqual(123, done["exit_code"], done)

    def test_policies_that_say_it_wrongly_are_refused(self):
        for system in ("", "-x", "../x", "A", 1, [], {"base": 1}, {"root": "no"}, {"else": 1}, "x" * 33):
            with self.subTest(system=system):
                answer = self.daemon.post("/v1/workspaces", {"id": "w", "policy": {"system": system}})
                self.assertEqual(400, answer.status, answer.bytes)

    def test_on_disk_are_ids_of_the_one_range(self):
        self.workspace(id="desk", **SYSTEM)
        self.run_as("root", "touch /usr/a && chown 33:33 /usr/a")
        found = [os.path.join(where, "a") for where, _, files in os.walk(self.daemon.state) if "a" in files and where.endswith("/upper/usr")]
        self.assertEqual([FIRST + 33], [os.stat(path).st_uid for path in found])


if __name__ == "__main__":
    unittest.main()
