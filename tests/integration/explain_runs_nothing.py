#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""`--explain` prints the whole setup for people and as JSON, runs nothing and leaves nothing."""
import os
import unittest

from carreltest import CarrelTest, carrel, host_state, tree, write


class ExplainRunsNothing(CarrelTest):
    def explain(self, *args, **kwargs):
        """The text, having seen that nothing happened."""
        before, state = tree(self.dir), host_state()
        done = carrel("run", "--explain", *args, **kwargs)
        text = self.succeeded(done)
        self.assertEqual(before, tree(self.dir), f"{args} changed files")
        self.unchanged(state)
        return text

    def test_it_shows_mounts_namespaces_limits_and_filter(self):
        text = self.explain("--workspace", self.ws, "--timeout", "7s", "--max-output", "12345", "--", "touch", "/made")
        for word in (self.ws, "/usr", "/proc", "/dev", "/tmp", "/.cache", "/etc", "pid", "net", "user", "ipc", "uts",
                     "cgroup", "seccomp", "ns"):
            self.assertIn(word, text)
        self.assertFalse(os.path.exists(f"{self.ws}/made"))
        self.assertRegex(text, r"(?i)capabilit")
        self.assertRegex(text, r"(?i)landlock")
        self.assertRegex(text, r"7 ?s|7000")

    def test_json_says_the_same(self):
        text = self.explain("--json", "--workspace", self.ws, "--ro", f"{self.dir}:/data", "--", "touch", "/made")
        explained = self.object(text)
        self.assertEqual("ns", explained["level"])
        flat = str(explained)
        for word in (self.ws, "/data", "touch", "pid", "seccomp"):
            self.assertIn(word, flat)
        for key in ("mounts", "namespaces", "limits"):
            self.assertTrue(explained.get(key), f"{key} in {sorted(explained)}")

    def test_limits_are_written_as_people_write_them(self):
        text = self.explain("--workspace", self.ws, "--memory", "64M", "--cpu", "1.5", "--disk", "1G", "--files", "2048",
                            "--timeout", "90s", "--", "true")
        for line in (r"memory +64M, kept by ", r"cpu +1\.5, kept by ", r"disk +1G, ", r"files +2048, ", r"timeout +90s$"):
            self.assertRegex(text, rf"(?m)^  {line}")
        self.assertNotRegex(text, r"does not give\s*\Z", "a heading with nothing below it")

    def test_it_creates_no_workspace(self):
        text = self.explain("--workspace", self.path("new"), "--create", "--", "true")
        self.assertIn(self.path("new"), text)
        self.assertFalse(os.path.exists(self.path("new")))

    def test_it_reads_the_policy(self):
        policy = write(self.path("policy.json"), '{"network": "host", "env": {"GREETING": "hi"}}')
        text = self.explain("--workspace", self.ws, "--policy", policy, "--", "true")
        self.assertIn("GREETING", text)
        self.assertIn("host", text)

    def test_bad_options_are_refused_as_in_a_run(self):
        for options in (["--workspace", self.path("missing")], ["--timeout", "never"], ["--net", "some"]):
            done = carrel("run", "--explain", *options, "--", "true")
            self.one_line(done)
            self.assertEqual("", done.stdout)

    def test_a_workspace_that_would_be_refused_is_refused_here(self):
        os.symlink("/", f"{self.ws}/usr")
        done = carrel("run", "--explain", "--workspace", self.ws, "--", "true")
        self.one_line(done, "usr")

    def test_terminal_control_bytes_in_names_are_not_passed_on(self):
        odd = self.path("odd\x1b]0;title\x07")
        os.mkdir(odd)
        self.assertNotIn("\x1b", self.explain("--workspace", odd, "--", "true"))

    def test_the_hosts_secrets_are_not_part_of_it(self):
        os.environ["CARREL_TEST_SECRET"] = "leak-me-not"
        try:
            self.assertNotIn("leak-me-not", self.explain("--workspace", self.ws, "--", "true"))
        finally:
            del os.environ["CARREL_TEST_SECRET"]


if __name__ == "__main__":
    unittest.main()
