#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 180
"""Whatever the sandbox does not allow is in the result, with its rule and a fix; and the fix, followed, works."""
import contextlib
import os
import re
import socket
import subprocess
import threading
import unittest

from carreltest import PYTHON, ROOT, CarrelTest, carrel, check, libc, write

# Inside: call(number, ...) is a raw system call (x86-64 numbers), its result or minus the error.
PRELUDE = """
import ctypes, errno, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(*args):
    args = [ctypes.c_char_p(a) if isinstance(a, bytes) else ctypes.c_long(a) for a in args]
    result = libc.syscall(*args)
    return result if result >= 0 else -ctypes.get_errno()
"""
NETWORK_FIX = "--allow HOST"
DIR_FIX = "--level dir"


def own_address(family, elsewhere):
    """An address of this host that is not loopback's, to be reached only through its network; or None."""
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as s:
        s.connect((elsewhere, 9))
        address = s.getsockname()[0]
        return None if address in ("127.0.0.1", "::1") else address
    return None


class Denials(CarrelTest):
    def python(self, script, *options, level=("--workspace",), **kwargs):
        """What the script prints in a sandbox, and the result; or at another level."""
        where = [*level, self.ws] if level == ("--workspace",) else [*level, "--workspace", self.ws]
        done = carrel("run", "--json", *where, *options, "--", PYTHON, "-c", PRELUDE + script, **kwargs)
        return self.object(done.stdout)

    def denied(self, result, what, rule, fix, source="kernel"):
        found = [d for d in result["denials"] if d["rule"] == rule and re.fullmatch(what, d["what"])]
        self.assertEqual(1, len(found), f"no '{what}' by '{rule}' in {result['denials']}, printed {result['stdout']!r} "
                                        f"{result.get('stderr')!r}")
        self.assertEqual(source, found[0]["source"])
        self.assertIn(fix, found[0]["fix"])
        self.assertGreaterEqual(found[0]["count"], 1)
        return found[0]

    def refuses(self, script, what, rule, fix, error="EPERM", **kwargs):
        """The script prints what its call answered."""
        result = self.python(f"r = {script}\nprint(errno.errorcode.get(-r, r))", **kwargs)
        self.assertEqual(error, result["stdout"].strip(), result)
        self.denied(result, what, rule, fix)

    def works(self, script, *options, **kwargs):
        """The fix, followed: prints "done", and nothing is denied any more."""
        result = self.python(script + "\nprint('done')", *options, **kwargs)
        self.assertEqual((0, "done"), (result["exit_code"], result["stdout"].strip()), result)
        self.assertEqual([], result["denials"])

    # --- network ---

    def connection(self, family, elsewhere):
        address = own_address(family, elsewhere) or {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}[family]
        script = "socket.create_connection(({!r}, {}), timeout=5).close()"
        result = self.python(f"try: {script.format(elsewhere, 443)}\nexcept OSError as e: print(e.errno)")
        self.assertEqual("101\n", result["stdout"], "ENETUNREACH, from the kernel itself")
        self.denied(result, "use the network", "network none", NETWORK_FIX)
        with socket.create_server((address, 0), family=family) as server:
            self.works(script.format(address, server.getsockname()[1]), "--net", "host")

    def test_connection(self):
        self.connection(socket.AF_INET, "203.0.113.5")

    def test_connection_over_ipv6(self):
        self.connection(socket.AF_INET6, "2001:db8::5")

    def test_connections_are_counted_also_when_the_command_is_killed(self):
        script = "for _ in range(3):\n    try: socket.create_connection(('203.0.113.5', 443))\n    except OSError: pass\n"
        counted = self.denied(self.python(script), "use the network", "network none", NETWORK_FIX)
        self.assertEqual(3, counted["count"])
        killed = self.python(script + "import time; time.sleep(60)", "--timeout", "1s")
        self.assertEqual("timeout", killed["reason"])
        self.assertEqual(3, self.denied(killed, "use the network", "network none", NETWORK_FIX)["count"])

    def test_datagram(self):
        script = "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ({!r}, {}))"
        result = self.python(f"try: {script.format('203.0.113.5', 9)}\nexcept OSError as e: print(e.errno)")
        self.assertEqual("101\n", result["stdout"])
        self.denied(result, "use the network", "network none", NETWORK_FIX)
        address = own_address(socket.AF_INET, "203.0.113.5") or "127.0.0.1"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
            server.bind((address, 0))
            self.works(script.format(*server.getsockname()), "--net", "host")
            self.assertEqual(b"x", server.recv(10))

    def test_datagram_whose_address_the_filter_does_not_see(self):
        """sendmsg has it in memory; the kernel counts it, and what the error output says is not told twice."""
        script = "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendmsg([b'x'], [], 0, ({!r}, {}))"
        self.denied(self.python(script.format("203.0.113.5", 9)), "use the network", "network none", NETWORK_FIX)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
            server.bind(("127.0.0.1", 0))
            self.works(script.format(*server.getsockname()), "--net", "host")
            self.assertEqual(b"x", server.recv(10))

    def test_name_lookup(self):
        script = "try: print(sorted({a[4][0] for a in socket.getaddrinfo('example.org', 80)}))\n" \
                 "except OSError as e: print(e.errno)"
        result = self.python(script)
        self.assertEqual(f"{socket.EAI_AGAIN}\n", result["stdout"])
        self.denied(result, "use the network", "network none", NETWORK_FIX)
        followed = self.python(script, "--net", "host")
        host = subprocess.run([PYTHON, "-c", PRELUDE + script], capture_output=True, text=True, check=True)
        self.assertEqual((host.stdout, []), (followed["stdout"], followed["denials"]), "as the host does")

    def test_raw_socket(self):
        self.refuses("call(41, 2, 3, 1)", r"raw socket \(IPv4\)", "no capabilities", "/dev/tcp/")
        self.refuses("call(41, 10, 3, 58)", r"raw socket \(IPv6\)", "no capabilities", "--net host")
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.ok("--net", "host", "--", "bash", "-c", f"echo >/dev/tcp/127.0.0.1/{server.getsockname()[1]}")

    def test_socket_families(self):
        self.refuses("call(41, 38, 5, 0)", "socket AF_ALG", "filter: socket families", "hashlib", "EAFNOSUPPORT")
        self.works("import hashlib; hashlib.sha256(b'x').hexdigest()")
        self.refuses("call(41, 40, 1, 0)", "socket AF_VSOCK", "filter: socket families", DIR_FIX, "EAFNOSUPPORT")
        with contextlib.suppress(OSError):  # where the kernel has it
            socket.socket(40, socket.SOCK_STREAM).close()
            self.works("assert call(41, 40, 1, 0) >= 0", level=("--level", "dir"))
        self.refuses("call(53, 2, 1, 0, 0)", "socketpair", "filter: socket families", "AF_UNIX", "EAFNOSUPPORT")
        self.works("a, b = socket.socketpair(); a.send(b'x')")

    def test_netlink(self):
        self.refuses("call(41, 16, 3, 4)", "socket AF_NETLINK, protocol 4", "filter: netlink other than routes",
                     "/proc/net", "EPROTONOSUPPORT")
        self.works("assert 'local_address' in open('/proc/net/tcp').read()")

    def test_port_below_1024(self):
        script = "try: socket.create_server(('127.0.0.1', {}))\n" \
                 "except OSError as e: print('bind:', e.strerror, file=sys.stderr)"
        self.denied(self.python(script.format(80)), "listen on a port below 1024", "no capabilities", "1024",
                    "inferred")
        self.works(script.format(1024))

    # --- files ---

    def test_mounting(self):
        self.refuses("call(165, b'none', b'/tmp', b'tmpfs', 0, 0)", "mount", "filter: mounts", "--ro DIR")
        self.refuses("call(166, b'/tmp', 0)", "umount", "filter: mounts", "--rw DIR")
        os.mkdir(self.path("data"))
        write(self.path("data", "file"))
        self.works(f"os.stat({self.path('data', 'file')!r})", "--ro", self.path("data"))

    def test_change_of_root(self):
        self.refuses("call(161, b'/tmp')", "chroot", "filter: change of root", "--workspace DIR")
        self.refuses("call(155, b'/tmp', b'/tmp')", "pivot_root", "filter: change of root", "--workspace DIR")
        os.mkdir(self.path("root"))
        write(self.path("root", "here"))
        self.succeeded(carrel("run", "--workspace", self.path("root"), "--", "test", "-e", "/here"))

    def test_set_id_bits(self):
        write(os.path.join(self.ws, "file"))
        self.refuses("call(90, b'/file', 0o4755)", "chmod with mode 4755", "filter: set-id bits", "chmod 755", "0")
        self.assertEqual(0o755, os.stat(os.path.join(self.ws, "file")).st_mode & 0o7777)
        self.refuses("call(257, -100, b'/new', 0o102, 0o2600)", "open with mode 2600", "filter: set-id bits", "ug-s")
        self.works("os.chmod('/file', 0o755); os.close(os.open('/new', os.O_CREAT, 0o600))")

    def test_devices(self):
        self.refuses("call(133, b'/null', 0o20666, 259)", "mknod of a character device", "filter: devices", "/dev")
        self.refuses("call(133, b'/disk', 0o60666, 2048)", "mknod of a block device", "filter: devices", "plain file")
        self.works("open('/dev/null', 'w').write('x'); os.mkfifo('/fifo')")

    def test_file_handles(self):
        self.refuses("call(303, -100, b'/', 0, 0, 0)", "name_to_handle_at", "filter: file handles", "path")
        self.refuses("call(304, -100, 0, 0)", "open_by_handle_at", "filter: file handles", "path")
        self.works("os.close(os.open('/', os.O_RDONLY))")

    def test_fanotify(self):
        self.refuses("call(300, 0, 0)", "fanotify_init", "filter: fanotify", "inotify")
        self.works("fd = call(294, 0); assert call(254, fd, b'/', 0x100) > 0\n"
                   "open('/made', 'w').close(); assert b'made' in os.read(fd, 4096)")

    def test_read_only_system(self):
        result = self.json("--", "sh", "-c", "touch /usr/x; echo x >/etc/y; cp /etc/passwd /usr/bin/env")[0]
        self.denied(result, "write /usr/x", "read-only: /usr", "/opt", "inferred")
        self.denied(result, "write /etc/y", "read-only: /etc", "workspace", "inferred")
        self.denied(result, "write /usr/bin/env", "read-only: /usr", "workspace", "inferred")
        self.assertEqual("", self.ok("--", "sh", "-c", "mkdir /opt && touch /opt/x"))
        done = carrel("run", "--json", "--", "touch", "/usr/x", cwd=self.ws)
        self.denied(self.object(done.stdout), "write /usr/x", "read-only: /usr", "/work", "inferred")
        self.succeeded(carrel("run", "--", "touch", "/work/x", cwd=self.ws))

    def test_read_only_mount(self):
        os.mkdir(self.path("data"))
        command = ["--", "touch", self.path("data", "x")]
        result = self.json("--ro", self.path("data"), *command)[0]
        self.denied(result, f"write {self.path('data', 'x')}", f"read-only: {self.path('data')}", "--rw", "inferred")
        self.ok("--rw", self.path("data"), *command)
        self.assertTrue(os.path.exists(self.path("data", "x")))

    def test_full_tmp(self):
        command = ["--", "dd", "if=/dev/zero", "of=/tmp/x", "bs=1M", "count=4", "status=none"]
        self.denied(self.json("--tmp-size", "2M", *command)[0], "write /tmp/x", "tmp size 2M", "--tmp-size SIZE",
                    "inferred")
        self.ok("--tmp-size", "8M", *command)

    def test_open_files(self):
        script = "import resource, sys\ntry: files = [open('/dev/null') for _ in range(2000)]\n" \
                 "except OSError as e: print(e, file=sys.stderr)"
        result = self.json("--", PYTHON, "-c", script)[0]
        fix = self.denied(result, "open more files at a time", "open files", "ulimit -n", "inferred")["fix"]
        shell = re.search(r"sh -c '(.*)' sh", fix).group(1)
        self.ok("--", "sh", "-c", shell, "sh", PYTHON, "-c", script)

    def test_owners(self):
        write(os.path.join(self.ws, "file"))
        make = "import tarfile; t = tarfile.open('/x.tar', 'w'); i = t.gettarinfo('/file'); i.uid = i.gid = 5\n" \
               "i.uname = i.gname = ''; t.addfile(i, open('/file', 'rb')); t.close()"
        self.ok("--", PYTHON, "-c", make)
        command = ["--user", "root", "--", "tar", "-C", "/tmp", "-xf", "/x.tar"]
        self.denied(self.json(*command)[0], "change the owner of a file", "no capabilities", "--no-same-owner",
                    "inferred")
        self.ok(*command, "--no-same-owner")

    # --- processes ---

    def test_namespaces(self):
        self.refuses("call(272, 0x10000000)", "unshare", "filter: namespaces", "own sandbox")
        self.refuses("call(308, 0, 0)", "setns", "filter: namespaces", "own sandbox")
        self.refuses("call(56, 0x10000011, 0, 0, 0, 0)", "clone with new namespaces", "filter: namespaces",
                     "own sandbox")
        inner = self.json("--", "unshare", "--user", "true")[0]
        self.denied(inner, "unshare", "filter: namespaces", "leave out")
        self.ok("--", "true")

    def test_other_processes(self):
        for number, name in ((440, "process_madvise"), (312, "kcmp"), (438, "pidfd_getfd")):
            self.refuses(f"call({number}, 0, 0, 0, 0, 0, 0)", name, "filter: other processes", DIR_FIX)
        self.works("assert call(101, 0, 0, 0, 0) == 0")
        self.works("assert call(312, os.getpid(), os.getpid(), 0, 0, 0) == 0", level=("--level", "dir"))

    def test_keyrings(self):
        for number, name in ((250, "keyctl"), (248, "add_key"), (249, "request_key")):
            self.refuses(f"call({number}, 0, 0, 0, 0, 0)", name, "filter: keyrings", "--env NAME=VALUE")
        self.works("assert os.environ['SECRET'] == 'x'", "--env", "SECRET=x")

    def test_personality(self):
        self.refuses("call(135, 0x40000)", "personality 0x40000", "filter: personality", "setarch")
        script = "assert call(135, 0xffffffff) & 0x40000"
        done = subprocess.run(["setarch", "-R", os.environ["CARREL"], "run", "--workspace", self.ws, "--", PYTHON, "-c",
                               PRELUDE + script], capture_output=True, text=True, check=False)
        self.assertEqual((0, ""), (done.returncode, done.stderr))

    def test_memory_placement(self):
        self.refuses("call(237, 0, 0, 0, 0, 0, 0)", "mbind", "filter: memory placement", "numactl")
        MPOL_LOCAL, SET_MEMPOLICY = 4, 238
        show = "mode = ctypes.c_int(); r = libc.syscall(239, ctypes.byref(mode), 0, 0, 0, 0); assert mode.value == 4"
        if libc.syscall(SET_MEMPOLICY, MPOL_LOCAL, None, 0) == 0:  # where the kernel has it
            libc.syscall(SET_MEMPOLICY, 0, None, 0)
            self.works(show, preexec_fn=lambda: check(libc.syscall(SET_MEMPOLICY, MPOL_LOCAL, None, 0), "policy"))

    def test_memory_map(self):
        self.refuses("call(157, 35, 1, 0, 0, 0)", "prctl PR_SET_MM", "filter: process memory map", "PR_SET_NAME")
        self.works("assert libc.prctl(15, b'name', 0, 0, 0) == 0")

    def test_page_faults(self):
        self.refuses("call(323, 1)", "userfaultfd", "filter: page faults", DIR_FIX)
        fd = libc.syscall(323, 1)  # where the kernel has it
        if fd >= 0:
            os.close(fd)
            self.works("assert call(323, 1) >= 0", level=("--level", "dir"))

    def test_io_uring(self):
        self.refuses("call(425, 1, b' ' * 120)", "io_uring_setup", "filter: io_uring", "epoll", "ENOSYS")
        self.works("import select; select.epoll().poll(0)")

    def test_typing_into_terminals(self):
        self.refuses("call(16, 0, 0x5412, b'x')", "ioctl TIOCSTI", "filter: typing into terminals", "standard input")
        self.assertEqual("typed", self.ok("--", "cat", input="typed"))

    # --- the machine ---

    def test_performance_counters(self):
        self.refuses("call(298, 0, 0, -1, -1, 0)", "perf_event_open", "filter: performance counters", "time command")
        self.assertIn("real", self.run_in("--", "bash", "-c", "time true").stderr)

    def test_clock(self):
        for number, name in ((227, "clock_settime"), (164, "settimeofday"), (159, "adjtimex"), (305, "clock_adjtime")):
            self.refuses(f"call({number}, 0, 0)", name, "filter: the clock", "SOURCE_DATE_EPOCH")
        self.assertEqual("1970\n", self.ok("--env", "SOURCE_DATE_EPOCH=0", "--", "bash", "-c",
                                           "date -u -d @$SOURCE_DATE_EPOCH +%Y"))

    def test_host_name(self):
        self.refuses("call(170, b'other', 5)", "sethostname", "filter: the host name", "--env HOSTNAME=NAME")
        self.works("assert os.environ['HOSTNAME'] == 'other'", "--env", "HOSTNAME=other")

    def test_administration(self):
        """What only root may do, on the host: tried there by root alone, and with what changes nothing."""
        calls = {"delete_module": "176, b'carrel-no-such-module', 0", "swapoff": "168, b'/nonexistent'",
                 "acct": "163, b'/nonexistent'", "iopl": "172, 9"}
        for name, args in calls.items():
            self.refuses(f"call({args})", name, "filter: the machine", "as root, outside")
        self.refuses("call(169, 0, 0, 0, 0)", "reboot", "filter: the machine", "as root, outside")
        self.refuses("call(321, 99, 0, 0)", "bpf", "filter: kernel programs", "as root, outside")
        self.refuses("call(103, 10, 0, 0)", "syslog", "filter: the kernel's log", "dmesg")
        if ROOT:
            script = PRELUDE + "".join(f"assert call({args}) != -errno.EPERM\n" for args in calls.values())
            script += "assert call(321, 99, 0, 0) != -errno.EPERM; assert call(103, 10, 0, 0) >= 0"
            subprocess.run([PYTHON, "-c", script], check=True)

    # --- all of them ---

    def test_ordinary_programs_meet_none(self):
        write(os.path.join(self.ws, "a file"), "x")
        for command in ("ls -la /; date; id; df; cat /etc/hosts; touch /tmp/x; chmod 755 /tmp/x",
                        f"{PYTHON} -c 'import asyncio, json, multiprocessing, socket, sqlite3, ssl, subprocess'",
                        "git init -q /g && cd /g && git add . && git status", "ps aux", "find / -name x*",
                        "tar cf /tmp/x.tar /etc/hosts && tar xf /tmp/x.tar -C /tmp", "curl --version",
                        "node -e 'require(\"http\"); console.log(1)'"):
            if "/" not in command.split()[0] and not any(os.path.exists(f"/usr/bin/{command.split()[0]}{s}")
                                                         for s in ("", ";")):
                continue
            with self.subTest(command):
                self.assertEqual([], self.json("--", "bash", "-c", command)[0]["denials"])

    def test_loopback_inside_is_no_denial(self):
        self.works("for family, at in ((socket.AF_INET, '127.0.0.1'), (socket.AF_INET6, '::1')):\n"
                   "    server = socket.create_server((at, 0), family=family)\n"
                   "    for _ in range(100): socket.create_connection(server.getsockname()[:2], timeout=5).close()\n"
                   "    socket.socket(family, socket.SOCK_DGRAM).sendto(b'x', server.getsockname())\n"
                   "s = socket.socket(socket.AF_UNIX); s.bind('/tmp/sixteen_b'); s.listen()\n"
                   "socket.socket(socket.AF_UNIX).connect('/tmp/sixteen_b')")

    def test_the_same_again_is_counted_and_too_many_kinds_are_dropped(self):
        result = self.python("for _ in range(7): call(161, b'/')\n"
                             "for family in range(1000, 1100): call(41, family, 1, 0)\n"
                             "call(165, 0, 0, 0, 0, 0)")
        self.assertEqual(7, self.denied(result, "chroot", "filter: change of root", "--workspace")["count"])
        self.denied(result, "mount", "filter: mounts", "--ro")
        self.assertLessEqual(len(result["denials"]), 32)
        self.assertGreater(result["denials_dropped"], 50)

    def test_what_the_command_says_cannot_reach_the_terminal_or_the_fix(self):
        result = self.json("--", "printf", "x: '/usr/\\033[2J\\u202e\\200': Read-only file system\\n")[0]
        self.assertEqual([], result["denials"], "standard output is not looked at")
        result = self.json("--", "bash", "-c",
                           "printf \"x: '/usr/\\033[2J\\u202e\\200; rm -rf': Read-only file system\\n\" >&2")[0]
        one = self.denied(result, "write .*", "read-only: /usr", "workspace", "inferred")
        self.assertEqual(r"write /usr/\x1b[2J\xe2\x80\xae\x80; rm -rf", one["what"])
        self.assertNotIn("rm -rf", one["fix"])

    def test_a_flood_is_slowed_down_and_others_go_on(self):
        script = "import threading\n" \
                 "def flood():\n" \
                 "    while True: call(161, b'/')\n" \
                 "for _ in range(8): threading.Thread(target=flood).start()"
        results = []
        thread = threading.Thread(target=lambda: results.append(self.python(script, "--timeout", "4s")))
        before = os.times()
        thread.start()
        for _ in range(5):
            self.succeeded(carrel("run", "--workspace", self.ws, "--", "true"))
        thread.join()
        after = os.times()
        result = results[0]
        self.assertEqual("timeout", result["reason"])
        count = self.denied(result, "chroot", "filter: change of root", "--workspace")["count"]
        self.assertGreater(count, 4000, "a flood indeed")
        self.assertLess(count, 4000 + 500 * 4 + 2000)
        spent = after.children_user + after.children_system - before.children_user - before.children_system
        self.assertLess(spent, 3, "seconds of cpu, of all five runs and both sides of the flood")


if __name__ == "__main__":
    unittest.main(verbosity=2)
