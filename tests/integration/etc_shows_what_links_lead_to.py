#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""Directories of /etc that programs in /usr have links to are there inside, and nothing in them that is not everybody's."""
import os
import subprocess
import unittest

from carreltest import ROOT, CarrelTest

# In a mount namespace of its own: /etc with what a machine with another Java, and careless settings, could have.
PREPARE = """
set -eu
mkdir old
cp -r /etc/passwd /etc/group /etc/ld.so.c* /etc/alternatives old
mount -n -t tmpfs none /etc
cp -r old/* /etc
mkdir -p /etc/java-99-openjdk/security/closed /etc/maven /etc/python3.99 /etc/secrets /etc/ssl/private /etc/texmf
cd /etc/java-99-openjdk
echo settings >net.properties
echo deeper >security/java.security
echo password >management.password; chmod 600 management.password
echo of-a-group >group.password; chmod 640 group.password
echo hidden >security/closed/file; chmod 700 security/closed
mkfifo pipe; ln -s /etc/shadow shadow; ln -s net.properties link
echo '<password>secret</password>' >/etc/maven/settings.xml; chmod 600 /etc/maven/settings.xml
echo open >/etc/maven/m2.conf
echo x >/etc/secrets/file; echo key >/etc/ssl/private/key
mkdir /etc/R; echo x >/etc/R/Renviron; chmod 750 /etc/R
for i in $(seq 1100); do echo; done | split -l 1 -a 4 - /etc/texmf/
cd "$OLDPWD"
"""


class EtcLinked(CarrelTest):
    def seen(self, script):
        """What a shell inside prints, with that /etc."""
        command = f"{PREPARE}\nexec \"$@\""
        apart = ["unshare", "-m" if ROOT else "-rm", "bash", "-c", command, "sh"]
        done = subprocess.run([*apart, os.environ["CARREL"], "run", "--workspace", self.ws, "-c", script], cwd=self.dir,
                              capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual(0, done.returncode, done.stderr)
        return done.stdout

    def test_settings_are_read_and_what_is_closed_to_some_is_not(self):
        shown = self.seen("cd /etc/java-99-openjdk; cat net.properties security/java.security link ../maven/m2.conf; "
                          "cat management.password group.password pipe shadow security/closed/* ../maven/settings.xml; "
                          "test -d ../python3.99 && echo python; ls security/closed ../R ../secrets ../ssl/private; "
                          "ls ../texmf; echo x >net.properties || echo read-only; :")
        self.assertEqual(["settings", "deeper", "settings", "open", "python", "read-only"],
                         [line for line in shown.splitlines() if not line.endswith(":")], shown)

    def test_explain_names_what_is_covered(self):
        command = f"{PREPARE}\nexec \"$CARREL\" run --explain --workspace {self.ws} -- true"
        done = subprocess.run(["unshare", "-m" if ROOT else "-rm", "bash", "-c", command], cwd=self.dir, text=True,
                              capture_output=True, check=False, timeout=60)
        self.assertEqual(0, done.returncode, done.stderr)
        for name in ("texmf", "java-99-openjdk/pipe"):
            self.assertIn(f"mask    ro  /etc/{name}", done.stdout)
        for name in ("java-99-openjdk/management.password", "java-99-openjdk/security/closed", "maven/settings.xml"):
            self.assertEqual(not ROOT, f"mask    ro  /etc/{name}" in done.stdout, "as root modes do that, for nobody inside is somebody")
        self.assertNotIn("etc/secrets", done.stdout)


if __name__ == "__main__":
    unittest.main()
