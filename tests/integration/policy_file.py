#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 120
"""`--policy FILE`: what it allows happens, what it does not say is not allowed, mistakes are refused."""
import json
import os
import unittest

from carreltest import CarrelTest, write

BAD = {
    "empty file": "",
    "not JSON": "network: none",
    "two documents": "{}{}",
    "not an object": "[]",
    "a number": "7",
    "unknown key": '{"netwrok": "none"}',
    "unknown key in limits": '{"limits": {"timout": "1s"}}',
    "unknown key in a mount": '{"mounts": [{"source": "/usr", "target": "/x", "write": true}]}',
    "key in other case": '{"Network": "none"}',
    "duplicate key": '{"network": "none", "network": "host"}',
    "duplicate key below": '{"limits": {"timeout": "1s", "timeout": "2s"}}',
    "number for text": '{"network": 0}',
    "null for text": '{"network": null}',
    "text for object": '{"limits": "1s"}',
    "list for object": '{"env": ["A=1"]}',
    "object for list": '{"mounts": {"source": "/usr", "target": "/x"}}',
    "text in a list of objects": '{"mounts": ["/usr:/x"]}',
    "text for truth": '{"mounts": [{"source": "/usr", "target": "/x", "writable": "yes"}]}',
    "number in env": '{"env": {"A": 1}}',
    "null in env": '{"env": {"A": null}}',
    "NUL in a value": '{"env": {"A": "x\\u0000y"}}',
    "NUL in a path": '{"mounts": [{"source": "/usr\\u0000/x", "target": "/x"}]}',
    "name with equal sign": '{"env": {"A=B": "x"}}',
    "empty name": '{"env": {"": "x"}}',
    "unknown word": '{"network": "some"}',
    "unknown level": '{"level": "strong"}',
    "unknown user": '{"user": "admin"}',
    "overflow in a size": '{"limits": {"tmp_size": "99999999999999999999"}}',
    "overflow by a unit": '{"limits": {"max_output": "17179869184G"}}',
    "overflow in a time": '{"limits": {"timeout": "9223372036854775807h"}}',
    "overflow in a number": '{"limits": {"max_output": 1e999}}',
    "negative": '{"limits": {"timeout": "-1s"}}',
    "zero": '{"limits": {"max_output": "0"}}',
    "number for a time": '{"limits": {"timeout": 30}}',
    "no source": '{"mounts": [{"target": "/x"}]}',
    "no target": '{"mounts": [{"source": "/usr"}]}',
    "source that is not there": '{"mounts": [{"source": "/no/such", "target": "/x"}]}',
    "relative target": '{"mounts": [{"source": "/usr", "target": "x"}]}',
    "reserved target": '{"mounts": [{"source": "/tmp", "target": "/usr"}]}',
    "trailing comma": '{"network": "none",}',
    "comment": '{"network": "none" /* yes */}',
    "not UTF-8": '{"env": {"A": "\udcff"}}',
    "deep nesting": "[" * 100_000,
    "an overlong name": json.dumps({"x" * 10_000: 1}),
}


class PolicyFile(CarrelTest):
    def policy(self, text):
        name = self.path("policy.json")
        with open(name, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text if isinstance(text, str) else json.dumps(text))
        return name

    def test_every_mistake_is_refused(self):
        for what, text in BAD.items():
            with self.subTest(what=what):
                done = self.refused("--workspace", self.ws, "--policy", self.policy(text))
                self.assertLess(len(done.stderr), 600)

    def test_the_error_names_the_key(self):
        for text, word in (('{"netwrok": "none"}', "netwrok"), ('{"limits": {"timout": "1s"}}', "timout"),
                           ('{"network": 0}', "network"), ('{"env": {"A": 1}}', "env"),
                           ('{"limits": {"tmp_size": "99999999999999999999"}}', "tmp_size")):
            self.refused("--workspace", self.ws, "--policy", self.policy(text), words=(word,))

    def test_files_that_are_no_files_are_refused(self):
        os.mkfifo(self.path("fifo"))
        for name in (self.path("missing"), self.dir, self.path("fifo"), "/dev/zero", ""):
            with self.subTest(name=name):
                self.refused("--workspace", self.ws, "--policy", name)
        with open(self.path("huge"), "wb") as file:
            file.truncate(1 << 40)
        self.refused("--workspace", self.ws, "--policy", self.path("huge"), words=("huge",))

    def test_everything_it_may_say_takes_effect(self):
        os.mkdir(self.path("data"))
        write(self.path("data", "f"), "data\n")
        policy = self.policy({
            "level": "ns", "network": "host", "user": "root", "env": {"GREETING": "hi there"},
            "mounts": [{"source": self.path("data"), "target": "/ro"},
                       {"source": self.path("data"), "target": "/rw", "writable": True}],
            "limits": {"timeout": "50s", "tmp_size": "2M", "max_output": "1M"}})
        shown = self.ok("--policy", policy, "-c",
                        "echo $GREETING; id -u; cat /ro/f; echo w > /rw/w; "
                        "(echo no > /ro/no) 2>/dev/null || echo kept; "
                        "head -c 9M /dev/zero 2>/dev/null > /tmp/f || echo full; grep -c : /proc/net/dev")
        lines = shown.split("\n")
        self.assertEqual(["hi there", "0", "data", "kept", "full"], lines[:5])
        self.assertTrue(os.path.exists(self.path("data", "w")))

    def test_its_limits_hold(self):
        done = self.run_in("--policy", self.policy({"limits": {"timeout": "300ms"}}), "--", "sleep", "1000")
        self.assertEqual(124, done.returncode)
        done = self.run_in("--policy", self.policy({"limits": {"max_output": "10"}}), "--", "yes")
        self.assertEqual((122, 10), (done.returncode, len(done.stdout)))

    def test_an_empty_policy_allows_nothing_beyond_the_defaults(self):
        """INV-8: an absent key means the default."""
        shown = self.ok("--policy", self.policy({}), "-c", "id -u; ls /sys 2>/dev/null; cat /proc/net/dev | wc -l")
        self.assertEqual(["1000", "3"], shown.split())

    def test_flags_may_narrow_it(self):
        policy = self.policy({"network": "host", "user": "root", "limits": {"timeout": "50s", "max_output": "1M",
                                                                            "tmp_size": "10M"}})
        shown = self.ok("--policy", policy, "--net", "none", "--user", "user", "--timeout", "40s",
                        "--max-output", "1000", "--tmp-size", "1M", "-c", "id -u; cat /proc/net/dev | wc -l")
        self.assertEqual(["1000", "3"], shown.split())
        done = self.run_in("--policy", policy, "--max-output", "10", "--", "yes")
        self.assertEqual((122, 10), (done.returncode, len(done.stdout)))

    def test_flags_may_not_widen_it(self):
        """INV-8."""
        policy = self.policy({"network": "none", "user": "user",
                              "limits": {"timeout": "10s", "max_output": "1000", "tmp_size": "1M"}})
        for options in (["--net", "host"], ["--user", "root"], ["--timeout", "11s"], ["--max-output", "1001"],
                        ["--tmp-size", "2M"], ["--level", "dir"]):
            with self.subTest(options=options):
                self.refused("--workspace", self.ws, "--policy", policy, *options, words=(options[0],))

    def test_mount_options_beside_a_policy_are_refused(self):
        for option in ("--ro", "--rw"):
            self.refused("--workspace", self.ws, "--policy", self.policy({}), option, f"{self.dir}:/x",
                         words=(option, "policy"))

    def test_a_policy_given_twice_is_refused(self):
        policy = self.policy({})
        self.refused("--workspace", self.ws, "--policy", policy, "--policy", policy)


if __name__ == "__main__":
    unittest.main()
