# SPDX-License-Identifier: Apache-2.0
"""The workspace in which a template is built: commands in it, what they say told as it comes, and a person who may stop it at
any time."""
import contextlib
import json
import os
import signal
import urllib.parse

from daemon import ERRORS, Daemon, Lost, decode, encode
from template_remedy import remedy
from words import Failure, escape, put_error, put_json, say

TIMEOUT_MS = 3600 * 1000  # of one command
LINE_MOST = 64 * 1024
TAIL = 64 * 1024
# Neither /.venv/bin nor /node_modules/.bin: a package could have put a `bun` there.
ENV = {"NO_COLOR": "1", "UV_COMPILE_BYTECODE": "0", "PATH": "/opt/carrel/bin:/usr/local/bin:/usr/bin:/bin"}


class Stopped(Exception):
    """By a signal."""


class BuildRoom:
    def __init__(self, asked):
        self.daemon = Daemon(asked.get("socket"), asked["url"])
        self.json, self.quiet = "json" in asked, "quiet" in asked
        self.workspace, self.step = "", ""
        self.line = self.tail = b""  # of output: without its end yet, and the last of it
        self.stopped_by, self.hears = 0, False

    # --- signals: heard between requests, and in those that may be left half way ---

    def listen(self):
        """For good: what comes while the build is taken back must not interrupt that."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self.hear)

    def hear(self, number, _):
        self.stopped_by = self.stopped_by or number
        if self.hears:
            self.hears = False
            raise Stopped

    @contextlib.contextmanager
    def heard(self):
        try:
            self.hears = True
            self.check()
            yield
        finally:
            self.hears = False

    def check(self):
        if self.stopped_by:
            raise Stopped

    # --- what is told ---

    def tell(self, event):
        if self.json:
            put_json(event)  # who does not listen is told by the exit status

    def say(self, message):
        if self.json:
            self.tell({"type": "note", "message": message})
        elif not self.quiet:
            say(message)

    def begin(self, step, number, of):
        self.step, self.tail = step, b""
        if self.json:
            self.tell({"type": "step", "step": step, "number": number, "of": of})
        elif not self.quiet:
            say(f"{number}/{of} {step}")
        self.check()

    def show_lines(self, data):
        """Whole lines of a tool's, for a person: whatever they hold, they do not drive the terminal."""
        *lines, self.line = (self.line + data).split(b"\n")
        if len(self.line) > LINE_MOST:
            lines, self.line = [*lines, self.line], b""
        for line in lines:
            put_error("  " + escape(line.decode(errors="surrogateescape")))

    def take_output(self, data):
        self.tail = (self.tail + data)[-TAIL:]
        if self.json:
            self.tell({"type": "output", "step": self.step, **encode("data", data)})
        elif not self.quiet:
            self.show_lines(data)

    def show_rest(self):
        if self.line:
            self.show_lines(b"\n")

    # --- requests ---

    def at(self, what=""):
        return f"/v1/workspaces/{urllib.parse.quote(self.workspace, safe='-._~')}{what}"

    def file_at(self, path):
        return self.at("/files" + urllib.parse.quote(path, safe="/-._~"))

    def make(self, body):
        """Not to be stopped half way: then nobody would know what to remove."""
        self.workspace = (self.daemon.ask_json("POST", "/v1/workspaces", body) or {}).get("id") or ""
        if not self.workspace:
            raise Failure("the daemon's answer has no id")

    def is_there(self):
        """False: it is no more, or in the trash; None: for now nobody can tell."""
        status, now = self.daemon.look(self.at())
        return None if status == 0 else bool(now and now.get("deleted") is None)

    def remove(self):
        """With all that was done in it."""
        try:
            if self.workspace:
                self.daemon.ask("DELETE", self.at("?purge=1"))
        except Failure as failure:
            if getattr(failure, "status", 0) != 404:
                say("the workspace of the build could not be removed; do it with: carrel ws rm --purge " + self.workspace)

    def ask(self, method, what, body):
        with self.heard():
            return self.daemon.ask_json(method, self.at(what), body)

    def post(self, path, body):
        """None: nobody knows what has come of it."""
        self.check()
        try:
            return self.daemon.ask_json("POST", path, body)
        except Lost as lost:
            if not lost.was_sent:
                raise
            return None

    def get(self, path, most):
        self.check()
        return self.daemon.ask("GET", self.file_at(path), accept="*/*", most=most)

    def put(self, path, data):
        self.check()
        self.daemon.ask("PUT", self.file_at(path), data, kind="application/octet-stream")

    def put_file(self, path, source):
        self.check()
        try:
            with open(os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK), "rb") as file:
                mode = os.fstat(file.fileno()).st_mode & 0o777
                self.daemon.ask("PUT", f"{self.file_at(path)}?mode={mode:04o}", file, kind="application/octet-stream")
        except OSError as error:
            raise Failure(f"'{source}' cannot be read", error) from None

    # --- commands ---

    def run(self, argv, data=b"", most=None, more=None):
        """To its end. One that fails is a Failure that says what to do. `most`: returns its standard output, of so many bytes
        at most; otherwise that is told, as errors are. `more`: members of the request."""
        body = {"argv": argv, "stream": "ndjson", "timeout_ms": TIMEOUT_MS, "env": ENV, **(encode("stdin", data) if data else {}),
                **(more or {})}
        end, output = None, b""
        with self.heard():
            connection, answer = self.daemon.open("POST", self.at("/exec"), json.dumps(body).encode(), "application/x-ndjson")
            with contextlib.closing(connection):
                for event in events(answer):
                    if event.get("type") == "end":
                        end = end or event
                    elif event.get("type") == "stdout" and most is not None:
                        output = (output + decode(event, "data"))[:most + 1]
                    elif event.get("type") in ("stdout", "stderr"):
                        self.take_output(decode(event, "data"))
        if end is None:
            raise Failure("the daemon went away while it was built; build again")
        if end.get("exit_code") != 0:
            raise self.explain(argv[0], end)
        self.show_rest()
        if most is not None and len(output) > most:
            raise Failure(f"{argv[0]} has said too much")
        return output

    def explain(self, tool, end):
        if not self.json:
            self.show_lines(self.tail if self.quiet else b"")  # what a person has not seen yet
            self.show_rest()
        code, reason = end.get("exit_code"), end.get("reason")
        if then := remedy(self.tail.decode(errors="replace"), code):
            return Failure(then)
        if end.get("note"):
            return Failure(f"{tool}: {end['note'][:280]}")
        if reason and reason != "exit":
            return Failure(f"{tool} was ended ({reason[:40]}): raise that limit of the daemon, and build again")
        return Failure(f"{tool} failed with status {code}; what it said is above")


def events(answer):
    """Of a stream of JSON lines; one that breaks off just ends."""
    try:
        while line := answer.readline():
            event = json.loads(line)
            if isinstance(event, dict):
                yield event
    except ERRORS:
        return
