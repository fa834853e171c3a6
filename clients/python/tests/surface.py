# SPDX-License-Identifier: Apache-2.0
"""Calls every public method of the client against a transport that answers nothing but "no such thing", and prints which operations of
docs/openapi.json (its first argument) they asked for first, as JSON: {"Class.method": "operationId"}. Both halves must ask for the same."""
import asyncio
import inspect
import json
import os
import re
import sys
import tempfile

import httpx

import carrel
from carrel._async import connection as async_connection
from carrel._async import env as async_env
from carrel._async import files as async_files
from carrel._async import plans as async_plans
from carrel._sync import env as sync_env
from carrel._sync import files as sync_files
from carrel._sync import plans as sync_plans

PLAN = {"id": "p1", "workspace": "w", "state": "closed", "hash": "h"}
INHERITED = set(vars(async_connection.AsyncConnection)) - {"close"}
with tempfile.NamedTemporaryFile(delete=False) as made:
    FILE = made.name
# What a parameter of this name is given; one that is not here and has no default fails the test.
VALUES = {"id": "w", "name": "n", "workspace": "w", "scopes": ["read"], "command": "true", "exec_id": "x1", "data": b"", "signal": "TERM", "cols": 80,
          "rows": 24, "path": "/f", "paths": ["/f"], "content": "", "old": "a", "new": "b", "files": {"/f": "", "/g": ""}, "source": "/f", "target": "/g",
          "mode": 0o644, "pattern": "*", "local": FILE, "archive": b"", "port": 8000, "operations": [], "snapshot": "s",
          "fork": "f", "start": "now"}
SPECIAL = {"Files.write_list": {"files": [("/f", ""), ("/g", "")]}}



def templates(document):
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if method != "parameters":
                pattern = re.sub(r"\\{path\\}", ".*", re.escape(path))
                yield method.upper(), re.compile(re.sub(r"\\{\w+\\}", "[^/]+", pattern) + "$"), operation["operationId"]


class Recorder:
    def __init__(self, operations):
        self.operations = operations
        self.asked = None

    def __call__(self, request):
        path = request.url.raw_path.decode().split("?")[0]
        if path == "/v1/version" and self.asked is None and not self.wants_version:
            return httpx.Response(200, json={"version": "0", "api": 1, "api_oldest": 1})
        self.asked = self.asked or next((name for method, pattern, name in self.operations if method == request.method and pattern.match(path)),
                                        f"{request.method} {path}")
        return httpx.Response(404, json={"error": {"code": "not_found", "message": "no such thing"}})


def objects(client, half):
    files, plans, env = {"async": (async_files.AsyncFiles, async_plans, async_env.AsyncEnv), "sync": (sync_files.Files, sync_plans, sync_env.Env)}[half]
    prefix = "Async" if half == "async" else ""
    workspace = getattr(carrel, f"{prefix}Workspace")(client, {"id": "w"})
    return {"Carrel": client, "Workspace": workspace, "Files": files(client, workspace.path), "Env": env(client, workspace.path),
            "Command": getattr(carrel, f"{prefix}Command")(client, "w", "x1"), "Plan": getattr(carrel, f"{prefix}Plan")(client, PLAN),
            "OpenPlan": getattr(plans, f"{prefix}OpenPlan")(workspace)}


def arguments(what, method):
    for name, parameter in inspect.signature(method).parameters.items():
        if parameter.default is parameter.empty and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            yield name, SPECIAL.get(what, {}).get(name, VALUES[name])


async def ask(method, how):
    found = method(**how)
    if inspect.isasyncgen(found):
        async for _ in found:
            break
    elif inspect.isawaitable(found):
        await found
    elif inspect.isgenerator(found):
        next(found, None)


async def half(name, operations):
    recorder = Recorder(operations)
    transport = httpx.AsyncClient if name == "async" else httpx.Client
    client = carrel.AsyncCarrel("http://127.0.0.1:1") if name == "async" else carrel.Carrel("http://127.0.0.1:1")
    await ask(client.http.aclose if name == "async" else client.http.close, {})
    client.http = transport(base_url="http://127.0.0.1:1", transport=httpx.MockTransport(recorder))
    found = {}
    for kind, value in objects(client, name).items():
        for what in dir(type(value)):
            method = getattr(value, what, None)
            if what.startswith("_") or not inspect.isroutine(method) or (kind == "Carrel" and what in INHERITED):
                continue
            called = f"{kind}.{what}"
            recorder.asked = None
            recorder.wants_version = called == "Carrel.version"
            client.server_version = "0" if recorder.wants_version else None
            if called != "Carrel.close":
                try:
                    await ask(method, dict(arguments(called, method)))
                except (carrel.CarrelError, StopIteration):
                    pass
            found[called] = recorder.asked
    return found


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        operations = list(templates(json.load(file)))
    both = [asyncio.run(half(name, operations)) for name in ("async", "sync")]
    os.unlink(FILE)
    if both[0] != both[1]:
        sys.exit(f"async and sync differ: {sorted(set(both[0].items()) ^ set(both[1].items()))}")
    print(json.dumps(both[0]))


if __name__ == "__main__":
    main()
