#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 240
"""`--disk SIZE` and `--files N`: what a run may add, whoever else writes to the same disk."""
import os
import subprocess
import threading
import unittest

from carreltest import PATIENCE, PYTHON, CarrelTest, carrel, mount, private_mounts

MIB = 1 << 20

# Writes so many MiB in files of four each, and stays a while: what was taken is held.
FILLER = """
import os, sys, time
for i in range(int(sys.argv[1]) // 4):
    with open(f"{sys.argv[2]}fill{i}", "wb") as file:
        file.write(b"x" * (4 << 20))
time.sleep(float(sys.argv[3]))
"""


class DiskLimit(CarrelTest):
    def fill(self, mib, *options, where="/", stay=3, **kwargs):
        return self.json(*options, "--", PYTHON, "-c", FILLER, mib, where, stay, **kwargs)

    def ended_for_disk(self, result, done):
        self.assertEqual((123, 123, "disk"), (done.returncode, result["exit_code"], result["reason"]), done.stderr)

    def denied(self, result, what, rule, fix):
        (one,) = result["denials"]
        self.assertEqual((what, rule), (one["what"], one["rule"]))
        self.assertIn(fix, one["fix"])

    def on_disk(self):
        return int(subprocess.run(["du", "-s", "-B1", self.ws], check=True, capture_output=True,
                                  text=True).stdout.split()[0])

    def test_who_writes_too_much_is_ended_and_the_result_tells_by_how_much(self):
        result, done = self.fill(400, "--disk", "32M")
        self.ended_for_disk(result, done)
        self.assertEqual("polling", result["disk"]["method"])
        added = result["usage"]["added_bytes"]
        self.assertEqual(added - 32 * MIB, result["disk"]["overshoot_bytes"])
        self.assertLess(added, 400 * MIB)
        self.assertLess(abs(added - self.on_disk()), MIB)
        self.denied(result, "add more bytes", "disk 32M", "--disk 64M")

    def test_who_stays_below_is_not_touched_and_told_what_it_added(self):
        result, done = self.fill(16, "--disk", "32M", stay=0.5)
        self.assertEqual((0, "exit"), (done.returncode, result["reason"]), done.stderr)
        self.assertEqual({"method": "polling", "overshoot_bytes": 0}, result["disk"])
        self.assertGreaterEqual(result["usage"]["added_bytes"], 16 * MIB)
        self.assertLess(result["usage"]["added_bytes"], 17 * MIB)

    def test_without_a_limit_nothing_is_counted(self):
        result, done = self.fill(4, stay=0)
        self.assertEqual(0, done.returncode)
        self.assertNotIn("disk", result)
        self.assertIsNone(result["usage"]["added_bytes"])

    def test_what_was_there_before_is_free(self):
        with open(self.path("ws", "old"), "wb") as file:
            file.write(b"x" * (48 * MIB))
        os.chmod(self.path("ws", "old"), 0o666)
        result, done = self.fill(8, "--disk", "16M", stay=0.5)
        self.assertEqual(0, done.returncode, result)
        self.assertLess(result["usage"]["added_bytes"], 9 * MIB)

    def test_files_that_are_larger_already_can_be_written_to(self):
        with open(self.path("ws", "log"), "wb") as file:
            file.write(b"x" * (10 * MIB))
        os.chmod(self.path("ws", "log"), 0o666)
        result, done = self.json("--disk", "5M", "-c", "echo line >>log && dd if=/dev/zero of=log bs=1M count=9 conv=notrunc "
                                 "status=none && head -c 8M /dev/zero >/tmp/x && tail -n 1 log | tail -c 5")
        self.assertEqual((0, "line\n"), (done.returncode, result["stdout"]), result)
        self.assertEqual([], result["denials"])
        self.assertLess(result["usage"]["added_bytes"], MIB)

    def test_a_file_of_a_size_beyond_all_is_refused(self):
        result, done = self.json("--disk", "5M", "--tmp-size", "6M", "-c", "truncate -s 9G f; echo $?")
        self.assertEqual((0, "153\n"), (done.returncode, result["stdout"]), result)
        self.denied(result, "write", "disk 5M", "--disk")
        self.ok("--disk", "5M", "--tmp-size", "6M", "-c", "truncate -s 8G f")

    def test_what_is_deleted_may_be_written_again(self):
        script = "for i in 1 2 3 4 5 6; do head -c 10M /dev/zero >big; sleep 0.1; rm big; done"
        self.ok("--disk", "16M", "-c", script)

    def test_holes_are_not_counted(self):
        result, done = self.json("--disk", "32M", "-c", "for i in 1 2 3 4 5 6; do truncate -s 30M $i; done; sleep 0.5")
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertLess(result["usage"]["added_bytes"], MIB)

    def test_many_small_files_reach_the_limit_on_bytes(self):
        script = "import os, time\nfor i in range(40000): open(str(i), 'w').write('x')\ntime.sleep(3)"
        self.ended_for_disk(*self.json("--disk", "16M", "--files", "1000000", "--", PYTHON, "-c", script))

    def test_files_is_a_limit_of_its_own(self):
        script = "import os, sys, time\nfor i in range(int(sys.argv[1])): open(str(i), 'w')\ntime.sleep(float(sys.argv[2]))"
        result, done = self.json("--files", "1000", "--", PYTHON, "-c", script, 100000, 3)
        self.ended_for_disk(result, done)
        self.assertLess(len(os.listdir(self.ws)), 90000)
        self.denied(result, "add more files", "files 1000", "--files 2000")
        self.ok("--files", "200000", "--", PYTHON, "-c", script, 500, 0.3)

    def test_names_of_one_file_are_files_too(self):
        script = ("import os, time\nopen('a', 'w')\nfor i in range(20000): os.link('a', f'l{i}')\ntime.sleep(3)")
        self.ended_for_disk(*self.json("--files", "5000", "--", PYTHON, "-c", script))

    def test_a_limit_on_bytes_bounds_the_files_without_any(self):
        script = "import time\nfor i in range(60000): open(str(i), 'w')\ntime.sleep(3)"
        result, done = self.json("--disk", "16M", "--", PYTHON, "-c", script)
        self.ended_for_disk(result, done)
        self.denied(result, "add more files", "disk 16M allows 4096 files", "--files 8192")

    def test_deleted_files_count_as_long_as_they_are_open(self):
        script = ("import os, time\nfiles = []\nfor i in range(100):\n"
                  "    files.append(open('x', 'wb')); os.unlink('x'); files[-1].write(b'x' * (4 << 20)); files[-1].flush()\n"
                  "time.sleep(3)")
        result, done = self.json("--disk", "32M", "--", PYTHON, "-c", script)
        self.ended_for_disk(result, done)
        self.assertLess(result["usage"]["added_bytes"], MIB)
        self.assertGreater(result["disk"]["overshoot_bytes"], 0)

    def test_fallocate_is_refused_and_programs_do_without(self):
        script = ("import os, errno, ctypes\nf = os.open('f', os.O_RDWR | os.O_CREAT)\n"
                  "libc = ctypes.CDLL(None, use_errno=True)\n"
                  "r = libc.fallocate(f, 0, ctypes.c_long(0), ctypes.c_long(1 << 20))\n"
                  "print(r, ctypes.get_errno() == errno.EOPNOTSUPP)\n"
                  "os.posix_fallocate(f, 0, 1 << 20)\nprint(os.fstat(f).st_blocks >= 2048)")
        self.assertEqual("-1 True\nTrue\n", self.ok("--disk", "32M", "--", PYTHON, "-c", script))
        self.assertEqual("0\n", self.ok("-c", "fallocate -l 1M g; echo $?"))

    def test_another_writer_on_the_same_disk_ends_nobody(self):
        other, error = self.path("other"), []

        def write_beside():
            try:
                for i in range(5):
                    with open(f"{other}{i}", "wb") as file:
                        file.write(b"x" * (40 * MIB))
            except OSError as trouble:
                error.append(trouble)
        thread = threading.Thread(target=write_beside)
        thread.start()
        try:
            # In the middle of it: a process that has ended, and one that was deleted while it runs.
            result, done = self.json("--disk", "32M", "-c", "sleep 0 & cp /bin/sleep s; ./s 2 & rm s; "
                                     "head -c 8M /dev/zero >mine; exec sleep 3")
        finally:
            thread.join()
        self.assertEqual([], error)
        self.assertEqual((0, "exit"), (done.returncode, result["reason"]), done.stderr)
        self.assertLess(result["usage"]["added_bytes"], 10 * MIB)

    def test_writable_mounts_count_too(self):
        more = self.path("more")
        os.mkdir(more)
        os.chmod(more, 0o777)
        result, done = self.fill(400, "--disk", "32M", "--rw", f"{more}:/more", where="/more/")
        self.ended_for_disk(result, done)

    def test_the_current_directory_counts_at_work(self):
        done = carrel("run", "--json", "--disk", "32M", "--", PYTHON, "-c", FILLER, 400, "/work/", 3, cwd=self.ws)
        self.ended_for_disk(self.object(done.stdout), done)

    def test_tmp_is_not_on_the_disk(self):
        result, done = self.fill(64, "--disk", "16M", where="/tmp/", stay=0.5)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertLess(result["usage"]["added_bytes"], MIB)

    def on_small_disk(self, size):
        """A preexec_fn: the workspace's parent is a file system of its own."""
        def prepare():
            private_mounts()
            mount("none", self.dir, "tmpfs", f"size={size},mode=0755")
            os.mkdir(self.ws)
        return prepare

    def test_the_host_keeps_its_floor(self):
        # A twentieth of the disk is the host's: the limit alone would allow all of it.
        result, done = self.fill(252, "--disk", "4G", preexec_fn=self.on_small_disk("256M"))
        self.ended_for_disk(result, done)
        self.assertIn("host", str(result["denials"]))

    def test_on_a_disk_that_is_full_already_it_says_so(self):
        def prepare():
            self.on_small_disk("64M")()
            with open(self.path("big"), "wb") as file:
                file.write(b"x" * (62 * MIB))
        self.one_line(self.run_in("--disk", "1M", "--", "true", preexec_fn=prepare), "almost full")

    def test_level_dir_cannot_keep_it(self):
        self.refused("--level", "dir", "--workspace", self.ws, "--disk", "1M", words=("--disk",))

    def test_the_deadline_counts_first(self):
        result, done = self.fill(4, "--disk", "1G", "--timeout", "500ms", stay=PATIENCE)
        self.assertEqual((124, "timeout"), (done.returncode, result["reason"]))
        self.assertGreaterEqual(result["usage"]["added_bytes"], 4 * MIB)


if __name__ == "__main__":
    unittest.main()
