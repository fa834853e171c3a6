#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 180
"""The exit status outside is the one inside: 0-255, 128+n for a signal, 126 and 127 as in a shell."""
import os
import signal
import subprocess
import unittest

from carreltest import PYTHON, CarrelTest, write


class ExitStatusIsTheCommands(CarrelTest):
    def test_every_exit_status_comes_out(self):
        for code in range(256):
            with self.subTest(code=code):
                done = self.run_in("--", "/bin/sh", "-c", f"exit {code}")
                self.assertEqual((code, "", ""), (done.returncode, done.stdout, done.stderr))

    def test_death_by_a_signal_is_128_plus_its_number(self):
        for number in sorted(set(signal.valid_signals())
                             - {signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU,
                                signal.SIGCONT, signal.SIGCHLD, signal.SIGURG, signal.SIGWINCH}):
            with self.subTest(signal=number):
                done = self.run_in("--", "/bin/sh", "-c", f"kill -{int(number)} $$; sleep 30")
                self.assertEqual(128 + number, done.returncode, done.stderr)

    def test_json_tells_an_exit_status_from_a_signal(self):
        for script, code, number, reason in (("exit 137", 137, None, "exit"),
                                             ("kill -9 $$", 137, 9, "signal"),
                                             ("exit 0", 0, None, "exit")):
            result, done = self.json("-c", script)
            self.assertEqual((code, number, reason, code),
                             (result["exit_code"], result["signal"], result["reason"],
                              done.returncode))

    def test_a_command_that_does_not_exist_is_127(self):
        for name in ("no-such-command", "/no/such/file", "./nothing", ""):
            with self.subTest(name=name):
                done = self.run_in("--", name)
                self.one_line(done, *([name] if name else []), code=127)
        done = self.run_in("-c", "no-such-command")
        self.assertEqual(127, done.returncode)

    def test_a_command_that_cannot_be_executed_is_126(self):
        write(f"{self.ws}/plain", "echo no\n")
        os.mkdir(f"{self.ws}/directory")
        write(f"{self.ws}/lost", "#!/no/such/interpreter\n")
        os.chmod(f"{self.ws}/lost", 0o755)
        for name, code in (("/plain", 126), ("/directory", 126), ("/lost", 127)):
            with self.subTest(name=name):
                self.one_line(self.run_in("--", name), name, code=code)

    def test_the_status_of_a_stopped_and_continued_command_is_its_last(self):
        done = self.run_in("-c", "(sleep 0.3; kill -CONT $$) & kill -STOP $$; exit 5")
        self.assertEqual(5, done.returncode)

    def test_arguments_arrive_as_given(self):
        given = ["", " ", "a b", "*", "$HOME", "'\"", "\\", "new\nline", "-x", "--", "ümläut", "\udcff"]
        done = self.run_in("--", PYTHON, "-c", "import os,sys; sys.stdout.buffer.write("
                           "b'\\0'.join(os.fsencode(a) for a in sys.argv[1:]))", *given, text=False)
        self.assertEqual([os.fsencode(word) for word in given], done.stdout.split(b"\0"))

    def test_many_and_long_arguments_arrive(self):
        done = self.run_in("--", "sh", "-c", 'echo $# ${#1}', "sh", *["x" * 1000] * 1000)
        self.assertEqual("1000 1000\n", self.succeeded(done))

    def test_too_many_arguments_are_an_error_in_words(self):
        # The kernel takes more for carrel than it will for the command, where limits differ.
        done = self.run_in("--", "true", *["x" * 100_000] * 15)
        self.assertIn(done.returncode, (0, 125, 126))
        if done.returncode:
            self.one_line(done, code=done.returncode)

    def test_dash_c_runs_a_shell_line_with_arguments(self):
        self.assertEqual("a b\n", self.ok("-c", "echo a; echo b").replace("\n", " ").strip() + "\n")
        self.assertEqual(3, self.run_in("-c", "exit 3").returncode)
        self.assertEqual("", self.ok("-c", ""))

    def test_dash_c_together_with_a_command_is_refused(self):
        self.refused("--workspace", self.ws, "-c", "true")

    def test_what_the_command_left_in_the_background_ends_with_it(self):
        done = self.run_in("-c", "sleep 1000 & (setsid sh -c 'trap \"\" TERM HUP; sleep 1000' &) ; echo started")
        self.assertEqual("started\n", self.succeeded(done))

    def test_a_closed_reader_ends_the_command_by_sigpipe(self):
        with subprocess.Popen([os.environ["CARREL"], "run", "--workspace", self.ws, "--", "yes"],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
            process.stdout.read(100)
            process.stdout.close()
            self.assertEqual(128 + signal.SIGPIPE, process.wait(timeout=60))


if __name__ == "__main__":
    unittest.main()
