# SPDX-License-Identifier: Apache-2.0
"""carrel base build: a Debian of its own, or the root file system in an archive, into DIR/.carrel/bases/NAME.N/root, where
workspaces with a system of their own stand on it.

All that is foreign runs in a user namespace whose ids are those of bases (src/sandbox/identity.h): what a package's script or
an archive does there, it does as nobody of this host. N counts: a workspace stays on the one that it was made on."""
import contextlib
import glob
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import time

import mapped
from words import FAILED, Failure, put, put_json, say

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
SUITES = {"debian-12": "bookworm"}
INCLUDE = "ca-certificates,procps,less"
AUTHORITIES = "/usr/local/share/ca-certificates"
BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
PLACE = "/mnt"  # where it is built, in a mount namespace of its own


def host_sources(suite):
    """The Debian entries of this host's own apt, as lines."""
    asked = ["apt-get", "indextargets", "--format", "$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(ORIGIN)", "Created-By: Packages"]
    try:
        told = subprocess.run(asked, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False).stdout
    except OSError:
        told = ""
    lines = []
    for entry in told.splitlines():
        uri, release, component, origin = (entry.split("|") + ["", "", ""])[:4]
        if release in (suite, f"{suite}-updates", f"{suite}-security") and origin in ("Debian", "") and component == "main":
            lines.append(f"deb {uri.rstrip('/')} {release} main")
    return sorted(set(lines), key=lambda line: len(line.split()[2]))


def sources(suite, mirror):
    if mirror:
        return [f"deb {mirror} {suite} main"]
    found = host_sources(suite)
    if not found:
        raise Failure(f"this host's apt has no sources of Debian's '{suite}': name a mirror of Debian with --mirror URL")
    return found


# --- inside: uid 0 of the base's ids, no more ---


def put_file(path, text, mode=0o644):
    """A plain file, whatever was there."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode), "w", encoding="utf-8") as file:
        file.write(text)


def add_entry(path, key, number, entry):
    """A line for the user, unless the number has one."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()
    except FileNotFoundError:
        lines = []
    if any(line.split(":")[key] == number for line in lines if line.count(":") >= key):
        return
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write("".join(f"{line}\n" for line in [*lines, entry]))


def strip_bits(top):
    """No file of a base is set-id; where that was one's purpose, Carrel's own sudo stands for it. Devices go: nothing opens
    them, and who unpacks an archive cannot make them anyway."""
    for where, folders, files in os.walk(top):
        for name in folders + files:
            path = os.path.join(where, name)
            st = os.lstat(path)
            if stat.S_ISREG(st.st_mode) and st.st_mode & 0o6000:
                os.chmod(path, st.st_mode & 0o1777)
            elif stat.S_ISCHR(st.st_mode) or stat.S_ISBLK(st.st_mode):
                os.unlink(path)


def add_sudo():
    """Where commands find the one that Carrel shows in each sandbox (src/sandbox/setup.h). /usr/bin is for packages."""
    os.makedirs("/usr/local/bin", exist_ok=True)
    if not os.path.lexists("/usr/local/bin/sudo"):
        os.symlink("/run/carrel/sudo", "/usr/local/bin/sudo")


def own_authorities():
    """Of this host's administrator, who may stand between it and the registries: {name: certificate}."""
    found = {}
    for path in sorted(glob.glob(f"{AUTHORITIES}/*.crt")):
        with contextlib.suppress(OSError, UnicodeDecodeError), open(path, encoding="ascii") as file:
            found[os.path.basename(path)] = file.read()
    return found


def trust(authorities):
    """As update-ca-certificates would, and will do again: without /dev that cannot run yet."""
    if not authorities or not os.path.isfile(BUNDLE) or os.path.islink(BUNDLE):
        return
    os.makedirs(AUTHORITIES, exist_ok=True)
    with open(BUNDLE, "a", encoding="ascii") as bundle:
        for name, text in authorities.items():
            put_file(f"{AUTHORITIES}/{name}", text)
            bundle.write(text.rstrip("\n") + "\n")


def finish():
    """What a sandbox expects, in the base as its root."""
    authorities = own_authorities()
    os.chroot(PLACE)
    os.chdir("/")
    for name in ("usr", "etc", "var", "opt", "home", "root"):
        if os.path.islink(f"/{name}") or not os.path.isdir(f"/{name}"):
            if name in ("usr", "etc") or os.path.lexists(f"/{name}"):
                raise Failure(f"it has no directory /{name}, so it is no system")
            os.mkdir(f"/{name}", 0o700 if name == "root" else 0o755)
    put_file("/etc/resolv.conf", "")  # covered in each sandbox
    put_file("/etc/hosts", "")
    put_file("/etc/hostname", "carrel\n")  # mmdebstrap writes this host's
    add_entry("/etc/passwd", 2, "0", "root:x:0:0:root:/root:/bin/sh")
    add_entry("/etc/passwd", 2, "1000", "user:x:1000:1000:user:/:/bin/bash")
    add_entry("/etc/group", 2, "1000", "user:x:1000:")
    if os.path.exists("/etc/shadow"):
        add_entry("/etc/shadow", 0, "user", "user:!:20000:0:99999:7:::")
    add_sudo()
    if os.path.isdir("/etc/apt/apt.conf.d"):
        put_file("/etc/apt/apt.conf.d/90carrel", 'Dpkg::Options {"--force-confdef";"--force-confold";};\n')
    trust(authorities)
    strip_bits("/")


# --- outside ---


class Building:
    def __init__(self, asked):
        self.name, self.archive, self.mirror = asked["name"], asked.get("from-tar"), asked.get("mirror")
        self.json, self.state = "json" in asked, asked["state"]
        self.ids = mapped.ids()

    def say(self, text):
        if not self.json:
            say(text)

    def check(self):
        if not NAME.fullmatch(self.name):
            raise Failure(f"'{self.name}' is no name of a base: lower-case letters, digits and '-', at most 32")
        if not self.archive and self.name not in SUITES:
            raise Failure(f"'{self.name}' is none of the bases that can be made here ({', '.join(SUITES)}); give its root file system "
                          "with --from-tar")
        if not self.archive and not shutil.which("mmdebstrap"):
            raise Failure("mmdebstrap is missing (apt-get install mmdebstrap), or give a root file system with --from-tar")

    def commands(self):
        """[(program and arguments, its standard input)], all inside."""
        if self.archive:
            try:
                data = os.open(self.archive, os.O_RDONLY)
            except OSError as error:
                raise Failure(f"the archive '{self.archive}' cannot be opened", error) from None
            return ["tar", "-x", "-p", "--numeric-owner", "--exclude=./dev/*", "--exclude=dev/*", "-C", PLACE, "-f", "-",
                    *self.compression()], data
        suite = SUITES[self.name]
        return ["mmdebstrap", "--quiet", "--mode=root", "--variant=apt", f"--include={INCLUDE}", "--format=directory", suite,
                PLACE, *sources(suite, self.mirror)], None

    def compression(self):
        with open(self.archive, "rb") as file:
            head = file.read(6)
        known = {b"\x1f\x8b": "-z", b"\xfd7zXZ\0": "-J", b"\x28\xb5\x2f\xfd": "--zstd", b"BZh": "-j"}
        return [option for magic, option in known.items() if head.startswith(magic)]

    def run(self):
        self.check()
        bases = f"{self.state}/.carrel/bases"
        os.makedirs(f"{self.state}/.carrel", 0o700, exist_ok=True)
        os.makedirs(bases, 0o700, exist_ok=True)
        new = f"{bases}/.new-{os.getpid()}"
        os.mkdir(new, 0o700)
        try:
            command, data = self.commands()
            self.say(f"{self.name}: {'unpacking' if self.archive else 'installing'} it")
            mapped.make_directory(self.ids, f"{new}/root")
            mapped.run(self.ids, f"{new}/root", PLACE, command, data, finish)
            with open(f"{new}/base.json", "w", encoding="utf-8") as file:
                json.dump({"name": self.name, "made_at": int(time.time()), "from": "archive" if self.archive else "debian"}, file)
            return self.publish(bases, new)
        except BaseException:
            mapped.remove(self.ids, new)
            raise

    def publish(self, bases, new):
        taken = [int(entry.rpartition(".")[2]) for entry in os.listdir(bases) if re.fullmatch(re.escape(self.name) + r"\.[0-9]+", entry)]
        number = max(taken, default=0) + 1
        os.sync()
        os.rename(new, f"{bases}/{self.name}.{number}")
        return f"{self.name}.{number}", f"{bases}/{self.name}.{number}/root"


def main(asked):
    os.umask(0o022)
    try:
        made, path = Building(asked).run()
    except OSError as error:
        raise Failure(f"the base cannot be made: {error.filename or 'the system'}", error) from None
    return put_json({"base": made, "path": path}) if "json" in asked else put(f"{made}\n")
