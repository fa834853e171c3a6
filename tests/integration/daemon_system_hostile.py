#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 300
# BASE
"""Root inside turns its system against who comes after: files with rights, a broken C library, a loader's list, a package's
script. The host, other workspaces, the file server and doctor go on as before, and a reset brings the system back."""
import os
import stat
import unittest

from carreltest import carrel, read
from systemtest import BASE, SystemDaemonTest

SYSTEM = {"policy": {"system": True}}
POSTINST = r"""#!/bin/sh
cp /bin/sh /usr/bin/evil; chown 0:0 /usr/bin/evil; chmod 6755 /usr/bin/evil; chmod 2777 /var/tmp
mknod /usr/disk b 254 0; mknod /usr/mem c 1 1; mkfifo /usr/pipe
chown 70000:70000 /etc/passwd; chown -h 4294967294 /etc/group
mount -t tmpfs tmpfs /mnt; echo 1 > /proc/sys/kernel/panic; echo /usr/evil.so > /proc/sys/kernel/core_pattern
kill -9 1; rm -rf /run/carrel/ask; ln -s / /usr/out; chroot / true && touch /got-chroot
(setsid sleep 1000 &) ; exit 0
"""


class Hostile(SystemDaemonTest):
    def setUp(self):
        super().setUp()
        self.workspace(id="desk", **SYSTEM)
        self.workspace(id="other", **SYSTEM)

    def root(self, script, workspace="desk"):
        done = self.daemon.execute(workspace, script, user="root")
        return done["exit_code"], done["stdout"] + done["stderr"]

    def on_disk(self):
        for where, folders, files in os.walk(self.daemon.state):
            for name in folders + files:
                path = os.path.join(where, name)
                if "/system/work" not in path:
                    yield path, os.lstat(path)

    def check_disk(self):
        """Nothing that the host would honour."""
        for path, st in self.on_disk():
            if stat.S_ISREG(st.st_mode):
                self.assertFalse(st.st_mode & 0o6000, path)
            if stat.S_ISBLK(st.st_mode) or stat.S_ISCHR(st.st_mode):
                self.assertEqual(0, st.st_rdev, path)  # a whiteout

    def check_others(self):
        answer = self.daemon.get("/v1/workspaces/desk/files/?list=1")
        self.assertEqual(200, answer.status, answer.bytes)
        self.assertEqual(201, self.daemon.request("PUT", "/v1/workspaces/desk/files/new", b"text").status)
        self.assertEqual(b"text", self.daemon.get("/v1/workspaces/desk/files/new").bytes)
        self.assertEqual(204, self.daemon.request("DELETE", "/v1/workspaces/desk/files/new").status)
        self.assertEqual((0, "whole\n"), self.root("test ! -e /etc/ld.so.preload && test ! -e /usr/evil && echo whole", "other"))
        self.assertEqual(0, carrel("run", "--", "true").returncode)
        doctor = carrel("doctor", "--state", self.daemon.state, "desk")
        self.assertIn("desk", doctor.stdout, doctor.stderr)

    def reset(self):
        self.assertEqual(200, self.daemon.post("/v1/workspaces/desk/sleep").status)
        self.assertEqual(200, self.daemon.post("/v1/workspaces/desk/reset-system").status)
        self.assertEqual((0, "0\n"), self.root("id -u"))

    def test_a_broken_library_and_a_list_of_the_loaders(self):
        self.root("cp /bin/true /usr/bin/sudo; echo /usr/evil.so > /etc/ld.so.preload; echo x > /usr/evil.so; "
                  "lib=$(echo /usr/lib/*-linux-gnu/libc.so.6); printf broken > $lib")
        for _ in range(2):  # awake, and woken
            self.assertNotEqual(0, self.root("id -u")[0])
            self.check_others()
            self.daemon.post("/v1/workspaces/desk/sleep")
        self.check_disk()
        self.reset()

    def test_a_system_that_has_lost_its_directories(self):
        self.root("rm -rf /usr/bin /usr/lib64 /usr/sbin; rm -rf /usr/local; ln -s /etc /usr/local; rm -rf /var/lib")
        self.check_others()
        self.daemon.post("/v1/workspaces/desk/sleep")
        refused = self.daemon.post("/v1/workspaces/desk/exec", {"command": "id -u"})
        self.assertIn("carrel ws reset-system", refused.json["error"]["message"])
        self.reset()

    def test_files_with_capabilities_and_bits(self):
        done = self.root("cp /bin/cat /usr/bin/kitten; perl -e '$v = pack(\"L<5\", 0x02000001, 0xffffffff, 0, 0xffffffff, 0); "
                         "syscall(188, $p = \"/usr/bin/kitten\", $n = \"security.capability\", $v, length $v, 0) == 0 or print \"no\\n\"'; "
                         "chmod 4755 /usr/bin/kitten; stat -c %a /usr/bin/kitten")
        self.assertTrue(done[1].endswith("755\n"), done)
        self.check_disk()
        said = self.daemon.execute("desk", "kitten /etc/shadow 2>&1; grep CapEff /proc/self/status")["stdout"]
        self.assertIn("Permission denied", said)
        self.assertIn("CapEff:\t0000000000000000", said)

    def test_a_package_whose_script_is_hostile(self):
        self.daemon.request("PUT", "/v1/workspaces/desk/files/postinst", POSTINST.encode())
        before = read("/var/lib/dpkg/status") if os.path.exists("/var/lib/dpkg/status") else ""
        panic, pattern = read("/proc/sys/kernel/panic"), read("/proc/sys/kernel/core_pattern")
        code, said = self.root("mkdir -p /tmp/p/DEBIAN && cp /postinst /tmp/p/DEBIAN/postinst && chmod 755 /tmp/p/DEBIAN/postinst && "
                               "printf 'Package: evil\\nVersion: 1\\nArchitecture: all\\nMaintainer: x <x@example.org>\\nDescription: x\\n' "
                               "> /tmp/p/DEBIAN/control && dpkg-deb -b /tmp/p /tmp/evil.deb && sudo dpkg -i /tmp/evil.deb; "
                               "test ! -e /got-chroot && test ! -b /usr/disk && test ! -c /usr/mem && stat -c %u /etc/passwd")
        self.assertEqual(0, code, said)
        self.assertIn("\n0\n", said)
        self.assertEqual((panic, pattern), (read("/proc/sys/kernel/panic"), read("/proc/sys/kernel/core_pattern")))
        self.assertEqual(before, read("/var/lib/dpkg/status") if before else "")
        self.check_disk()
        self.check_others()
        self.assertFalse(os.path.lexists(f"{BASE}/usr/bin/evil"))
        self.reset()


if __name__ == "__main__":
    unittest.main()
