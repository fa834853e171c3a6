#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 600
# TAKES: 60
# BASE
"""apt inside, through the list of names: packages of different kinds, whose scripts make users, set-id files and directories,
alternatives and triggers; and one that is killed in the middle."""
import os
import unittest

from systemtest import SystemTest

# What each is for, and what shows that it works.
PACKAGES = {
    "sudo": "test -x /usr/bin/sudo",  # set-id
    "dbus": "grep -q messagebus /etc/passwd && dbus-daemon --version >/dev/null",  # a user, a set-id helper of its group
    "fontconfig-config": "stat -c %a /usr/local/share/fonts | grep -q 2775",  # a set-id directory
    "file": "file /bin/sh | grep -q 'symbolic link'",
    "nano": "update-alternatives --query editor | grep -q nano",  # alternatives
    "iputils-ping": "test -x /usr/bin/ping",  # file capabilities
    "openssh-client": "ssh -V 2>&1 | grep -q OpenSSH",  # a set-id file by dpkg-statoverride
    "libgmp10": "/sbin/ldconfig -p | grep -q libgmp",  # triggers
    "bc": "test $(echo 6*7 | bc) = 42",
    "cron": "stat -c %U:%G /var/spool/cron/crontabs | grep -q root:crontab",  # a group
}


class Installs(SystemTest):
    def test_packages_install_work_and_stay(self):
        before = os.stat("/var/lib/dpkg/status").st_mtime_ns
        done = self.apt("apt-get update -q && apt-get install -qy --no-install-recommends " + " ".join(PACKAGES))
        self.assertEqual(0, done.returncode, done.stdout[-3000:] + done.stderr[-3000:])
        for name, smoke in PACKAGES.items():
            with self.subTest(package=name):
                done = self.user(smoke)
                self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        self.assertEqual(before, os.stat("/var/lib/dpkg/status").st_mtime_ns, "the host's dpkg has heard of it")
        self.assertEqual("", self.root("dpkg --audit").stdout)
        self.check_a_killed_one_is_mended()
        bits = [path for path in self.files() if os.lstat(path).st_mode & 0o6000 and os.path.isfile(path)]
        self.assertEqual([], bits)

    def check_a_killed_one_is_mended(self):
        done = self.apt("printf '#!/bin/sh\\nkill -9 $PPID; sleep 1\\n' > /usr/local/sbin/ldconfig; chmod 755 /usr/local/sbin/ldconfig; "
                        "apt-get install -qy --no-install-recommends libpng16-16 tree; rm /usr/local/sbin/ldconfig; dpkg --audit")
        self.assertNotEqual("", done.stdout)
        done = self.apt("dpkg --configure -a && apt-get -qy -f install && dpkg --audit && tree --version")
        self.assertEqual(0, done.returncode, done.stdout[-2000:] + done.stderr[-2000:])

    def files(self):
        for where, _, names in os.walk(self.layer):
            for name in names:
                yield os.path.join(where, name)


if __name__ == "__main__":
    unittest.main()
