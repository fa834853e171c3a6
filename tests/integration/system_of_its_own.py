#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 240
# BASE
"""`--system BASE:DIR`: another system than the host's, with root inside; what is changed of it is in DIR, and nowhere else."""
import os
import stat
import unittest

from carreltest import ROOT, carrel, read
from systemtest import BASE, FIRST, SystemTest

RIGHTS = 0x800000DB  # chown, dac_override, fowner, fsetid, setgid, setuid, setfcap


class System(SystemTest):
    def ok(self, done):
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def test_the_hosts_files_are_out_of_sight(self):
        self.assertEqual(self.ok(self.user("cat /etc/debian_version")), read(f"{BASE}/etc/debian_version"))
        self.assertNotIn("carreltest", self.ok(self.user("cat /etc/passwd")))
        self.assertEqual(self.ok(self.user("id -u; ls -A /opt /home; cat /etc/resolv.conf")),
                         "1000\n/home:\n\n/opt:\nnameserver 198.18.0.1\n")

    def test_a_command_is_the_users_and_has_no_rights(self):
        out = self.ok(self.user("grep -E 'Cap(Prm|Eff|Bnd|Amb)' /proc/self/status; touch /usr/x 2>/dev/null || echo refused"))
        self.assertEqual(out.count("0000000000000000"), 4)
        self.assertIn("refused", out)

    def test_root_inside_has_what_installing_takes_and_no_more(self):
        status = self.ok(self.root("cat /proc/self/status"))
        caps = {line.split()[0]: int(line.split()[1], 16) for line in status.splitlines() if line.startswith("Cap")}
        self.assertEqual(caps, {"CapInh:": 0, "CapPrm:": RIGHTS, "CapEff:": RIGHTS, "CapBnd:": RIGHTS, "CapAmb:": 0})
        self.assertIn("NoNewPrivs:\t1", status)
        self.assertIn("Seccomp:\t2", status)

    def test_who_leaves_root_leaves_its_rights(self):
        out = self.ok(self.root("exec setpriv --reuid 33 --regid 33 --clear-groups sh -c 'id -u; grep CapEff /proc/self/status; "
                                "touch /etc/x 2>/dev/null || echo refused'"))
        self.assertEqual(out, "33\nCapEff:\t0000000000000000\nrefused\n")

    def test_changes_stay_and_are_this_layers_alone(self):
        self.ok(self.root("echo mine > /usr/x && chown 33:44 /usr/x && rm /etc/debian_version && touch /var/v /opt/o /root/r /home/h"))
        self.assertEqual(self.ok(self.user("stat -c %u:%g /usr/x; cat /usr/x; ls /etc/debian_version 2>/dev/null || echo gone")),
                         "33:44\nmine\ngone\n")
        other = self.make_layer("other")
        self.assertEqual(self.ok(self.user("ls /usr/x 2>/dev/null; cat /etc/debian_version", layer=other)), read(f"{BASE}/etc/debian_version"))
        self.assertFalse(os.path.exists(f"{BASE}/usr/x"))

    def test_on_disk_are_ids_of_the_one_range(self):
        self.ok(self.root("touch /usr/a /w; chown 33:44 /usr/a; chown 1000:1000 /w; install -o 65534 -g 65534 /dev/null /usr/n"))
        st = os.stat(f"{self.layer}/upper/usr/a")
        self.assertEqual((st.st_uid - FIRST, st.st_gid - FIRST), (33, 44))
        nobody = os.stat(f"{self.layer}/upper/usr/n").st_uid - FIRST
        self.assertEqual(nobody, 65534 if ROOT else 65533)  # the user's own id takes one of the others' places
        self.assertEqual(os.stat(f"{self.ws}/w").st_uid, os.stat(self.ws).st_uid, "the workspace's owner is the user inside")

    def test_roots_files_in_the_workspace_are_of_that_range_too(self):
        self.ok(self.root("touch /mine"))
        self.assertEqual(os.stat(f"{self.ws}/mine").st_uid, FIRST)
        self.assertEqual(self.ok(self.user("rm /mine && echo gone")), "gone\n")

    def test_set_id_bits_are_left_out_and_the_rest_is_done(self):
        out = self.ok(self.root("touch /usr/f && chown 33:33 /usr/f && chmod 4755 /usr/f && stat -c %a:%u /usr/f;"
                                "mkdir /usr/d && chown 0:50 /usr/d && chmod 2775 /usr/d && stat -c %a /usr/d;"
                                "mkdir -m 700 /var/p && touch /var/p/f && chown 7:7 /var/p /var/p/f && chmod 6711 /var/p/f && stat -c %a /var/p/f"))
        self.assertEqual(out, "755:33\n2775\n711\n")
        self.assertEqual(stat.S_IMODE(os.stat(f"{self.layer}/upper/usr/f").st_mode), 0o755)
        done = self.user("chmod 4755 /usr/f")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("Operation not permitted", done.stderr)

    def test_ids_beyond_the_range_are_not_there(self):
        done = self.root("touch /usr/f; chown 65536 /usr/f")
        self.assertIn("Invalid argument", done.stderr)

    def test_what_others_of_its_commands_leave_ends_with_it(self):
        out = self.ok(self.root("setpriv --reuid 33 --regid 33 --clear-groups sleep 1000 >/dev/null 2>&1 & echo left"))
        self.assertEqual(out, "left\n")

    def test_a_system_whose_parts_are_links_is_refused_in_words(self):
        self.ok(self.root("rm -r /usr/sbin && ln -s /etc /usr/sbin"))
        done = self.user("true")
        self.assertEqual(done.returncode, 125)
        self.assertIn("begin with a new layer", done.stderr)

    def test_the_base_knows_nothing_of_this_host(self):
        self.assertEqual("carrel\n", self.user("cat /etc/hostname").stdout)

    def test_the_base_has_no_set_id_files_and_no_devices(self):
        found = [os.path.join(where, name) for where, _, files in os.walk(BASE) for name in files
                 if (mode := os.lstat(os.path.join(where, name)).st_mode) and
                 ((stat.S_ISREG(mode) and mode & 0o6000) or stat.S_ISCHR(mode) or stat.S_ISBLK(mode))]
        self.assertEqual(found, [])

    def test_what_cannot_be_is_refused_in_words(self):
        refused = [(["--system", BASE], "write BASE:DIR"),
                   (["--system", f"/not/there:{self.layer}"], "open the base '/not/there'"),
                   (["--system", f"/:{self.layer}"], "other owners"),
                   (["--system", f"{BASE}:{self.path('absent')}"], "absent"),
                   (["--system", f"{BASE}:{self.layer}", "--level", "dir"], "level dir"),
                   (["--system", f"{BASE}:{self.layer}", "--rw", f"{self.make_layer('rw')}:/var/x"], "choose another place")]
        for options, words in refused:
            with self.subTest(options=options):
                done = carrel("run", "--workspace", self.ws, *options, "--", "true")
                self.assertEqual(done.returncode, 125, done.stderr)
                self.assertIn(words, done.stderr)
        done = carrel("run", "--system", f"{BASE}:{self.layer}", "--", "true", cwd=self.ws)
        self.assertIn("--workspace", done.stderr)


if __name__ == "__main__":
    unittest.main()
