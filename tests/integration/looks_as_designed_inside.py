#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 120
"""Identity, environment, /proc, /etc, /dev and limits inside are those of DESIGN, and nothing else."""
import os
import re
import signal
import unittest

from carreltest import PYTHON, CarrelTest, carrel, write

ENVIRONMENT = {
    "HOME": "/", "USER": "user", "LOGNAME": "user", "PWD": "/", "LANG": "C.UTF-8",
    "PATH": "/node_modules/.bin:/.venv/bin:/opt/carrel/bin:/usr/local/bin:/usr/bin:/bin:/etc/carrel/bin",
    "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONNOUSERSITE": "1",
    "MPLBACKEND": "Agg", "NODE_ENV": "development", "NODE_PATH": "/node_modules",
    "UV_CACHE_DIR": "/.cache/uv", "npm_config_cache": "/.cache/npm",
    "BUN_INSTALL_CACHE_DIR": "/.cache/bun", "PIP_CACHE_DIR": "/.cache/pip", "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "UV_PYTHON_DOWNLOADS": "never", "UV_PYTHON_PREFERENCE": "only-system", "UV_COMPILE_BYTECODE": "1",
    "UV_LINK_MODE": "copy",
}
JUST_STARTED = 60  # seconds; the host has been up longer, or its clock says nothing here


def environment(text):
    return dict(entry.split("=", 1) for entry in text.split("\0") if entry)


class LooksAsDesignedInside(CarrelTest):
    def test_the_user_is_user_1000_without_groups(self):
        self.assertEqual("uid=1000(user) gid=1000(user) groups=1000(user)\n", self.ok("--", "id"))
        self.assertEqual("user\n", self.ok("--", "whoami"))

    def test_root_inside_is_a_name_without_power(self):
        self.assertEqual("uid=0(root) gid=0(root) groups=0(root)\n",
                         self.ok("--user", "root", "--", "id"))
        self.assert_powerless(self.ok("--user", "root", "--", "cat", "/proc/self/status"))
        for attempt in ("mount -t tmpfs x /tmp", "touch /usr/x", "chown 1:1 /", "hostname x"):
            self.assertNotEqual(0, self.run_in("--user", "root", "-c", attempt).returncode, attempt)

    def test_the_environment_is_exactly_the_designed_one(self):
        os.environ["CARREL_TEST_SECRET"] = "leak"
        os.environ["LD_DEBUG"] = "help-not-a-real-value"
        try:
            shown = environment(self.ok("--", "env", "-0"))
        finally:
            del os.environ["CARREL_TEST_SECRET"], os.environ["LD_DEBUG"]
        self.assertEqual(ENVIRONMENT, shown)

    def test_env_adds_and_overrides(self):
        shown = environment(self.ok(
            "--env", "A=1", "--env", "B=two words = fine\nsecond line", "--env", "HOME=/tmp",
            "--env", "EMPTY=", "--env", "A=2", "--env", "ümlaut=ß", "--", "env", "-0"))
        self.assertEqual(ENVIRONMENT | {"A": "2", "B": "two words = fine\nsecond line",
                                        "HOME": "/tmp", "EMPTY": "", "ümlaut": "ß"}, shown)

    def test_variables_for_python_that_others_set_are_not_needed_and_passed_on(self):
        show = "import os, sys; print(os.environ.get('PYTHONPATH'), '/more' in sys.path, sys.flags.no_user_site)"
        self.assertEqual("None False 1\n", self.ok("--", "python3", "-c", show))
        self.assertEqual("/more True 1\n", self.ok("--env", "PYTHONPATH=/more", "--", "python3", "-c", show))
        self.ok("-c", "python3 -m venv --without-pip /.venv && echo x=1 >$(echo /.venv/lib/python3*/site-packages)/own.py")
        self.assertEqual("1\n", self.ok("--", "python", "-c", "import own; print(own.x)"))  # which is what they are for
        self.assertNotEqual(0, self.run_in("--", "/usr/bin/python3", "-c", "import own").returncode)

    def test_env_path_decides_where_the_command_is_found(self):
        write(f"{self.ws}/tool", "#!/bin/sh\necho found\n")
        os.chmod(f"{self.ws}/tool", 0o755)
        self.assertEqual("found\n", self.ok("--env", "PATH=/:/bin", "--", "tool"))

    def assert_powerless(self, status):
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            self.assertEqual(0, int(fields[name], 16), name)
        self.assertEqual("1", fields["NoNewPrivs"])
        self.assertEqual("2", fields["Seccomp"])
        self.assertEqual("", fields["Groups"].strip())

    def test_status_shows_no_capability_no_new_privs_and_a_filter(self):
        self.assert_powerless(self.ok("--", "cat", "/proc/self/status"))

    def test_hostname_and_working_directory_and_umask_and_locale(self):
        self.assertEqual("carrel\n", self.ok("--", "hostname"))
        self.assertEqual("/\n0022\n", self.ok("-c", "pwd; umask"))
        self.assertEqual("utf-8 ☃\n", self.ok(
            "--", PYTHON, "-c", "import sys; print(sys.stdout.encoding, '\\u2603')"))
        self.assertEqual("UTF-8\n", self.ok("--", "locale", "charmap"))

    def test_signals_are_default_and_unblocked(self):
        status = self.ok("--", "cat", "/proc/self/status")
        for name in ("SigBlk", "SigIgn", "SigPnd"):
            self.assertEqual(0, int(re.search(rf"{name}:\s*(\w+)", status)[1], 16), name)
        # Also when the caller ignores and blocks some himself, as nohup and shells do.
        done = self.run_in("--", "cat", "/proc/self/status", preexec_fn=ignore_some_signals)
        for name in ("SigBlk", "SigIgn"):
            self.assertEqual(0, int(re.search(rf"{name}:\s*(\w+)", done.stdout)[1], 16), name)

    def test_only_three_descriptors_are_open(self):
        read_end, write_end = os.pipe()
        os.set_inheritable(read_end, True)
        os.set_inheritable(write_end, True)
        try:
            shown = self.ok("-c", "ls /proc/self/fd", close_fds=False)
        finally:
            os.close(read_end)
            os.close(write_end)
        self.assertEqual(["0", "1", "2", "3"], shown.split(), "3 is ls reading the directory")

    def test_tools_that_ask_proc_work_and_tell_nothing_of_the_host(self):
        self.assertEqual(len(os.sched_getaffinity(0)), int(self.ok("--", "nproc")))
        self.assertEqual(len(os.sched_getaffinity(0)),
                         self.ok("--", "cat", "/proc/cpuinfo").count("processor\t:"))
        self.assertLess(float(self.ok("--", "cat", "/proc/uptime").split()[0]), JUST_STARTED)
        self.assertRegex(self.ok("--", "uptime"), r"up +(0 min|1 min|< 1)")
        self.assertRegex(self.ok("--", "free", "-b"), r"Mem: +[1-9]\d+")
        self.assertLess(float(self.ok("--", PYTHON, "-c", "import time; print(time.monotonic())")),
                        JUST_STARTED)
        boot = self.ok("--", "cat", "/proc/sys/kernel/random/boot_id")
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            self.assertNotEqual(file.read(), boot)
        self.assertRegex(boot, r"\A[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\n\Z")
        self.assertNotEqual(boot, self.ok("--", "cat", "/proc/sys/kernel/random/boot_id"))

    def test_only_the_own_processes_are_in_proc(self):
        pids = [int(pid) for pid in self.ok("-c", "ls /proc").split() if pid.isdigit()]
        self.assertLessEqual(len(pids), 3, "init, sh, ls")
        self.assertLess(max(pids), 20)

    def test_dev_has_the_usual_nodes_only(self):
        self.assertEqual(
            "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero".split(),
            sorted(set(self.ok("--", "ls", "-A", "/dev").split()) - {"console", "core"}))
        self.ok("-c", "head -c 8 /dev/urandom | wc -c; head -c 8 /dev/zero > /dev/null; "
                      "echo x > /dev/shm/x; test -c /dev/tty")
        done = self.run_in("-c", "echo out > /dev/stdout; echo err > /dev/stderr; echo in | cat /dev/stdin")
        self.assertEqual(("out\nin\n", "err\n"), (done.stdout, done.stderr))
        self.assertNotEqual(0, self.run_in("-c", "echo x > /dev/full").returncode)
        self.assertFalse("sys" in self.ok("--", "ls", "/").split())

    def test_etc_is_a_minimal_one_that_works(self):
        etc = set(self.ok("--", "ls", "-A", "/etc").split())
        self.assertLessEqual({"passwd", "group", "nsswitch.conf", "hosts"}, etc)
        self.assertFalse(etc & {"shadow", "gshadow", "ssh", "sudoers", "fstab"}, etc)
        if os.path.exists("/etc/machine-id"):
            with open("/etc/machine-id", encoding="ascii") as file:
                self.assertNotEqual(file.read(), self.run_in("--", "cat", "/etc/machine-id").stdout)
        self.assertRegex(self.ok("--", "getent", "passwd", "1000"), r"\Auser:x:1000:1000:[^:]*:/:/bin/\w+\n\Z")
        self.assertEqual("root\n", self.ok("--", "stat", "-c", "%U", "/usr").replace("nobody", "root"))
        self.assertRegex(self.ok("--", "getent", "hosts", "localhost"), "127.0.0.1|::1")
        for name, what in (("/etc/ld.so.cache", "-s"), ("/etc/localtime", "-e"),
                           ("/etc/alternatives", "-d"), ("/etc/ssl/certs", "-d")):
            if os.path.exists(name):
                self.ok("--", "test", what, name)

    def test_python_is_python3_unless_something_else_is_called_python(self):
        if not os.path.exists("/usr/bin/python3"):
            self.skipTest("no python3 here")
        version = "import sys; print(sys.version, sys.prefix)"
        self.assertEqual(self.ok("--", "python3", "-c", version), self.ok("--", "python", "-c", version))
        self.assertEqual("env\n", self.ok("-c", "printf '#!/usr/bin/env python\nprint(\"env\")\n' >x; chmod +x x; ./x"))
        self.assertNotEqual(0, self.run_in("-c", "touch /etc/carrel/bin/x || rm /etc/carrel/bin/python").returncode)
        self.ok("-c", "python -m venv --without-pip /.venv")  # and a venv made with it is whole
        self.assertEqual("/.venv /.venv/bin/python\n",
                         self.ok("--", "python", "-c", "import json, sys; print(sys.prefix, sys.executable)"))

    def test_what_alternatives_point_to_works(self):
        self.ok("-c", "for link in /etc/alternatives/*; do case $link in *.gz) ;; *) "
                      "[ -e \"$link\" ] || echo \"$link\" >&2;; esac; done")

    def test_temporary_directories_are_private_empty_and_writable(self):
        self.assertEqual("", self.ok("--", "ls", "-A", "/tmp"))
        self.ok("-c", "for d in /tmp /.cache /dev/shm; do echo x > $d/f; done; "
                      "echo '#!/bin/sh' > /tmp/run; chmod +x /tmp/run; /tmp/run")
        self.assertEqual("", self.ok("--", "ls", "-A", "/tmp", "/dev/shm").replace(
            "/tmp:", "").replace("/dev/shm:", "").strip())
        self.assertEqual("1777\n", self.ok("--", "stat", "-c", "%a", "/tmp"))

    def test_core_files_are_off_and_file_limits_are_sane(self):
        self.assertEqual("0\n", self.ok("-c", "ulimit -c"))
        self.assertGreaterEqual(int(self.ok("--", "bash", "-c", "ulimit -n")), 1024)
        done = self.run_in("-c", "kill -SEGV $$")
        self.assertEqual(139, done.returncode)
        self.assertNotIn("core", os.listdir(self.ws))

    def test_without_a_workspace_the_environment_is_the_same_but_for_the_directory(self):
        done = carrel("run", "--", "env", "-0", cwd=self.dir)
        shown = environment(self.succeeded(done))
        self.assertEqual(ENVIRONMENT | {"PWD": "/work"}, shown)


def ignore_some_signals():
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGCHLD):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD})


if __name__ == "__main__":
    unittest.main()
