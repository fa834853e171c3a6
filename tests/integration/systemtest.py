# SPDX-License-Identifier: Apache-2.0
"""A system of the workspace's own, on the base that tests/run has made."""
import glob
import os
import re
import subprocess

from carreltest import CARREL, PATIENCE, ROOT, CarrelTest, carrel, read
from daemontest import DaemonTest

BASE = os.environ["BASE"]
APT = 300  # seconds
FIRST = 0x7FFF0000 if ROOT else 0x6FFE0000  # root inside, on disk


class SystemTest(CarrelTest):
    def setUp(self):
        super().setUp()
        self.layer = self.make_layer("layer")

    def tearDown(self):
        self.remove()
        super().tearDown()

    def make_layer(self, name):
        path = self.path(name)
        os.mkdir(path, 0o700)
        return path

    def inside(self, *command, layer=None, options=(), ws=None):
        return carrel("run", "--workspace", ws or self.ws, "--system", f"{BASE}:{layer or self.layer}", *options, "--", *command)

    def root(self, script, **kwargs):
        """A line for the shell, as root inside."""
        kwargs["options"] = ["--user", "root", *kwargs.get("options", ())]
        return self.inside("sh", "-c", script, **kwargs)

    def user(self, script, **kwargs):
        return self.inside("sh", "-c", script, **kwargs)

    def apt(self, script, timeout=APT):
        """A line for the shell, as root inside, with the hosts that the base has packages from."""
        hosts = set()
        for path in [f"{BASE}/etc/apt/sources.list", *glob.glob(f"{BASE}/etc/apt/sources.list.d/*")]:
            hosts |= set(re.findall(r"https?://([^/:\s]+)", read(path) if os.path.exists(path) else ""))
        allowed = [word for host in sorted(hosts) for word in ("--allow", host)]
        return subprocess.run([CARREL, "run", "--workspace", self.ws, "--system", f"{BASE}:{self.layer}", "--user", "root", *allowed,
                               "--", "sh", "-c", script], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout,
                              check=False)

    def remove(self):
        """What ids of the base have put into our directories; as root we can remove it, otherwise they can."""
        if ROOT:
            return
        places = [self.ws] + [entry.path for entry in os.scandir(self.dir) if entry.is_dir(follow_symlinks=False)]
        for number, place in enumerate(places):
            dump = f"{self.dir}/.dump{number}"
            os.mkdir(dump, 0o700)
            tmp = f"{self.dir}/.ws{number}"
            os.mkdir(tmp)
            subprocess.run([CARREL, "run", "--workspace", tmp, "--system", f"{BASE}:{dump}", "--user", "root", "--rw", f"{place}:/x",
                            "--", "sh", "-c", "chmod -R u+rwX /x; find /x -mindepth 1 -delete"],
                           stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=False)
            subprocess.run(["chmod", "-Rf", "u+rwx", dump], check=False)


class SystemDaemonTest(DaemonTest):
    """A daemon that has the base."""

    def setUp(self):
        super().setUp()
        os.makedirs(f"{self.daemon.state}/.carrel", exist_ok=True)
        os.symlink(os.path.dirname(os.path.dirname(BASE)), f"{self.daemon.state}/.carrel/bases")

    def tearDown(self):
        self.daemon.stop()
        if not ROOT:
            self.clear()
        super().tearDown()

    def clear(self):
        """What ids of the base have made they remove: the user could not."""
        os.mkdir(self.path("w"))
        os.mkdir(self.path("l"), 0o700)
        subprocess.run([CARREL, "run", "--workspace", self.path("w"), "--system", f"{BASE}:{self.path('l')}", "--user", "root",
                        "--rw", f"{self.daemon.state}:/x", "--", "find", "/x", "-mindepth", "1", "-delete"],
                       stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=False)
        subprocess.run(["chmod", "-Rf", "u+rwx", self.path("l")], check=False)

    def run_as(self, user, command, workspace="desk"):
        done = self.daemon.execute(workspace, command, user=user)
        return done["exit_code"], done["stdout"] + done["stderr"]
