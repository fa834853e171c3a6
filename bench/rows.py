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
import shutil
import sys

from place import Failed

TRUE = "/bin/true"
POOL = 4
MEMORY_MIB = 256
LIMITS = ["--memory", f"{MEMORY_MIB}M", "--pids", "256"]  # enginebench sets the same
SYSTEM = [d for d in ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/libx32", "/lib64") if os.path.isdir(d)]
# `bwrap --dev` makes these by itself, each as a mount of its own, as Carrel does.
DEV_BY_BWRAP = {"/dev", "/dev/pts", "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom",
                "/dev/tty", "/dev/ptmx", "/dev/fd", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/console"}
# `bwrap --proc` binds these read-only by itself.
PROC_BY_BWRAP = {"/proc/sysrq-trigger", "/proc/irq", "/proc/bus"}


@dataclasses.dataclass
class Row:
    """One line of the tables. `argv`, whose last word is /bin/true, is None where the row cannot be had; `why` says why."""
    name: str
    label: str
    argv: list = None
    why: str = ""
    engine: list = None  # the program that measures the row, if not spawnbench, and its settings
    every: int = 1  # takes part in every nth lap: slow tools must not eat the time of the others


def missing(row):
    return {"row": row.name, "label": row.label, "why": row.why}


def explained(place, options):
    """The setup that Carrel prints for a run with these options."""
    command = [*place.carrel, *options, "--explain", "--json", "--", TRUE]
    try:
        return json.loads(place.run(command))
    except Failed as error:  # going on would compare with other mounts
        sys.exit(f"bench: {' '.join(command)}: {error}")


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
        """Carrel too leaves out what this kernel does not have, and what only root may read."""
        if os.path.isfile(target) and os.stat(target).st_mode & 0o077 == 0:
            return
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


def seeds_bwrap(place):
    """The line of the script that carrel run replaces: the workspace as /, the system and /etc of the host read-only,
    /proc, /dev, fresh /tmp and /.cache. Namespaces and environment are those of the other rows."""
    binds = [word for d in (*SYSTEM, "/etc") for word in ("--ro-bind", d, d)]
    return ["--bind", str(place.bwrap_workspace), "/", *binds, "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp",
            "--tmpfs", "/.cache"]


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
    bundle = place.directory(place.base / "bundle")
    place.directory(bundle / "root")
    (bundle / "config.json").write_text(json.dumps(runc_configuration(place, environment)))
    command = [runc, "--root", str(place.base / "runc"), "run", "--bundle", str(bundle), "carrel-bench"]
    return Row("runc", "runc", command, every=5)


def runsc_command(place, *options):
    # Only the ptrace platform is in every packaged version; rootless is for those who are not root.
    rootless = [] if place.root else ["--rootless"]
    return [shutil.which("runsc"), "--root", str(place.base / "runsc"), "--platform=ptrace", "--network=none", *rootless,
            "do", *options]


def runsc_row(place):
    if not shutil.which("runsc"):
        return Row("runsc", "runsc (gVisor)", why="not installed: apt-get install runsc")
    return Row("runsc", "runsc (gVisor, ptrace)", [*runsc_command(place), TRUE], every=10)


def engine_rows(place):
    """A fresh sandbox in a program with libcarrel in it, as enginebench measures it."""
    wanted = (
        ("engine", "engine: fresh sandbox, nothing prepared", "enginebench"),
        ("pool", f"engine: fresh sandbox, pool of {POOL}, warm", "enginebench", POOL),
        ("pool-cold", f"engine: fresh sandbox, pool of {POOL}, cold", "coldbench", POOL),
        ("engine-limits", "engine: fresh sandbox, limits on", "enginebench", 0, MEMORY_MIB),
        ("pool-limits", f"engine: fresh sandbox, limits on, pool of {POOL}, warm", "enginebench", POOL, MEMORY_MIB))
    return [Row(name, label, engine_command(place, engine, 1, 0, 1), engine=engine, every=2 if name == "pool-cold" else 1)
            for name, label, *engine in wanted]


def engine_command(place, engine, count, gap_us, seed):
    program, *settings = engine
    words = (place.programs / program, count, gap_us, seed, place.init, place.workspace, *settings)
    return [str(word) for word in words]


def limits_row(place, workspace):
    label = "carrel run " + " ".join(LIMITS) + " -- true"
    if not place.has_option("--memory", "--pids"):
        return Row("carrel-limits", label, why="this build of Carrel has no option --memory")
    return Row("carrel-limits", label, [*place.carrel, *LIMITS, *workspace, "--", TRUE])


def prepare(place):
    """Fills in the place's rows and what belongs to them. Each row is tried once, and those that fail say why."""
    place.options = place.run([*place.carrel, "--help"])
    workspace = ["--workspace", str(place.workspace)]
    setup = explained(place, workspace)
    place.environment = environment = setup["environment"]
    same = BwrapArguments(place, setup["mounts"])
    if same.not_given:
        place.notes.append("bubblewrap does without: " + ", ".join(same.not_given) + ".")
    place.rows = [
        Row("bare", "posix_spawn of true, no sandbox", [TRUE]),
        *engine_rows(place),
        Row("carrel", "carrel run --workspace W -- true", [*place.carrel, *workspace, "--", TRUE]),
        Row("carrel-cwd", "carrel run -- true (directory at /work)", [*place.carrel, "--", TRUE]),
        limits_row(place, workspace),
        bwrap_row("bwrap", "bwrap, same mounts", same.arguments, environment),
        bwrap_row("bwrap-seeds", "the seeds' bwrap line", seeds_bwrap(place), environment),
        bwrap_row("bwrap-minimal", "bwrap, system directories and /proc only", minimal_bwrap(place), environment),
        proot_row(place), runc_row(place, environment), runsc_row(place)]
    for row in place.rows:
        if row.argv:
            try:
                place.run(row.argv, timeout=60)
            except Failed as error:
                row.argv, row.why = None, f"does not work here: {error}"
    inside = place.run([*place.carrel, *workspace, "--", "/bin/cat", "/proc/self/mountinfo"])
    place.mounts = len(inside.splitlines())
