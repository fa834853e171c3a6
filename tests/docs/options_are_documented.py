#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""Every option of --help is in the verb's man page, no page lists an option that the verb has not, and what is made from
--help (completions, synopses) is what the tools would write today."""
import os
import re
import subprocess
import sys
import unittest

SRC = os.environ["SRC"]
CARREL = os.environ["CARREL"]
PAGES = [f"man/{name}" for name in sorted(os.listdir(f"{SRC}/man")) if re.fullmatch(r"carrel-.*\.[18]", name)]


def help_of(*words):
    return subprocess.run([CARREL, *words, "--help"], stdout=subprocess.PIPE, check=True).stdout.decode()


def options_of(verb):
    """Those of the option lines of its help."""
    names = re.findall(r"(?m)^  (-[\w-]+(?:, -[\w-]+)*)", help_of(*verb.split()))
    return {name for row in names for name in row.split(", ")}


def flags_in(text):
    """Those of the macro Fl, which takes several names with commas between."""
    rows = re.findall(r"Fl (-?[\w-]+(?: , (?!Fl )-?[\w-]+)*)", text.replace("\\-", "-"))
    return {"-" + name for row in rows for name in row.split(" , ")}


def page_text(page):
    with open(f"{SRC}/{page}", encoding="utf-8") as file:
        return file.read()


class Documented(unittest.TestCase):
    def test_every_verb_has_a_page(self):
        verbs = set(re.findall(r"(?m)^  ([a-z]+)  +\S", subprocess.run([CARREL, "help"], stdout=subprocess.PIPE, check=True).stdout.decode()))
        named = {verb for page in PAGES for verb in re.findall(r"(?m)^\.Nm carrel ([a-z]+)", page_text(page).split(".Sh DESC")[0])}
        self.assertEqual(verbs - {"help", "version"}, named)

    def test_help_and_page_have_the_same_options(self):
        for page in PAGES:
            synopsis, body = page_text(page).split(".Sh DESCRIPTION")
            verbs = re.findall(r"(?m)^\.Nm carrel (env setup|[a-z]+)", synopsis)
            told = set().union(*map(options_of, verbs))
            listed = flags_in("\n".join(re.findall(r"(?m)^\.It (Fl .*)$", body)))
            with self.subTest(page=page):
                self.assertGreater(len(told), 1)
                self.assertEqual(set(), listed - told - {"--help", "-h"}, "listed in the page, not in --help")
                self.assertEqual(set(), told - flags_in(body), "in --help, not in the page")

    def test_what_is_made_from_help_is_fresh(self):
        for tool in ("make-completions", "make-synopses"):
            done = subprocess.run([f"{SRC}/tools/{tool}", "--check"], stdout=subprocess.PIPE, check=False)
            self.assertEqual((b"", 0), (done.stdout, done.returncode))


if __name__ == "__main__":
    sys.exit(not unittest.main(exit=False).result.wasSuccessful())
