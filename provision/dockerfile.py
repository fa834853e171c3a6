# SPDX-License-Identifier: Apache-2.0
"""A Dockerfile as the file of a template: the part of it that a template with a base can be. Text in, a checked structure out;
pure. Everything else is refused, with its line: nothing is left out silently."""
import json
import posixpath
import re
import shlex

import template_file
from template_file import Step, Template
from words import Failure

KNOWN = ("FROM", "RUN", "COPY", "ENV", "WORKDIR", "USER", "CMD")
IMAGES = {"debian:12": "debian-12", "debian:bookworm": "debian-12", "debian:12-slim": "debian-12", "debian:bookworm-slim": "debian-12"}
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
USERS = {"root": "root", "0": "root", "user": "user", "1000": "user"}
# Names at the top where nothing that is copied would stay.
PASSING = {"proc", "dev", "tmp", "run", "sys", ".cache"}
VARIABLE = re.compile(r"\\(.)|\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)\}|(.?))", re.S)
PAIR = re.compile(r"""([A-Za-z_][A-Za-z0-9_]*)=((?:"(?:[^"\\]|\\.)*"|'[^']*'|\\.|[^\s"'\\])*)(?:\s+|\Z)""", re.S)
MOST_STEPS = 512


def lines_of(text):
    """[(number of its first line, instruction with its continuations)]; comments and empty lines are none, also inside one."""
    found, open_ = [], False
    for number, line in enumerate(text.split("\n"), 1):
        line = line.rstrip("\r")
        if not line.strip() or line.lstrip().startswith("#"):
            if re.match(r"#\s*escape\s*=", line.lstrip(), re.I):
                raise Failure(f"line {number}: the escape character cannot be changed")
            continue
        goes_on = line.rstrip().endswith("\\")
        part = line.rstrip()[:-1] if goes_on else line
        if open_:
            found[-1][1].append(part)
        else:
            found.append((number, [part]))
        open_ = goes_on
    return [(number, "".join(parts).strip()) for number, parts in found]


def words_of(rest):
    """The list of its JSON form; None: it has the other."""
    if not rest.startswith("["):
        return None
    try:
        words = json.loads(rest)
    except (ValueError, RecursionError):
        return None
    return words if isinstance(words, list) and all(isinstance(word, str) for word in words) else None


class Reader:
    def __init__(self, name):
        self.template = Template(name=name)
        self.env, self.cwd, self.user, self.line = {"PATH": PATH}, "/", "root", 0

    def fail(self, why):
        raise Failure(f"line {self.line}: {why}")

    def expand(self, text):
        def value(match):
            escaped, name, braced, other = match.groups()
            if escaped is not None:
                return escaped if escaped in "$\\" else "\\" + escaped
            name = name or braced
            if not name:
                self.fail(f"'${other or ''}' is not understood: write $NAME, ${{NAME}} or \\$")
            if name not in self.env:
                self.fail(f"the variable '{name[:80]}' is not set by an ENV above")
            return self.env[name]
        return VARIABLE.sub(value, text)

    def read(self, number, text):
        self.line = number
        word, _, rest = re.sub(r"\s", " ", text[:40], count=1).partition(" ")
        rest = text[len(word):].strip()
        word = word.upper()
        if word not in KNOWN:
            self.fail(f"{word[:20]} is not understood; known are {', '.join(KNOWN)}")
        if "\0" in text or not rest:
            self.fail(f"{word} says nothing" if not rest else "a NUL is no text")
        if not self.template.base and word != "FROM":
            self.fail("the first instruction is FROM")
        getattr(self, f"read_{word.lower()}")(rest)
        if len(self.template.steps) > MOST_STEPS:
            self.fail(f"more than {MOST_STEPS} steps")

    def refuse_options(self, what, rest):
        if rest.startswith("--"):
            self.fail(f"{what} with the option '{rest.split()[0][:40]}' is not understood")

    def read_from(self, rest):
        if self.template.base:
            self.fail("there is one FROM: a template is built in one stage")
        image = rest.removeprefix("docker.io/library/").removeprefix("docker.io/")
        base = IMAGES.get(image, image)
        if not template_file.BASE.fullmatch(base) or base == "host":
            self.fail(f"no base is '{rest[:80]}'; known are {', '.join(IMAGES)}, and the names of bases that carrel base build has "
                      "made, also of an image's file system (--from-tar)")
        self.template.base = base

    def step(self, title, **kwargs):
        self.template.steps.append(Step(f"line {self.line}: {title}", user=self.user, cwd=self.cwd, env=dict(self.env), **kwargs))

    def read_run(self, rest):
        self.refuse_options("RUN", rest)
        words = words_of(rest)
        if words is None and re.search(r"<<-?\s*[\"']?[A-Za-z_]", rest):
            self.fail("here-documents are not understood")
        if words == []:
            self.fail("RUN says nothing")
        self.step("RUN", line=words or rest)

    def read_copy(self, rest):
        self.refuse_options("COPY", rest)
        words = words_of(rest) or rest.split()
        words = [self.expand(word) for word in words]
        if len(words) < 2:
            self.fail("COPY needs what is copied, and where to")
        *sources, target = words
        into = target.endswith("/") or target in (".", "..") or len(sources) > 1
        place = posixpath.normpath(posixpath.join(self.cwd, target)).replace("//", "/")
        pairs = [(self.source(source), place, into) for source in sources]
        if place.split("/")[1] in PASSING:
            self.fail(f"nothing stays in '{place[:80]}'")
        self.step("COPY", pairs=pairs)

    def source(self, source):
        """A path in the context's directory: "." is all of it."""
        path = source.lstrip("/") if source.strip("/") else "."
        if any(char in path for char in "*?["):
            self.fail(f"'{source[:80]}': patterns are not understood; name the file or its directory")
        if ".." in path.split("/") or len(path) > 4096:
            self.fail(f"'{source[:80]}' leads out of the directory of the Dockerfile")
        return posixpath.normpath(path)

    def read_env(self, rest):
        pairs = self.pairs(rest)
        for name, value in pairs:
            if not template_file.VARIABLE.fullmatch(name) or len(value) > 8 * template_file.TEXT:
                self.fail(f"ENV: '{name[:80]}' is no name of a variable, or its value too long")
        self.env |= pairs
        self.template.env |= pairs
        if len(self.template.env) > template_file.MOST:
            self.fail(f"more than {template_file.MOST} variables")

    def pairs(self, rest):
        first, _, value = rest.partition(" ")
        if "=" not in first:  # ENV NAME a value
            return [(first, self.expand(value.strip()))]
        found, at = [], 0
        while at < len(rest):
            match = PAIR.match(rest, at)
            if not match:
                self.fail(f"ENV: '{rest[at:at + 40]}' is not NAME=VALUE")
            found.append((match[1], self.unquoted(match[2])))
            at = match.end()
        return found

    def unquoted(self, text):
        """As in a shell: nothing is special between ', and a backslash takes that from the next character."""
        parts = re.findall(r"""'[^']*'|"(?:[^"\\]|\\.)*"|(?:\\.|[^\s"'\\])+""", text, re.S)
        return "".join(part[1:-1] if part[0] == "'" else
                       re.sub(r'\\(["\'\s])', r"\1", self.expand(part[1:-1] if part[0] == '"' else part)) for part in parts)

    def read_workdir(self, rest):
        path = posixpath.normpath(posixpath.join(self.cwd, self.expand(rest))).replace("//", "/")
        if path.split("/")[1] in PASSING or len(path) > 4096:
            self.fail(f"nothing stays in '{path[:80]}'")
        user, self.user, self.cwd = self.user, "root", "/"
        self.step("WORKDIR", line=["install", "-d", *(["-o", "1000", "-g", "1000"] if user == "user" else []), "--", path])
        self.user, self.cwd = user, path

    def read_user(self, rest):
        user = USERS.get(self.expand(rest).partition(":")[0])
        if not user:
            self.fail(f"USER '{rest[:40]}': commands are root's, or those of the one user (user, 1000)")
        self.user = user

    def read_cmd(self, rest):
        words = words_of(rest)
        line = shlex.join(words) if words is not None else rest
        line = (f"cd {shlex.quote(self.cwd)} && " if self.cwd != "/" else "") + ("exec " if words else "") + line
        if not line.strip() or words == [] or len(line.encode()) > template_file.TEXT:
            self.fail(f"CMD has 1 to {template_file.TEXT} bytes")
        self.template.start = line  # the last one counts


def parse(data, name):
    if not template_file.NAME.fullmatch(name):
        raise Failure(f"'{name[:80]}' cannot be the name of a template; give one: carrel template build -f FILE NAME")
    if len(data) > template_file.MOST_BYTES:
        raise Failure(f"a template's file has at most {template_file.MOST_BYTES // 1024} KiB")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise Failure(f"line {1 + data[:error.start].count(10)}: it is not UTF-8") from None
    reader = Reader(name)
    for number, line in lines_of(text):
        reader.read(number, line)
    if not reader.template.base:
        raise Failure("it has no FROM")
    return reader.template
