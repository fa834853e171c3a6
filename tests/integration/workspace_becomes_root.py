#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 120
"""`--workspace DIR`: the directory is `/`, the system is read-only, and files stay on disk."""
import os
import stat
import threading
import unittest

from carreltest import ROOT, CarrelTest, carrel, read, tree, write

RESERVED = {"etc", "proc", "dev", "tmp", ".cache"} | {
    name for name in ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32")
    if os.path.exists("/" + name)}


class WorkspaceBecomesRoot(CarrelTest):
    def test_a_file_made_at_root_lies_in_the_workspace_and_not_on_the_host(self):
        name = f"plot-{os.getpid()}.txt"
        self.ok("--", "sh", "-c", f"echo hi > /{name}")
        self.assertEqual("hi\n", read(f"{self.ws}/{name}"))
        self.assertFalse(os.path.exists(f"/{name}"))

    def test_files_of_the_workspace_are_seen_and_persist_between_runs(self):
        write(f"{self.ws}/in.txt", "one\n")
        self.assertEqual("one\n", self.ok("--", "cat", "/in.txt"))
        self.ok("-c", "echo two >> /in.txt; mkdir -p /a/b; ln -s ../in.txt /a/link; mkfifo /a/fifo")
        self.assertEqual("one\ntwo\n", self.ok("--", "cat", "/a/link"))
        self.assertEqual("one\ntwo\n", read(f"{self.ws}/in.txt"))
        self.assertTrue(stat.S_ISFIFO(os.lstat(f"{self.ws}/a/fifo").st_mode))

    def test_root_shows_the_workspace_and_the_reserved_names_and_nothing_else(self):
        write(f"{self.ws}/mine")
        self.assertEqual(sorted({"mine"} | RESERVED), sorted(self.ok("--", "ls", "-A", "/").split()))

    def test_reserved_names_on_disk_are_empty_directories_of_the_owner(self):
        self.ok("-c", "echo x > /tmp/gone; echo x > /.cache/gone")
        self.assertEqual(RESERVED, set(os.listdir(self.ws)))
        for name in RESERVED:
            st = os.lstat(f"{self.ws}/{name}")
            self.assertTrue(stat.S_ISDIR(st.st_mode), name)
            self.assertEqual((os.stat(self.ws).st_uid, os.stat(self.ws).st_gid),
                             (st.st_uid, st.st_gid), name)
            self.assertEqual([], os.listdir(f"{self.ws}/{name}"), name)

    def test_what_tmp_and_cache_hold_on_disk_is_covered_and_stays(self):
        for name in ("tmp", ".cache"):
            os.mkdir(f"{self.ws}/{name}")
            write(f"{self.ws}/{name}/kept", name)
        self.assertEqual("", self.ok("-c", "ls -A /tmp /.cache | grep kept; echo x > /tmp/kept; true"))
        self.assertEqual("tmp", read(f"{self.ws}/tmp/kept"))
        self.assertEqual(".cache", read(f"{self.ws}/.cache/kept"))

    def test_a_second_run_changes_nothing_on_disk(self):
        self.ok("--", "true")
        before = tree(self.ws)
        self.ok("--", "true")
        self.assertEqual(before, tree(self.ws))

    def test_the_system_cannot_be_written(self):
        for path in ("/usr/x", "/bin/x", "/lib/x", "/etc/x", "/usr/local/bin/x", "/dev/x", "/proc/x"):
            done = self.run_in("--", "touch", path)
            self.assertNotEqual(0, done.returncode, path)
            self.assertRegex(done.stderr, "Read-only file system|Permission denied|No such file", path)
        self.assertIn("Read-only file system", self.run_in("--", "touch", "/usr/x").stderr)
        self.assertNotEqual(0, self.run_in("-c", "echo x >> /etc/passwd").returncode)
        self.assertFalse(os.path.exists("/usr/x"))

    def test_modes_times_and_links_are_the_disks_own(self):
        self.ok("-c", "umask 077; echo x > /f; chmod 640 /f; touch -d @1000000000 /f; ln /f /g")
        st = os.lstat(f"{self.ws}/f")
        self.assertEqual((0o640, 1000000000, 2),
                         (stat.S_IMODE(st.st_mode), int(st.st_mtime), st.st_nlink))

    def test_new_files_belong_to_the_owner_of_the_workspace(self):
        """INV-9."""
        owners = [(os.getuid(), os.getgid())] + ([(12345, 23456)] if ROOT else [])
        for uid, gid in owners:
            for user in ("user", "root"):
                with self.subTest(owner=uid, inside=user):
                    name = f"{uid}-{user}"
                    os.chown(self.ws, uid, gid)
                    for entry in RESERVED & set(os.listdir(self.ws)):
                        os.chown(f"{self.ws}/{entry}", uid, gid)
                    shown = self.ok("--user", user, "-c",
                                    f"mkdir /d-{name}; echo x > /d-{name}/f; stat -c %U /d-{name}/f /")
                    self.assertEqual([user, user], shown.split())
                    for path in (f"d-{name}", f"d-{name}/f"):
                        st = os.lstat(f"{self.ws}/{path}")
                        self.assertEqual((uid, gid), (st.st_uid, st.st_gid), path)

    def test_two_workspaces_never_see_each_other(self):
        other = self.path("other")
        os.mkdir(other)
        write(f"{other}/secret-of-the-other", "x")
        started, results = threading.Barrier(2), {}
        look = ("echo mine > /mine-$0; echo $0 > /tmp/t-$0; echo $0 > /dev/shm/s-$0; (exec -a proc-$0 sleep 30)& "
                "sleep 1; find / -maxdepth 2 -name 's[e]cret-of*' -o -name 'mine-*' 2>/dev/null; "
                "ls /tmp /dev/shm; ps -eo args; ipcmk -Q >/dev/null 2>&1; ipcs -q | grep -c 0x")

        def go(name, ws):
            started.wait()
            results[name] = carrel("run", "--workspace", ws, "--", "bash", "-c", look, name)

        threads = [threading.Thread(target=go, args=pair) for pair in (("A", self.ws), ("B", other))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for name, foreign in (("A", "B"), ("B", "A")):
            out = results[name].stdout
            self.assertIn(f"/mine-{name}", out)
            self.assertIn(f"t-{name}", out)
            self.assertIn(f"proc-{name}", out)
            self.assertNotRegex(out, f"[a-z]-{foreign}")
        self.assertNotIn("secret", results["A"].stdout)
        self.assertIn("secret", results["B"].stdout)

    def test_two_runs_at_once_in_one_workspace_share_files_and_nothing_else(self):
        results = []

        def go(number):
            results.append(self.run_in("-c", f"echo {number} > /n{number}; ls /tmp; "
                                             f"touch /tmp/t{number}; sleep 0.5; ls /tmp"))

        threads = [threading.Thread(target=go, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for done in results:
            self.assertRegex(self.succeeded(done), r"\At[0-7]\n\Z")
        self.assertEqual({f"n{number}" for number in range(8)} | RESERVED, set(os.listdir(self.ws)))

    def test_create_makes_a_workspace_and_only_when_asked(self):
        new = self.path("new")
        self.refused("--workspace", new, words=("new", "--create"))
        done = carrel("run", "--workspace", new, "--create", "-c", "echo x > /f")
        self.succeeded(done)
        self.assertEqual("x\n", read(f"{new}/f"))
        self.assertEqual(os.getuid(), os.stat(new).st_uid)
        self.assertEqual(0, stat.S_IMODE(os.stat(new).st_mode) & 0o022, "writable by others")
        self.succeeded(carrel("run", "--workspace", new, "--create", "--", "true"))

    def test_a_workspace_may_be_named_relatively_and_through_a_symlink_of_the_caller(self):
        write(f"{self.ws}/here")
        os.symlink(self.ws, self.path("link"))
        for name in ("ws", "./ws", "ws/", "link", "../" + os.path.basename(self.dir) + "/ws"):
            done = carrel("run", "--workspace", name, "--", "test", "-e", "/here", cwd=self.dir)
            self.succeeded(done)

    def test_names_that_are_not_plain_text_work(self):
        for name in (b"with space", b"new\nline", b"-dash", b"\xff\xfe", "ümläut☃".encode(), b"a:b"):
            ws = os.path.join(self.dir.encode(), name)
            os.mkdir(ws)
            done = carrel("run", "--workspace", os.fsdecode(ws), "-c", "echo x > /f")
            self.succeeded(done)
            self.assertTrue(os.path.exists(ws + b"/f"), name)
        self.ok("-c", r"touch $(printf '/\377') '/a b' '/-x'; printf x > '/n" "\n" "l'")
        self.assertLessEqual({b"\xff", b"a b", b"-x", b"n\nl"}, set(os.listdir(self.ws.encode())))

    def test_a_virtual_environment_of_the_workspace_is_active(self):
        os.makedirs(f"{self.ws}/.venv/bin")
        write(f"{self.ws}/.venv/pyvenv.cfg", "home = /usr/bin\n")
        write(f"{self.ws}/.venv/bin/tool", "#!/bin/sh\necho from-venv\n")
        os.chmod(f"{self.ws}/.venv/bin/tool", 0o755)
        os.makedirs(f"{self.ws}/node_modules/.bin")
        os.symlink("/.venv/bin/tool", f"{self.ws}/node_modules/.bin/nodetool")
        self.assertEqual("from-venv\nfrom-venv\n/.venv\n",
                         self.ok("-c", "tool; nodetool; echo $VIRTUAL_ENV"))

    def test_a_program_of_the_workspace_runs(self):
        write(f"{self.ws}/hello", "#!/bin/sh\necho hello from $0\n")
        os.chmod(f"{self.ws}/hello", 0o755)
        self.assertEqual("hello from /hello\n", self.ok("--", "/hello"))
        self.assertEqual("hello from ./hello\n", self.ok("--", "./hello"))


if __name__ == "__main__":
    unittest.main()
