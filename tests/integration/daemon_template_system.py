#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 900
# TAKES: 25
# BASE
"""Templates with a system of their own: built as root inside, and shown below the systems of all workspaces on them."""
import json
import os
import re
import signal
import subprocess
import unittest

from carreltest import CARREL, PATIENCE, TMP, carrel, read, write
from systemtest import BASE, SystemDaemonTest, SystemTest

SRC = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

FULL = os.environ.get("LONG") == "1"
LONG = 10 * PATIENCE
LAB = {"name": "lab", "base": "debian-12", "debian": ["tree"], "users": ["ada"], "env": {"LAB": "ready"},
       "files": {"/etc/lab.conf": "lab.conf", "/notes/a.txt": "lab.conf"},
       "run": ["echo ran > /usr/local/ran; rm /etc/debian_version; mkdir /made; echo r > /made/by-root",
               "install -d -m 700 -o 33 /var/deep; touch /var/deep/f"]}


class TemplateTest(SystemDaemonTest):
    def setUp(self):
        super().setUp()
        self.env = {**os.environ, "CARREL_SOCKET": self.daemon.socket, "HOME": self.dir}
        os.mkdir(self.path("lab"))
        write(self.path("lab/lab.conf"), "conf\n")

    def build(self, spec, **more):
        path = write(self.path("lab/lab.json"), json.dumps(spec))
        return carrel("template", "build", path, env=self.env, timeout=LONG, **more)

    def built(self, spec):
        done = self.build(spec)
        self.assertEqual(0, done.returncode, done.stdout[-2000:] + done.stderr[-2000:])


class TemplateSystem(TemplateTest):
    def test_a_workspace_begins_with_what_was_built(self):
        self.built(LAB)
        self.workspace(id="desk", template="lab")
        for command, says in (("id -u; tree --version | cut -d' ' -f1; cat /usr/local/ran /etc/lab.conf", "1000\ntree\nran\nconf\n"),
                              ("echo $LAB; getent passwd ada | cut -d: -f6; ls /etc/debian_version 2>&1 | wc -l; cat /notes/a.txt",
                               "ready\n/home/ada\n1\nconf\n"),
                              ("cd /made && echo more >> by-root && stat -c %U by-root", "user\n"),
                              ("stat -c %U:%a /usr /etc /var | xargs", "root:755 root:755 root:755\n")):
            self.assertEqual((0, says), self.run_as("user", command))
        self.assertGreater(self.daemon.get("/v1/templates/lab").json["bytes"], 300000)  # the system's layer counts
        self.check_it_is_flat_and_apart()
        self.check_who_may_be_root()
        self.check_sleep_and_kill()
        self.check_it_goes()

    def check_it_is_flat_and_apart(self):
        self.workspace(id="other", template="lab", policy={"system": True})
        self.assertEqual((0, ""), self.run_as("root", "rm /usr/bin/tree /usr/local/ran; echo other > /etc/lab.conf", "other"))
        self.assertEqual((0, "ran\nconf\n"), self.run_as("user", "cat /usr/local/ran /etc/lab.conf; tree --version >/dev/null"))
        self.assertEqual((0, "other\nran\n"), self.run_as("root", "cat /etc/lab.conf; rm -f /etc/lab.conf; echo ran > /usr/local/ran; "
                                                                  "cat /usr/local/ran", "other"))
        self.assertTrue(os.path.exists(f"{BASE}/etc/debian_version"))
        layers = [where for where, _, _ in os.walk(f"{self.daemon.state}") if where.endswith("/desk/env/system/upper")]
        self.assertEqual(1, len(layers))
        self.assertEqual([], os.listdir(layers[0]))

    def check_who_may_be_root(self):
        answer = self.daemon.post("/v1/workspaces/desk/exec", {"command": "id -u", "user": "root"})
        self.assertEqual((403, "forbidden"), (answer.status, answer.code))
        self.assertIn("no command of this workspace can be root's", self.run_as("user", "sudo id -u")[1])
        self.assertEqual((0, "0\n"), self.run_as("user", "sudo id -u", "other"))
        answer = self.daemon.post("/v1/workspaces", {"id": "odd", "template": "lab", "policy": {"system": "slackware"}})
        answer = self.daemon.post("/v1/workspaces/odd/exec", {"command": "true"})
        self.assertEqual(409, answer.status, answer.bytes)
        self.assertIn("stands on 'debian-12.1'", answer.json["error"]["message"])

    def check_sleep_and_kill(self):
        self.daemon.post("/v1/workspaces/other/sleep")
        self.daemon.stop(signal.SIGKILL)
        self.daemon.start()
        self.assertEqual((1, ""), self.run_as("root", "test -e /usr/bin/tree || test -e /etc/lab.conf", "other"))
        self.assertEqual((0, "ran\n"), self.run_as("user", "cat /usr/local/ran"))

    def check_it_goes(self):
        for name in ("desk", "other", "odd"):
            self.assertEqual(204, self.daemon.request("DELETE", f"/v1/workspaces/{name}?purge=1").status)
        done = carrel("template", "rm", "lab", env=self.env, timeout=PATIENCE)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual([], os.listdir(f"{self.daemon.state}/.carrel/templates"))

    def test_a_build_that_fails_leaves_nothing(self):
        for spec, says in (({"run": ["echo on the way >&2; exit 7"]}, "failed with status 7"),
                           ({"run": ["true"], "base": "slackware"}, "carrel base build slackware"),
                           ({"files": {"/etc/x": "nothing"}}, "there is no 'nothing'")):
            with self.subTest(spec=spec):
                done = self.build({"name": "lab", "base": "debian-12", **spec})
                self.assertEqual(125, done.returncode, done.stdout + done.stderr)
                self.assertIn(says, done.stderr)
                self.assertEqual([], self.daemon.get("/v1/workspaces").json["workspaces"])
                self.assertEqual([], self.daemon.get("/v1/templates").json["templates"])

    def test_a_dockerfile_is_built(self):
        os.makedirs(self.path("lab/src/deep"))
        write(self.path("lab/src/deep/a.txt"), "a\n")
        os.symlink("/etc/shadow", self.path("lab/src/link"))
        write(self.path("lab/Dockerfile"), "FROM debian:12\nENV WORD=said\nWORKDIR /app\nCOPY src lib\nCOPY lab.conf /etc/\n"
              "RUN echo $WORD > root.txt && id -u >> root.txt\nUSER user\nWORKDIR /mine\nRUN id -u > user.txt; pwd >> user.txt\nCMD echo began > /began; sleep 1000\n")
        done = carrel("template", "build", "-f", self.path("lab/Dockerfile"), env=self.env, timeout=LONG)
        self.assertEqual(0, done.returncode, done.stderr[-2000:])
        self.workspace(id="desk", template="lab")
        self.assertEqual((0, "a\n/etc/shadow\nconf\nsaid\n0\n1000\n/mine\nsaid\n"), self.run_as("user",
            "cd /app; cat lib/deep/a.txt; readlink lib/link; cat /etc/lab.conf root.txt /mine/user.txt; echo $WORD"))
        self.assertEqual((0, ""), self.run_as("user", "until [ -s /began ]; do sleep 0.1; done; rm /app/root.txt"))

    def test_a_dockerfile_copies_nothing_from_elsewhere(self):
        os.symlink("/etc", self.path("lab/out"))
        write(self.path("lab/.dockerignore"), "")
        for line, says in (("COPY out/passwd /x", "leads out of"), ("COPY out /x", "leads out of"), ("COPY ../lab /x", "leads out"),
                           ("COPY none /x", "line 2: COPY: there is no 'none'"), ("COPY lab.conf /x", ".dockerignore"), ("VOLUME /x", "line 2: VOLUME")):
            write(self.path("lab/Dockerfile"), f"FROM debian:12\n{line}\n")
            done = carrel("template", "build", "-f", self.path("lab/Dockerfile"), "other", env=self.env, timeout=LONG)
            with self.subTest(line=line):
                self.assertEqual(125, done.returncode, done.stdout)
                self.assertIn(says, done.stderr)
        self.assertEqual([], self.daemon.get("/v1/templates").json["templates"])

    def test_the_network_of_a_build_is_what_it_needs(self):
        self.built({"name": "lab", "base": "debian-12", "run": ["true"]})
        policies = [r["details"] for r in self.daemon.audit() if r["operation"] == "workspace.create"]
        self.assertIn("@debian", json.dumps(policies))
        self.assertNotIn("host", json.dumps([p.get("policy", {}).get("network") for p in policies]))


POSTGRES = {"name": "db", "base": "debian-12", "debian": ["postgresql"], "services": {"db": {
    "run": "export PATH=$PATH:$(echo /usr/lib/postgresql/*/bin); [ -e /data/PG_VERSION ] || initdb -D /data -A trust >/dev/null; "
           "exec postgres -D /data -k /tmp",
    "port": 5432}}}


@unittest.skipUnless(FULL, "LONG=1: it installs PostgreSQL")
class Postgres(TemplateTest):
    def query(self, text):
        """When the service is ready, for which nobody has to do anything."""
        return self.run_as("user", f"until pg_isready -q -h /tmp; do sleep 0.1; done; psql -h /tmp -U user -d postgres -qAtc '{text}'")

    def test_its_data_are_there_after_sleep_and_kill(self):
        self.built(POSTGRES)
        self.workspace(id="desk", template="db")
        self.assertEqual((0, ""), self.query("CREATE TABLE t (n int); INSERT INTO t SELECT generate_series(1, 1000)"))
        self.assertEqual(200, self.daemon.post("/v1/workspaces/desk/sleep").status)
        self.assertEqual((0, "1000\n"), self.query("SELECT count(*) FROM t"))
        self.assertEqual((0, ""), self.query("INSERT INTO t VALUES (0)"))
        self.daemon.stop(signal.SIGKILL)
        self.daemon.start()
        self.assertEqual((0, "1001\n"), self.query("SELECT count(*) FROM t"))


class Documentation(SystemTest):
    def test_every_command_of_the_document_works(self):
        """The blocks of docs/machines.md, but for the base, which tests/run has made by that command, and the browser."""
        home = self.path("docs")
        os.makedirs(f"{home}/desks/.carrel")
        os.symlink(os.path.dirname(os.path.dirname(BASE)), f"{home}/desks/.carrel/bases")
        for above in (TMP, self.dir, home):
            os.chmod(above, 0o711)  # as root the front is somebody else
        blocks = re.findall(r"^```bash\n(.*?)^```$", read(f"{SRC}/docs/machines.md"), re.M | re.S)
        self.assertEqual(3, len(blocks))
        script = "\n".join(["set -e; trap 'kill %1; wait %1' ERR", *blocks]).replace("carrel base build ", ": carrel base build ")
        env = {"PATH": f"{os.path.dirname(CARREL)}:{os.environ['PATH']}", "HOME": home, "LC_ALL": "C.UTF-8"}
        done = subprocess.run(["bash", "-c", script], cwd=home, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=LONG, check=False)
        self.assertEqual(0, done.returncode, done.stdout[-3000:])
        for line in ("42\nbuilt by root\nready\n", "HELLO\n", r"\nweb +ready +8080 "):
            self.assertRegex(done.stdout[-2000:], line)


if __name__ == "__main__":
    unittest.main()
