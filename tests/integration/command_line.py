#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""Help, version, doctor, and options that are wrong."""
import os
import re
import unittest

from carreltest import CarrelTest, carrel, deny, deny_user_namespaces

OPTIONS = ("--workspace --create --at --level --net --ro --rw --env --cwd --user --timeout --tmp-size --stdin --tty "
           "--max-output --policy --json --explain").split()
FEATURES = ("user namespaces", "cgroup", "landlock", "overlay", "idmapped", "openat2", "seccomp", "quota")


class CommandLine(CarrelTest):
    def test_help_goes_to_stdout_and_names_every_option(self):
        for args in (["--help"], ["help"], ["run", "--help"], ["doctor", "--help"], ["-h"]):
            done = carrel(*args)
            self.assertEqual((0, ""), (done.returncode, done.stderr), args)
            self.assertIn("carrel", done.stdout)
        text = carrel("run", "--help").stdout
        for option in [*OPTIONS, "-c"]:
            self.assertRegex(text, rf"(?m)(^|\s){option}\b", option)
        self.assertTrue({"run", "doctor"} <= set(re.findall(r"\w+", carrel("--help").stdout)))
        self.assertLessEqual(max(map(len, text.splitlines())), 100)

    def test_version_is_one_line(self):
        self.assertRegex(self.succeeded(carrel("--version")), r"\Acarrel \d+\.\d+\S*\n\Z")

    def test_no_verb_and_unknown_verbs_are_errors(self):
        for args in ([], ["fly"], [""], ["--unknown"], ["RUN"]):
            done = carrel(*args)
            self.assertEqual((125, ""), (done.returncode, done.stdout), args)
            self.assertRegex(done.stderr, r"\Acarrel: ")
            self.assertIn("help", done.stderr)
        for word, meant in (("exce", "exec"), ("Run", "run"), ("templates", "template")):
            self.assertEqual(f"carrel: there is no verb '{word}'; did you mean '{meant}'?\n", carrel(word).stderr)

    def test_unknown_and_incomplete_options_are_named(self):
        for args, word in ((["--workspce", self.ws], "--workspce"), (["--workspce=x"], "did you mean '--workspace'?"), (["-z"], "-z"), (["--jsonx"], "--jsonx"),
                           (["--env"], ""), (["--json=yes"], "--json"), (["---"], "---")):
            with self.subTest(args=args):
                self.refused(*args, words=(word,))

    def test_options_are_not_guessed_from_their_beginning(self):
        self.refused("--work", self.ws, words=("--work",))

    def test_an_option_without_its_value_is_named(self):
        for option in ("--workspace", "--timeout", "--env", "--ro", "-c"):
            done = carrel("run", option)
            self.one_line(done, option)

    def test_values_may_be_joined_with_an_equal_sign(self):
        self.assertEqual("/tmp\n", self.succeeded(carrel("run", f"--workspace={self.ws}", "--cwd=/tmp", "--", "pwd")))

    def test_no_command_is_an_error(self):
        for args in (["run"], ["run", "--"], ["run", "--workspace", self.ws], ["run", "--json", "--"]):
            self.one_line(carrel(*args))

    def test_options_after_the_double_dash_are_the_commands(self):
        self.assertEqual("--json --timeout\n", self.ok("--", "echo", "--json", "--timeout"))

    def test_env_without_a_name_or_value_is_refused(self):
        for text in ("A", "=x", ""):
            self.refused("--workspace", self.ws, "--env", text, words=("--env",))

    def test_user_is_one_of_two(self):
        for text in ("", "0", "nobody", "ROOT", "user,root"):
            self.refused("--workspace", self.ws, "--user", text, words=("--user",))

    def test_doctor_tells_what_the_host_offers(self):
        done = carrel("doctor")
        text = self.succeeded(done).lower()
        for feature in FEATURES:
            self.assertIn(feature, text)
        self.assertRegex(text, r"\bns\b")
        self.assertRegex(text, r"\bdir\b")

    def test_doctor_as_json_has_the_levels_and_features(self):
        report = self.object(self.succeeded(carrel("doctor", "--json")))
        flat = str(report).lower()
        for word in ("landlock", "openat2", "seccomp", "cgroup", "levels", "idmap"):
            self.assertIn(word, flat)

    def test_doctor_does_not_contradict_itself(self):
        report = self.object(self.succeeded(carrel("doctor", "--json")))
        self.assertTrue(report["levels"]["ns"]["works"])
        self.assertEqual([], [name for name, feature in report["features"].items()
                              if feature["needed"] == "now" and not feature["works"]])
        self.assertEqual("helpful", report["features"]["quotas"]["needed"])

    def test_doctor_changes_nothing(self):
        before = set(os.listdir(self.dir))
        carrel("doctor", cwd=self.dir)
        self.assertEqual(before, set(os.listdir(self.dir)))

    def test_doctor_says_what_is_missing_and_what_to_do(self):
        done = carrel("doctor", preexec_fn=deny_user_namespaces())
        self.assertRegex(done.stdout, r"(?m)^ *NO +user namespaces[^\n]*\n +fix: ")
        self.assertRegex(done.stdout, r"sysctl|max_user_namespaces|unprivileged_userns|apparmor|seccomp|container")
        for name, word in (("openat2", "openat2"), ("landlock_create_ruleset", "landlock"), ("seccomp", "seccomp"),
                           ("mount_setattr", "mount_setattr")):
            done = carrel("doctor", preexec_fn=deny("ENOSYS", name))
            self.assertRegex(done.stdout.lower(), rf"(?m)^ *(no|-) +{word}[^\n]*\n +fix: ")

    def test_doctor_refuses_unknown_options(self):
        self.one_line(carrel("doctor", "--fix-it"), "--json")
        self.one_line(carrel("doctor", "one", "two"), "two")


if __name__ == "__main__":
    unittest.main()
