# SPDX-License-Identifier: Apache-2.0
"""carrel env setup: uv, pip and bun from their registries into DIR/.carrel/tools. No daemon has a part in it; one that runs
shows the new ones to the sandboxes it starts from then on.

  look (index) --> same as recorded: nothing to do
               --> load, check the hash, unpack beside --> all that could be had: publish

A tool that cannot be had now stays as it is there; which, and why, is said."""
import os
import re
import subprocess
import sys

import indexes
from fetch import Fetch
from toolbox import TOOLS, Toolbox
from words import FAILED, Failure, put, put_json, say

INDEX_VARIABLES = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")
REGISTRY_VARIABLES = ("npm_config_registry", "NPM_CONFIG_REGISTRY")
PATIENCE_S, LONGEST_S = 30, 3600
ASK_S = 60  # pip and npm take a while to say where they look
SIMPLE = "application/vnd.pypi.simple.v1+json, text/html;q=0.5, */*;q=0.1"
NPM = "application/vnd.npm.install-v1+json, application/json;q=0.5"


def said_by(pattern, *command):
    """What of a program's output the pattern finds first; None: nothing, or it is not there."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              timeout=ASK_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(pattern, done.stdout.decode(errors="replace"))
    return found[1] if found else None


def from_environment(names):
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


def readable(ca):
    try:
        if ca:
            open(ca, "rb").close()
    except OSError as error:
        raise Failure(f"the file of certificate authorities '{ca}' cannot be read", error) from None
    return ca


class Setup:
    """`asked`: what the command line says, by name."""

    def __init__(self, asked):
        self.asked = asked
        self.json, self.offline = "json" in asked, "offline" in asked
        self.index = asked.get("index") or from_environment(INDEX_VARIABLES)
        self.registry = asked.get("registry") or from_environment(REGISTRY_VARIABLES)
        self.host = indexes.this_host()
        self.report, self.changed, self.box = {}, False, None
        ca = asked.get("ca") or from_environment(("SSL_CERT_FILE",))
        self.fetch = Fetch(readable(ca), self.read_timeout(), not self.json and sys.stderr.isatty())

    def read_timeout(self):
        text = self.asked.get("timeout", str(PATIENCE_S))
        if not re.fullmatch(r"[0-9]{1,4}", text) or not 1 <= int(text) <= LONGEST_S:
            raise Failure(f"--timeout '{text[:40]}': write seconds, from 1 to {LONGEST_S}")
        return int(text)

    # Clients are asked only when something is to be fetched: it takes them a while to answer.

    def find_index(self):
        self.index = self.index or said_by(r"(http\S+)", "pip3", "config", "get", "global.index-url") \
            or said_by(r"\(default\s+(http[^\s)]+)", "pip3", "download", "--help")
        if not self.index:
            raise Failure("no index of Python packages is known here: give --index URL (or the setting package_index), or "
                          "install pip, whose own is used then")
        self.fetch.option = "--index"
        return self.index.rstrip("/")

    def find_registry(self):
        self.registry = self.registry or said_by(r"(http\S+)", "npm", "config", "get", "registry")
        if not self.registry:
            raise Failure("no registry of Node packages is known here: give --registry URL (or the setting package_registry), "
                          "or install npm, whose own is used then")
        self.fetch.option = "--registry"
        return self.registry.rstrip("/")

    def look(self, tool):
        """(the package, the address of the page that names it)."""
        if tool != "bun":
            page, place = self.fetch.page(f"{self.find_index()}/{tool}/", SIMPLE)
            return indexes.choose_wheel(page, tool, self.asked.get(tool), self.host), place
        name, registry = indexes.bun_package(self.host), self.find_registry()
        if not name:
            raise Failure(f"there is no bun for {self.host.machine}")
        page, place = self.fetch.page(f"{registry}/{name.replace('/', '%2f')}", NPM)
        return indexes.of_registry(indexes.choose_release(page, self.asked.get(tool)), registry), place

    def load(self, tool, package, place):
        self.box.begin()
        with self.box.spare() as file:
            self.fetch.package(place, package, file)
            self.box.add(tool, package, file)

    def note(self, tool, state, version, error=None):
        self.report[tool] = {"state": state, "version": version, "error": error}

    def keep(self, tool, there, state):
        """A tool that is there, and stays; the names it is called by are Carrel's, and made anew if they are not as they
        should be."""
        right = self.box.names_are_right(tool)
        self.changed |= not right
        self.note(tool, state if right else "is there, and its script is new", there["version"])

    def bring(self, tool):
        there = self.box.find(tool)
        try:
            if self.offline:
                if not there:
                    raise Failure("run 'carrel env setup' without --offline")
                self.keep(tool, there, "is there")
                return
            package, place = self.look(tool)
            if there and there.get("hash") == f"{package.algorithm}:{package.hash}":
                self.keep(tool, there, "is up to date")
                return
            self.load(tool, package, place)
            self.changed = True
            self.note(tool, "is new" if there else "is there now", package.version)
        except Failure as failure:  # why there is no new one; the old one, if there is one, stays
            self.note(tool, "failed", there and there["version"], str(failure))

    def run(self):
        self.box = Toolbox(self.asked["state"], "make-state" in self.asked)
        try:
            for tool in TOOLS:
                self.bring(tool)
            if self.changed:
                self.box.publish()
        finally:
            self.box.close()

    def show(self):
        if self.json:
            return put_json({"directory": self.box.path, "changed": self.changed, "tools": self.report})
        status = 0
        for tool, entry in self.report.items():
            if entry["error"]:
                say(f"{tool} {'stays at ' + entry['version'] if entry['version'] else 'is missing'}: {entry['error']}")
            else:
                status = status or put(f"{tool} {entry['version']} {entry['state']}\n")
        return status


def main(asked):
    setup = Setup(asked)
    setup.run()
    return setup.show() or (FAILED if any(entry["error"] for entry in setup.report.values()) else 0)
