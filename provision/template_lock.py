# SPDX-License-Identifier: Apache-2.0
"""Locks of a template: which versions, with which hashes, its packages were resolved to. Pure.

Python: requirements as uv writes them, below three lines of comment that say what they are for.
Node: {"packages": those asked for, "lock": bun.lock}, plain JSON, without the registry's address."""
import json
import re

from words import Failure, read_json

MOST_BYTES = 8 << 20
FIRST_LINE = "# Packages of a Carrel template. To make it anew: carrel template build --update-lock\n"
FITS, OTHER_PYTHON, OTHER_PACKAGES, FOREIGN = "fits", "other python", "other packages", "foreign"

# --- Python ---


def python_head(packages, python):
    """`python` is "3.11"."""
    return f"{FIRST_LINE}# python {python}\n# packages {json.dumps(packages)}\n"


def python_fit(packages, python, text):
    if not text.startswith(FIRST_LINE):
        return FOREIGN  # not made by Carrel: it does not say what it is for
    if text.startswith(python_head(packages, python)):
        return FITS
    third = text[len(FIRST_LINE):].partition("\n")[2]
    return OTHER_PYTHON if third.startswith(f"# packages {json.dumps(packages)}\n") else OTHER_PACKAGES


def python_list(text):
    """"name==version" of every package: a requirement begins a line, what belongs to it is indented."""
    return re.findall(r"^[^\s\\;#-][^\s\\;]*", text, re.M)


def python_project(text, packages):
    """A pyproject.toml that depends on nothing, with what was asked for as what it depends on: `uv sync` in a workspace would
    remove that otherwise. Any other text is left as it is."""
    quoted = (package.replace('"', "\\u0022") for package in packages)
    listed = "\ndependencies = [\n" + "".join(f"    \"{package}\",\n" for package in quoted) + "]\n"
    return text.replace("\ndependencies = []\n", listed, 1)


# --- Node ---


def drop_commas(text):
    """bun writes a comma behind the last member, which JSON has not."""
    return re.sub(r'("(?:[^"\\]|\\.?)*(?:"|\Z))|,(?=[ \t\r\n]*[\]}])', lambda found: found[1] or "", text, flags=re.S)


def forget_registry(bun):
    """Of a package from a registry the second member is that registry's address; "" is the one that is set where it is
    installed."""
    for package in bun["packages"].values():
        if isinstance(package, list) and len(package) == 4 and isinstance(package[1], str):
            package[1] = ""


def is_bun_lock(value):
    return isinstance(value, dict) and isinstance(value.get("packages"), dict)


def read_bun(data):
    """bun.lock as plain JSON."""
    try:
        bun = read_json(drop_commas(data.decode(errors="surrogateescape")).encode(errors="surrogateescape"))
    except ValueError as error:
        raise Failure(f"bun.lock cannot be read: {error}") from None
    if not is_bun_lock(bun):
        raise Failure("bun.lock cannot be read: it has no packages")
    forget_registry(bun)
    return bun


def node_make(packages, bun):
    """The text of the file that is kept."""
    return json.dumps({"packages": packages, "lock": bun}, indent=1, ensure_ascii=False) + "\n"


def node_read(data, packages):
    """(how it fits, bun.lock)."""
    try:
        value, why = read_json(data), ""
    except ValueError as error:
        value, why = None, f": {error}"
    bun = value.get("lock") if isinstance(value, dict) else None
    if not is_bun_lock(bun) or not isinstance(value.get("packages"), list):
        raise Failure(f"the lock cannot be read{why}; --update-lock makes it anew")
    forget_registry(bun)
    return FITS if value["packages"] == packages else OTHER_PACKAGES, bun


def node_list(bun):
    """"name@version" of every package."""
    return [package[0] for package in bun["packages"].values()
            if isinstance(package, list) and package and isinstance(package[0], str)]


def root_of(bun):
    workspaces = bun.get("workspaces")
    root = workspaces.get("") if isinstance(workspaces, dict) else None
    return root if isinstance(root, dict) else {}


def node_dependencies(bun):
    """What package.json depends on; None: it does not say."""
    found = root_of(bun).get("dependencies")
    return found if isinstance(found, dict) else None


def node_set_dependencies(bun, dependencies):
    """`bun add` leaves them without their versions there; package.json has those. False: it is of no package.json."""
    root = root_of(bun)
    root["dependencies"] = dependencies
    return node_dependencies(bun) is dependencies and dependencies is not None
