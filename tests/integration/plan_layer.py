#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 240
"""A planned run: the command sees its own changes, the directory stays as it is, and when the run has ended nothing can
change the layer any more."""
import hashlib
import os
import stat
import subprocess
import time
import unittest

from carreltest import CARREL, PATIENCE, PYTHON, ROOT, CarrelTest, carrel, host_state, read, tree, write

MARK = "trusted.overlay." if ROOT else "user.overlay."

EVERYTHING = r"""
import mmap, os
open("/new", "w").write("new"); open("/a", "a").write("more"); os.truncate("/b", 1); os.chmod("/c", 0o700)
os.utime("/d", (1, 1)); os.rename("/e", "/e2"); os.unlink("/f"); os.symlink("a", "/s2"); os.link("/g", "/g2")
os.mkdir("/n"); open("/n/x", "w").write("x"); os.chmod("/dir", 0o711); os.unlink("/dir/in"); os.rmdir("/dir/sub")
os.setxattr("/h", "user.note", b"changed"); os.chmod("/", 0o711); os.utime("/", (2, 2))
with open("/i", "r+b") as f:
    m = mmap.mmap(f.fileno(), 4); m[0:4] = b"MMAP"; m.flush()
assert open("/a").read() == "amore" and open("/i").read() == "MMAP", "it sees what it wrote"
assert not os.path.exists("/f") and os.path.exists("/e2") and open("/n/x").read() == "x"
print("done")
"""


def whole(top):
    """Every object below a directory and itself, with everything that can be known of it but when it was read."""
    found = {}
    for where, dirs, files in os.walk(top):
        for name in [".", *dirs, *files]:
            path = os.path.normpath(os.path.join(where, name))
            st = os.lstat(path)
            names = os.listxattr(path, follow_symlinks=False)
            marks = {n: os.getxattr(path, n, follow_symlinks=False) for n in names}
            kind = stat.S_IFMT(st.st_mode)
            inside = None
            if kind == stat.S_IFREG:
                with open(path, "rb") as file:
                    inside = hashlib.sha256(file.read()).hexdigest()
            elif kind == stat.S_IFLNK:
                inside = os.readlink(path)
            found[path] = (st.st_mode, st.st_uid, st.st_gid, st.st_ino, st.st_dev, st.st_nlink, st.st_size, st.st_mtime_ns,
                           st.st_ctime_ns, marks, inside)
    return found


def overlays():
    return [line for line in read("/proc/self/mountinfo").splitlines() if " - overlay " in line]


class Planned(CarrelTest):
    def setUp(self):
        super().setUp()
        self.plans = f"{self.ws}.carrel-plans"
        self.mounted = overlays()
        self.state = host_state()

    def tearDown(self):
        try:
            self.assertEqual(self.mounted, overlays(), "left mounted")
            self.unchanged(self.state)
        finally:
            super().tearDown()

    def fill(self):
        for name in "abcdefghi":
            write(f"{self.ws}/{name}", name if name != "i" else "iiii")
        os.makedirs(f"{self.ws}/dir/sub")
        write(f"{self.ws}/dir/in", "in")
        os.symlink("a", f"{self.ws}/s")
        os.setxattr(f"{self.ws}/h", "user.note", b"first")

    def planned(self, *args, plan=None, keep=True, code=0, **kwargs):
        """A planned run; its plan's directory and what it printed. Kept open the layer is as the run left it."""
        options = ["--plan", "--json", *(["--keep-open"] if keep else []), *(["--plan-id", plan] if plan else [])]
        done = self.run_in(*options, *args, **kwargs)
        self.assertEqual("", done.stderr)
        told = self.object(done.stdout)
        self.assertEqual((code, code), (done.returncode, told["exit_code"]), told["stderr"])
        return f"{self.plans}/{told['plan']['id']}", told["stdout"]

    def python(self, code, *options, **kwargs):
        return self.planned(*options, "--", PYTHON, "-c", code, **kwargs)


class TheTreeStays(Planned):
    def test_whatever_is_done_nothing_of_it_changes(self):
        self.fill()
        before = whole(self.ws)
        plan, out = self.python(EVERYTHING)
        self.assertEqual("done\n", out)
        self.assertEqual(before, whole(self.ws))
        self.assertTrue(os.path.exists(f"{plan}/upper/new"), "it is in the layer")

    def test_places_for_mounts_are_made_in_the_layer_and_taken_back(self):
        os.makedirs(f"{self.ws}/there/deep", mode=0o750)
        os.chmod(f"{self.ws}/there", 0o750)
        data = self.path("data")
        os.mkdir(data)
        write(f"{data}/file", "data")
        before = whole(self.ws)
        plan, out = self.planned("--ro", f"{data}:/there/deep/a/b", "--rw", f"{data}/file:/there/one", "--ro", f"{data}:/x/y",
                                 "-c", "cat /there/deep/a/b/file /there/one /x/y/file; stat -c %a /there /there/deep")
        self.assertEqual("datadatadata750\n750\n", out)
        self.assertEqual(before, whole(self.ws))
        self.assertEqual([], os.listdir(f"{plan}/upper"))

    def test_a_name_that_is_in_the_way_is_refused_and_nothing_is_left(self):
        write(f"{self.ws}/usr", "a file")
        self.refused("--plan", "--workspace", self.ws, words=("usr",))

    def test_a_start_that_fails_leaves_no_plan(self):
        self.fill()
        before = tree(self.dir)
        self.one_line(self.run_in("--plan", "--cwd", "/nope", "--", "true"), "/nope")
        self.assertEqual(before, tree(self.dir))

    @unittest.skipUnless(ROOT, "leases are root's")
    def test_on_disk_all_of_it_is_the_owners(self):
        for uid, gid in ((54321, 54322), (0, 0)):
            with self.subTest(uid=uid):
                if not os.path.exists(f"{self.ws}/a"):
                    self.fill()
                for path in tree(self.ws):
                    os.chown(path, uid, gid, follow_symlinks=False)
                plan, _ = self.python(EVERYTHING)
                for path, (_, owner, group, *_) in tree(plan).items():
                    if not path.endswith(("state.json", "/.lock", "/look")):
                        self.assertEqual((uid, gid), (owner, group), path)

    @unittest.skipUnless(ROOT, "an ordinary user has no files of others")
    def test_files_of_others_stay_theirs(self):
        self.fill()
        os.chown(self.ws, 54321, 54321)
        for name, mode in (("a", 0o666), ("b", 0o644)):
            os.chown(f"{self.ws}/{name}", 7, 7)
            os.chmod(f"{self.ws}/{name}", mode)
        plan, out = self.planned("-c", "echo x >>/a; echo x 2>/dev/null >>/b; stat -c %U /a /b")
        self.assertEqual("nobody\nnobody\n", out)
        self.assertEqual(7, os.lstat(f"{plan}/upper/a").st_uid)
        self.assertFalse(os.path.exists(f"{plan}/upper/b"))

    def test_the_current_directory_at_work_can_be_planned_for_too(self):
        self.fill()
        before = whole(self.ws)
        done = carrel("run", "--plan", "--keep-open", "-c", "echo n >n; rm a; ls", cwd=self.ws)
        self.assertEqual((0, "b\nc\nd\ndir\ne\nf\ng\nh\ni\nn\ns\n"), (done.returncode, done.stdout), done.stderr)
        self.assertEqual(before, whole(self.ws))
        plan = f"{self.plans}/{os.listdir(self.plans)[0]}"
        self.assertEqual(["a", "n"], sorted(os.listdir(f"{plan}/upper")))


class Moves(Planned):
    @unittest.skipUnless(ROOT, "only root's layers know of moves")
    def test_cost_no_data(self):
        with open(f"{self.ws}/huge", "wb") as file:
            file.truncate(2 << 30)
            file.write(os.urandom(8 << 20))
        os.makedirs(f"{self.ws}/dir/sub")
        with open(f"{self.ws}/dir/sub/large", "wb") as file:
            file.write(os.urandom(8 << 20))
        plan, out = self.python('import os; os.rename("/huge", "/h2"); os.rename("/dir", "/d2"); print(os.path.getsize("/h2"), '
                                'open("/d2/sub/large", "rb").read(4) != b"")')
        self.assertEqual(f"{2 << 30} True\n", out)
        blocks = sum(os.lstat(path).st_blocks for path in tree(plan))
        self.assertLess(blocks * 512, 256 << 10)
        self.assertEqual(b"huge", os.getxattr(f"{plan}/upper/h2", MARK + "redirect"))
        self.assertEqual(b"dir", os.getxattr(f"{plan}/upper/d2", MARK + "redirect"))

    @unittest.skipIf(ROOT, "root's layers do")
    def test_of_directories_are_left_to_the_program_that_moves(self):
        self.fill()
        _, out = self.planned("-c", "mv /dir /d2 && cat /d2/in; mv /a /a2; cat /a2")
        self.assertEqual("ina", out)
        _, out = self.python('import os\ntry: os.rename("/dir", "/d3")\nexcept OSError as e: print(e.errno)')
        self.assertEqual("18\n", out)

    def test_names_of_one_file_stay_one_as_far_as_the_kernel_can(self):
        write(f"{self.ws}/one", "1")
        os.link(f"{self.ws}/one", f"{self.ws}/two")
        _, out = self.planned("-c", "echo more >>/one; cat /two")
        self.assertEqual("1more\n" if ROOT else "1", out)


class TheLayer(Planned):
    def test_goes_on_in_another_run(self):
        self.fill()
        plan, _ = self.planned("-c", "echo first >n; rm a; mv b b2; mkdir d3")
        name = os.path.basename(plan)
        again, out = self.planned("-c", "cat n b2; ls -d a d3 2>&-; echo second >>n", plan=name)
        self.assertEqual((plan, "first\nbd3\n"), (again, out))
        _, out = self.planned("-c", "cat n", plan=name, keep=False)
        self.assertEqual("first\nsecond\n", out)
        self.one_line(self.run_in("--plan", "--plan-id", name, "--", "true"), name, "not open")
        self.one_line(self.run_in("--plan", "--plan-id", "p0", "--", "true"), "p0")

    def test_is_one_runs_at_a_time(self):
        plan, _ = self.planned("--", "true")
        name = os.path.basename(plan)
        args = [CARREL, "run", "--workspace", self.ws, "--plan", "--keep-open", "--plan-id", name, "-c", "echo ready; read go; true"]
        with subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as first:
            self.assertEqual("ready\n", first.stdout.readline())
            self.one_line(self.run_in("--plan", "--plan-id", name, "--", "true"), "in use")
            # Another plan of the same directory is no trouble.
            self.planned("-c", "echo x >x")
            first.communicate(timeout=PATIENCE)
        self.assertEqual(0, first.returncode)
        self.planned("--", "true", plan=name)

    def test_cannot_change_when_the_run_has_ended(self):
        self.fill()
        code = r"""
import mmap, os, socket, subprocess, time
f = open("/grows", "w+b"); f.truncate(1 << 20)
a, b = socket.socketpair(); socket.send_fds(a, [b"x"], [f.fileno()])
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        m = mmap.mmap(f.fileno(), 1 << 20)
        while True:
            for i in range(0, 1 << 20, 4096): m[i] = (m[i] + 1) % 256
time.sleep(.2)
"""
        plan, _ = self.python(code)
        first = whole(f"{plan}/upper")
        time.sleep(0.5)
        self.assertEqual(first, whole(f"{plan}/upper"))
        # And no overlay anywhere has it: the kernel lets it be mounted again.
        self.planned("--", "true", plan=os.path.basename(plan))

    def test_goes_on_when_the_first_run_was_killed(self):
        write(f"{self.ws}/a", "a")
        args = [CARREL, "run", "--workspace", self.ws, "--plan", "--keep-open", "-c", "echo x >x; echo ready; sleep 600"]
        with subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as first:
            self.assertEqual("ready\n", first.stdout.readline())
            first.kill()
        name, = os.listdir(self.plans)
        self.assertEqual("open", self.object(read(f"{self.plans}/{name}/state.json"))["state"])
        deadline = time.monotonic() + PATIENCE
        while (done := self.run_in("--plan", "--keep-open", "--plan-id", name, "-c", "cat x")).returncode:
            self.assertIn("in use", done.stderr)  # the kernel still tidies up
            self.assertLess(time.monotonic(), deadline)
        self.assertEqual("x\n", done.stdout)
        self.assertEqual(["x"], os.listdir(f"{self.plans}/{name}/upper"))

    def test_is_there_also_when_the_time_was_over(self):
        plan, _ = self.planned("--timeout", "1s", "-c", "echo x >x; sleep 60", code=124)
        self.assertEqual("x\n", read(f"{plan}/upper/x"))

    def test_counts_against_the_disk_limit(self):
        done = self.run_in("--plan", "--json", "--disk", "8M", "-c", "head -c 64M /dev/urandom >x; sleep 5")
        told = self.object(done.stdout)
        self.assertEqual((123, "disk"), (told["exit_code"], told["reason"]))
        self.assertEqual([], os.listdir(self.ws))

    def test_deleted_but_open_it_counts_as_well(self):
        code = ('import os, time\nf = open("/x", "wb"); os.unlink("/x")\n'
                'for _ in range(600): f.write(os.urandom(1 << 20)); f.flush(); time.sleep(.01)')
        done = self.run_in("--plan", "--json", "--disk", "16M", "--", PYTHON, "-c", code)
        self.assertEqual((123, "disk"), (done.returncode, self.object(done.stdout)["reason"]))


class NothingIsForged(Planned):
    def test_marks_of_the_layer_cannot_be_set(self):
        self.fill()
        write(f"{self.ws}/dir/secret", "seen")
        code = r"""
import os
for name in ("opaque", "redirect", "metacopy", "origin", "whiteout", "impure", "nlink"):
    for space in ("trusted", "user", "security", "system"):
        for path in ("/dir", "/a", "/n"):
            os.makedirs("/n", exist_ok=True)
            try:
                os.setxattr(path, f"{space}.overlay.{name}", b"y" if name != "redirect" else b"/dir")
                print("set", space)
            except OSError: pass
for mode in (0o020600, 0o060600):
    try: os.mknod("/w", mode, 0); print("made")
    except OSError: pass
"""
        plan, out = self.python(code)
        self.assertLessEqual(set(out.split()), {"set", "user"}, out)
        upper = f"{plan}/upper"
        for path in tree(upper):
            own = {n: os.getxattr(path, n, follow_symlinks=False) for n in os.listxattr(path, follow_symlinks=False)
                   if n.startswith(MARK) and not n.startswith(MARK + "overlay.")}
            self.assertNotIn(MARK + "redirect", own, path)
            if path.endswith("/dir"):
                self.assertNotIn(MARK + "opaque", own)
            self.assertEqual(b"", own.get(MARK + "metacopy", b""), path)
        # What was set means nothing in the next run.
        _, out = self.planned("-c", "cat /dir/secret /a; ls /n", plan=os.path.basename(plan))
        self.assertEqual("seena", out)

    def test_marks_in_the_tree_itself_mean_nothing(self):
        self.fill()
        self.ok("--", PYTHON, "-c", 'import os; os.setxattr("/dir", "user.overlay.opaque", b"y"); '
                'os.setxattr("/dir", "user.overlay.redirect", b"/nowhere"); os.setxattr("/a", "user.overlay.metacopy", b"")')
        _, out = self.planned("-c", "cat /dir/in; ls -d /dir/sub; echo more >>/dir/in; cat /dir/in")
        self.assertEqual("in/dir/sub\ninmore\n", out)

    def test_the_layer_is_reached_through_the_overlay_alone(self):
        self.fill()
        code = r"""
import os, re
print(re.findall(r"\S*carrel-plans\S*", open("/proc/self/mountinfo").read()))
for top in ("/proc/self/root", "/proc/1/root", "/proc/1/cwd", "/proc/self/cwd", "/..", "/proc/self/fd", "/proc/1/fd"):
    try: names = os.listdir(top)
    except OSError: continue
    for name in names:
        full = f"{top}/{name}"
        try:
            if name in ("upper", "work", "plan", "tree") or "upper" in os.listdir(full): print(full)
        except OSError: pass
for where, dirs, files in os.walk("/"):
    dirs[:] = [d for d in dirs if where != "/" or d not in ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "proc")]
    if {"upper", "work"} <= set(dirs): print(where)
"""
        _, out = self.python(code)
        self.assertEqual("[]\n", out)


class What(Planned):
    def test_is_told(self):
        self.fill()
        done = self.run_in("--plan", "-c", "echo x >x; exit 7")
        self.assertEqual(7, done.returncode)
        name = os.listdir(self.plans)[0]
        self.assertRegex(done.stderr, rf"\Acarrel: plan {name}: \d+ changes?, none made yet; see: carrel plan show --dir '.*' {name}\n\Z")
        self.assertRegex(name, r"\Ap[0-9a-hjkmnp-tv-z]{26}\Z")
        state = self.object(read(f"{self.plans}/{name}/state.json"))
        self.assertEqual(("closed", "run", ROOT, ["/bin/sh", "-c", "echo x >x; exit 7"]),
                         (state["state"], state["origin"], state["privileged"], state["argv"]))
        self.assertEqual(0o700, stat.S_IMODE(os.lstat(self.plans).st_mode))
        told, _ = self.json("--plan", "--", "true")
        self.assertEqual({"id", "hash", "operations", "state", "copied_bytes"}, set(told["plan"]) - {"flaw_count"})

    def test_is_explained_without_being_done(self):
        self.fill()
        before = tree(self.dir)
        told = self.object(self.ok("--plan", "--explain", "--json", "--", "true"))
        root = told["mounts"][0]
        self.assertEqual(("layer", "/", self.ws, False), tuple(root[k] for k in ("kind", "target", "source", "read_only")))
        self.assertTrue(root["changes_to"].startswith(self.plans + "/p"))
        self.assertIn(f"changes to {self.plans}/p", self.ok("--plan", "--explain", "--", "true"))
        self.assertEqual(before, tree(self.dir))

    def test_cannot_be_is_refused_in_words(self):
        for args, words in ((["--level", "dir"], "--plan"), (["--disk", "image:64M"], "image"), (["--create"], "--create"),
                            (["--plan-id", "../x"], "--plan-id"), (["--plan-id", ".hidden"], "--plan-id")):
            with self.subTest(args=args):
                self.refused("--plan", *args, "--workspace", self.ws, words=(words,))
        self.refused("--keep-open", "--workspace", self.ws, words=("--keep-open", "--plan"))
        self.refused("--plan-id", "p1", "--workspace", self.ws, words=("--plan-id", "--plan"))

    def test_others_could_see_is_refused(self):
        os.mkdir(self.plans, 0o755)
        os.chmod(self.plans, 0o755)
        self.refused("--plan", "--workspace", self.ws, words=("chmod 700",))
        os.rmdir(self.plans)
        os.symlink("/tmp", self.plans)
        self.refused("--plan", "--workspace", self.ws, words=("carrel-plans",))


if __name__ == "__main__":
    unittest.main()
