# SPDX-License-Identifier: Apache-2.0
"""A private daemon for a script or a test: no set-up, nothing left running."""
from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time

from ._sync.client import Carrel
from .errors import CarrelError


class Local:
    """`with carrel.Local() as c: c.workspace("a").run("…")`. state: a directory whose workspaces stay; left out, all goes at the end."""

    def __init__(self, state: str | os.PathLike[str] | None = None, *, program: str | None = None, settings: dict[str, str] | None = None) -> None:
        self.program = program or os.environ.get("CARREL") or shutil.which("carrel")
        if not self.program:
            raise CarrelError("the program 'carrel' is not on PATH; install Carrel, or name it with CARREL or program=", code="not_found")
        # Below /tmp, not TMPDIR: the path of a socket may have 107 bytes only.
        self._own = tempfile.mkdtemp(prefix="carrel-", dir="/tmp") if state is None else None
        self.state = os.path.abspath(self._own or os.fspath(state or ""))
        self._log = tempfile.TemporaryFile()
        # On its socket only, unless the settings say otherwise: another daemon may listen at the default address.
        sets = [word for name, value in {"listen": "", **(settings or {})}.items() for word in ("--set", f"{name}={value}")]
        self._process = subprocess.Popen([self.program, "serve", "--state", self.state, *sets], stdin=subprocess.DEVNULL,
                                         stdout=self._log, stderr=self._log)
        self.socket = os.path.join(self.state, "carrel.sock")
        self.client = Carrel(self.socket)
        try:
            self._wait_until_ready()
        except BaseException:
            self.close()
            raise

    def _wait_until_ready(self) -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            if self._process.poll() is not None:
                self._log.seek(0)
                raise CarrelError(f"carrel serve ended with {self._process.returncode}: {self._log.read().decode(errors='replace').strip()}",
                                  code="unavailable")
            try:
                self.client.call("GET", "/readyz")
                return
            except CarrelError:
                time.sleep(0.05)
        raise CarrelError("carrel serve did not become ready within 60 s", code="unavailable")

    def __enter__(self) -> Carrel:
        return self.client

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.client.close()
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._log.close()
        if self._own:
            shutil.rmtree(self._own, ignore_errors=True)
