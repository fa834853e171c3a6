# SPDX-License-Identifier: Apache-2.0
"""The file that says what a template is: JSON in, a checked structure out. Pure."""
import re
from dataclasses import dataclass, field

from words import Failure, read_json

MOST_BYTES = 256 * 1024
MOST = 512  # packages of one kind, files, variables
TEXT, PACKAGE, LOCK = 4096, 256, 128  # bytes at most

BASE = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
# A name, and which version.
DEBIAN_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]+(:[a-z0-9]+)?(=[A-Za-z0-9.+~:-]+)?")
USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.A)
VERSION = re.compile(r"[0-9]+(\.[0-9]+){0,2}")  # "3", "3.11", "3.11.2"
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# A name, and what versions: no address, no path, and nothing that is read as an option.
PYTHON_PACKAGE = re.compile(r"[A-Za-z0-9](?!.* -)[A-Za-z0-9 ._,<>=!~*;\[\]()'\"+-]*")
# NAME or @SCOPE/NAME, and @VERSION. A slash elsewhere would be an address.
NODE_PACKAGE = re.compile(r"(@[A-Za-z0-9._-]+/)?[A-Za-z0-9][A-Za-z0-9._-]*(@(?![-])(?!.* --)[A-Za-z0-9.^~<>=*| +-]+)?")

# Names at the top of a workspace that are somebody else's: the system's and Carrel's (src/base/names.h), and where packages go.
TAKEN = {"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "proc", "dev", "tmp", ".cache",
         ".venv.carrel-next", ".venv.carrel-new", ".venv.carrel-old", ".venv", "node_modules"}


class Refused(Exception):
    """The value is not what its key expects."""


@dataclass
class Packages:
    """Of one language."""
    wanted: bool = False  # False: the template has no environment of this language
    build: bool = False  # code of theirs may run while they are installed
    version: str | None = None  # of Python; None: any
    lock: str | None = None  # a file beside this one; None: of the default name
    packages: list = field(default_factory=list)


@dataclass
class Step:
    """Of a system of the template's own: a line for the shell, or words; or what is copied."""
    title: str
    line: str | list | None = None
    pairs: list = field(default_factory=list)  # (path beside the file, path inside, whether that is a directory to put it in)
    user: str = "root"
    cwd: str | None = None
    env: dict = field(default_factory=dict)


@dataclass
class Template:
    name: str = ""
    base: str | None = None  # None: the host's system
    debian: list = field(default_factory=list)
    users: list = field(default_factory=list)
    steps: list = field(default_factory=list)
    python: Packages = field(default_factory=Packages)
    node: Packages = field(default_factory=Packages)
    files: dict = field(default_factory=dict)  # a path inside: a path beside this file
    env: dict = field(default_factory=dict)
    start: str | None = None  # None: nothing is started
    services: dict = field(default_factory=dict)  # name: {"run", "port"}


def length(text):
    return len(text.encode())


def read_text(value, most, pattern=None):
    """Text of 1 to `most` bytes."""
    if not isinstance(value, str) or not 0 < length(value) <= most or (pattern and not pattern.fullmatch(value)):
        raise Refused
    return value


def read_bool(value):
    if not isinstance(value, bool):
        raise Refused
    return value


def read_lock(value):
    if read_text(value, LOCK)[0] in ".-" or "/" in value:
        raise Refused
    return value


def near(word, names):
    """A name of which the word may be a slip."""
    import difflib
    close = difflib.get_close_matches(word, names, 1, 0.75)
    return f"; did you mean '{close[0]}'?" if close else ""


def read_object(value, keys):
    """{key: what its function makes of it}; each is in the table."""
    if not isinstance(value, dict):
        raise Refused
    result = {}
    for name, item in value.items():
        if name not in keys:
            raise Failure(f"unknown key \"{name[:40]}\"; known are: {', '.join(keys)}{near(name, keys)}")
        expected, read = keys[name]
        try:
            result[name] = read(item)
        except Refused:
            raise Failure(f"\"{name}\" must be {expected}") from None
    return result


def reader_of_packages(language, pattern, examples):
    def read(value):
        if not isinstance(value, list) or len(value) > MOST:
            raise Refused
        for item in value:
            if not isinstance(item, str) or length(item) > PACKAGE or not pattern.fullmatch(item):
                raise Failure(f"\"{language}.packages\": '{item[:80] if isinstance(item, str) else ''}' is no name of a package, "
                              f"with or without a version ({examples}); addresses and paths are not taken")
        return value
    return read


def languages():
    common = {"lock": ("the name of a file beside this one", read_lock),
              "build": ("true or false: whether code of packages may run while they are installed", read_bool)}
    names = "a list of at most 512 names of packages"
    python = {"version": ("a version such as \"3.11\"", lambda value: read_text(value, 15, VERSION)),
              "packages": (names, reader_of_packages("python", PYTHON_PACKAGE, "pandas, pandas>=2,<3")), **common}
    node = {"packages": (names, reader_of_packages("node", NODE_PACKAGE, "docx, docx@9.5.1, @scope/name")), **common}
    return python, node


def read_pairs(value):
    if not isinstance(value, dict) or len(value) > MOST:
        raise Refused
    for name, text in value.items():
        if not isinstance(text, str) or length(name) > TEXT or length(text) > 8 * TEXT:
            raise Refused
    return value


def is_plain(path):
    """No empty part, no "." and "..": what is written is where it is."""
    return all(part not in ("", ".", "..") and length(part) <= 255 for part in path.split("/"))


def read_files(value):
    for inside, beside in read_pairs(value).items():
        why = ("write an absolute path without '.' and '..'" if not inside.startswith("/") or not is_plain(inside[1:])
               else "what is copied lies beside the template's file or below" if not is_plain(beside) else None)
        if why:
            raise Failure(f"\"files\": '{inside[:80]}' from '{beside[:80]}': {why}")
    return value


def read_env(value):
    for name in read_pairs(value):
        if not VARIABLE.fullmatch(name):
            raise Failure(f"\"env\": '{name[:80]}' is no name of a variable: letters, digits and '_'")
    return value


def read_port(value):
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 65536:
        raise Refused
    return value


SERVICE_KEYS = {"run": ("a line for the shell", lambda value: read_text(value, TEXT)),
                "port": ("a number from 1 to 65535", read_port)}


def read_services(value):
    if not isinstance(value, dict) or len(value) > 16:
        raise Refused
    for name, service in value.items():
        if not NAME.fullmatch(name) or length(name) > 32:
            raise Failure(f"\"services\": '{name[:80]}' is no name of a service: 1 to 32 of letters, digits, '.', '_' and '-'")
        if "run" not in read_object(service, SERVICE_KEYS):
            raise Failure(f"\"services\": '{name}' has no \"run\"")
    return value


def list_of(name, pattern, what):
    def read(value):
        if not isinstance(value, list) or len(value) > MOST:
            raise Refused
        for item in value:
            if not isinstance(item, str) or length(item) > PACKAGE or not pattern.fullmatch(item):
                raise Failure(f"\"{name}\": '{item[:80] if isinstance(item, str) else ''}' is no name of a {what}")
        return value
    return read


def read_run(value):
    if not isinstance(value, list) or len(value) > MOST:
        raise Refused
    return [Step(f"run {number}", read_text(line, TEXT)) for number, line in enumerate(value, 1)]


PYTHON_KEYS, NODE_KEYS = languages()
KEYS = {
    "name": ("1 to 64 of letters, digits, '.', '_' and '-', a letter or digit first", lambda value: read_text(value, 64, NAME)),
    "python": ("an object with version, packages, lock, build", lambda value: Packages(True, **read_object(value, PYTHON_KEYS))),
    "node": ("an object with packages, lock, build", lambda value: Packages(True, **read_object(value, NODE_KEYS))),
    "files": ("an object: paths inside, and the paths of what is copied there", read_files),
    "env": ("an object of texts", read_env),
    "start": ("a line for the shell", lambda value: read_text(value, TEXT)),
    "services": ("an object: at most 16 names, and for each an object with run and perhaps port", read_services),
    "base": ("\"host\" or the name of a base, such as \"debian-12\"", lambda value: read_text(value, 32, BASE)),
    "debian": ("a list of names of Debian packages", list_of("debian", DEBIAN_PACKAGE, "Debian package")),
    "users": ("a list of names of users", list_of("users", USER, "user")),
    "run": ("a list of lines for the shell", read_run),
}


def parse(data):
    if len(data) > MOST_BYTES:
        raise Failure(f"a template's file has at most {MOST_BYTES // 1024} KiB")
    try:
        found = read_object(read_json(data), KEYS)
    except ValueError as error:
        raise Failure(str(error)) from None
    except Refused:
        raise Failure("it is no JSON object") from None
    if "name" not in found:
        raise Failure("it has no \"name\"")
    found["steps"] = found.pop("run", [])
    if found.get("base") == "host":
        found["base"] = None
    template = Template(**found)
    check_system(template)
    return template


def check_system(template):
    """What goes only with a system of its own, and what only without one."""
    for inside in template.files:
        top = inside.split("/")[1]
        if top in TAKEN and not (template.base and top in ("usr", "etc")):
            raise Failure(f"\"files\": '{inside[:80]}': that is not for files of {'a template' if template.base else 'the workspace'}")
    if not template.base:
        for name in ("debian", "users", "steps"):
            if getattr(template, name):
                raise Failure(f"\"{'run' if name == 'steps' else name}\" needs a system of the template's own: add \"base\": \"debian-12\"")
        return
    for name, packages in (("python", template.python), ("node", template.node)):
        if packages.version or packages.lock:
            raise Failure(f"\"{name}\": with a \"base\" packages go into its system, with its own {name.capitalize()}: no "
                          "\"version\" and no \"lock\"")
