#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 240
# TAKES: 30
"""Programs that need more than most: set-group-id directories, tracing one's own processes, Java with its settings."""
import os
import shutil
import stat
import subprocess
import unittest

from ordinary_programs import PYTHON, CarrelTest, write

SETID = "filter: set-id bits"


class Unusual(CarrelTest):
    def script(self, text, *options):
        """A shell script that must succeed line by line: its result."""
        result = self.json(*options, "--", "bash", "-euo", "pipefail", "-c", text)[0]
        self.assertEqual(0, result["exit_code"], result)
        return result

    def no_set_id_file(self):
        """None in the workspace, by whatever name."""
        for directory, _, files in os.walk(self.ws):
            for name in files:
                mode = os.lstat(os.path.join(directory, name)).st_mode
                self.assertFalse(mode & 0o6000, f"{directory}/{name} has mode {mode:o}")

    def denied(self, result, what):
        found = [(d["what"], d["source"]) for d in result["denials"] if d["rule"] == SETID]
        self.assertIn((what, "kernel"), found, result["denials"])

    # --- set-id bits ---

    def test_directories_may_have_the_bits_by_every_way_to_give_them(self):
        script = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def ways(name):
    fd = os.open(name, os.O_RDONLY)
    path = os.open(name, os.O_PATH)
    yield 'chmod', lambda mode: os.chmod(name, mode)
    yield 'relative', lambda mode: (os.chdir('/in'), os.chmod('../' + name[1:], mode), os.chdir('/'))
    yield 'link', lambda mode: os.chmod('/link' + name, mode)
    yield 'fchmod', lambda mode: os.fchmod(fd, mode)
    yield 'fchmodat', lambda mode: os.chmod(os.path.basename(name), mode, dir_fd=os.open('/', os.O_PATH))
    yield 'nofollow', lambda mode: libc.fchmodat(-100, name.encode(), mode, 0x100)
    yield 'proc', lambda mode: os.chmod(f'/proc/self/fd/{path}', mode)
    yield 'thread', lambda mode: os.chmod(f'/proc/thread-self/fd/{path}', mode)
    yield 'dev', lambda mode: os.chmod(f'/dev/fd/{fd}', mode)
os.mkdir('/in'); os.mkdir('/dir'); os.symlink('.', '/link'); open('/file', 'w').close()
for name, has in (('/dir', 0o2000), ('/file', 0)):
    for n, (way, change) in enumerate(ways(name)):
        os.chmod(name, 0o700)
        change(0o2750 + n % 2)
        got = os.stat(name).st_mode & 0o7777
        assert got == (has | 0o750 + n % 2), (name, way, oct(got))
print('done')
"""
        result = self.json("--", PYTHON, "-c", script)[0]
        self.assertEqual("done\n", result["stdout"], result)
        self.denied(result, "chmod with mode 2750")
        self.no_set_id_file()

    def test_errors_are_the_kernels(self):
        script = """
import errno, os
os.mkdir('/dir'); open('/file', 'w').close(); os.symlink('loop', '/loop')
def error(change, *args, **kwargs):
    try: change(*args, **kwargs)
    except OSError as e: return errno.errorcode[e.errno]
for name in ('/none', '/file/x', '/' + 'x' * 300, '/' + 'x/' * 3000, '', '/loop', '/usr', '/proc', '/dev/null'):
    print(error(os.chmod, name, 0o2755))
print(error(os.fchmod, 99, 0o2755), error(os.chmod, 'x', 0o2755, dir_fd=99))
for name in ('/file/x', '/file', '/' + 'x' * 300, '/none/x', '/new'):
    print(error(os.mknod, name, 0o20666, os.makedev(1, 3)), error(os.mknod, name, 0o60666, os.makedev(7, 0)))
print(error(os.mknod, '/new', 0o20666, 0), error(os.open, '/new', os.O_CREAT, 0o4755), error(os.mknod, '/new', 0o104755))
"""
        lines = self.json("--", PYTHON, "-c", script)[0]["stdout"].splitlines()
        self.assertEqual(["ENOENT", "ENOTDIR", "ENAMETOOLONG", "ENAMETOOLONG", "ENOENT", "ELOOP", "EROFS"], lines[:7])
        self.assertNotIn("None", lines[7:9])
        self.assertEqual("EBADF EBADF", lines[9])
        self.assertEqual(["ENOTDIR ENOTDIR", "EEXIST EEXIST", "ENAMETOOLONG ENAMETOOLONG", "ENOENT ENOENT",
                          "EPERM EPERM"], lines[10:15])
        self.assertEqual("EPERM EPERM EPERM", lines[15])

    def test_no_group_that_the_owner_has_not(self):
        """A directory of a group that its owner is not in does not get the bit."""
        if os.getuid() != 0:
            self.skipTest("only root can make such a directory")
        shutil.chown(self.ws, 12345, 12345)
        foreign = os.path.join(self.ws, "foreign")
        os.mkdir(foreign, 0o755)
        os.chown(foreign, 12345, 54321)
        self.run_in("--", "chmod", "2775", "/foreign")
        self.assertFalse(0o2000 & stat.S_IMODE(os.stat(foreign).st_mode))
        self.ok("-c", "mkdir /own && chmod 2775 /own && touch /own/file")
        self.assertEqual((0o2775, 12345), (stat.S_IMODE(os.stat(f"{self.ws}/own").st_mode),
                                           os.stat(f"{self.ws}/own/file").st_gid))

    def test_shared_repositories_and_workspaces(self):
        os.chmod(self.ws, 0o2775)
        self.script("mkdir -m 2775 /made; git init -q --shared /repo; chmod g+w /; mkdir /below; chmod g+w /below; "
                    "chmod -R g+rwX /repo; test -g /repo/.git/objects; test -g /made; test -g /below")
        self.assertEqual(0o2775, stat.S_IMODE(os.stat(self.ws).st_mode))

    def tree(self):
        """One with set-id bits on files, made by its owner outside: as it comes from elsewhere."""
        os.makedirs(f"{self.ws}/from/dir")
        os.chmod(f"{self.ws}/from", 0o2755)
        os.chmod(f"{self.ws}/from/dir", 0o2775)
        for name, mode in (("prog", 0o4755), ("dir/file", 0o2755), ("plain", 0o644)):
            write(f"{self.ws}/from/{name}", name)
            os.chmod(f"{self.ws}/from/{name}", mode)

    def copied(self, to, result, what="chmod with mode 4755"):
        shutil.rmtree(f"{self.ws}/from")
        self.no_set_id_file()
        modes = [stat.S_IMODE(os.stat(f"{self.ws}/{to}/{name}").st_mode) for name in ("dir", "prog", "dir/file")]
        self.assertEqual([0o2775, 0o755, 0o755], modes)
        self.denied(result, what)

    def test_copies_of_trees_with_set_id_bits(self):
        self.tree()
        self.copied("to", self.script("cp -a /from /to"))

    def test_archives_of_trees_with_set_id_bits(self):
        self.tree()
        self.copied("to", self.script("tar -C /from -cf /x.tar . && mkdir /to && tar -C /to -xpf /x.tar"))

    def test_pythons_copies_of_trees_with_set_id_bits(self):
        self.tree()
        self.copied("to", self.script(f"{PYTHON} -c 'import shutil; shutil.copytree(\"/from\", \"/to\")'"))

    def test_packages_with_set_id_bits(self):
        self.tree()
        os.mkdir(f"{self.ws}/from/DEBIAN", 0o755)
        os.chmod(f"{self.ws}/from/DEBIAN", 0o755)
        write(f"{self.ws}/from/DEBIAN/control",
              "Package: x\nVersion: 1\nArchitecture: all\nMaintainer: x <x@example.org>\nDescription: x\n")
        subprocess.run(["dpkg-deb", "--root-owner-group", "-b", f"{self.ws}/from", f"{self.ws}/x.deb"], check=True,
                       stdout=subprocess.DEVNULL)
        self.copied("to", self.script("dpkg-deb -x /x.deb /to"))

    def test_rsync_with_set_id_bits(self):
        if not shutil.which("rsync"):
            self.skipTest("no rsync here")
        self.tree()
        self.copied("to", self.script("rsync -a /from/ /to/"))

    # --- tracing ---

    def test_a_program_is_traced(self):
        shown = self.script("strace -f -o /trace sh -c 'cat /dev/null; :' && grep -c execve /trace")
        self.assertGreaterEqual(int(shown["stdout"]), 2, "sh and cat")
        self.assertEqual([], shown["denials"])
        shown = self.script("gdb -q -nx -batch -ex 'set disable-randomization off' -ex run --args true")
        self.assertRegex(shown["stdout"], r"\[Inferior 1 .* exited normally\]")
        write(f"{self.ws}/other.c", "int main(void)\n{\n    int volatile answer = 42;\n    return answer - 42;\n}\n")
        shown = self.script("gcc -g -O0 -o /other /other.c && gdb -q -nx -batch -ex 'set disable-randomization off' "
                            "-ex 'break main' -ex run -ex next -ex 'print answer' /other")
        self.assertIn("$1 = 42", shown["stdout"])

    def test_leaks_are_found(self):
        write(f"{self.ws}/leak.c", "#include <stdlib.h>\nint main(void) { void *volatile p = malloc(7); p = 0; return !!p; }\n")
        done = self.run_in("-c", "gcc -fsanitize=leak -o /leak /leak.c && /leak; echo status $?")
        self.assertIn("LeakSanitizer: detected memory leaks", done.stderr)
        self.assertIn("status 23", done.stdout)

    # --- Java ---

    def test_java_compiles_and_maven_starts(self):
        if not shutil.which("javac"):
            self.skipTest("no JDK here; what it needs is tried with another name in etc_shows_what_links_lead_to")
        write(f"{self.ws}/H.java", 'public class H { public static void main(String[] a) { System.out.println("hi"); } }')
        shown = self.script("readlink -f $(command -v javac); javac H.java && java H")
        self.assertEqual("hi", shown["stdout"].splitlines()[-1])
        for home in sorted(os.listdir("/usr/lib/jvm")):
            if os.path.exists(f"/usr/lib/jvm/{home}/bin/javac"):
                self.script(f"cd /usr/lib/jvm/{home}/bin && ./javac -d /tmp /H.java && ./java -cp /tmp H")

    def test_maven_starts(self):
        if not shutil.which("mvn"):
            self.skipTest("no Maven here")
        self.assertIn("Apache Maven", self.script("mvn -v")["stdout"])


if __name__ == "__main__":
    unittest.main()
