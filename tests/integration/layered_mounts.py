#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 240
"""`--layer SRC:DST:DIR`: the command changes what it likes of SRC, and it is DIR that has the changes. `--layer-ro` shows
the two."""
import os
import subprocess
import unittest

from carreltest import CARREL, PATIENCE, PYTHON, ROOT, CarrelTest, carrel, host_state, read, tree, write

OWNER = 12345 if ROOT else os.getuid()  # of the workspace
OTHER = 23456 if ROOT else os.getuid()  # of what lies below the layers
FAILING = ["--cwd", "/nope"]  # found out last of all, when everything is mounted

DIRECTORIES = r"""
import errno, os, shutil
os.chdir("/.venv")
try:
    os.rename("lib", "lib2")
    raise SystemExit("a directory of the source was renamed")
except OSError as e:
    assert e.errno == errno.EXDEV, e
shutil.move("lib", "lib2")
assert open("lib2/deep/x").read() == "x\n" and not os.path.exists("lib")
os.mkdir("own"); open("own/f", "w").write("f"); os.rename("own", "own2"); assert open("own2/f").read() == "f"
os.rename("tool", "tool2"); os.rename("pkg/a.py", "own2/a.py")
"""


def chown_all(top, uid):
    for where, dirs, files in os.walk(top):
        for name in [".", *dirs, *files]:
            os.lchown(os.path.join(where, name), uid, uid)


class Layered(CarrelTest):
    def setUp(self):
        super().setUp()
        self.base = self.path("base")
        os.makedirs(f"{self.base}/lib/deep")
        os.makedirs(f"{self.base}/pkg")
        for name in ("lib/deep/x", "pkg/a.py", "pkg/b.py", "gone"):
            write(f"{self.base}/{name}", f"{os.path.basename(name)}\n")
        write(f"{self.base}/tool", "#!/bin/sh\necho tool\n")
        os.chmod(f"{self.base}/tool", 0o755)
        if ROOT:
            chown_all(self.base, OTHER)
            chown_all(self.ws, OWNER)
        self.before = tree(self.base)
        self.one, self.two = self.layer("one"), self.layer("two")
        self.state = host_state()

    def tearDown(self):
        try:
            self.assertEqual(self.before, tree(self.base), "the source has changed")
            self.unchanged(self.state)
        finally:
            subprocess.run(["chmod", "-Rf", "u+rwx", self.dir], check=False)
            super().tearDown()

    def layer(self, name):
        os.mkdir(self.path(name), 0o700)
        return self.path(name)

    def on(self, layer, *args, at="/.venv", option="--layer"):
        return [option, f"{self.base}:{at}:{layer}", *args]

    def refuse(self, *args, words):
        """As `refused`, but what belongs in a layer may be made in it."""
        before = tree(self.ws)
        done = self.run_in(*args, "--", "true")
        self.one_line(done, *words)
        self.assertEqual(before, tree(self.ws))


class WhatIsChanged(Layered):
    def test_is_seen_again_but_neither_in_the_source_nor_in_another_layer(self):
        edit = f"{PYTHON} - <<'E'\nwith open('/.venv/pkg/a.py', 'r+') as f: f.write('changed')\nE\n"
        self.ok(*self.on(self.one), "-c", edit + "echo more >> /.venv/pkg/b.py; chmod 600 /.venv/gone; touch -d @1 /.venv/tool; "
                                               "echo new > /.venv/pkg/new; ln /.venv/pkg/new /.venv/second")
        shown = "cat /.venv/pkg/a.py /.venv/pkg/b.py; stat -c %a /.venv/gone; stat -c %Y /.venv/tool; cat /.venv/second; ls /.venv/pkg"
        self.assertEqual("changedb.py\nmore\n600\n1\nnew\na.py\nb.py\nnew\n", self.ok(*self.on(self.one), "-c", shown))
        self.assertEqual("a.py\nb.py\n", self.ok(*self.on(self.two), "-c", "cat /.venv/pkg/*"))
        self.assertEqual("changed", read(f"{self.one}/upper/pkg/a.py"))

    def test_can_be_taken_away_and_made_anew(self):
        self.ok(*self.on(self.one), "-c", "cd /.venv; rm -r gone pkg; mkdir pkg; echo own > pkg/own; rm -r lib; echo file > lib")
        self.assertEqual("lib\npkg\ntool\nown\nown\nfile\n", self.ok(*self.on(self.one), "-c", "cd /.venv; ls; ls pkg; cat pkg/own lib"))
        self.ok(*self.on(self.one), "-c", "cd /.venv; rm lib; mkdir lib; echo gone again > gone")
        self.assertEqual("gone again\n", self.ok(*self.on(self.one), "-c", "cd /.venv; ls lib; cat gone"))

    def test_can_be_moved(self):
        self.ok(*self.on(self.one), "--", PYTHON, "-c", DIRECTORIES)
        self.assertEqual("gone\nlib2\nown2\npkg\ntool2\na.py\n", self.ok(*self.on(self.one), "-c", "cd /.venv; ls; cat own2/a.py"))
        self.ok(*self.on(self.one), "-c", "mv /.venv/pkg /.venv/lib2/pkg && test -e /.venv/lib2/pkg/b.py")

    def test_belongs_to_the_workspaces_owner_on_disk_and_to_the_user_inside(self):
        """INV-9, in a layer."""
        script = "echo new > /.venv/new; echo more >> /.venv/tool; stat -c %U:%G /.venv /.venv/new /.venv/tool /.venv/lib/deep/x"
        self.assertEqual("user:user\n" * 4, self.ok(*self.on(self.one), "-c", script))
        for name in ("", "new", "tool"):
            st = os.stat(f"{self.one}/upper/{name}")
            self.assertEqual((OWNER, OWNER) if ROOT else (OWNER,), (st.st_uid, st.st_gid)[: 2 if ROOT else 1], name)

    def test_can_be_run(self):
        script = "/.venv/tool; printf '#!/bin/sh\\necho mine' > /.venv/mine; chmod +x /.venv/mine; /.venv/mine"
        self.assertEqual("tool\nmine\n", self.ok(*self.on(self.one), "-c", script))

    def test_is_there_also_when_the_run_was_killed(self):
        args = [CARREL, "run", "--workspace", self.ws, *self.on(self.one), "-c", "echo x > /.venv/x; echo ready; sleep 600"]
        for _ in range(5):
            with subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as first:
                self.assertEqual("ready\n", first.stdout.readline())
                first.kill()
            self.assertEqual("x\n", self.ok(*self.on(self.one), "-c", "cat /.venv/x; rm /.venv/x"), "at once")


class Sandboxes(Layered):
    def live(self, *options, script="echo ready; read go; cat /.venv/pkg/a.py"):
        return subprocess.Popen([CARREL, "run", "--workspace", self.ws, *options, "-c", script],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def test_have_a_layer_one_after_another(self):
        with self.live(*self.on(self.one)) as first:
            self.assertEqual("ready\n", first.stdout.readline())
            self.refuse(*self.on(self.one), words=("in use", self.one))
            self.assertEqual("a.py\n", self.ok(*self.on(self.two), "-c", "cat /.venv/pkg/a.py"), "another is no trouble")
            out, err = first.communicate(timeout=PATIENCE)
        self.assertEqual((0, "a.py\n", ""), (first.returncode, out, err))
        for turn in range(20):
            self.assertEqual(f"{turn}\n", self.ok(*self.on(self.one), "-c", f"ls /.venv/pkg | grep -c own; touch /.venv/pkg/own{turn}")
                             if turn else self.ok(*self.on(self.one), "-c", "echo 0; touch /.venv/pkg/own0"))

    def test_one_run_cannot_have_it_twice(self):
        self.refuse(*self.on(self.one), *self.on(self.one, at="/b"), words=("in use",))

    def test_see_a_layer_that_another_one_has_but_only_read_it(self):
        self.ok(*self.on(self.one), "-c", "echo changed > /.venv/pkg/a.py; rm /.venv/gone; rm -r /.venv/lib; mkdir /.venv/lib")
        with self.live(*self.on(self.one)) as first:
            self.assertEqual("ready\n", first.stdout.readline())
            shown = self.on(self.one, option="--layer-ro")
            self.assertEqual("changed\nlib\npkg\ntool\n", self.ok(*shown, "-c", "cat /.venv/pkg/a.py; ls /.venv /.venv/lib | grep -v :").replace("\n\n", "\n"))
            for attempt in ("echo x > /.venv/tool", "rm /.venv/tool", "mkdir /.venv/d", "chmod 777 /.venv/pkg", "touch /.venv/pkg/a.py"):
                done = self.run_in(*shown, "-c", attempt)
                self.assertNotEqual(0, done.returncode, attempt)
                self.assertIn("Read-only file system", done.stderr, attempt)
            out, err = first.communicate(timeout=PATIENCE)
        self.assertEqual((0, "changed\n", ""), (first.returncode, out, err))

    def test_are_shown_the_source_where_nothing_was_changed(self):
        for layer in (self.one, self.path("missing")):
            self.assertEqual("a.py\n", self.ok(*self.on(layer, option="--layer-ro"), "-c", "cat /.venv/pkg/a.py"))
            self.assertIn("Read-only", self.run_in(*self.on(layer, option="--layer-ro"), "-c", "touch /.venv/x").stderr)
        self.assertEqual([], os.listdir(self.one))

    def test_of_a_plan_have_it_beside_the_plans(self):
        self.ok(*self.on(self.one), "-c", "echo changed > /.venv/pkg/a.py")
        done = self.run_in("--plan", "--json", *self.on(self.one, option="--layer-ro"), *self.on(self.two, at="/.cache/uv"), "-c",
                           "cat /.venv/pkg/a.py; echo kept > /.cache/uv/kept; echo planned > /planned; touch /.venv/x 2>&1 | grep -c Read-only")
        told = self.object(done.stdout)
        self.assertEqual(("changed\n1\n", 0), (told["stdout"], told["exit_code"]), told)
        self.assertEqual(1, told["plan"]["operations"], told["plan"])
        self.assertEqual("kept\n", read(f"{self.two}/upper/kept"))
        self.assertFalse(os.path.exists(f"{self.ws}/planned"))
        subprocess.run(["chmod", "-R", "u+rwx", f"{self.ws}.carrel-plans"], check=True)


class Places(Layered):
    def test_are_made_where_they_are_missing(self):
        options = [*self.on(self.one), *self.on(self.two, at="/.cache/uv"), *self.on(self.layer("three"), at="/a/b/c"),
                   *self.on(self.layer("four"), at="/tmp/d")]
        script = "for d in /.venv /.cache/uv /a/b/c /tmp/d; do cat $d/pkg/a.py; echo $d > $d/own; done; echo t > /.cache/t; touch /.cache/uv2"
        self.assertEqual("a.py\n" * 4, self.ok(*options, "-c", script))
        self.assertEqual(([], []), (os.listdir(f"{self.ws}/.venv"), os.listdir(f"{self.ws}/a/b/c")))
        self.assertEqual(["/.venv\n", "/.cache/uv\n", "/a/b/c\n", "/tmp/d\n"],
                         [read(self.path(name, "upper", "own")) for name in ("one", "two", "three", "four")])
        self.assertEqual("/.venv\n/.cache/uv\n", self.ok(*options, "-c", "cat /.venv/own /.cache/uv/own"))

    def test_without_a_workspace_are_beside_work(self):
        done = carrel("run", *self.on(self.one, at="/data"), "-c", "cat /data/pkg/a.py; echo x > /data/x", cwd=self.ws)
        self.assertEqual("a.py\n", self.succeeded(done))
        self.assertEqual("x\n", read(f"{self.one}/upper/x"))

    def test_that_hold_something_are_not_hidden(self):
        os.mkdir(f"{self.ws}/.venv")
        if ROOT:
            os.chown(f"{self.ws}/.venv", OWNER, OWNER)
        self.ok(*self.on(self.one), "--", "true")
        write(f"{self.ws}/.venv/mine", "mine")
        self.refuse(*self.on(self.one), words=(".venv", "not empty", "move"))
        self.refuse("--plan", *self.on(self.one), words=(".venv", "not empty"))
        self.one_line(self.run_in("--explain", *self.on(self.one), "--", "true"), ".venv", "not empty")

    def test_that_lead_elsewhere_are_refused(self):
        os.symlink(self.base, f"{self.ws}/.venv")
        self.refuse(*self.on(self.one), words=(".venv",))
        os.unlink(f"{self.ws}/.venv")
        write(f"{self.ws}/.venv")
        self.refuse(*self.on(self.one), words=(".venv",))

    def test_a_start_that_fails_takes_its_own_back(self):
        self.refuse(*self.on(self.one), *self.on(self.two, at="/a/b"), *FAILING, words=("/nope",))
        self.assertEqual([], os.listdir(self.ws))
        self.ok(*self.on(self.one), "--", "true")

    def test_the_virtual_environment_is_active(self):
        self.assertEqual("/.venv\n", self.ok(*self.on(self.one), "-c", "echo $VIRTUAL_ENV"))
        self.assertEqual("\n", self.ok(*self.on(self.one, at="/venv"), "-c", "echo $VIRTUAL_ENV"))

    def test_are_explained(self):
        told = self.object(self.ok("--explain", "--json", *self.on(self.one), *self.on(self.two, at="/b", option="--layer-ro"), "--", "true"))
        lines = {m["target"]: m for m in told["mounts"] if m["kind"] == "layer"}
        self.assertEqual((self.base, self.one, False), tuple(lines["/.venv"][k] for k in ("source", "changes_to", "read_only")))
        self.assertEqual((self.base, self.two, True), tuple(lines["/b"][k] for k in ("source", "changes_of", "read_only")))
        self.assertIn(f"changes to {self.one}", self.ok("--explain", *self.on(self.one), "--", "true"))
        self.assertEqual([], os.listdir(self.one))


class Refused(Layered):
    def test_directories_that_are_no_place_for_a_layer(self):
        os.chmod(self.one, 0o755)
        self.refuse(*self.on(self.one), words=("chmod 700",))
        os.symlink(self.two, self.path("link"))
        self.refuse(*self.on(self.path("link")), words=("link",))
        self.refuse(*self.on(self.path("none")), words=("none",))
        self.refuse(*self.on(write(self.path("file"))), words=("file",))
        for inside in (f"{self.ws}/layer",):
            os.mkdir(inside, 0o700)
            self.refuse(*self.on(inside), words=("lies in the workspace",))
        if ROOT:
            os.chown(self.two, 4711, 4711)
            self.refuse(*self.on(self.two), words=("another user",))

    def test_directories_that_the_command_can_write_or_that_another_layer_shows(self):
        shared = self.path("shared")
        os.makedirs(f"{shared}/deep")
        inner = f"{shared}/deep/layer"
        os.mkdir(inner, 0o700)
        if ROOT:
            chown_all(shared, OWNER)
        for options in (["--rw", f"{shared}:/shared", *self.on(inner)], [*self.on(inner), "--rw", f"{shared}/deep:/shared"],
                        ["--rw", f"{inner}:/shared", *self.on(inner)]):
            self.refuse(*options, words=(inner, "writable mount", "--rw"))
            self.assertEqual([], os.listdir(inner))
        self.refuse(*self.on(inner), "--layer", f"{shared}:/b:{self.two}", words=(inner, "source of a mount"))
        self.ok("--ro", f"{shared}:/shared", *self.on(inner), "-c", "echo x > /.venv/x")

    def test_sources_and_targets(self):
        self.refuse("--layer", f"{self.base}/tool:/.venv:{self.one}", words=("tool", "directory"))
        self.refuse("--layer", f"{self.dir}/none:/.venv:{self.one}", words=("none",))
        self.refuse("--layer", f"{self.dir}:/.venv:{self.one}", words=("lies in",))
        self.refuse("--layer", f"/proc:/.venv:{self.one}", words=("kernel",))
        self.refuse("--layer", f"/:/.venv:{self.one}", words=("host",))
        self.refuse("--layer", f"{self.base}:/usr/x:{self.one}", words=("/usr",))
        self.refuse("--level", "dir", *self.on(self.one), words=("--layer",))
        self.refuse(*(o for n in range(9) for o in self.on(self.layer(f"l{n}"), at=f"/m{n}")), words=("8",))

    def test_a_disk_limit_counts_what_is_in_the_layer(self):
        for place in ("/.venv/x", "/.cache/uv/x"):
            result, done = self.json(*self.on(self.one), *self.on(self.two, at="/.cache/uv"), "--disk", "8M", "-c",
                                     f"head -c 64M /dev/urandom > {place}; sleep 5")
            self.assertEqual((123, "disk"), (done.returncode, result["reason"]), place)
        result, done = self.json(*self.on(self.two), "--disk", "900M", "-c", "head -c 3M /dev/urandom > /.venv/y")
        self.assertEqual((0, "exit"), (done.returncode, result["reason"]))
        self.assertGreaterEqual(result["usage"]["added_bytes"], 3 << 20)
        if ROOT:
            self.refuse("--disk=image:64M", *self.on(self.one), words=("image", "--layer"))


if __name__ == "__main__":
    unittest.main()
