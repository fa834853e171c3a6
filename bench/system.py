# SPDX-License-Identifier: Apache-2.0
"""Part "system": workspaces with a system of their own, on bases of different sizes; a package installed in one, and in a chroot."""

import contextlib
import os
import shutil
import statistics
import subprocess
import time

from daemon import running
from environments import Api
from measure import table
from place import Failed, ROOT

TITLE = "Systems of their own"
ABOUT = """\
- A base is Debian 12 as `carrel base build` makes it, the larger ones with so many more files. Create: a workspace whose policy
  has `"system"`; first: its first command, `true`; next: one more. Over HTTP.
- Install: `sudo apt-get install` of `bc`, which lies in apt's cache already, inside; and the same in a plain chroot on a copy of
  the base, as the host's root. Both with all that apt and dpkg sync.
- Disk: what a hundred such workspaces take beside their base (ten with `--quick`), each with that package installed.
- As root: an ordinary user's own chroot is none, and his bases belong to ids that he cannot read."""
FILES = (0, 10000, 100000)
PACKAGE = "bc"
POLICY = {"policy": {"system": True, "network": {"allow": ["@debian"]}}}
COLUMNS = (("n", "n", "d"), ("create p50 ms", "create_ms", ".2f"), ("first command p50 ms", "first_ms", ".1f"), ("next p50 ms", "next_ms", ".2f"))
INSTALLS = (("n", "n", "d"), ("inside p50 ms", "inside_ms", ".0f"), ("chroot p50 ms", "chroot_ms", ".0f"), ("ratio", "ratio", ".2f"))
DISK = (("workspaces", "count", "d"), ("base MiB", "base_mib", ".0f"), ("each MiB", "each_mib", ".2f"))
INSTALL = f"DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-download --no-install-recommends {PACKAGE}"


def build(place, state):
    """The root of a new base."""
    done = subprocess.run([str(place.programs / "carrel"), "base", "build", "--state", state, "debian-12"], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"the base: {done.stderr.strip().splitlines()[-1]}")
    return f"{state}/.carrel/bases/debian-12.1/root"


def grow(root, files):
    owner = os.stat(root)
    for number in range(files):
        where = f"{root}/usr/share/more/{number // 1000}"
        os.makedirs(where, exist_ok=True)
        with open(f"{where}/{number}", "w", encoding="utf-8") as file:
            file.write(str(number))
        os.chown(file.name, owner.st_uid, owner.st_gid)


def mib_of(path):
    return int(subprocess.run(["du", "-s", "-k", path], capture_output=True, text=True, check=True).stdout.split()[0]) / 1024


def created(bench, api, files):
    wall = {"create": [], "first": [], "next": []}
    laps = 3 if bench.quick else 15 * bench.scale
    for lap in range(laps):
        name = f"c{files}-{lap}"
        wall["create"].append(api.create(name, **POLICY))
        wall["first"].append(api.run(name, "/bin/true")[0])
        wall["next"].append(api.run(name, "/bin/true")[0])
        api.post(f"/v1/workspaces/{name}/sleep", {})
    return {"row": str(files), "label": f"{files} more files" if files else "Debian 12", "n": laps,
            **{f"{name}_ms": statistics.median(times) for name, times in wall.items()}}


def in_chroot(place, root, laps):
    """ms of each install, in a copy; its cache is filled by an apt that may use the network."""
    top = f"{place.base}/chroot"
    subprocess.run(["cp", "-a", root, top], check=True)
    subprocess.run(["chown", "-R", "0:0", top], check=True)  # as a chroot has it; bc needs no other owner
    run = ["unshare", "--mount", "--pid", "--fork", "chroot", top, "/bin/sh", "-c"]
    shutil.copy("/etc/resolv.conf", f"{top}/etc/resolv.conf")
    times = []
    try:
        script = f"apt-get -o APT::Sandbox::User=root update -q && apt-get -o APT::Sandbox::User=root install -qy -d {PACKAGE}"
        subprocess.run([*run, script], stdin=subprocess.DEVNULL, capture_output=True, check=True)
        for _ in range(laps):
            begin = time.monotonic()
            subprocess.run([*run, INSTALL], stdin=subprocess.DEVNULL, capture_output=True, check=True)
            times.append((time.monotonic() - begin) * 1e3)
            subprocess.run([*run, f"dpkg -P {PACKAGE}"], stdin=subprocess.DEVNULL, capture_output=True, check=True)
    except subprocess.CalledProcessError as error:
        raise Failed(f"in the chroot: {error.stderr.decode(errors='replace').strip().splitlines()[-1:]}") from None
    finally:
        shutil.rmtree(top, ignore_errors=True)
    return times


def installed(bench, place, api, root):
    laps = 2 if bench.quick else 7
    api.create("installs", **POLICY)
    api.run("installs", "/bin/sh", "-c", f"sudo apt-get update -q && sudo apt-get install -qy -d {PACKAGE}")
    inside = []
    for _ in range(laps):
        inside.append(api.run("installs", "sudo", "sh", "-c", INSTALL)[0])
        api.run("installs", "sudo", "dpkg", "-P", PACKAGE)
    chroot = in_chroot(place, root, laps)
    return {"row": PACKAGE, "label": f"apt-get install {PACKAGE}, cached", "n": laps, "inside_ms": statistics.median(inside),
            "chroot_ms": statistics.median(chroot), "ratio": statistics.median(inside) / statistics.median(chroot)}


def taken(bench, api, state, root):
    count = 10 if bench.quick else 100
    before = mib_of(f"{state}/main")
    archive = f"cd /tmp && apt-get update -q && apt-get download -q {PACKAGE} && dpkg -i {PACKAGE}*.deb; apt-get clean; rm -rf /var/lib/apt/lists/*"
    for number in range(count):
        name = f"d{number}"
        api.create(name, **POLICY)
        api.run(name, "sudo", "sh", "-c", archive)
        api.post(f"/v1/workspaces/{name}/sleep", {})
    return {"row": "disk", "label": f"{count} workspaces", "count": count, "base_mib": mib_of(root),
            "each_mib": (mib_of(f"{state}/main") - before) / count}


def measure(bench):
    for place in bench.places:
        if not place.root:
            continue
        bench.say(f"systems {place.words}")
        found, installs, disk = [], [], []
        try:
            with running(place, "system", networks=str(ROOT / "packaging/networks")) as daemon:
                root = build(place, str(daemon.state))
                api = Api(daemon)
                with contextlib.closing(api.connection):
                    grown = 0
                    installs.append(installed(bench, place, api, root))
                    disk.append(taken(bench, api, daemon.state, root))
                    for files in FILES[:2] if bench.quick else FILES:
                        grow(root, files - grown)
                        grown = files
                        found.append(created(bench, api, files))
        except Failed as error:
            found.append({"row": "failed", "label": "the rest", "why": str(error)})
        yield table(f"{place.name}-systems", f"{place.words}, by the size of the base", COLUMNS, found)
        yield table(f"{place.name}-system-installs", f"{place.words}, a cached package", INSTALLS, installs)
        yield table(f"{place.name}-system-disk", f"{place.words}, disk", DISK, disk)
