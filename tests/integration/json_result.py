#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""`--json`: one object on stdout, with every field, of the right type, whatever the bytes were."""
import base64
import unittest

from carreltest import PYTHON, CarrelTest, carrel

NUMBER = (int, float)
FIELDS = {"exit_code": int, "signal": (int, type(None)), "reason": str, "timed_out": bool,
          "oom_killed": bool, "truncated": bool, "duration_ms": NUMBER, "usage": dict, "level": str,
          "denials": list, "denials_dropped": int}


class JsonResult(CarrelTest):
    def result(self, *args, **kwargs):
        result, done = self.json(*args, **kwargs)
        self.assertEqual(1, done.stdout.count("\n"), "one line")
        self.assertEqual("", done.stderr)
        streams = {name.removesuffix("_b64") for name in result} & {"stdout", "stderr"}
        self.assertEqual({"stdout", "stderr"}, streams)
        for name, kind in FIELDS.items():
            self.assertIsInstance(result[name], kind, name)
            self.assertFalse(kind in (int, NUMBER) and isinstance(result[name], bool), name)
        unknown = set(result) - set(FIELDS) - {"stdout", "stderr", "stdout_b64", "stderr_b64"}
        self.assertEqual(set(), unknown)
        return result

    def test_a_plain_run(self):
        result = self.result("-c", "echo out; echo err >&2; exit 3")
        self.assertEqual(("out\n", "err\n", 3, None, False, False, False, "ns", "exit"), tuple(
            result[name] for name in ("stdout", "stderr", "exit_code", "signal", "timed_out",
                                      "oom_killed", "truncated", "level", "reason")))
        self.assertGreater(result["duration_ms"], 0)
        self.assertLess(result["duration_ms"], 60_000)

    def test_usage_is_measured(self):
        usage = self.result("--", PYTHON, "-c", "x = bytearray(64 << 20)\nfor i in range(3000000): pass")["usage"]
        self.assertTrue(usage)
        for name, value in usage.items():
            if value is None and name in ("peak_memory_bytes", "processes", "added_bytes"):
                continue  # nobody asked for that limit
            self.assertIsInstance(value, NUMBER, name)
            self.assertGreaterEqual(value, 0, name)
        cpu = [value for name, value in usage.items() if "cpu" in name or "user" in name]
        memory = [value for name, value in usage.items() if "rss" in name]
        self.assertTrue(cpu and max(cpu) > 0, usage)
        self.assertTrue(memory and max(memory) > 60_000, usage)

    def test_text_stays_text(self):
        text = "quote\" back\\slash tab\t bell\x07 esc\x1b del\x7f ☃ 𝄞 \u2028 </script>\r\n\x01"
        result = self.result("--", PYTHON, "-c", f"import sys; sys.stdout.buffer.write({text.encode()!r})")
        self.assertEqual(text, result["stdout"])

    def test_nul_bytes_survive(self):
        result = self.result("-c", r"printf 'a\0b'")
        got = result.get("stdout")
        if got is None:
            got = base64.b64decode(result["stdout_b64"]).decode()
        self.assertEqual("a\0b", got)

    def test_bytes_that_are_not_utf8_come_as_base64(self):
        cases = [b"\xff", b"ok \xc3", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x98",
                 bytes(range(256)) * 3]
        for data in cases:
            for stream in ("stdout", "stderr"):
                with self.subTest(data=data[:8], stream=stream):
                    result = self.result("--", PYTHON, "-c",
                                         f"import sys; sys.{stream}.buffer.write({data!r})")
                    self.assertNotIn(stream, result)
                    self.assertEqual(data, base64.b64decode(result[stream + "_b64"], validate=True))
                    other = "stderr" if stream == "stdout" else "stdout"
                    self.assertEqual("", result[other])

    def test_a_sequence_split_between_two_writes_is_still_text(self):
        result = self.result("--", PYTHON, "-c", "import os,time\nfor b in '☃'.encode()*3:\n"
                             " os.write(1, bytes([b])); time.sleep(0.01)")
        self.assertEqual("☃☃☃", result["stdout"])

    def test_large_output_is_whole(self):
        result = self.result("--max-output", "16M", "--", PYTHON, "-c",
                             "import sys; sys.stdout.write('x' * 5000000); sys.stderr.write('y' * 3000000)")
        self.assertEqual((5000000, 3000000), (result["stdout"].count("x"), result["stderr"].count("y")))

    def test_a_failure_of_carrel_itself_is_said_the_same_way(self):
        done = carrel("run", "--json", "--workspace", self.path("missing"), "--", "true")
        self.one_line(done, "missing")

    def test_a_command_that_does_not_exist(self):
        done = self.run_in("--json", "--", "no-such-command")
        self.assertEqual(127, done.returncode)
        if done.stdout:
            self.assertEqual(127, self.object(done.stdout)["exit_code"])
        else:
            self.one_line(done, "no-such-command", code=127)

    def test_stdin_reaches_the_command(self):
        self.assertEqual("fed", self.result("--", "cat", input="fed")["stdout"])


if __name__ == "__main__":
    unittest.main()
