#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 120
"""Standard input, output and error: every byte, no byte more, whatever they are outside."""
import hashlib
import os
import socket
import subprocess
import tempfile
import unittest

from carreltest import CARREL, PATIENCE, PYTHON, CarrelTest, carrel, read, write

BIG = 16 << 20


class Streams(CarrelTest):
    def shell(self, line, **kwargs):
        """A line of the caller's shell, in which $run is carrel run in the workspace."""
        env = dict(os.environ, run=f"{CARREL} run --workspace {self.ws}", F=self.path("file"))
        return subprocess.run(["bash", "-c", line], env=env, capture_output=True, text=True,
                              timeout=PATIENCE, check=False, cwd=self.dir, **kwargs)

    def test_input_and_both_outputs_are_separate_and_whole(self):
        done = self.run_in("-c", "cat; echo err >&2", input="in\n")
        self.assertEqual(("in\n", "err\n", 0), (done.stdout, done.stderr, done.returncode))

    def test_many_bytes_pass_in_order_through_pipes_and_files(self):
        data = os.urandom(BIG)
        want = hashlib.sha256(data).hexdigest()
        done = self.run_in("--", "cat", input=data, text=False)
        self.assertEqual(want, hashlib.sha256(done.stdout).hexdigest())
        with open(self.path("in"), "w+b") as source, open(self.path("out"), "w+b") as sink:
            source.write(data)
            source.seek(0)
            done = self.run_in("--", "cat", stdin=source, stdout=sink)
            self.assertEqual(0, done.returncode)
            sink.seek(0)
            self.assertEqual(want, hashlib.sha256(sink.read()).hexdigest())

    def test_a_list_read_in_a_loop_is_not_eaten(self):
        write(self.path("file"), "one\ntwo\nthree\n")
        for line in ('while read x; do $run -- echo $x; done < "$F"',
                     'cat "$F" | while read x; do $run -- echo $x; done'):
            with self.subTest(line=line):
                self.assertEqual("one\ntwo\nthree\n", self.shell(line).stdout)

    def test_a_file_is_left_where_the_command_stopped_reading(self):
        write(self.path("file"), "0123456789" * 100_000)
        done = self.shell('exec 3< "$F"; read -N 3 -u 3 x; '
                          '$run -- dd bs=4 count=1 status=none <&3; echo; head -c 5 <&3')
        self.assertEqual("3456\n78901", done.stdout, done.stderr)

    def test_an_output_file_is_appended_at_its_offset(self):
        done = self.shell('{ echo a; $run -- echo b; echo c; $run -- sh -c "echo d; echo e >&2"; } > "$F" 2>&1; '
                          '$run -- echo f >> "$F"; cat "$F"')
        self.assertEqual(list("abcdef"), sorted(done.stdout.split()))
        self.assertTrue(done.stdout.startswith("a\nb\nc\n") and done.stdout.endswith("f\n"))

    def test_stdout_and_stderr_on_one_pipe_keep_their_order(self):
        done = self.shell("$run -- sh -c 'for i in 1 2 3 4 5 6 7 8; do echo o$i; echo e$i >&2; done' 2>&1")
        self.assertEqual([f"{c}{i}" for i in range(1, 9) for c in "oe"], done.stdout.split())

    def test_stdin_option_feeds_a_file(self):
        write(self.path("file"), "from file\n")
        self.assertEqual("from file\n", self.ok("--stdin", self.path("file"), "--", "cat",
                                                input="not this"))
        self.assertEqual("", self.ok("--stdin", "/dev/null", "--", "cat"))
        relative = carrel("run", "--workspace", self.ws, "--stdin", "file", "--", "cat", cwd=self.dir)
        self.assertEqual("from file\n", self.succeeded(relative))

    def test_stdin_option_names_what_it_cannot_read(self):
        os.mkdir(self.path("directory"))
        self.refused("--workspace", self.ws, "--stdin", self.path("nothing"), words=("nothing",))
        self.refused("--workspace", self.ws, "--stdin", self.path("directory"), words=("directory",))

    def test_a_directory_as_a_standard_stream_is_refused(self):
        fd = os.open("/", os.O_RDONLY)
        try:
            self.refused("--workspace", self.ws, stdin=fd, words=("directory",))
        finally:
            os.close(fd)

    def test_the_outside_file_cannot_be_reached_through_its_descriptor(self):
        # A file passed straight through could be reopened, truncated or found by name inside.
        write(self.path("file"), "content")
        with open(self.path("file"), "r+", encoding="ascii") as file:
            shown = self.ok("-c", "stat -L -c %F /proc/self/fd/0; readlink /proc/self/fd/0", stdin=file)
        self.assertRegex(shown, r"\Afifo\npipe:\[\d+\]\n\Z")

    def test_closed_streams_are_no_way_in_and_no_hang(self):
        for which in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
            with self.subTest(closed=which):
                done = self.shell(f"$run -- sh -c 'ls /proc/self/fd > /fds; cat; echo hi; true' {which}")
                self.assertEqual(0, done.returncode, done.stderr)
                self.assertLessEqual(set(read(f"{self.ws}/fds").split()), {"0", "1", "2", "3"})

    def test_a_socket_as_stream_works(self):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.sendall(b"ping\n")
            ours.shutdown(socket.SHUT_WR)
            done = self.run_in("--", "sed", "s/i/o/", stdin=theirs, stdout=theirs)
            self.assertEqual(0, done.returncode, done.stderr)
            theirs.shutdown(socket.SHUT_RDWR)
            self.assertEqual(b"pong\n", ours.recv(100))

    def test_input_that_never_ends_does_not_keep_a_finished_command(self):
        read_end, write_end = os.pipe()
        try:
            self.assertEqual("done\n", self.ok("--", "echo", "done", stdin=read_end))
        finally:
            os.close(read_end)
            os.close(write_end)
        with tempfile.TemporaryFile(dir=self.dir) as file:
            file.truncate(1 << 40)
            self.assertEqual("done\n", self.ok("--", "echo", "done", stdin=file))
        with open("/dev/zero", "rb") as zero:
            self.assertEqual("done\n", self.ok("--", "echo", "done", stdin=zero))

    def test_output_arrives_while_the_command_runs(self):
        for extra in ([], ["--max-output", "1M"]):
            with subprocess.Popen([CARREL, "run", "--workspace", self.ws, *extra, "--", "sh", "-c",
                                   "echo first; read x; echo got $x"], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True) as process:
                self.assertEqual("first\n", process.stdout.readline())
                process.stdin.write("answer\n")
                process.stdin.flush()
                self.assertEqual("got answer\n", process.stdout.readline())
                self.assertEqual(0, process.wait(timeout=PATIENCE))

    def test_end_of_input_is_seen(self):
        with subprocess.Popen([CARREL, "run", "--workspace", self.ws, "--", "cat"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            process.stdin.write(b"x")
            process.stdin.close()
            self.assertEqual(b"x", process.stdout.read())
            self.assertEqual(0, process.wait(timeout=PATIENCE))

    def test_output_that_cannot_be_written_is_not_lost_in_silence(self):
        for extra in ([], ["--json"]):
            with open("/dev/full", "w", encoding="ascii") as full:
                done = self.run_in(*extra, "--", "echo", "lost", stdout=full)
            self.assertNotEqual(0, done.returncode, extra)
            self.assertIn("carrel: ", done.stderr, extra)

    def test_a_nonblocking_stream_of_the_caller_stays_as_it_was(self):
        read_end, write_end = os.pipe()
        flags = [os.get_blocking(fd) for fd in (read_end, write_end)]
        with os.fdopen(read_end, "rb") as source, os.fdopen(write_end, "wb") as sink:
            self.ok("--", "true", stdin=source)
            self.run_in("--", "true", stdout=sink)
            self.assertEqual(flags, [os.get_blocking(fd) for fd in (source.fileno(), sink.fileno())])

    def test_python_and_shell_agree_that_no_terminal_is_there(self):
        look = "import os; print(*map(os.isatty, (0, 1, 2)))"
        self.assertEqual("False False False\n", self.ok("--", PYTHON, "-c", look))
        self.assertNotEqual(0, self.run_in("-c", "exec 2>/dev/null; : < /dev/tty").returncode)


if __name__ == "__main__":
    unittest.main()
