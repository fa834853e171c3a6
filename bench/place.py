# SPDX-License-Identifier: Apache-2.0
"""Where and as whom things are measured, and how the measuring programs are built and run."""

import contextlib
import dataclasses
import os
import pathlib
import shutil
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
ORDINARY_USER = 54321
PATIENCE = 1800  # seconds for one measuring program; only a hang takes so long
WORDS = {"root": "as root", "user": "as an ordinary user"}


class Failed(Exception):
    """Something could not be measured; the text becomes the row's reason."""


@dataclasses.dataclass
class Place:
    """One identity with directories of its own. `rows` and `environment` are filled in by rows.prepare()."""
    name: str  # root or user
    base: pathlib.Path
    identity: dict  # for subprocess: user, group, extra_groups
    programs: pathlib.Path  # the measuring programs and Carrel's
    rows: list = dataclasses.field(default_factory=list)
    environment: dict = dataclasses.field(default_factory=dict)
    options: str = ""  # what `carrel run --help` prints
    notes: list = dataclasses.field(default_factory=list)
    mounts: int = 0

    @property
    def root(self):
        return self.name == "root"

    @property
    def words(self):
        return WORDS[self.name]

    @property
    def carrel(self):
        return [str(self.programs / "carrel"), "run"]

    @property
    def init(self):
        return str(self.programs / "carrel-init")

    @property
    def workspace(self):
        return self.base / "workspace"

    @property
    def bwrap_workspace(self):
        """Another one: bubblewrap leaves mount points behind that Carrel would refuse."""
        return self.base / "bwrap-workspace"

    @property
    def project(self):
        return self.base / "project"

    def row(self, name):
        return next(row for row in self.rows if row.name == name)

    def has_option(self, *names):
        return all(f"{name} " in self.options for name in names)

    def directory(self, path):
        """Makes it, for this identity; returns it."""
        path.mkdir(mode=0o755)
        if self.identity:
            os.chown(path, ORDINARY_USER, ORDINARY_USER)
        return path

    def popen(self, argv, **more):
        settings = {"cwd": self.project, "env": self.environment or None, "stdin": subprocess.DEVNULL,
                    "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
        try:
            return subprocess.Popen([str(word) for word in argv], **{**settings, **more}, **self.identity)
        except OSError as error:
            raise Failed(f"{self.words}: {error}") from error

    def run(self, argv, timeout=PATIENCE, **more):
        """Runs argv to its end and returns its output; raises Failed with what it said, and leaves nothing running."""
        with self.popen(argv, **more) as process:
            try:
                output, errors = process.communicate(timeout=timeout)
            except BaseException as error:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                if isinstance(error, subprocess.TimeoutExpired):
                    raise Failed(f"no end within {timeout} s") from error
                raise
        if process.returncode != 0:
            said = errors.strip().splitlines()
            raise Failed(said[-1] if said else f"exit status {process.returncode}")
        return output

    def lines(self, argv, **more):
        """The words of each line that a measuring program prints."""
        return [line.split() for line in self.run(argv, **more).splitlines()]


def places(base):
    """The identities to measure as."""
    found = []
    for name in ["root", "user"] if os.geteuid() == 0 else ["user"]:
        drop = name == "user" and os.geteuid() == 0
        identity = {"user": ORDINARY_USER, "group": ORDINARY_USER, "extra_groups": []} if drop else {}
        place = Place(name, base / name, identity, base)
        for directory in (place.base, place.workspace, place.bwrap_workspace, place.project):
            place.directory(directory)
        found.append(place)
    return found


def prepare_programs(directory):
    """Builds the measuring programs and copies Carrel to where an ordinary user can reach it."""
    compiler = os.environ.get("CC", "cc")
    if not shutil.which(compiler):
        sys.exit(f"bench: no C compiler '{compiler}': apt-get install gcc")
    if not (ROOT / "build/libcarrel.a").exists():
        sys.exit("bench: Carrel is not built: run make")
    for name in ("carrel", "carrel-full", "carrel-init", "carrel-serve", "carrel-front", "carrel-files", "carrel-client", "carrel-plan",
                 "carrel-sink", "carrel-export", "carrel-egress", "carrel-mover", "carrel-tls", "carrel-sudo"):
        shutil.copy(ROOT / "build" / name, directory / name)
    shutil.copytree(ROOT / "build/provision", directory / "provision")
    library = [ROOT / "build/libcarrel.a", "-ljansson"]
    programs = {"spawnbench": [], "enginebench": library, "coldbench": library, "crowdbench": library,
                "iobench": ["-static"], "bomb": ["-static"], "httpbench": [], "streambench": [], "durablebench": []}
    for name, more in programs.items():
        subprocess.run([compiler, "-std=gnu17", "-D_GNU_SOURCE", "-O2", "-pthread", "-I", ROOT / "include", "-o",
                        directory / name, ROOT / f"bench/{name}.c", *more, "-lm"], check=True)
    shutil.copy(ROOT / "bench/execclient.py", directory)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", directory / "nosync.so", ROOT / "bench/nosync.c"], check=True)
