#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 120
"""A kernel or host that lacks something: refused in words, or done another way with the same confinement."""
import os
import signal
import socket
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.environ["SRC"], "tests", "integration"))
from carreltest import (CARREL, CLONE_NEWUSER, PATIENCE, PYTHON, ROOT, TMP, CarrelTest, carrel, check, deny,  # noqa: E402
                        confinement, deny_clone, deny_user_namespaces, host_state, libc, read, tree, write)

# A host without these cannot give the boundary: a start is refused, and the line says that the kernel lacks something.
NEEDED = ["openat2", "open_tree", "move_mount", "mount", "mount_setattr", "pivot_root", "seccomp", "close_range",
          "execveat"]
# Without these there is another way, or something the namespaces give already is only not given twice.
DISPENSABLE = ["clone3", "keyctl", "memfd_create", "pidfd_open", "fsopen", "fsmount", "fsconfig"]
LACKING = "kernel|carrel doctor|idmapped"
LANDLOCK = ["landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"]


class KernelMinus(CarrelTest):
    def setUp(self):
        super().setUp()
        source = os.path.join(os.environ["SRC"], "tests", "fault", "confined.c")
        subprocess.run(["cc", "-O1", "-static", "-o", self.path("probe"), source], check=True)
        self.command = ["--ro", f"{self.path('probe')}:/probe", "--", "/probe"]
        self.ok(*self.command)
        self.confined = confinement(f"{self.ws}/marker")
        os.unlink(f"{self.ws}/marker")

    def refused_on(self, minus, *options, says="carrel: "):
        """As refused(), with the workspace already in use; the command must not have run."""
        before, state = tree(self.dir), host_state()
        done = self.run_in(*options, *self.command, preexec_fn=minus)
        self.one_line(done)
        self.assertRegex(done.stderr, says)
        self.assertEqual(before, tree(self.dir))
        self.unchanged(state)

    def same_on(self, minus):
        """Either as confined as ever, or not at all."""
        done = self.run_in(*self.command, preexec_fn=minus)
        if os.path.exists(f"{self.ws}/marker"):
            # The filter that plays the lacking kernel is inherited, so the probe sees one more: not in its text.
            self.assertEqual(self.confined, confinement(f"{self.ws}/marker"))
            self.assertEqual((0, ""), (done.returncode, done.stderr))
            os.unlink(f"{self.ws}/marker")
            return True
        self.one_line(done)
        return False

    def test_without_what_makes_the_boundary_nothing_starts(self):
        for name in NEEDED:
            with self.subTest(call=name):
                self.refused_on(deny("EPERM", name))
                self.refused_on(deny("ENOSYS", name), says=LACKING)

    def test_the_whole_new_mount_interface_missing_is_said_in_one_line(self):
        self.refused_on(deny("ENOSYS", "open_tree", "move_mount", "fsopen", "fsmount", "fsconfig", "mount_setattr"),
                        says=LACKING)

    def test_without_the_dispensable_ones_confinement_is_the_same(self):
        for name in DISPENSABLE:
            with self.subTest(call=name):
                self.assertTrue(self.same_on(deny("ENOSYS", name)), "refused, though it can do without")

    def test_where_no_child_can_take_the_hosts_root_away_pid_1_does(self):
        """EINVAL: before Linux 6.2. EAGAIN: a limit. Anything else: not understood, and refused."""
        for error, starts in (("EINVAL", True), ("EAGAIN", True), ("EPERM", False)):
            with self.subTest(error=error):
                minus = deny_clone(0x100 | signal.SIGCHLD, error)  # CLONE_VM
                self.assertEqual(starts, self.same_on(minus))
                if starts:
                    self.assertEqual("2\n", self.ok("-c", "echo $$", preexec_fn=minus), "there was such a child")

    def test_without_landlock_nothing_is_promised_that_is_not_kept(self):
        minus = deny("ENOSYS", *LANDLOCK)
        self.assertTrue(self.same_on(minus))
        self.assertIn("no Landlock", self.ok("--explain", "--net", "host", "--", "true", preexec_fn=minus))
        # With the host's network only Landlock tells its abstract sockets from our own: without it there are none.
        name = f"\0carrel-test-{os.getpid()}"
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(name)
            server.listen()
            script = (f"import socket\ntry: socket.socket(socket.AF_UNIX).connect({name!r}); print('connected')\n"
                      "except OSError: print('refused')")
            self.assertEqual("refused\n", self.ok("--net", "host", "--", PYTHON, "-c", script, preexec_fn=minus))

    def test_without_what_looks_at_connections_there_is_no_host_network(self):
        for name in ("pidfd_getfd", "pidfd_open", "process_vm_readv", "seccomp"):
            with self.subTest(call=name):
                self.refused_on(deny("ENOSYS", name), "--net", "host", says="metadata" if name != "seccomp" else LACKING)
        # Landlock is a second wall for what Unix sockets bring with them; without it there are none.
        script = ("import socket\n"
                  "def failure(call, *args):\n"
                  "    try: call(*args)\n"
                  "    except OSError as error: return error.errno\n"
                  "print(failure(socket.socket().connect, ('169.254.169.254', 80)), failure(socket.socketpair, 1, 1),\n"
                  "      failure(socket.socketpair, 1, 2), failure(socket.socketpair()[0].connect, '/tmp/x'))\n")
        shown = self.ok("--net", "host", "--", PYTHON, "-c", script, preexec_fn=deny("ENOSYS", *LANDLOCK))
        self.assertEqual("13 None 97 13\n", shown)
        with socket.create_server(("127.0.0.1", 0)) as server:
            script = f"import socket; socket.create_connection({server.getsockname()}).close(); print('connected')"
            self.assertEqual("connected\n", self.ok("--net", "host", "--", PYTHON, "-c", script, preexec_fn=deny("ENOSYS", *LANDLOCK)))

    def test_no_user_namespaces_by_policy_of_the_host(self):
        self.refused_on(deny_user_namespaces(), says="user namespace")
        done = self.run_in("--", "true", preexec_fn=deny_user_namespaces())
        self.assertRegex(done.stderr, r"sysctl|carrel doctor|unprivileged_userns|apparmor|container")

    def test_no_user_namespaces_left(self):
        # In a user namespace of its own whose limit is zero: what carrel asks for is one too many.
        def none_left():
            uid, gid = os.getuid(), os.getgid()
            check(libc.unshare(CLONE_NEWUSER), "unshare")
            write("/proc/self/setgroups", "deny")
            write("/proc/self/uid_map", f"{uid} {uid} 1")
            write("/proc/self/gid_map", f"{gid} {gid} 1")
            write("/proc/sys/user/max_user_namespaces", "0")

        self.refused_on(none_left, says="user namespace")

    def test_other_namespaces_forbidden(self):
        self.refused_on(deny("EPERM", "unshare", "clone3"), says="namespace")

    def test_explain_and_doctor_still_answer(self):
        for minus in (deny_user_namespaces(), deny("ENOSYS", "openat2"), deny("ENOSYS", *LANDLOCK)):
            done = carrel("doctor", "--json", preexec_fn=minus)
            self.object(done.stdout)

    def test_the_daemons_front_needs_a_wall_to_the_broker(self):
        """Landlock where both are one user; as root the front has a uid of its own."""
        os.chmod(self.dir, 0o711)
        os.chmod(TMP, 0o711)
        want = "event=resumed" if ROOT else "has no Landlock"
        with open(self.path("log"), "w+", encoding="utf-8") as log:
            daemon = subprocess.Popen([CARREL, "serve", "--state", self.path("s"), "--listen", "", "--socket", self.path("k")],
                                      stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=deny("ENOSYS", *LANDLOCK))
            deadline = time.monotonic() + PATIENCE
            while want not in (said := read(self.path("log"))):
                self.assertIsNone(daemon.poll(), said)
                self.assertLess(time.monotonic(), deadline, said)
                time.sleep(0.05)
            daemon.terminate()
            daemon.wait(PATIENCE)
        self.assertEqual(ROOT, "event=resumed" in read(self.path("log")))

    def test_level_dir_needs_none_of_it(self):
        minus = deny("ENOSYS", *(set(NEEDED) - {"execveat", "close_range"}), *DISPENSABLE, *LANDLOCK)
        done = subprocess.run([CARREL, "run", "--level", "dir", "--workspace", self.ws, "--", "echo", "x"],
                              preexec_fn=minus, capture_output=True, text=True, timeout=PATIENCE, check=False)
        self.assertEqual("x\n", self.succeeded(done))


if __name__ == "__main__":
    unittest.main()
