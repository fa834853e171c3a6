#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 120
"""`carrel base build`: a root file system from anywhere, unpacked as nobody of this host; and which mirror Debian is asked of."""
import http.server
import io
import os
import stat
import tarfile
import threading
import unittest

from carreltest import ROOT, CarrelTest, carrel, write

FIRST = 0x7FFF0000 if ROOT else 0x6FFE0000


class FromArchive(CarrelTest):
    def setUp(self):
        super().setUp()
        if not ROOT and not any(line.startswith("carreltest:") for line in open("/etc/subuid", encoding="utf-8")):
            self.skipTest("this user has no subordinate ids")
        self.state = self.path("state")

    def archive(self, *entries, mode="w:gz"):
        """(name, type, mode, uid, data or target)"""
        path = self.path("root.tar.gz")
        with tarfile.open(path, mode) as tar:
            for name, kind, bits, uid, data in entries:
                info = tarfile.TarInfo(name)
                info.type, info.mode, info.uid, info.gid = kind, bits, uid, uid
                if kind == tarfile.REGTYPE:
                    info.size = len(data)
                elif kind == tarfile.SYMTYPE:
                    info.linkname = data
                tar.addfile(info, io.BytesIO(data) if kind == tarfile.REGTYPE else None)
        return path

    def build(self, path, name="mine"):
        return carrel("base", "build", "--state", self.state, "--from-tar", path, name)

    def bases(self):
        return os.listdir(f"{self.state}/.carrel/bases") if os.path.isdir(f"{self.state}/.carrel/bases") else []

    def test_what_it_holds_belongs_to_ids_of_bases(self):
        if not ROOT:
            self.skipTest("what it makes could not be removed by this user")
        path = self.archive(("usr", tarfile.DIRTYPE, 0o755, 0, None), ("etc", tarfile.DIRTYPE, 0o755, 0, None),
                            ("usr/su", tarfile.REGTYPE, 0o6755, 33, b"x"), ("bin", tarfile.SYMTYPE, 0o777, 0, "usr/bin"),
                            ("etc/passwd", tarfile.SYMTYPE, 0o777, 0, "../usr/passwd"),
                            ("etc/resolv.conf", tarfile.SYMTYPE, 0o777, 0, "/run/none"))
        for number in (1, 2):  # a newer one beside the older
            done = self.build(path)
            self.assertEqual((0, f"mine.{number}\n"), (done.returncode, done.stdout), done.stderr)
        root = f"{self.state}/.carrel/bases/mine.1/root"
        st = os.stat(f"{root}/usr/su")
        self.assertEqual((FIRST + 33, 0o755), (st.st_uid, stat.S_IMODE(st.st_mode)))
        self.assertEqual(FIRST, os.stat(f"{root}/usr").st_uid)
        self.assertTrue(stat.S_ISREG(os.lstat(f"{root}/etc/resolv.conf").st_mode))
        self.assertIn("user:x:1000:1000:", open(f"{root}/usr/passwd", encoding="utf-8").read())
        self.assertEqual(0o700, stat.S_IMODE(os.stat(os.path.dirname(root)).st_mode))

    def test_what_is_no_system_leaves_nothing(self):
        path = self.archive(("a", tarfile.REGTYPE, 0o644, 0, b"x"))
        done = self.build(path)
        self.assertEqual(125, done.returncode)
        self.assertIn("no directory /usr", done.stderr)
        self.assertEqual([], self.bases())

    def test_packages_come_from_the_mirror_of_the_settings(self):
        asked = []

        class Mirror(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                asked.append(self.path)
                self.send_error(404)

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Mirror)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        config = write(self.path("serve.conf"), f"state = {self.state}\ndebian_mirror = http://127.0.0.1:{server.server_port}/of/ours\n")
        done = carrel("base", "build", "--config", config, "debian-12")
        server.shutdown()
        server.server_close()
        self.assertEqual(125, done.returncode, done.stderr)
        self.assertIn("/of/ours/dists/bookworm/InRelease", asked)
        self.assertEqual([], self.bases())

    def test_what_is_no_archive_and_no_name_is_refused_in_words(self):
        with open(self.path("junk"), "wb") as file:
            file.write(os.urandom(100000))
        for path, name, words in ((self.path("junk"), "mine", "tar failed"), (self.path("absent"), "mine", "absent"),
                                  (self.path("junk"), "../x", "no name of a base"), (self.path("junk"), "UP", "no name of a base")):
            with self.subTest(path=path, name=name):
                done = self.build(path, name)
                self.assertEqual(125, done.returncode)
                self.assertIn(words, done.stderr)
                self.assertEqual([], self.bases())
        self.assertIn("--from-tar", carrel("base", "build", "--state", self.state, "slackware").stderr)


if __name__ == "__main__":
    unittest.main()
