# SPDX-License-Identifier: Apache-2.0
"""carrel template build. A template is a workspace that was prepared and is then kept for good:

  read FILE, its locks, look for what it copies      nothing is made before all of that is right
  a workspace that has taken the template's name     another build of it is refused
  steps(), in order, in a workspace of its own       any failure, or a signal: the workspace goes
  POST /v1/templates                                 the workspace has become the template
  write the locks that were made

A lock that fits is used as it is, and nothing is resolved: two builds install the same files.

What the build has fetched becomes everybody's cache. So no code of a package may run in it, unless the file says "build": then
the cache stays the build's own. No script of a package runs; no command is looked for where packages put theirs; and once
packages are there Python runs without `site`, which would execute their .pth files: so bytecode is not compiled by uv."""
import json
import os
import re
import stat
import tempfile
import time

import dockerfile
import template_file
import template_lock as locks
from build_room import BuildRoom, Stopped
from template_machine import Machine
from words import FAILED, Failure, put, put_json, say, size

PAUSE_S, MOST_PAUSE_S = 0.2, 5  # doubled, up to
DECIDED_S = 120  # until then it is waited for

COMPILE = "import compileall\ncompileall.compile_dir('/.venv/lib', quiet=2, workers=0)"
# With a lock bun reads no description of a package, and so leaves none in the cache: without them a workspace could not add the
# same packages without the network. What fails here is not missed by the template.
DESCRIPTIONS = ("mkdir -p /tmp/descriptions && cd /tmp/descriptions && cat >package.json && "
                "bun install --lockfile-only --ignore-scripts >/dev/null 2>&1; :")


def read_whole(path, most):
    try:
        with open(path, "rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise Failure(f"'{path}' cannot be read", error) from None
    if len(data) > most:
        raise Failure(f"'{path}' is larger than {most} bytes")
    return data


def text_of(data, name):
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Failure(f"'{name}' is not UTF-8") from None


class Lock:
    """Of one language."""

    def __init__(self, template, packages, directory, kind, update):
        self.path = f"{directory}/{packages.lock or f'{template.name}.{kind}.lock'}"
        self.text = b""  # what is in the file, or was made
        self.made = False  # ... and is to be written
        self.list = None  # what is locked
        self.found = bool(packages.packages) and os.path.exists(self.path) and not update
        if packages.packages and update and not os.access(directory, os.W_OK):
            raise Failure(f"--update-lock: '{directory}' cannot be written")
        if self.found:
            self.text = read_whole(self.path, locks.MOST_BYTES)

    def refusal(self):
        return Failure(f"'{self.path}' was made for other packages: build with --update-lock to resolve these")

    def write(self):
        """Whole or not at all."""
        fd, temporary = tempfile.mkstemp(prefix=os.path.basename(self.path) + ".", dir=os.path.dirname(self.path))
        try:
            with open(fd, "wb") as file:
                file.write(self.text)
                file.flush()
                os.fchmod(fd, 0o644)
                os.fsync(fd)
            os.rename(temporary, self.path)
        except OSError:
            os.unlink(temporary)
            raise


class Making:
    def __init__(self, asked):
        self.offline, update = "offline" in asked, "update-lock" in asked
        try:
            path = os.path.realpath(asked["file"], strict=True)
        except OSError as error:
            raise Failure(f"'{asked['file']}' cannot be read", error) from None
        self.directory = os.path.dirname(path)
        data = read_whole(path, template_file.MOST_BYTES)
        try:
            self.file = (dockerfile.parse(data, asked.get("name") or os.path.basename(self.directory)) if "dockerfile" in asked
                         else template_file.parse(data))
            self.check_sources()
        except Failure as failure:
            raise Failure(f"'{asked['file'][:120]}': {failure}") from None
        self.room = BuildRoom(asked)
        self.machine = Machine(self.room, self.file, self.find) if self.file.base else None
        unlocked = template_file.Packages()  # what goes into a system is not
        self.python = Lock(self.file, unlocked if self.machine else self.file.python, self.directory, "python", update)
        self.node = Lock(self.file, unlocked if self.machine else self.file.node, self.directory, "node", update)
        self.check_locks()
        self.python_version = self.interpreter = ""
        self.before = None  # id of the template that has the name
        self.answer = None  # the template
        self.undecided = False  # whether the workspace has become it is not known yet: it must stay

    # --- before anything is made ---

    def check_sources(self):
        for beside in self.file.files.values():
            self.find_file(beside)
        for step in self.file.steps:
            for source, _, _ in step.pairs:
                self.find(source, step.title)
            if step.pairs and os.path.lexists(f"{self.directory}/.dockerignore"):
                raise Failure(f"{step.title}: .dockerignore is not understood, and what it keeps out would be copied; move what is to be "
                              "copied into a directory of its own, with the Dockerfile")

    def find(self, name, what):
        """The path here of something to copy; links may not lead out of the template's directory."""
        try:
            path = os.path.realpath(f"{self.directory}/{name}", strict=True)
        except (OSError, ValueError):
            raise Failure(f"{what}: there is no '{name[:160]}' beside the template's file") from None
        if path != self.directory and not path.startswith(self.directory.rstrip("/") + "/"):
            raise Failure(f"{what}: '{name[:160]}' leads out of {self.directory}")
        return path

    def find_file(self, name):
        path = self.find(name, '"files"')
        if not stat.S_ISREG(os.stat(path).st_mode) or not os.access(path, os.R_OK):
            raise Failure(f"\"files\": '{name[:160]}' is no file that can be read")
        return path

    def check_locks(self):
        """Which Python there will be is not known yet; for which packages the locks are, is."""
        if self.python.found and locks.python_fit(self.file.python.packages, "", text_of(
                self.python.text, self.python.path)) == locks.OTHER_PACKAGES:
            raise self.python.refusal()
        if self.node.found and self.read_node_lock()[0] != locks.FITS:
            raise self.node.refusal()

    def read_node_lock(self):
        try:
            return locks.node_read(self.node.text, self.file.node.packages)
        except Failure as failure:
            raise Failure(f"'{self.node.path}': {failure}") from None

    # --- the steps ---

    def steps(self):
        """The environments come before any package is there."""
        if self.machine:
            return [step[::2] for step in (("workspace", True, self.make_workspace), *self.machine.steps(),
                                           ("template", True, self.keep_it)) if step[1]]
        python, node = self.file.python, self.file.node
        return [(name, run) for name, wanted, run in (
            ("workspace", True, self.make_workspace),
            ("python", python.wanted, self.make_python),
            ("node", node.wanted, lambda: self.room.ask("POST", "/env/node", {})),
            ("python packages", python.packages, self.install_python),
            ("python bytecode", python.packages, lambda: self.room.run([self.interpreter, "-I", "-S", "-c", COMPILE])),
            ("node packages", node.packages, self.install_node),
            ("files", self.file.files, self.copy_files),
            ("template", True, self.keep_it)) if wanted]

    def make_workspace(self):
        sets = [name for name, packages in (("@python", self.file.python.packages), ("@node", self.file.node.packages)) if packages]
        system = {}
        if self.machine:
            sets, system = self.machine.sets(), {"system": {"base": self.file.base}}
        self.room.make({"labels": {"template-build": self.file.name}, "builds": self.file.name,
                        "policy": {"network": {"allow": sets} if sets and not self.offline else "none", **system}})

    def make_python(self):
        version = self.file.python.version
        made = (self.room.ask("POST", "/env/python", {"version": version} if version else {}) or {}).get("python") or {}
        if not made.get("version"):
            raise Failure("the daemon does not say which Python it is")
        self.python_version = re.match(r"[^.]*(\.\d+)?", made["version"])[0]
        self.interpreter = made.get("interpreter") or "python3"  # the host's, of the same version

    def uv_options(self):
        return ([] if self.file.python.build else ["--only-binary", ":all:"]) + (["--offline"] if self.offline else [])

    def resolve_python(self):
        packages = self.file.python.packages
        made = self.room.run(["uv", "pip", "compile", "--generate-hashes", "--no-header", "--no-annotate", *self.uv_options(), "-"],
                             "".join(f"{package}\n" for package in packages).encode(), locks.MOST_BYTES)
        self.python.text = locks.python_head(packages, self.python_version).encode() + made

    def install_python(self):
        packages, lock = self.file.python.packages, self.python
        fit = locks.OTHER_PACKAGES
        if lock.found:
            fit = locks.python_fit(packages, self.python_version, text_of(lock.text, lock.path))
        if fit == locks.OTHER_PYTHON:
            self.room.say(f"the lock is for another Python than {self.python_version}: resolved anew, and the lock left as it is")
        if fit in (locks.OTHER_PYTHON, locks.OTHER_PACKAGES):
            self.resolve_python()
            lock.made = fit == locks.OTHER_PACKAGES
        lock.list = locks.python_list(text_of(lock.text, lock.path))
        self.room.run(["uv", "pip", "install", "--require-hashes", *self.uv_options(), "-r", "-"], lock.text)
        project = text_of(self.room.get("/pyproject.toml", template_file.MOST_BYTES), "/pyproject.toml")
        self.room.put("/pyproject.toml", locks.python_project(project, packages).encode())

    def run_bun(self, *words):
        self.room.run(["bun", *words, *([] if self.file.node.build else ["--ignore-scripts"])])

    def put_json(self, path, value):
        self.room.put(path, json.dumps(value, indent=2, ensure_ascii=False).encode())

    def get_package(self):
        try:
            value = json.loads(self.room.get("/package.json", template_file.MOST_BYTES))
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise Failure("/package.json is no JSON object")
        return value

    def install_node(self):
        if self.node.found:
            bun = self.read_node_lock()[1]
            self.install_locked_node(bun)
        else:
            bun = self.add_node()
        self.node.list = locks.node_list(bun)

    def install_locked_node(self, bun):
        """package.json as it is, with what the lock is of."""
        dependencies = locks.node_dependencies(bun)
        if dependencies is None:
            raise Failure(f"'{self.node.path}' does not say what it is of; build with --update-lock")
        self.put_json("/package.json", {**self.get_package(), "dependencies": dependencies})
        self.put_json("/bun.lock", bun)
        self.run_bun("install", "--frozen-lockfile")
        if not self.offline:
            self.room.run(["sh", "-c", DESCRIPTIONS], json.dumps({"dependencies": dependencies}).encode())

    def add_node(self):
        """What bun resolves, as it will be found by the next build."""
        self.run_bun("add", *self.file.node.packages)
        bun = locks.read_bun(self.room.get("/bun.lock", locks.MOST_BYTES))
        if not locks.node_set_dependencies(bun, self.get_package().get("dependencies")):
            raise Failure("bun.lock is not of package.json")
        self.put_json("/bun.lock", bun)
        self.node.text = locks.node_make(self.file.node.packages, bun).encode()
        self.node.made = True
        return bun

    def copy_files(self):
        for inside, beside in self.file.files.items():
            self.room.put_file(inside, self.find_file(beside))

    # --- the workspace becomes the template ---

    def spec(self):
        """What the daemon keeps of it, beside the tree."""
        spec = {"base": self.file.base, "debian": self.file.debian} if self.machine else {}
        for kind, packages, lock, version in (("python", self.file.python, self.python, self.python_version),
                                              ("node", self.file.node, self.node, None)):
            if packages.wanted:
                spec[kind] = {"packages": packages.packages, **({"locked": lock.list} if lock.list is not None else {}),
                              **({"version": version} if version else {})}
        spec |= {"files": list(self.file.files), "env": self.file.env}
        return spec | {key: value for key, value in (("start", self.file.start), ("services", self.file.services)) if value}

    def keep_it(self):
        """On its own connection, never asked twice: the second would be told of a conflict with the first."""
        status, now = self.room.daemon.look(f"/v1/templates/{self.file.name}")
        if status == 0:
            raise Failure("the daemon does not answer; build again")
        self.before = now and now.get("id")
        foreign_code_ran = self.file.python.build or self.file.node.build or self.machine is not None
        self.answer = self.room.post("/v1/templates", {"name": self.file.name, "workspace": self.room.workspace,
                                                       "spec": self.spec(), "share_cache": not foreign_code_ran})
        if self.answer is None or self.answer.get("state") == "freezing":
            self.wait_for_it()

    def wait_for_it(self):
        """The daemon has neither made it nor given it up, or could not say so."""
        name = (self.answer or {}).get("id") or ""
        self.undecided = True  # also when it cannot be asked
        waited, pause = 0.0, PAUSE_S
        while waited < DECIDED_S:
            pause = min(2 * pause, MOST_PAUSE_S)
            with self.room.heard():
                time.sleep(pause)
            if self.is_decided(name):
                return
            waited += pause
        raise Failure("the daemon is not done with the template yet, and may still finish it; look with: carrel template show "
                      f"{name or self.file.name}")

    def is_decided(self, name):
        """False: it may still become one. `name` is its id, or "" if the daemon could not say it."""
        workspace = self.room.is_there()  # first: it ends at the instant the template begins
        status, now = self.room.daemon.look(f"/v1/templates/{name or self.file.name}")
        ours = now and now.get("id") not in (None, self.before)
        if ours and now.get("state") != "freezing":
            self.answer = now
            return True
        if ours or status == 0 or workspace is None or (workspace and not name):
            return False
        self.undecided = False
        raise Failure("the daemon could not make the template of its workspace, and has taken that back; its log says why. Build "
                      "again")

    # --- how it ends ---

    def run(self):
        self.room.listen()
        try:
            steps = self.steps()
            for number, (name, run) in enumerate(steps, 1):
                self.room.begin(name, number, len(steps))
                run()
        except (Failure, Stopped) as failure:
            return self.fail(failure)
        return self.report()

    def fail(self, failure):
        if not self.undecided:
            self.room.remove()
        if isinstance(failure, Stopped):
            say("stopped; the daemon may still finish the template" if self.undecided
                else "stopped; nothing of the build is left")
            return 128 + self.room.stopped_by
        if getattr(failure, "reason", None) == "allow_net":
            failure = Failure("packages come over the network, which the daemon gives to no workspace: start it with --set "
                              "allow_net=yes, or build with --offline from what the shared cache holds")
        self.room.tell({"type": "error", "step": self.room.step, "message": str(failure)})
        say(failure)
        return FAILED

    def report(self):
        for lock in (self.python, self.node):
            self.write_lock(lock)
        if self.room.json:
            return put_json({"type": "end", "template": self.answer})
        count = self.answer.get("files")
        return put(f"{self.file.name}: {'?' if count is None else count} file{'' if count == 1 else 's'}, "
                   f"{size(self.answer.get('bytes') or 0)}\n")

    def write_lock(self, lock):
        """The template stands in either case."""
        try:
            if lock.made:
                lock.write()
                self.room.say(f"the lock is in {lock.path}")
        except OSError as error:
            say(f"no lock was written: {lock.path}: {error.strerror}; another build resolves anew")


def main(asked):
    return Making(asked).run()
