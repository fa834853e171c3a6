#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 120
"""Each shell's completion loads without a word, and offers the verbs, options and values that the command line has."""
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

SRC = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COMPLETION = f"{SRC}/packaging/completion"
CARREL = os.environ["CARREL"]
PATIENCE = 60


def help_of(*words):
    return subprocess.run([CARREL, *words, "--help"], stdout=subprocess.PIPE, check=True, timeout=PATIENCE).stdout.decode()


VERBS = set(re.findall(r"(?m)^  ([a-z]+)  +\S", help_of()))  # no list of our own: it would not know of a new verb
PLAN = {"run", "submit", "list", "show", "verify", "approve", "reject", "apply", "undo", "close", "discard", "cancel"}
# A line up to the word that is asked for, and what must be among the answers; "!" says that nothing else may be.
LINES = [
    ("carrel ", VERBS, "!"),
    ("carrel e", {"exec", "events", "edit", "env"}, "!"),
    ("carrel ws ", {"create", "ls", "show", "policy", "rm", "undelete", "sleep", "backup", "restore", "adopt"}, ""),
    ("carrel ws ad", {"adopt"}, "!"),
    ("carrel key ", {"create", "ls", "revoke"}, ""),
    ("carrel audit ", {"tail", "verify", "key", "export"}, ""),
    ("carrel run --level ", {"auto", "ns", "dir"}, "!"),
    ("carrel run --net ", {"none", "host"}, "!"),
    ("carrel key create --scope ", {"owner", "agent", "approve", "read", "user", "admin"}, "!"),
    ("carrel key create --workspace d", {"desk", "den"}, "!"),
    ("carrel exec --user ", {"user", "root"}, "!"),
    ("carrel exec ", {"desk", "den"}, ""),
    ("carrel shell de", {"desk", "den"}, "!"),
    ("carrel ws show de", {"desk", "den"}, "!"),
    ("carrel ls ", {"desk:", "den:"}, ""),
    ("carrel ls des", {"desk:"}, "!"),
    ("carrel cat desk:/", {"desk:/src/", "desk:/some.txt", "desk:/other"}, "!"),
    ("carrel cat desk:/s", {"desk:/src/", "desk:/some.txt"}, "!"),
    ("carrel get -r desk:/src/de", {"desk:/src/deep/"}, "!"),
    ("carrel doctor den", {"den:"}, "!"),
    ("carrel env ", {"desk", "den", "setup"}, ""),
    ("carrel env desk p", {"python"}, "!"),
    ("carrel p", {"put", "ps", "plan", "port"}, "!"),
    ("carrel port d", {"desk", "den"}, "!"),
    ("carrel port --list d", {"desk", "den"}, "!"),
    ("carrel port --access ", {"key", "token"}, "!"),
    ("carrel plan ", PLAN, "!"),
    ("carrel plan ap", {"approve", "apply"}, "!"),
    ("carrel plan show d", {"desk", "den"}, "!"),
    ("carrel plan run d", {"desk", "den"}, "!"),
    ("carrel plan apply desk ", {"p1", "p2"}, "!"),
    ("carrel plan show --diff desk p", {"p1", "p2"}, "!"),
    ("carrel plan undo --dir papers ", {"p7"}, "!"),
    ("carrel plan list --in-state p", {"pending"}, "!"),
    ("carrel template ", {"build", "list", "show", "rm"}, "!"),
    ("carrel template build ", {"minimal", "office"}, ""),
    ("carrel template show ", {"lab", "office"}, "!"),
    ("carrel template rm l", {"lab"}, "!"),
    ("carrel ws create --template ", {"lab", "office"}, "!"),
]
# What the shells ask `carrel` for: a daemon with two workspaces, as far as they can tell.
STUB = """#!/bin/sh
case "$*" in
"ws ls") printf 'ID    OWNER\\ndesk  ann\\nden   bob\\n' ;;
"ls -p -- desk:/") printf 'other\\nsome.txt\\nsrc/\\n' ;;
"ls -p -- desk:/src/") printf 'deep/\\nfile\\n' ;;
"template list") printf 'NAME    SIZE\\nlab     1K\\noffice  300M\\n' ;;
"plan list desk") printf 'PLAN  STATE\\np1    closed\\np2    open\\n' ;;
"plan list --dir papers") printf 'PLAN  STATE\\np7    applied\\n' ;;
*) exit 125 ;;
esac
"""


def options_of(verb):
    """What its own help says; its examples may use other verbs too."""
    text = re.sub(rf"(?m)^ +carrel (?!{verb} ).*$", "", help_of(verb))
    return {name for name in re.findall(r"(?<![\w-])--[a-z][a-z-]+", text) if name != "--help"}


def offered(words):
    """Without descriptions, trailing blanks and the sign that a value follows."""
    return {word.split("\t")[0].rstrip().removesuffix("=") for word in words if word.strip()}


def stub_in(home):
    """A PATH whose first carrel is the stub."""
    with open(f"{home}/carrel", "w", encoding="utf-8") as file:
        file.write(STUB)
    os.chmod(f"{home}/carrel", 0o755)
    os.mkdir(f"{home}/empty")
    return f"{home}:{os.environ['PATH']}"


class Bash:
    name = "bash"

    def __init__(self, home):
        self.env = {**os.environ, "PATH": stub_in(home)}
        self.home = home

    def ask(self, line):
        return self.ask_words(line.split(" "))

    def ask_words(self, words):
        quoted = " ".join(f"'{word}'" for word in words)
        script = (f"set -u; . {COMPLETION}/carrel.bash; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _carrel; "
                  "printf '%s\\n' \"${COMPREPLY[@]}\"")
        done = subprocess.run(["bash", "--norc", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env=self.env, cwd=f"{self.home}/empty", timeout=PATIENCE, check=False)
        assert done.stderr == b"", done.stderr
        return offered(done.stdout.decode().split("\n"))

    def close(self):
        pass


class Fish:
    name = "fish"

    def __init__(self, home):
        self.env = {"HOME": home, "PATH": stub_in(home), "TERM": "dumb", "LC_ALL": "C.UTF-8"}
        self.home = home

    def ask(self, line):
        script = f"source {COMPLETION}/carrel.fish; complete -C '{line}'"
        done = subprocess.run(["fish", "--no-config", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              stdin=subprocess.DEVNULL, env=self.env, cwd=f"{self.home}/empty", timeout=PATIENCE, check=False)
        assert done.stderr == b"", done.stderr
        return offered(done.stdout.decode().split("\n"))

    def close(self):
        pass


class Zsh:
    """Completes only at a terminal: it gets one, and writes down what it would offer."""
    name = "zsh"
    SETUP = r"""
PROMPT=; RPROMPT=; unsetopt zle_bracketed_paste prompt_sp
fpath=({completion} $fpath)
autoload -Uz compinit && compinit -u -D
zstyle ':completion:*' completer _complete
compadd() {{
    if [[ ${{@[1,(i)(-|--)]}} == *-(O|A|D)\ * ]]; then builtin compadd "$@"; return $?; fi
    local -a hits
    builtin compadd -O hits "$@"
    print -lr -- $hits >>{out}
    builtin compadd "$@"
}}
ask() {{ zle complete-word; print END >>{out}; BUFFER=; zle redisplay }}
zle -N ask && bindkey '^I' ask
print READY >>{out}
"""

    def __init__(self, home):
        self.out = f"{home}/offered"
        setup = f"{home}/setup"
        with open(setup, "w", encoding="utf-8") as file:
            file.write(self.SETUP.format(completion=COMPLETION, out=self.out))
        self.screen = b""
        path = stub_in(home)
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(f"{home}/empty")
            env = {"HOME": home, "PATH": path, "TERM": "dumb", "LC_ALL": "C.UTF-8"}
            os.execvpe("zsh", ["zsh", "-f", "-i"], env)
        os.write(self.fd, f". {setup}\n".encode())
        self.wait_for("READY")

    def wait_for(self, mark):
        """What was written down up to a line."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if select.select([self.fd], [], [], 0.02)[0]:
                self.screen += os.read(self.fd, 65536)
            if os.path.exists(self.out):
                with open(self.out, encoding="utf-8") as file:
                    lines = file.read().split("\n")
                if mark in lines:
                    os.unlink(self.out)
                    return lines[:lines.index(mark)]
        raise AssertionError(f"zsh does not answer: {self.screen[-2000:]!r}")

    def ask(self, line):
        self.screen = b""
        os.write(self.fd, line.encode() + b"\t")
        words = offered(self.wait_for("END"))
        for complaint in (b"_carrel:", b"_arguments:", b"not found", b"bad pattern", b"parse error"):
            assert complaint not in self.screen, self.screen
        return words

    def close(self):
        os.close(self.fd)
        os.waitpid(self.pid, 0)


class Completions(unittest.TestCase):
    def test_the_help_names_the_verbs(self):
        self.assertLess({"run", "port", "tree", "template", "help", "version"}, VERBS)

    def look(self, shell):
        try:
            for line, expected, only in LINES:
                with self.subTest(shell=shell.name, line=line):
                    seen = shell.ask(line)
                    self.assertLessEqual(expected, seen)
                    if only:
                        self.assertEqual(expected, {word for word in seen if not word.startswith("-")})
            for verb in sorted(VERBS - {"help", "version"}):
                with self.subTest(shell=shell.name, verb=verb):
                    self.assertLessEqual(options_of(verb), shell.ask(f"carrel {verb} --"))
            with self.subTest(shell=shell.name, line="after a word"):
                self.assertEqual({"--json"}, shell.ask("carrel ws ls --js"))
        finally:
            shell.close()

    def test_bash(self):
        with tempfile.TemporaryDirectory() as home:
            self.look(Bash(home))

    def test_bash_cuts_words_at_colons(self):
        with tempfile.TemporaryDirectory() as home:
            bash = Bash(home)
            self.assertEqual({"/src/", "/some.txt"}, bash.ask_words(["carrel", "cat", "desk", ":", "/s"]))
            self.assertEqual({"/src/", "/some.txt", "/other"}, bash.ask_words(["carrel", "get", "-r", "desk", ":"]))

    def test_fish(self):
        if not shutil.which("fish"):
            self.skipTest("fish is not installed")
        with tempfile.TemporaryDirectory() as home:
            self.look(Fish(home))

    def test_zsh(self):
        if not shutil.which("zsh"):
            self.skipTest("zsh is not installed")
        with tempfile.TemporaryDirectory() as home:
            self.look(Zsh(home))


if __name__ == "__main__":
    result = unittest.main(exit=False).result
    if result.wasSuccessful() and result.skipped:
        print(result.skipped[0][1])
        sys.exit(77)
    sys.exit(not result.wasSuccessful())
