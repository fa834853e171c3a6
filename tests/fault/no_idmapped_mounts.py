#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""A workspace on a file system without idmapped mounts (overlay is one): owned by an ordinary user it works
and files stay his; owned by root it is refused, because root outside must not be the user inside."""
import os
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["SRC"], "tests", "integration"))
from carreltest import CARREL, ROOT, CarrelTest, carrel, mount, private_mounts, write  # noqa: E402

OWNER = 12345 if ROOT else os.getuid()


class NoIdmappedMounts(CarrelTest):
    def setUp(self):
        super().setUp()
        for name in ("lower", "upper", "work"):
            os.mkdir(self.path(name))

    def on_overlay(self, owner, script):
        """A shell line with the overlay at self.ws."""
        for name in ("lower", "upper"):
            os.chown(self.path(name), owner, owner)

        def lay_over():
            private_mounts()
            layers = f"lowerdir={self.path('lower')},upperdir={self.path('upper')},workdir={self.path('work')}"
            mount("overlay", self.ws, "overlay", layers + ("" if ROOT else ",userxattr"))

        return carrel("-c", script, binary="/bin/sh", preexec_fn=lay_over)

    def test_a_tree_of_an_ordinary_user_works_and_stays_his(self):
        done = self.on_overlay(OWNER, f"{CARREL} run --workspace {self.ws} -c 'id -u; echo x > /f; stat -c %U /f' && "
                                      f"stat -c '%u' {self.ws}/f")
        self.assertEqual(f"1000\nuser\n{OWNER}\n", self.succeeded(done))
        self.assertEqual(OWNER, os.stat(self.path("upper", "f")).st_uid)

    def test_it_is_as_confined_as_elsewhere(self):
        done = self.on_overlay(OWNER, f"{CARREL} run --workspace {self.ws} -- cat /proc/self/status")
        for line in ("CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"):
            self.assertIn(line, self.succeeded(done))

    def test_a_tree_of_root_is_refused(self):
        if not ROOT:
            return  # an ordinary user has no tree of root's to offer: bad_input.py shows that refusal
        done = self.on_overlay(0, f"{CARREL} run --workspace {self.ws} -- touch /started; s=$?; "
                                  f"ls -A {self.ws}; exit $s")
        self.one_line(done, "idmap")
        self.assertEqual("", done.stdout, "nothing was made in it")

    def test_settings_that_the_owner_may_read_and_not_everybody_are_not_shown(self):
        """Attack: he is somebody on the host here, so that modes of files in /etc do not keep him out as they do elsewhere."""
        if not ROOT:
            return  # then they are covered: etc_shows_what_links_lead_to.py
        prepare = ("cp -r /etc/passwd /etc/group /etc/ld.so.c* /etc/alternatives {old} && mount -n -t tmpfs none /etc && cp -r {old}/* /etc && "
                   "mkdir -p /etc/maven/conf && echo secret >/etc/maven/conf/settings.xml && cd /etc/maven && ").format(old=self.path("old"))
        os.mkdir(self.path("old"))
        run = f" && {CARREL} run --workspace {self.ws} -c 'cat /etc/maven/conf/settings.xml; echo ran'"
        for closed, change in [(True, f"chmod 600 conf/settings.xml && chown {OWNER} conf/settings.xml"),
                               (True, f"chmod 640 conf/settings.xml && chown 0:{OWNER} conf/settings.xml"),
                               (True, f"chmod 750 conf && chown 0:{OWNER} conf"),
                               (True, f"chmod 600 conf/settings.xml && setfacl -m u:{OWNER}:r conf/settings.xml"),
                               (False, "chmod 640 conf/settings.xml"), (False, "chmod 700 conf")]:
            if "setfacl" in change and not shutil.which("setfacl"):
                continue
            with self.subTest(change):
                done = self.on_overlay(OWNER, prepare + change + run)
                if closed:
                    self.one_line(done, "/etc/maven/conf", "idmapped")
                    self.assertEqual("", done.stdout)
                else:
                    self.assertEqual("ran\n", done.stdout, done.stderr)

    def test_a_plan_is_refused_in_words_where_no_layer_can_be(self):
        for owner in (OWNER, 0) if ROOT else (OWNER,):
            with self.subTest(owner=owner):
                done = self.on_overlay(owner, f"mkdir {self.ws}/desk && chown {owner} {self.ws}/desk && "
                                              f"{CARREL} run --plan --workspace {self.ws}/desk -- touch /started; s=$?; "
                                              f"ls -A {self.ws} {self.ws}/desk; rmdir {self.ws}/desk; exit $s")
                self.one_line(done, "ext4", "plan")
                self.assertEqual(f"{self.ws}:\ndesk\n\n{self.ws}/desk:\n", done.stdout, "nothing was made")

    def test_a_layer_goes_without_maps_where_all_trees_are_one_users(self):
        """Whichever of the two has none: that which is below the layer, or the workspace beside it."""
        other, layer = self.path("other"), self.path("layer")
        os.mkdir(other)
        os.mkdir(layer, 0o700)
        write(self.path("lower", "f"), "f\n")
        write(f"{other}/f", "f\n")
        for workspace, below in ((other, self.ws), (self.ws, other)):
            for owner in (OWNER, 23456) if ROOT else (OWNER,):
                os.chown(other, owner if below == other else OWNER, OWNER)
                os.chown(f"{other}/f", OWNER, OWNER)
                os.chown(self.path("lower", "f"), OWNER, OWNER)
                done = self.on_overlay(owner if below == self.ws else OWNER,
                                       f"{CARREL} run --workspace {workspace} --layer {below}:/.venv:{layer} "
                                       f"-c 'cat /.venv/f; echo x >> /.venv/f; echo y > /h' && stat -c %u {layer}/upper/f {workspace}/h && "
                                       f"cat {below}/f && rm {layer}/upper/f {workspace}/h")
                with self.subTest(workspace=os.path.basename(workspace), below=os.path.basename(below), owner=owner):
                    if owner == OWNER:
                        self.assertEqual(["f", str(OWNER), str(OWNER), "f"], self.succeeded(done).split())
                    else:
                        self.one_line(done, "another user", "idmapped")
        subprocess.run(["chmod", "-R", "u+rwx", layer], check=True)

    def test_beside_another_tree_either_works_or_is_refused_in_words(self):
        """One tree there and one on an ordinary file system: whichever is the workspace, both can be written."""
        other = self.path("other")
        os.mkdir(other)
        os.chown(other, OWNER, OWNER)
        for workspace, extra in ((other, self.ws), (self.ws, other)):
            done = self.on_overlay(OWNER, f"{CARREL} run --workspace {workspace} --rw {extra}:/data "
                                          f"-c 'echo x > /data/g; echo x > /h' && stat -c %u {workspace}/h {extra}/g")
            with self.subTest(workspace=os.path.basename(workspace), extra=os.path.basename(extra)):
                if done.returncode:
                    self.one_line(done, "idmapped")
                else:
                    self.assertEqual([str(OWNER)] * 2, self.succeeded(done).split())


if __name__ == "__main__":
    unittest.main()
