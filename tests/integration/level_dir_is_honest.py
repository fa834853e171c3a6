#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 120
"""`--level dir`: the directory with its environment and nothing more; it says so, and refuses the rest."""
import os
import signal
import subprocess
import unittest

from carreltest import CARREL, PATIENCE, CarrelTest, deny_user_namespaces, read, reap_until_alone, tree, write


class LevelDirIsHonest(CarrelTest):
    def test_the_command_runs_in_the_workspace_with_its_environment(self):
        os.environ["CARREL_TEST_SECRET"] = "leak"
        try:
            shown = self.ok("--level", "dir", "--", "env", "-0")
        finally:
            del os.environ["CARREL_TEST_SECRET"]
        env = dict(entry.split("=", 1) for entry in shown.split("\0") if entry)
        self.assertNotIn("CARREL_TEST_SECRET", env)
        self.assertEqual(self.ws, env["HOME"])
        self.assertEqual(self.ws, env["PWD"])
        self.assertTrue(env["PATH"].startswith(f"{self.ws}/node_modules/.bin:{self.ws}/.venv/bin:"), env["PATH"])
        for name, value in (("PYTHONUNBUFFERED", "1"), ("MPLBACKEND", "Agg"), ("NODE_ENV", "development")):
            self.assertEqual(value, env[name])
        self.ok("--level", "dir", "-c", "echo x > here")
        self.assertEqual("x\n", read(f"{self.ws}/here"))
        self.assertEqual({"here"}, set(os.listdir(self.ws)), "no reserved names are made in it")

    def test_it_is_not_isolated_and_the_user_is_the_caller(self):
        write(self.path("outside"), "seen\n")
        self.assertEqual(f"seen\n{os.getuid()}\n", self.ok("--level", "dir", "-c", "cat ../outside; id -u"))

    def test_results_are_reported_as_at_any_level(self):
        self.assertEqual(7, self.run_in("--level", "dir", "-c", "exit 7").returncode)
        self.assertEqual(137, self.run_in("--level", "dir", "-c", "kill -9 $$").returncode)
        self.one_line(self.run_in("--level", "dir", "--", "no-such"), "no-such", code=127)
        result, _ = self.json("--level", "dir", "-c", "echo o; echo e >&2; exit 3")
        self.assertEqual(("dir", 3, "o\n", "e\n"),
                         (result["level"], result["exit_code"], result["stdout"], result["stderr"]))

    def test_json_and_explain_say_what_is_not_isolated(self):
        done = self.run_in("--level", "dir", "--explain", "--", "true")
        self.assertRegex(self.succeeded(done), r"(?i)\bnot\b.*isolat|no isolation|isolates nothing")
        explained = self.object(self.ok("--level", "dir", "--explain", "--json", "--", "true"))
        self.assertEqual("dir", explained["level"])

    def test_the_whole_tree_ends_with_the_command_and_with_the_deadline(self):
        scripts = {"echo started; (setsid sh -c 'trap \"\" TERM HUP; sleep 1000' &); sleep 1000 & exit 0": 0,
                   "echo started; trap '' TERM INT; (setsid sleep 1000 &); sleep 1000; sleep 1000": 124,
                   "echo started; sleep 1000 >/dev/null 2>&1 & kill -STOP $$": 124}
        for script, code in scripts.items():
            with self.subTest(script=script):
                done = self.run_in("--level", "dir", "--timeout", "1s", "-c", script)
                self.assertEqual((code, "started\n"), (done.returncode, done.stdout), done.stderr)
                self.assertEqual([], reap_until_alone())

    def test_a_tree_that_keeps_forking_ends_too(self):
        loop = ("import os, time\nend = time.time() + 20\n"
                "while time.time() < end:\n"
                "    if os.fork(): os._exit(0)\n"
                "    os.setsid(); time.sleep(0.002)\n")
        done = self.run_in("--level", "dir", "--timeout", "1s", "-c", f"/usr/bin/python3 -c '{loop}' & sleep 1000")
        self.assertEqual(124, done.returncode)
        self.assertEqual([], reap_until_alone())

    def test_max_output_holds(self):
        done = self.run_in("--level", "dir", "--max-output", "1000", "--", "yes")
        self.assertEqual((122, 1000), (done.returncode, len(done.stdout)))

    def test_killing_carrel_kills_the_tree(self):
        process = subprocess.Popen([CARREL, "run", "--level", "dir", "--workspace", self.ws, "-c",
                                    "(setsid sleep 1000 &); sleep 1000 & echo ready; sleep 1000"],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        with process:
            process.stdout.readline()
            process.kill()
        self.assertEqual([], reap_until_alone())

    def test_signals_are_forwarded(self):
        process = subprocess.Popen([CARREL, "run", "--level", "dir", "--workspace", self.ws, "-c",
                                    "trap 'exit 6' TERM; echo ready; while :; do sleep 0.05; done"],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        with process:
            process.stdout.readline()
            process.send_signal(signal.SIGTERM)
            self.assertEqual(6, process.wait(timeout=PATIENCE))

    def test_what_it_cannot_enforce_is_refused_by_name(self):
        for options in (["--net", "none"], ["--ro", "/usr:/x"], ["--rw", f"{self.dir}:/x"], ["--user", "root"],
                        ["--tmp-size", "1M"]):
            with self.subTest(options=options):
                self.refused("--level", "dir", "--workspace", self.ws, *options, words=(options[0], "dir"))

    def test_a_policy_it_cannot_enforce_is_refused(self):
        for text in ('{"network": "none"}', '{"level": "ns"}', '{"mounts": [{"source": "/usr", "target": "/x"}]}',
                     '{"limits": {"tmp_size": "1M"}}'):
            policy = write(self.path("policy.json"), text)
            self.refused("--level", "dir", "--workspace", self.ws, "--policy", policy)

    def test_it_works_where_nothing_else_is_allowed_and_is_never_chosen_for_you(self):
        os.environ.pop("CARREL_WEAKEN", None)
        self.assertEqual("x\n", self.ok("--level", "dir", "--", "echo", "x", preexec_fn=deny_user_namespaces()))
        for options in ([], ["--level", "auto"], ["--level", "ns"]):
            self.refused("--workspace", self.ws, *options, preexec_fn=deny_user_namespaces(), words=("namespace",))

    def test_auto_is_ns_here(self):
        for options in ([], ["--level", "auto"], ["--level", "ns"]):
            self.assertEqual("ns", self.json(*options, "--", "true")[0]["level"])

    def test_unknown_levels_are_refused(self):
        for level in ("", "none", "NS", "gvisor", "landlock", "proot", "dir,ns"):
            self.refused("--workspace", self.ws, "--level", level, words=("--level",))

    def test_nothing_is_written_but_what_the_command_writes(self):
        before = tree(self.dir)
        self.ok("--level", "dir", "--", "true")
        self.assertEqual(before, tree(self.dir))


if __name__ == "__main__":
    unittest.main()
