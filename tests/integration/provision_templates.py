#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""provision/: what a template is, which versions it has, and what to do when they cannot be had."""
import json
import os
import random
import re
import sys
import unittest

SRC = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, f"{SRC}/provision")
import daemon  # noqa: E402
import template_file  # noqa: E402
import template_lock as locks  # noqa: E402
from build_room import BuildRoom  # noqa: E402
from template_remedy import remedy  # noqa: E402
from words import Failure  # noqa: E402

ALL = {"name": "lab-1", "python": {"version": "3.11", "packages": ["six", "pandas>=2,<3"], "lock": "a.lock", "build": True},
       "node": {"packages": ["docx", "@types/node@^20.1"], "lock": "b.lock"}, "files": {"/bin2/x": "x.sh"},
       "env": {"A": "b c", "_E": ""}, "start": "sleep 1", "services": {"db": {"run": "serve", "port": 5432}}, "debian": []}

REFUSED = (
    ("", "line 1"),
    ("[]", "no JSON object"),
    ("{}", 'no "name"'),
    ('{"name":"a","name":"b"}', "duplicate"),
    ('{"name":""}', '"name" must be'),
    ('{"name":"../a"}', '"name" must be'),
    ('{"name":"-a"}', '"name" must be'),
    ('{"name":"a b"}', '"name" must be'),
    ('{"name":"a\\n"}', '"name" must be'),
    ('{"name":7}', '"name" must be'),
    (f'{{"name":"{"a" * 65}"}}', '"name" must be'),
    ('{"name":"a","pyhton":{}}',
     "unknown key \"pyhton\"; known are: name, python, node, files, env, start, services, base, debian, users, run; did you mean 'python'?"),
    ('{"name":"a","python":true}', '"python" must be'),
    ('{"name":"a","python":{"package":[]}}', 'unknown key "package"'),
    ('{"name":"a","python":{"version":3.11}}', '"version" must be'),
    ('{"name":"a","python":{"version":"3."}}', '"version" must be'),
    ('{"name":"a","python":{"version":"3.11.2.1"}}', '"version" must be'),
    ('{"name":"a","python":{"version":"python3"}}', '"version" must be'),
    ('{"name":"a","python":{"version":"3333333333333333"}}', '"version" must be'),
    ('{"name":"a","python":{"packages":"six"}}', '"packages" must be'),
    ('{"name":"a","python":{"packages":{}}}', '"packages" must be'),
    ('{"name":"a","python":{"packages":[1]}}', "python.packages"),
    ('{"name":"a","python":{"packages":[""]}}', "python.packages"),
    ('{"name":"a","python":{"packages":["-r x"]}}', "python.packages"),
    ('{"name":"a","python":{"packages":["six --no-binary"]}}', "python.packages"),
    ('{"name":"a","python":{"packages":["six\\nfoo"]}}', "python.packages"),
    ('{"name":"a","python":{"packages":["six @ https://x/y"]}}', "addresses"),
    ('{"name":"a","python":{"packages":["./six"]}}', "addresses"),
    ('{"name":"a","python":{"packages":["s\u00efx"]}}', "python.packages"),
    (f'{{"name":"a","python":{{"packages":["{"a" * 257}"]}}}}', "python.packages"),
    (f'{{"name":"a","python":{{"packages":{json.dumps(["a"] * 513)}}}}}', "at most 512"),
    ('{"name":"a","node":{"version":"20"}}', 'unknown key "version"'),
    ('{"name":"a","node":{"packages":["user/repo"]}}', "node.packages"),
    ('{"name":"a","node":{"packages":["git:x"]}}', "node.packages"),
    ('{"name":"a","node":{"packages":["--global"]}}', "node.packages"),
    ('{"name":"a","node":{"packages":["x@"]}}', "node.packages"),
    ('{"name":"a","node":{"packages":["x@-g"]}}', "node.packages"),
    ('{"name":"a","node":{"packages":["x@1 --global"]}}', "node.packages"),
    ('{"name":"a","node":{"packages":["x@file:/etc"]}}', "node.packages"),
    ('{"name":"a","node":{"packages":["@scope"]}}', "node.packages"),
    ('{"name":"a","node":{"lock":"../x"}}', '"lock" must be'),
    ('{"name":"a","node":{"lock":".x"}}', '"lock" must be'),
    ('{"name":"a","node":{"build":1}}', '"build" must be'),
    ('{"name":"a","files":[]}', '"files" must be'),
    ('{"name":"a","files":{"x":"y"}}', "absolute"),
    ('{"name":"a","files":{"/":"y"}}', "absolute"),
    ('{"name":"a","files":{"/a/../b":"y"}}', "absolute"),
    ('{"name":"a","files":{"/a//b":"y"}}', "absolute"),
    ('{"name":"a","files":{"/usr/x":"y"}}', "not for files"),
    ('{"name":"a","files":{"/.venv/x":"y"}}', "not for files"),
    ('{"name":"a","files":{"/x":"/etc/shadow"}}', "beside"),
    ('{"name":"a","files":{"/x":"../y"}}', "beside"),
    ('{"name":"a","files":{"/x":""}}', "beside"),
    ('{"name":"a","files":{"/x":1}}', '"files" must be'),
    ('{"name":"a","env":{"A=B":""}}', "name of a variable"),
    ('{"name":"a","env":{"1A":""}}', "name of a variable"),
    ('{"name":"a","env":{"A\\n":""}}', "name of a variable"),
    ('{"name":"a","env":{"A":"x\\u0000y"}}', "NUL"),
    ('{"name":"a","env":{"A":"\\ud800"}}', "half a character"),
    ('{"name":"a","env":{"A":NaN}}', "NaN"),
    ('{"name":"a","start":""}', '"start" must be'),
    ('{"name":"a","debian":["tesseract-ocr"]}', 'add "base"'),
    ('{"name":"a","base":"host","users":["ada"]}', 'add "base"'),
    ('{"name":"a","services":[]}', '"services" must be'),
    ('{"name":"a","services":{"a b":{"run":"x"}}}', "name of a service"),
    ('{"name":"a","services":{"a":{"port":1}}}', 'no "run"'),
    ('{"name":"a","services":{"a":{"run":"x","port":0}}}', '"port" must be'),
    ('{"name":"a","services":{"a":{"run":"x","port":true}}}', '"port" must be'),
    ('{"name":"a","services":{"a":{"run":"x","restart":true}}}', 'unknown key "restart"'),
    ('{"name":"a","services":{"a":7}}', '"services" must be'),
    ('{"name":"a","run":["true"]}', '"run" needs a system'),
    ('{"name":"a","debian":false}', '"debian" must be'),
    ('{"name":"a","base":"debian-12","debian":["-o=x"]}', "Debian package"),
    ('{"name":"a","base":"debian-12","debian":["x","--reinstall"]}', "Debian package"),
    ('{"name":"a","base":"debian-12","debian":["./x.deb"]}', "Debian package"),
    ('{"name":"a","base":"debian-12","debian":["x y"]}', "Debian package"),
    ('{"name":"a","base":"debian-12","users":["-u"]}', "name of a user"),
    ('{"name":"a","base":"debian-12","users":["a:b"]}', "name of a user"),
    ('{"name":"a","base":"debian-12","run":"true"}', '"run" must be'),
    ('{"name":"a","base":"debian-12","run":[""]}', '"run" must be'),
    ('{"name":"a","base":"debian-12","files":{"/proc/x":"y"}}', "not for files of a template"),
    ('{"name":"a","base":"debian-12","files":{"/bin/x":"y"}}', "not for files of a template"),
    ('{"name":"a","base":"debian-12","python":{"lock":"x"}}', 'no "version" and no "lock"'),
    ('{"name":"a","base":"Debian"}', '"base" must be'),
    ('{"name":"a","base":"../x"}', '"base" must be'),
    ('{"name":"a"}' + " " * (256 * 1024), "256 KiB"),
    ("[" * 100000, "nested"),
)


def parse(text):
    return template_file.parse(text.encode() if isinstance(text, str) else text)


class File(unittest.TestCase):
    def test_a_name_is_enough(self):
        self.assertEqual(template_file.Template(name="a"), parse('{"name":"a"}'))

    def test_every_key_is_read(self):
        found = parse(json.dumps(ALL))
        self.assertEqual(template_file.Packages(True, True, "3.11", "a.lock", ["six", "pandas>=2,<3"]), found.python)
        self.assertEqual(template_file.Packages(True, False, None, "b.lock", ["docx", "@types/node@^20.1"]), found.node)
        self.assertEqual(("lab-1", {"/bin2/x": "x.sh"}, {"A": "b c", "_E": ""}, "sleep 1"), (found.name, found.files, found.env, found.start))

    def test_what_is_wrong_is_said(self):
        for text, says in REFUSED:
            with self.subTest(text=text[:80]), self.assertRaises(Failure) as failed:
                parse(text)
            self.assertIn(says, str(failed.exception))

    def test_names_of_packages_that_are_taken(self):
        for kind, names in (("python", ["six", "Pillow", "pandas==1.5.3", "pandas >= 2, < 3", "httpx[http2]",
                                        "tomli; python_version < '3.11'", "torch==2.1.0+cpu"]),
                            ("node", ["docx", "is-odd@3.0.1", "@a/b", "@a/b@latest", "x@>=1 <2"])):
            self.assertEqual(names, getattr(parse(json.dumps({"name": "a", kind: {"packages": names}})), kind).packages)

    def test_the_names_that_are_not_for_files_are_all_of_carrels(self):
        with open(f"{SRC}/src/base/names.h", encoding="utf-8") as file:
            lines = [line for line in file if line.startswith("#define CARREL_") and "UNFINISHED" not in line
                     and "LAYER_NAMES" not in line]  # a template has no system of its own
        self.assertEqual(set(re.findall(r'"([^"]+)"', "".join(lines))) | {".venv", "node_modules"}, template_file.TAKEN)

    def test_whatever_a_file_becomes_what_is_taken_of_it_names_nothing_outside(self):
        chance, whole = random.Random(3), json.dumps(ALL).encode()
        parts = [b"..", b"/", b"//", b"-", b" --", b"\\n", b"\\u0000", b"@", b":", b'"', b"{", b"}", b"[", b"]", b",", b"\xff", b"usr", b"$(x)", b"#", b"7"]
        taken = 0
        for _ in range(20000):
            text = bytearray(whole)
            for _ in range(chance.randrange(1, 4)):
                at = chance.randrange(len(text))
                text[at:at + chance.choice((0, 1, 4))] = chance.choice(parts)
            try:
                found = parse(bytes(text))
            except Failure:
                continue
            taken += 1
            self.assertRegex(found.name, r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
            for packages in (found.python, found.node):
                self.assertFalse(packages.lock and (packages.lock[0] in ".-" or "/" in packages.lock))
                for package in packages.packages:
                    self.assertRegex(package, r"\A[^-\n\r:\\#$`][^\n\r:\\#$`]*\Z")
                    self.assertNotIn("//", package)
                    self.assertNotIn(" --", package)
            for inside, beside in found.files.items():
                self.assertTrue(inside.startswith("/") and not beside.startswith("/"))
                self.assertFalse({"", ".", ".."} & set(inside[1:].split("/") + beside.split("/")))
        self.assertGreater(taken, 100)


TWO = ["six", "pandas>=2"]
BUN = ('{\n  "lockfileVersion": 1,\n  "workspaces": {\n    "": {\n      "dependencies": {\n        "is-odd": "",\n      },\n    },\n  },\n'
       '  "packages": {\n    "is-number": ["is-number@6.0.0", "https://registry.invalid/x,]", {}, "sha512-a"],\n\n'
       '    "is-odd": ["is-odd@3.0.1", "", { "dependencies": { "is-number": "^6.0.0" } }, "sha512-b\\""],\n  }\n}\n').encode()


class Locks(unittest.TestCase):
    def test_a_python_lock_says_what_it_is_for(self):
        text = locks.python_head(TWO, "3.11") + "six==1.17.0 \\\n    --hash=sha256:00\n"
        self.assertEqual('# Packages of a Carrel template. To make it anew: carrel template build --update-lock\n# python 3.11\n'
                         '# packages ["six", "pandas>=2"]\n', locks.python_head(TWO, "3.11"))
        for packages, python, of, fit in ((TWO, "3.11", text, locks.FITS), (TWO, "3.1", text, locks.OTHER_PYTHON),
                                          (TWO, "3.13", text, locks.OTHER_PYTHON), (["six"], "3.11", text, locks.OTHER_PACKAGES),
                                          (TWO, "3.11", "six==1.17.0\n", locks.FOREIGN), (TWO, "3.11", "", locks.FOREIGN),
                                          (TWO, "3.11", locks.FIRST_LINE, locks.OTHER_PACKAGES)):
            self.assertEqual(fit, locks.python_fit(packages, python, of))

    def test_a_python_lock_is_listed(self):
        self.assertEqual(["numpy==2.2.0", "six==1.17.0"], locks.python_list(
            "# six\nnumpy==2.2.0 ; python_version > '3' \\\n    --hash=x\n    # via pandas\n\n--index-url x\nsix==1.17.0"))

    def test_what_a_template_has_is_what_its_project_depends_on(self):
        asked = ["numpy", 'six<2; python_version > "3"']
        self.assertEqual('[project]\nname = "w"\ndependencies = [\n    "numpy",\n    "six<2; python_version > \\u00223\\u0022",\n]\n\n[tool.x]\n',
                         locks.python_project('[project]\nname = "w"\ndependencies = []\n\n[tool.x]\n', asked))
        own = '[project]\ndependencies = ["own"]\n'
        self.assertEqual(own, locks.python_project(own, asked))

    def test_a_lock_of_bun_is_kept_without_its_registry(self):
        bun, dependencies = locks.read_bun(BUN), {"is-odd": "^3.0.1"}
        self.assertTrue(locks.node_set_dependencies(bun, dependencies))
        self.assertEqual(dependencies, locks.node_dependencies(bun))
        text = locks.node_make(TWO, bun)
        self.assertNotIn("registry.invalid", text)
        fit, again = locks.node_read(text.encode(), TWO)
        self.assertEqual((locks.FITS, bun), (fit, again))
        self.assertEqual(["is-number@6.0.0", "is-odd@3.0.1"], locks.node_list(again))
        self.assertEqual(locks.OTHER_PACKAGES, locks.node_read(text.encode(), [])[0])

    def test_the_bytes_of_a_kept_lock_are_those_of_every_carrel(self):
        bun = locks.read_bun(BUN)
        self.assertEqual('{\n "packages": [\n  "six",\n  "pandas>=2"\n ],\n "lock": {\n  "lockfileVersion": 1,\n  "workspaces": {\n   "": {\n'
                         '    "dependencies": {\n     "is-odd": ""\n    }\n   }\n  },\n  "packages": {\n   "is-number": [\n    "is-number@6.0.0",\n'
                         '    "",\n    {},\n    "sha512-a"\n   ],\n   "is-odd": [\n    "is-odd@3.0.1",\n    "",\n    {\n     "dependencies": {\n'
                         '      "is-number": "^6.0.0"\n     }\n    },\n    "sha512-b\\""\n   ]\n  }\n }\n}\n', locks.node_make(TWO, bun))

    def test_a_node_lock_that_is_none_is_refused(self):
        for text in ("", "[]", "{", '{"lock":{}}', '{"packages":[]}', '{"packages":[],"lock":{"packages":[]}}', "7", "\0"):
            with self.subTest(text=text), self.assertRaises(Failure) as failed:
                locks.node_read(text.encode(), TWO)
            self.assertIn("--update-lock", str(failed.exception))
        for data in (b"", b"{", b"[]", b"\xff", b'{"packages":[]}', b'{"packages":{},"packages":{}}', b"[" * 100000, b'"' * 100001, b'"\\' * 100000):
            with self.subTest(data=data[:20]), self.assertRaises(Failure) as failed:
                locks.read_bun(data)
            self.assertIn("bun.lock cannot be read", str(failed.exception))

    def test_locks_of_odd_members_are_read_all_the_same(self):
        bun = locks.read_bun(b'{"packages": {"a": [], "b": 7, "c": [7], "d": [1, 2, 3, 4], "e": ["e@1", null, {}, ""],}, "workspaces": [],}')
        self.assertEqual(["e@1"], locks.node_list(bun))
        self.assertIsNone(locks.node_dependencies(bun))
        self.assertFalse(locks.node_set_dependencies(bun, {}))

    def test_what_is_made_of_any_bun_lock_is_read_again_as_it_was(self):
        chance = random.Random(11)
        parts = [b",", b",}", b'"', b"\\", b"{", b"}", b"[", b"]", b"\xff", b"7", b" ", b'"a": ']
        for _ in range(5000):
            data = bytearray(BUN)
            for _ in range(chance.randrange(1, 4)):
                at = chance.randrange(len(data))
                data[at:at + chance.choice((0, 1, 4))] = chance.choice(parts)
            try:
                bun = locks.read_bun(bytes(data))
            except Failure:
                continue
            self.assertEqual((locks.FITS, bun), locks.node_read(locks.node_make(TWO, bun).encode(), TWO))
            locks.node_list(bun), locks.node_dependencies(bun)


class Remedies(unittest.TestCase):
    def test_what_tools_say_has_a_remedy(self):
        for said, code, words in (
                ("Because nosuch was not found in the package registry and you require nosuch, we can conclude that your "
                 "requirements are unsatisfiable.", 1, "no package of that name"),
                ("Because there is no version of six==99 and you require six==99, we can conclude that your requirements are "
                 "unsatisfiable.", 1, "no such version"),
                ("Because a==1 depends on six<1 and you require six>1, we can conclude that your requirements are "
                 "unsatisfiable.", 1, "do not go together"),
                ("error: Failed to fetch: `x`\n  Caused by: error sending request\n  Caused by: dns error", 2, "package_index"),
                ("error: GET https://registry.invalid/x - 404", 1, "no package of that name"),
                ("write: No space left on device (os error 28)", 2, "disk is full"),
                ("Packages were unavailable because the network was disabled.", 1, "without --offline"),
                ("bash: uv: command not found", 127, "carrel env setup")):
            self.assertIn(words, remedy(said, code))
        self.assertIsNone(remedy("something else", 1))


class Room(unittest.TestCase):
    def setUp(self):
        self.room = BuildRoom({"url": "http://carrel", "quiet": "yes"})

    def test_only_the_end_of_what_is_said_is_kept(self):
        for number in range(3000):
            self.room.take_output(b"%099d\n" % number)
        self.assertLessEqual(len(self.room.tail), 64 * 1024)
        self.assertTrue(self.room.tail.endswith(b"2999\n"))

    def test_the_remedy_goes_before_the_note_and_the_note_before_the_status(self):
        for said, end, words in ((b"ENOSPC", {"exit_code": 1, "note": "x"}, "disk is full"),
                                 (b"", {"exit_code": None, "reason": "timeout", "note": "too long"}, "uv: too long"),
                                 (b"", {"exit_code": None, "reason": "timeout"}, "raise that limit"),
                                 (b"", {"exit_code": 3, "reason": "exit"}, "failed with status 3")):
            self.room.tail, self.room.json = said, True
            self.assertIn(words, str(self.room.explain("uv", end)))

    def test_names_are_part_of_no_other_address(self):
        self.room.workspace = "../a?b"
        self.assertEqual("/v1/workspaces/..%2Fa%3Fb/files/x%20y/z%3F", self.room.file_at("/x y/z?"))

    def test_bytes_come_back_as_they_went(self):
        for data in (b"", b"text\n", "\u00e9".encode(), b"\xff\0"):
            self.assertEqual(data, daemon.decode(json.loads(json.dumps(daemon.encode("data", data))), "data"))


if __name__ == "__main__":
    unittest.main()
