#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 600
"""carrel plan as a person uses it: what it prints, what it refuses, what its exit status says. With a daemon and without."""
import base64
import contextlib
import fcntl
import json
import os
import pty
import re
import subprocess
import time
import unittest

from carreltest import CARREL, PATIENCE, carrel
from plantest import DaemonPlanTest, PlanTest, content


def on_a_terminal(*args, env=None):
    """What carrel prints to one, and the exit status."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execve(CARREL, [CARREL, *args], {"TERM": "xterm", "PATH": os.environ["PATH"], **(env or {})})
    seen = b""
    try:
        while piece := os.read(fd, 65536):
            seen += piece
    except OSError:
        pass
    os.close(fd)
    return seen.decode().replace("\r\n", "\n"), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


class Common:
    """The same of both."""

    def put(self, name, text):
        path = os.path.join(self.tree, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        st = os.stat(self.tree)
        os.chown(path, st.st_uid, st.st_gid)

    def one_plan(self, line):
        return self.plan_run("sh", "-c", line)[1]

    def names(self):
        return set(content(self.tree, links=False)) - {b".bashrc"}  # which the daemon makes

    def test_it_is_shown_on_a_terminal_in_colours_and_elsewhere_without(self):
        self.put("old.txt", "old\n")
        plan = self.one_plan("echo new > new.sh; chmod +x new.sh; rm old.txt; echo > \"$(printf 'a\\033[2Jb')\"")
        plain = self.plan("show", plan["id"])
        self.assertNotIn("\x1b", plain)
        self.assertRegex(plain, r"(?m)^  \+ new\.sh +4, executable \(x\)$")
        self.assertRegex(plain, r"(?m)^  - old\.txt +4$")
        self.assertRegex(plain, r"(?m)^  \+ a\\x1b\[2Jb +1$")
        self.assertIn("3 changes: 2 created, 1 deleted", plain)
        shown, status = self.terminal("show", plan["id"])
        self.assertEqual(0, status)
        self.assertIn("\x1b[32m+ new.sh\x1b[0m", shown)
        self.assertIn("\x1b[31m- old.txt\x1b[0m", shown)
        self.assertNotIn("\x1b[2J", shown)
        self.assertEqual(plain.split("\n")[3:8], re.sub(r"\x1b\[\d+m", "", shown).split("\n")[3:8])

    def test_a_diff_drives_no_terminal_now_or_later_and_is_exact_as_json(self):
        """Attack: a file's text, and a file's name, rewrite what a reviewer sees of the rest, when a diff that was kept is shown."""
        self.put("text", "one\n")
        plan = self.one_plan("printf 'two\\033[2J\\tx\\r\\302\\233m\\342\\200\\256y\\n' > text; printf 'z\\377\\n' > \"$(printf 'n\\302\\233m\\342\\200\\256')\"")
        piped = self.plan("show", "--diff", plan["id"])
        self.assertIn("-one\n+two\\x1b[2J\tx\\x0d\\u{9b}m\\u{202e}y\n", piped)
        self.assertIn("+z\\xff\n", piped)
        self.assertIn("+++ b/n\\u{9b}m\\u{202e}\n", piped)
        shown, _ = self.terminal("show", "--diff", plan["id"])
        self.assertIn("\x1b[32m+two\\x1b[2J", shown)
        self.assertEqual(piped, re.sub(r"\x1b\[\d+m", "", shown.replace("\r\n", "\n")))
        exact = json.loads(self.plan("show", "--diff", "--path", "text", "--json", plan["id"]))
        self.assertEqual(plan["id"], exact["plan"])
        self.assertIn("-one\n+two\x1b[2J\tx\r\x9bm\u202ey\n", exact["diff"])
        whole = base64.b64decode(json.loads(self.plan("show", "--diff", "--json", plan["id"]))["diff_b64"])
        self.assertIn(b"+z\xff\n", whole)
        self.assertIn(b"+++ b/n\\u{9b}m\\u{202e}\n", whole, "names are harmless there too: a diff is made of lines")

    def test_a_submitted_plan_is_applied_and_undone(self):
        self.put("a", "a\n")
        path = self.path("plan.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump([{"op": "move", "src": "a", "dest": "b/c"}, {"op": "create", "path": "new", "content": "hi"}], file)
        made = json.loads(self.plan("submit", path, "--json"))
        self.assertIn(made["state"], ("closed", "pending"))
        self.decided(made)
        self.plan("apply", made["id"])
        self.assertEqual({b"b", b"b/c", b"new"}, self.names())
        self.plan("undo", made["id"])
        self.assertEqual({b"a"}, self.names())

    def test_what_is_no_plan_is_refused_in_words(self):
        path = self.path("plan.json")
        for text, word in (("{", "line 1"), ('[{"op": "teleport"}]', "teleport"), ('[{"op":"delete","path":"../x"}]', "..")):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            self.assertIn(word, self.refusal("submit", path))
        self.assertIn("plan", self.refusal("show", "nothing"))
        self.assertIn("plan", self.refusal("apply", "p" + "0" * 26))
        self.assertEqual(set(), self.names())
        self.assertEqual([], json.loads(self.plan("list", "--json"))["plans"])

    def test_the_exit_status_is_the_commands_and_its_changes_are_planned_all_the_same(self):
        done = self.run_plan("-c", "echo out; echo err >&2; echo x > made; exit 7")
        self.assertEqual((7, "out\n"), (done.returncode, done.stdout))
        self.assertRegex(done.stderr, r"\Aerr\ncarrel: plan \S+: 1 changes?, none made yet")
        self.assertEqual(set(), self.names())

    def test_an_open_plan_goes_on(self):
        first = json.loads(self.run_plan("--json", "--keep-open", "-c", "echo 1 > one").stdout)["plan"]
        self.assertEqual("open", first["state"])
        self.assertIn("plan", self.refusal("apply", first["id"]))
        second = json.loads(self.run_plan("--json", "--plan", first["id"], "-c", "cat one; echo 2 > two").stdout)
        self.assertEqual(("1\n", first["id"], 2), (second["stdout"], second["plan"]["id"], second["plan"]["operations"]))
        self.assertEqual(set(), self.names())
        self.assertIn(" closed ", self.plan("list") + self.plan("list", "--in-state", "pending").replace("pending", "closed"))

    def test_what_has_changed_since_is_not_overwritten(self):
        self.put("a", "a\n")
        plan = self.one_plan("echo planned > a")
        self.put("a", "somebody was here\n")
        self.decided(plan)
        self.refusal("apply", plan["id"])
        with open(f"{self.tree}/a", encoding="utf-8") as file:
            self.assertEqual("somebody was here\n", file.read())


    def test_what_cannot_be_done_is_left_out_on_request(self):
        self.put("a", "a\n")
        self.put("b", "b\n")
        plan = self.one_plan("echo planned > a; echo planned > b")
        self.put("a", "somebody was here\n")
        self.decided(plan)
        told = self.plan("apply", "--keep-going", plan["id"], code=1)
        self.assertIn("left out", told)
        with open(f"{self.tree}/a", encoding="utf-8") as a, open(f"{self.tree}/b", encoding="utf-8") as b:
            self.assertEqual(("somebody was here\n", "planned\n"), (a.read(), b.read()))


class WithoutADaemon(Common, PlanTest):
    def setUp(self):
        super().setUp()
        os.mkdir(self.tree)

    def decided(self, plan):
        """By whoever may write the directory."""

    def terminal(self, verb, *args):
        return on_a_terminal("plan", verb, "--dir", self.tree, *args)

    def run_plan(self, *args):
        return carrel("plan", "run", "--dir", self.tree, *args)

    def refusal(self, verb, *args):
        done = carrel("plan", verb, "--dir", self.tree, *args)
        self.one_line(done)
        return done.stderr

    def test_what_needs_a_daemon_says_so(self):
        plan = self.one_plan("echo > x")
        for args in (("approve", plan["id"], "--hash", plan["hash"]), ("reject", plan["id"]), ("cancel", plan["id"]),
                     ("apply", plan["id"], "--async")):
            self.assertIn("daemon", self.refusal(*args))
        self.assertEqual(set(), self.names())

    def test_what_would_be_refused_is_not_applied(self):
        plan = self.one_plan("echo 1 > Readme; echo 2 > README; echo 3 > fine")
        done = carrel("plan", "apply", "--dir", self.tree, plan["id"])
        self.assertEqual(125, done.returncode, done.stdout)
        self.assertRegex(done.stderr, r"^carrel: the plan is refused: '[^\n]* differs from [^\n]* \(and 1 more\)\n$")
        self.assertIn("differs from", done.stdout)
        done = carrel("plan", "apply", "--json", "--dir", self.tree, plan["id"])
        self.assertEqual((125, "refused"), (done.returncode, json.loads(done.stdout)["verdict"]))
        self.assertEqual((set(), "closed"), (self.names(), self.plan_json("show", plan["id"])["state"]))
        # Neither with what leaves out only what has changed since.
        self.assertEqual(125, carrel("plan", "apply", "--dir", self.tree, "--keep-going", plan["id"]).returncode)
        self.assertEqual(set(), self.names())

    def test_the_command_line_is_checked(self):
        for args, word in (((), "no action given"), (("frobnicate",), "no action given"), (("show",), "name"), (("show", "a", "b", "c"), "too many"),
                           (("run",), "name a workspace"), (("run", "--dir", self.tree), "no command"), (("show", "--dir"), "a value is missing"),
                           (("show", "--dir", "/nonexistent/x", "p"), "/nonexistent/x"), (("show", "--frob", "a", "b"), "--frob"),
                           (("aply",), "did you mean 'apply'?"), (("show", "--hsah", "a"), "did you mean '--hash'?")):
            done = carrel("plan", *args)
            self.one_line(done, word)
        self.assertIn("usage: carrel plan", self.succeeded(carrel("plan", "--help")))
        self.assertIn("usage: carrel plan", self.succeeded(carrel("plan", "run", "--help")))

    def test_a_kill_in_the_middle_is_made_good_by_whatever_comes_next(self):
        self.put("a", "a\n")
        plan = self.one_plan("for i in $(seq 300); do echo $i > f$i; done; rm a")
        process = subprocess.Popen([CARREL, "plan", "apply", "--dir", self.tree, plan["id"]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   start_new_session=True)
        deadline = 200000
        while len(os.listdir(self.tree)) < 20 and process.poll() is None and deadline:
            deadline -= 1
        with contextlib.suppress(ProcessLookupError):  # it was faster
            os.killpg(process.pid, 9)
        process.wait(PATIENCE)
        state = json.loads(self.plan("list", "--json"))["plans"][0]["state"]
        self.assertIn((state, len(self.names())), (("closed", 1), ("applied", 300)))

    def test_what_the_caller_has_open_is_not_written_to(self):
        """Descriptor 5 is where carrel-plan tells its steps, to whoever has made it for that."""
        plan = self.one_plan("echo 1 > one; echo 2 > two")
        path = self.path("five")
        done = subprocess.run(["sh", "-c", 'exec "$@" 5>"$0"', path, CARREL, "plan", "apply", "--dir", self.tree, plan["id"]],
                              stdout=subprocess.DEVNULL, check=False)
        self.assertEqual((0, 0), (done.returncode, os.path.getsize(path)))
        self.assertEqual({b"one", b"two"}, self.names())

    def place(self, plan):
        return f"{self.tree}.carrel-plans/{plan['id']}"

    def state(self, plan, word=None):
        """What is on disk; with `word`, as if a crash had left it so."""
        path = f"{self.place(plan)}/state.json"
        with open(path, encoding="utf-8") as file:
            state = json.load(file)
        if word:
            with open(path, "w", encoding="utf-8") as file:
                json.dump({**state, "state": word}, file)
        return state["state"]

    def test_after_a_crash_the_journal_says_what_the_plan_is(self):
        plan = self.one_plan("echo 1 > one; echo 2 > two")
        self.state(plan, "applying")  # before anything was begun
        self.assertEqual("closed", self.plan_json("show", plan["id"])["state"])
        self.plan("apply", plan["id"])
        for left, found in (("applying", "applied"), ("undoing", "applied")):  # all was done, or nothing was undone
            self.state(plan, left)
            self.assertEqual(found, self.plan_json("show", plan["id"])["state"], left)
            self.assertEqual({b"one", b"two"}, self.names())
        self.plan("undo", plan["id"], "one")
        self.state(plan, "undoing")
        self.assertEqual("applied", self.plan_json("show", plan["id"])["state"])
        self.plan("undo", plan["id"])
        self.state(plan, "undoing")
        self.assertEqual("undone", self.plan_json("show", plan["id"])["state"])
        self.assertEqual(set(), self.names())

    def test_a_failure_does_not_hide_what_was_done(self):
        plan = self.one_plan("echo 1 > one")
        self.plan("apply", plan["id"])
        self.state(plan, "closed")
        self.refusal("apply", plan["id"])
        self.assertEqual("applied", self.state(plan))
        self.assertRegex(self.plan("undo", plan["id"]), r"\Aundone")
        self.assertEqual(set(), self.names())

    def test_undone_path_by_path_it_is_undone(self):
        plan = self.one_plan("echo 1 > one; echo 2 > two")
        self.plan("apply", plan["id"])
        self.assertRegex(self.plan("undo", plan["id"], "one"), r"\Aapplied")
        self.assertRegex(self.plan("undo", plan["id"], "two"), r"\Aundone")
        self.assertEqual("undone", self.state(plan))
        self.assertEqual(set(), self.names())

    def test_where_others_could_put_plans_nothing_is_done(self):
        plan = self.one_plan("echo 1 > one")
        path = self.path("plan.json")
        with open(path, "w", encoding="utf-8") as file:
            file.write('[{"op": "create", "path": "new", "content": "hi"}]')
        self.state(plan, "applying")
        home = f"{self.tree}.carrel-plans"
        spoilt = [lambda: os.chmod(home, 0o750), lambda: os.chmod(home, 0o701)] + ([lambda: os.chown(home, 54321, 54321)] if os.geteuid() == 0 else [])
        for spoil in spoilt:
            spoil()
            for args in (("list",), ("show", plan["id"]), ("apply", plan["id"]), ("discard", plan["id"]), ("submit", path)):
                self.assertIn("chmod 700", self.refusal(*args))
            self.assertEqual("applying", self.state(plan), "it was recovered all the same")
            os.chmod(home, 0o700)
        os.chown(home, os.geteuid(), os.getegid())
        os.rename(home, f"{home}.real")
        os.symlink(f"{home}.real", home)
        self.assertIn("chmod 700", self.refusal("list"))
        os.unlink(home)
        os.rename(f"{home}.real", home)
        self.assertEqual("closed", self.plan_json("show", plan["id"])["state"])

    def test_while_a_command_runs_in_it_nobody_works_on_the_plan(self):
        args = [CARREL, "plan", "run", "--dir", self.tree, "--keep-open", "-c", "echo 1 > one; echo ready; read go; echo 2 > two"]
        with subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
            self.assertEqual("ready\n", run.stdout.readline())
            plan, = json.loads(self.plan("list", "--json"))["plans"]
            for verb in ("close", "discard", "apply"):
                self.assertIn("in use", self.refusal(verb, plan["id"], *(("--hash", "0" * 64) if verb == "apply" else ())))
            run.communicate("go\n", timeout=PATIENCE)
        self.assertEqual(0, run.returncode)
        self.plan("close", plan["id"])
        self.plan("apply", plan["id"])
        self.assertEqual({b"one", b"two"}, self.names())

    def test_what_works_on_a_plan_is_alone_also_when_who_started_it_is_gone(self):
        plan = self.one_plan("echo 1 > one")
        self.plan("apply", plan["id"])
        held = os.open(self.place(plan), os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(held, fcntl.LOCK_EX)  # as a carrel-plan does that goes on
        self.assertIn("in use", self.refusal("undo", plan["id"]))
        self.assertIn("in use", self.refusal("discard", plan["id"]))
        self.state(plan, "undoing")
        self.assertIn("in use", self.refusal("list"))
        os.close(held)
        self.assertRegex(self.plan("undo", plan["id"]), r"\Aundone")

    def test_a_run_begins_on_a_tree_that_is_whole(self):
        plan = self.one_plan("echo 1 > one")
        self.state(plan, "applying")
        run = [CARREL, "run", "--plan", "--workspace", self.tree, "--", "true"]
        held = os.open(self.place(plan), os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(held, fcntl.LOCK_EX)  # as a carrel-plan does that changes the tree now
        there = os.listdir(os.path.dirname(self.place(plan)))
        done = subprocess.run(run, capture_output=True, text=True, check=False)
        self.assertEqual(125, done.returncode, done.stderr)
        self.assertIn("in use", done.stderr)
        self.assertEqual(there, os.listdir(os.path.dirname(self.place(plan))), "a plan was begun")
        os.close(held)
        done = subprocess.run(run, capture_output=True, text=True, check=False)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual("closed", self.state(plan))

    def test_names_sort_by_time_however_the_plan_was_made(self):
        path = self.path("plan.json")
        with open(path, "w", encoding="utf-8") as file:
            file.write('[{"op": "create", "path": "new", "content": "hi"}]')
        made = []
        for _ in range(4):
            made += [json.loads(self.plan("submit", path, "--json"))["id"], self.one_plan("echo 1 > one")["id"]]
        self.assertEqual(sorted(made), made)


class WithADaemon(Common, DaemonPlanTest):
    def decided(self, plan):
        self.plan("approve", plan["id"], "--hash", plan["hash"], key=self.approver)

    def terminal(self, verb, *args):
        return on_a_terminal("plan", verb, self.ws, *args, env={**self.env, "CARREL_KEY": self.user})

    def run_plan(self, *args):
        return carrel("plan", "run", self.ws, *args, env={**self.env, "CARREL_KEY": self.user})

    def refusal(self, verb, *args):
        done = carrel("plan", verb, self.ws, *args, env={**self.env, "CARREL_KEY": self.user})
        self.one_line(done)
        return done.stderr

    def test_what_cannot_be_done_is_left_out_on_request(self):
        """Not of what somebody has approved as a whole."""
        plan = self.one_plan("echo planned > a; echo planned > b")
        self.decided(plan)
        self.assertIn("approv", self.refusal("apply", "--keep-going", plan["id"]))
        self.assertEqual(set(), self.names())

    def test_pending_plans_are_listed_for_who_decides(self):
        plan = self.one_plan("echo > x")
        self.plan("verify", plan["id"])
        done = carrel("plan", "list", "--in-state", "pending", env={**self.env, "CARREL_KEY": self.approver})
        self.assertRegex(self.succeeded(done), rf"(?m)^{self.ws} +{plan['id']} +pending ")
        self.plan("reject", plan["id"], "--comment", "not like this", key=self.approver)
        self.assertIn("not like this", self.plan("show", plan["id"]))
        self.refusal("apply", plan["id"])
        self.assertEqual(set(), self.names())

    def test_it_is_applied_in_the_background_and_undone_after_a_restart(self):
        plan = self.one_plan("mkdir d; for i in 1 2 3; do echo $i > d/$i; done")
        self.decided(plan)
        self.assertRegex(self.plan("apply", "--async", plan["id"]), r"\A(queued|applying|applied)")
        deadline = time.monotonic() + PATIENCE
        while self.plan_json("show", plan["id"])["state"] != "applied":
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.1)
        self.assertEqual({b"d", b"d/1", b"d/2", b"d/3"}, self.names())
        self.daemon.stop()
        self.daemon.start()
        self.assertRegex(self.plan("undo", plan["id"]), r"\Aundone")
        self.assertEqual(set(), self.names())

    def test_a_check_is_run_in_the_planned_view(self):
        plan = self.one_plan("echo > x")
        self.plan("verify", "--check", "test -e x", plan["id"])
        self.assertIn("refused", self.plan("verify", "--check", "test ! -e x", plan["id"], code=1))
        self.assertEqual(set(), self.names())

    def test_a_decision_names_what_was_looked_at(self):
        plan = self.one_plan("echo > x")
        done = carrel("plan", "approve", self.ws, plan["id"], env={**self.env, "CARREL_KEY": self.approver})
        self.one_line(done, "--hash")
        done = carrel("plan", "approve", self.ws, plan["id"], "--hash", "0" * 64, env={**self.env, "CARREL_KEY": self.approver})
        self.one_line(done)
        self.refusal("apply", plan["id"])


if __name__ == "__main__":
    unittest.main()
