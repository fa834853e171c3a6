#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 2400
# TAKES: 50
"""A messy tree of medical records and invoices is put in order by one command in plan mode: shown, verified, approved, applied
and undone. Applied, the tree is what a plain run of the same command makes of a copy; undone, it is what it was."""
import json
import os
import random
import re
import unittest

from plantest import LONG, DaemonPlanTest, PlanTest, content, copy_tree, give, identity

FILES, FOLDERS = (20000, 300) if LONG else (300, 20)
ODD = [b"two words.txt", b"new\nline.txt", b"\xff\xfe.txt", b"-rf.txt", "\U0001f600.txt".encode(), b"trailing .txt", b"'quo\"te.txt",
       b"back\\slash.txt", "\u202ertl.txt".encode(), b"tab\tand\x1b[31mred.txt", b"%2e%2e.txt", b"$(id).txt", b"*?[x].txt"]
CLIENTS = ("acme", "globex", "initech", "umbrella", "hooli", "stark")

# Names are bytes; what is found is sorted, so that two runs do the same.
PYTHON = r"""
import hashlib, os, re
def found():
    for where, dirs, files in os.walk(b"."):
        dirs[:] = sorted(d for d in dirs if where != b"." or d not in RESERVED)
        for name in sorted(files):
            yield os.path.join(where, name)
RESERVED = {b"usr", b"bin", b"sbin", b"lib", b"lib32", b"lib64", b"libx32", b"etc", b"proc", b"dev", b"tmp", b".cache"}
seen, index = {}, []
for path in list(found()):
    if os.path.islink(path):
        continue
    data = open(path, "rb").read()
    kind = data.split(b"\n", 1)[0]
    known = hashlib.sha256(data).digest()
    if known in seen and len(data) > 0:
        os.unlink(path)
        continue
    seen[known] = path
    patient = re.match(rb"patient (\d+) (\d+)", kind)
    invoice = re.match(rb"invoice (\d+) (\w+)", kind)
    if patient:
        home = b"records/" + patient[1] + b"/" + patient[2]
    elif invoice:
        home = b"invoices/" + invoice[2] + b"/" + invoice[1]
    elif os.path.basename(path).endswith(b".sh"):
        os.chmod(path, 0o755)
        continue
    else:
        home = b"rest"
    os.makedirs(home, exist_ok=True)
    slug = re.sub(rb"[^A-Za-z0-9._]+", b"-", os.path.basename(path)).strip(b"-") or b"nameless"
    to = os.path.join(home, slug)
    n = 1
    while os.path.lexists(to):
        n += 1
        to = os.path.join(home, b"%d-" % n + slug)
    os.rename(path, to)
    index.append(to)
    if data.endswith(b"draft\n"):
        os.chmod(to, 0o644)
        with open(to, "ab") as file:
            file.write(b"(was a draft)\n")
for where, dirs, files in os.walk(b".", topdown=False):
    top = where.split(b"/")[1] if b"/" in where else b""
    if where != b"." and top not in RESERVED and not os.listdir(where):
        os.rmdir(where)
open("index.csv", "wb").write(b"\n".join(index) + b"\n")
print(len(index), "sorted")
"""

SHELL = r"""
set -eu
find m* -type f -print0 | sort -z >/tmp/all
mkdir -p sorted/invoices sorted/records sorted/other
n=0
while IFS= read -r -d '' path; do
    n=$((n + 1))
    read -r first year who <"$path" || true
    case "${first:-}" in
        invoice) home=sorted/invoices/$year ;;
        patient) home=sorted/records/$year ;;
        *) home=sorted/other ;;
    esac
    mkdir -p "$home"
    mv -- "$path" "$home/$(printf %06d $n)"
done </tmp/all
find m* -depth -type d -empty -delete
printf '%s\n' "$n" >sorted/count
chmod 750 sorted/records
ln -s sorted/invoices in
"""


def fill(top, files, folders, seed):
    """What years of nobody caring leave behind."""
    r = random.Random(seed)
    homes = [top]
    for n in range(folders):
        home = os.path.join(r.choice(homes[:40]), f"m{r.choice(('misc', 'Old', 'scan', 'to do', 'NEW'))} {n}")
        os.mkdir(home, r.choice((0o755, 0o755, 0o700, 0o775)))
        homes.append(home)
    contents = []
    for n in range(files):
        where = r.choice(homes)
        kind = r.random()
        if kind < 0.1 and contents:
            name, data = f"copy of {n}.txt", r.choice(contents)
        elif kind < 0.5:
            name, data = f"IMG_{n}.txt", f"patient {r.randrange(40):03} {r.randrange(2015, 2025)}\nweight {n}\n".encode() * r.randrange(1, 30)
        elif kind < 0.9:
            name, data = f"scan{n}.txt", f"invoice {r.randrange(2015, 2025)} {r.choice(CLIENTS)}\ntotal {n}\n".encode()
        elif kind < 0.92:
            name, data = f"fix{n}.sh", f"#!/bin/sh\necho {n}\n".encode()
        else:
            name, data = f"note{n}", f"note {n}\n".encode() + (b"draft\n" if n % 2 else b"")
        path = os.path.join(os.fsencode(where), b"%d " % n + r.choice(ODD) if r.random() < 0.03 else name.encode())
        with open(path, "wb") as file:
            file.write(data)
        contents.append(data)
        os.chmod(path, r.choice((0o644, 0o644, 0o600, 0o664, 0o444)))
        if r.random() < 0.02:
            os.chmod(path, 0o644)
            os.setxattr(path, "user.from", b"scanner %d" % n)
        os.utime(path, ns=(10**18 + n, 10**18 + n * 1000003))
    for n in range(folders // 10):
        os.symlink(r.choice(("nowhere", "../x", "/etc/passwd")), os.path.join(r.choice(homes), f"link{n}"))
        os.makedirs(os.path.join(r.choice(homes), f"mempty{n}", "below"), exist_ok=True)


class Story:
    """What is tried, once for each kind of place."""

    def shape(self, text, plan):
        """A person can read it: not too long, nothing that drives a terminal, everything counted."""
        lines = text.splitlines()
        self.assertLess(len(lines), 100, text)
        self.assertNotRegex(text, r"[\x00-\x09\x0b-\x1f\x7f\u202e]")
        self.assertIn(f"plan {plan['id']} of ", lines[0])
        self.assertIn(f"{plan['operations']:,} changes: ", text)
        self.assertIn(plan["hash"], text)
        self.assertRegex(text, r"(?m)^ +… and [\d,]+ more in ")
        self.assertRegex(text, r"(?m)^ +→ .* moved from ")
        self.assertRegex(text, r"(?m)^next  carrel plan ")
        counted = sum(int(number.replace(",", "")) for number in re.findall(r"… and ([\d,]+) more", text))
        marked = len(re.findall(r"(?m)^ +[+~→-] ", text))
        self.assertEqual(plan["operations"], counted + marked, text)

    def approve(self, plan):
        """Where nobody else decides, there is nothing to do."""

    def run_and_compare(self, command, script):
        original, before = content(self.tree, times=True), identity(self.tree)
        copy_tree(self.tree, self.twin)
        printed = self.plain_run(self.twin, *command, script)
        out, plan = self.plan_run(*command, script)
        self.assertEqual(printed, out)
        self.same(before, identity(self.tree), "the tree changed while the plan was made")
        self.shape(self.plan("show", plan["id"]), plan)
        everything = self.plan("show", plan["id"], "--all")
        self.assertNotIn(" more in ", everything)
        self.assertEqual(plan["operations"], len(re.findall(r"(?m)^ +[+~→-] ", everything)))
        shown = self.plan_json("show", plan["id"])
        self.assertEqual(plan["operations"], len(shown["items"]))
        self.assertIn(self.plan_json("verify", plan["id"])["verdict"], ("clean", "review"))
        self.approve(plan)
        self.plan("apply", plan["id"], "--hash", plan["hash"])
        self.same(content(self.twin), content(self.tree), "applied, it is not what a plain run makes")
        self.plan("undo", plan["id"])
        self.same(original, content(self.tree, times=True), "undone, it is not what it was")
        self.plan("discard", plan["id"])

    def test_python_puts_it_in_order(self):
        self.make()
        self.run_and_compare(("python3", "-c"), PYTHON)

    def test_shell_puts_it_in_order(self):
        self.make()
        self.run_and_compare(("bash", "-c"), SHELL)


class OfADirectory(Story, PlanTest):
    def make(self):
        os.mkdir(self.tree)
        fill(self.tree, FILES, FOLDERS, 1)

    def test_run_and_apply_tell_a_wrong_hash(self):
        os.mkdir(self.tree)
        fill(self.tree, 50, 5, 2)
        _, plan = self.plan_run("sh", "-c", "echo hi > greeting")
        before = content(self.tree, times=True)
        self.plan("apply", plan["id"], "--hash", "0" * 64, code=125)
        self.same(before, content(self.tree, times=True), "a plan with another hash was applied")
        listed = json.loads(self.plan("list", "--json"))["plans"]
        self.assertEqual([(plan["id"], "closed", 1)], [(p["id"], p["state"], p["operations"]) for p in listed])

    def test_chosen_paths_are_undone(self):
        os.mkdir(self.tree)
        _, plan = self.plan_run("sh", "-c", "echo 1 > one; echo 2 > two; mkdir d; echo 3 > d/three")
        self.plan("apply", plan["id"])
        self.plan("undo", plan["id"], "one")
        self.assertEqual({b"two", b"d", b"d/three"}, set(content(self.tree, links=False)))
        self.plan("undo", plan["id"])
        self.assertEqual({}, content(self.tree, links=False))

    def test_a_diff_shows_what_changed_in_text(self):
        os.mkdir(self.tree)
        with open(f"{self.tree}/letter", "w", encoding="utf-8") as file:
            file.write("dear sir\nyours\n")
        _, plan = self.plan_run("sed", "-i", "s/sir/madam/", "letter")
        diff = self.plan("show", plan["id"], "--diff")
        self.assertIn("-dear sir\n+dear madam\n yours\n", diff)


class OfAWorkspace(Story, DaemonPlanTest):
    def make(self):
        st = os.stat(self.tree)
        fill(self.tree, FILES, FOLDERS, 3)
        give(self.tree, st.st_uid, st.st_gid)

    def approve(self, plan):
        self.plan("apply", plan["id"], "--hash", plan["hash"], code=125)  # not yet
        self.plan("approve", plan["id"], "--hash", plan["hash"], code=125)  # not one's own
        self.plan("approve", plan["id"], "--hash", plan["hash"], "--comment", "looked at it", key=self.approver)


if __name__ == "__main__":
    unittest.main()
