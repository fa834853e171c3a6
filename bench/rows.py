# SPDX-License-Identifier: Apache-2.0
"""The rows of the benchmark: the same /bin/true, started bare and through each sandbox.

Every row gets the same environment and, as far as its tool can, the mounts that Carrel prints with
--explain. Where two ways are open the one that favours the other tool is taken:
  - bubblewrap gets no seccomp filter, no rlimits and no limit on nested namespaces, Carrel has all;
  - files that Carrel writes into its own /etc and /proc are made beforehand for bubblewrap, so that
    it has only to bind them;
  - bubblewrap has no time namespace, no idmapped mounts and no size on its tmpfs.
"""

import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys

TRUE = "/bin/true"
# Used when there is no build of Carrel yet: what a minimal root needs.
ASSUMED_ENVIRONMENT = {"HOME": "/", "USER": "user", "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
SYSTEM = [d for d in ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/libx32", "/lib64") if os.path.isdir(d)]
# `bwrap --dev` makes these by itself, each as a mount of its own, as Carrel does.
DEV_BY_BWRAP = {"/dev", "/dev/pts", "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom",
                "/dev/tty", "/dev/ptmx", "/dev/fd", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/console"}
# `bwrap --proc` binds these read-only by itself.
PROC_BY_BWRAP = {"/proc/sysrq-trigger", "/proc/irq", "/proc/bus"}


@dataclasses.dataclass
class Row:
    """One line of the tables. `argv` is None where the row cannot be had, `why` then says why."""
    name: str
    label: str
    argv: list = None
    why: str = ""
    engine: bool = False  # measured by enginebench, not by starting argv
    every: int = 1  # takes part in every nth lap: slow tools must not eat the time of the others


@dataclasses.dataclass
class Place:
    """Where one identity runs: its own directories, made by run."""
    base: pathlib.Path
    identity: dict  # for subprocess: user, group, extra_groups
    root: bool
    programs: pathlib.Path  # where run put the measuring programs and, if built, Carrel's

    @property
    def carrel(self):
        path = self.programs / "carrel"
        return path if path.exists() else None

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

    def try_out(self, argv, environment):
        """Runs argv once; returns (stdout, None) or (None, the reason why not)."""
        try:
            done = subprocess.run(argv, cwd=self.project, env=environment, capture_output=True, text=True,
                                  stdin=subprocess.DEVNULL, timeout=60, **self.identity)
        except (OSError, subprocess.TimeoutExpired) as error:
            return None, str(error)
        if done.returncode == 0:
            return done.stdout, None
        lines = done.stderr.strip().splitlines()
        return None, lines[-1] if lines else f"exit status {done.returncode}"


def explained(place, options):
    """The setup that Carrel prints for a run with these options; None when there is no Carrel."""
    if not place.carrel:
        return None
    command = [str(place.carrel), "run", *options, "--explain", "--json", "--", TRUE]
    text, why = place.try_out(command, dict(os.environ))
    if why:  # going on would compare with other mounts
        sys.exit(f"bench: {' '.join(command)}: {why}")
    return json.loads(text)


def assumed(place):
    """Stands in for explained() while there is no Carrel to ask."""
    mounts = [{"kind": "bind", "source": str(place.workspace), "target": "/", "read_only": False}]
    mounts += [{"kind": "bind", "source": d, "target": d, "read_only": True} for d in SYSTEM]
    mounts += [{"kind": "tmpfs", "target": t, "read_only": False} for t in ("/tmp", "/.cache", "/dev/shm")]
    mounts += [{"kind": "proc", "target": "/proc"}, {"kind": "own", "target": "/dev"}]
    return {"mounts": mounts, "environment": ASSUMED_ENVIRONMENT}


class BwrapArguments:
    """Turns Carrel's list of mounts into bubblewrap's options, one for one."""

    def __init__(self, place, mounts):
        self.place = place
        self.prepared = place.base / "prepared"
        self.arguments, self.not_given = [], []
        self.targets = [mount["target"] for mount in mounts]
        for mount in mounts:
            if mount["target"] in DEV_BY_BWRAP:
                if mount["target"] == "/dev" and mount["kind"] == "own":
                    self.arguments += ["--dev", "/dev"]
            else:
                self.add(mount["kind"], mount.get("source"), mount["target"], mount.get("read_only", False))

    def add(self, kind, source, target, read_only):
        if kind == "bind":
            source = str(self.place.bwrap_workspace) if source == str(self.place.workspace) else source
            self.arguments += ["--ro-bind" if read_only else "--bind", source, target]
        elif kind == "tmpfs" and target != "/":  # bubblewrap's root is a tmpfs anyway
            self.arguments += ["--tmpfs", target]
        elif kind == "proc":
            self.arguments += ["--proc", target]
        elif kind == "own":
            self.arguments += ["--ro-bind", str(self.prepare(target)), target]
        elif kind == "mask":
            self.mask(target)
        elif kind == "lock" and target not in PROC_BY_BWRAP:
            self.not_given.append("read-only " + target)

    def mask(self, target):
        """Carrel too leaves out what this kernel does not have."""
        if os.path.isdir(target):
            self.arguments += ["--ro-bind", str(self.prepare(target)), target]
        elif os.path.exists(target):
            self.arguments += ["--ro-bind", "/dev/null", target]

    def prepare(self, target):
        """A file or directory to bind over target, with the mount points of what comes below it."""
        path = self.prepared / target.lstrip("/")
        if not os.path.isdir(target):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("prepared for bubblewrap\n")
            return path
        path.mkdir(parents=True, exist_ok=True)
        for below in self.targets:
            if below.startswith(target + "/"):
                self.prepare(below)
        return path


def bwrap_row(name, label, mount_arguments, environment):
    bwrap = shutil.which("bwrap")
    if not bwrap:
        return Row(name, label, why="not installed: apt-get install bubblewrap")
    settings = [word for item in environment.items() for word in ("--setenv", *item)]
    return Row(name, label, [bwrap, "--unshare-all", "--die-with-parent", "--new-session", "--uid", "1000", "--gid",
                             "1000", "--hostname", "carrel", "--clearenv", *settings, *mount_arguments, "--chdir",
                             "/", "--", TRUE])


def minimal_bwrap(place):
    binds = [word for d in SYSTEM for word in ("--ro-bind", d, d)]
    return ["--bind", str(place.bwrap_workspace), "/", *binds, "--proc", "/proc"]


def proot_row(place):
    proot = shutil.which("proot")
    if not proot:
        return Row("proot", "proot", why="not installed: apt-get install proot")
    binds = [word for d in (*SYSTEM, "/proc", "/dev") for word in ("-b", d)]
    command = [proot, "-r", str(place.bwrap_workspace), *binds, "-w", "/", TRUE]
    return Row("proot", "proot (no isolation, paths only)", command, every=2)


def runc_configuration(place, environment):
    def mount(kind, target, source, *options):
        return {"destination": target, "type": kind, "source": source, "options": list(options)}

    namespaces = ["pid", "network", "ipc", "uts", "mount", "cgroup", "user"]
    identity = [{"containerID": 0, "hostID": place.identity.get("user", os.getuid()), "size": 1}]
    return {
        "ociVersion": "1.0.2",
        "process": {"terminal": False, "user": {"uid": 0, "gid": 0}, "args": [TRUE], "cwd": "/",
                    "env": [f"{k}={v}" for k, v in environment.items()], "noNewPrivileges": True},
        "root": {"path": "root", "readonly": False},
        "hostname": "carrel",
        "mounts": [mount("bind", d, d, "rbind", "ro", "nosuid", "nodev") for d in SYSTEM] + [
            mount("proc", "/proc", "proc"),
            mount("tmpfs", "/dev", "tmpfs", "nosuid", "mode=755", "size=65536k"),
            mount("devpts", "/dev/pts", "devpts", "nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"),
            mount("tmpfs", "/dev/shm", "shm", "nosuid", "noexec", "nodev", "mode=1777", "size=65536k"),
            mount("tmpfs", "/tmp", "tmpfs", "nosuid", "nodev", "mode=1777", "size=65536k"),
        ],
        "linux": {"namespaces": [{"type": t} for t in namespaces], "uidMappings": identity, "gidMappings": identity},
    }


def runc_row(place, environment):
    runc = shutil.which("runc")
    if not runc:
        return Row("runc", "runc", why="not installed: apt-get install runc")
    bundle = place.base / "bundle"
    for directory in (bundle, bundle / "root"):
        directory.mkdir()
        os.chown(directory, place.identity.get("user", -1), place.identity.get("group", -1))
    (bundle / "config.json").write_text(json.dumps(runc_configuration(place, environment)))
    command = [runc, "--root", str(place.base / "runc"), "run", "--bundle", str(bundle), "carrel-bench"]
    return Row("runc", "runc", command, every=5)


def runsc_row(place):
    runsc = shutil.which("runsc")
    if not runsc:
        return Row("runsc", "runsc (gVisor)", why="not installed: apt-get install runsc")
    # Only the ptrace platform is in every packaged version; rootless is for those who are not root.
    rootless = [] if place.root else ["--rootless"]
    return Row("runsc", "runsc (gVisor, ptrace)", [runsc, "--platform=ptrace", "--network=none", *rootless, "do", TRUE],
               every=10)


def engine_arguments(place):
    return [str(place.programs / "carrel-init"), str(place.workspace)]


def all_rows(place):
    """Returns (rows, environment, mounts seen inside Carrel, notes on what is not alike between rows)."""
    workspace = ["--workspace", str(place.workspace)]
    setup = explained(place, workspace)
    notes = [] if setup else ["There is no build of Carrel: bubblewrap has assumed mounts."]
    setup = setup or assumed(place)
    environment = setup["environment"]
    same = BwrapArguments(place, setup["mounts"])
    if same.not_given:
        notes.append("bubblewrap does without: " + ", ".join(same.not_given) + ".")
    rows = [Row("bare", "posix_spawn of true, no sandbox", [TRUE])]
    run = [str(place.carrel), "run"]
    if place.carrel:
        engine = [str(place.programs / "enginebench"), "1", "0", "1"]
        rows += [Row("engine", "carrel_run() in a living process", engine + engine_arguments(place), engine=True),
                 Row("carrel", "carrel run --workspace W -- true", [*run, *workspace, "--", TRUE]),
                 Row("carrel-cwd", "carrel run -- true (directory at /work)", [*run, "--", TRUE])]
    else:
        rows.append(Row("carrel", "carrel run", why="not built: run make"))
    rows += [bwrap_row("bwrap", "bwrap, same mounts", same.arguments, environment),
             bwrap_row("bwrap-minimal", "bwrap, system directories and /proc only", minimal_bwrap(place), environment),
             proot_row(place), runc_row(place, environment), runsc_row(place)]
    for row in rows:
        if row.argv:
            _, why = place.try_out(row.argv, environment)
            if why:
                row.argv, row.why = None, "does not work here: " + why
    seen = place.try_out([*run, *workspace, "--", "/bin/cat", "/proc/self/mountinfo"], environment)[0] or ""
    return rows, environment, len(seen.splitlines()), notes
