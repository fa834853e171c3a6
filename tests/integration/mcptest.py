# SPDX-License-Identifier: Apache-2.0
"""A client of /mcp for tests, in both protocols, as thin as it can be."""
import itertools
import json

MODERN = "2026-07-28"
LEGACY = "2025-11-25"
META = "io.modelcontextprotocol/"


class Reply:
    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.type = response.headers.get("Content-Type") or ""
        self.bytes = response.read()
        if self.type == "text/event-stream":
            self.messages = [json.loads(line[6:]) for line in self.bytes.decode().split("\n") if line.startswith("data: ")]
        else:
            self.messages = [json.loads(self.bytes)] if self.bytes else []

    @property
    def last(self):
        return self.messages[-1]

    @property
    def result(self):
        assert "result" in self.last, self.bytes
        return self.last["result"]

    @property
    def error(self):
        return self.last["error"]

    @property
    def notes(self):
        return self.messages[:-1]


class Mcp:
    """One client: of the newer protocol, or with a session of the older one."""

    def __init__(self, daemon, key=None, modern=True, query="", version=None):
        self.daemon, self.key, self.modern, self.path = daemon, key, modern, "/mcp" + query
        self.version = version or (MODERN if modern else LEGACY)
        self.ids = itertools.count(1)
        self.session = None
        if not modern:
            self.opened = self.ask("initialize", {"protocolVersion": self.version, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}})
            self.session = self.opened.headers["Mcp-Session-Id"]
            self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def headers(self, message, **more):
        head = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        if self.key:
            head["Authorization"] = f"Bearer {self.key}"
        if self.modern:
            params = message.get("params", {})
            head |= {"MCP-Protocol-Version": self.version, "Mcp-Method": message["method"]}
            name = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}.get(message["method"])
            if name:
                head["Mcp-Name"] = params[name]
        elif self.session:
            head |= {"MCP-Protocol-Version": self.version, "Mcp-Session-Id": self.session}
        return {name: value for name, value in (head | more).items() if value is not None}

    def message(self, method, params=None, id=None, progress=None):
        params = dict(params or {})
        meta = {}
        if self.modern:
            meta = {META + "protocolVersion": self.version, META + "clientCapabilities": {}}
        if progress is not None:
            meta["progressToken"] = progress
        if meta:
            params["_meta"] = meta
        return {"jsonrpc": "2.0", "id": next(self.ids) if id is None else id, "method": method, "params": params}

    def post(self, message, headers=None, wait=True):
        """A message as it is. Without `wait`: the connection on which the reply comes."""
        own = self.daemon.connect()
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        own.request("POST", self.path, body=body, headers=headers or self.headers(message))
        if not wait:
            return own
        try:
            return Reply(own.getresponse())
        finally:
            own.close()

    def ask(self, method, params=None, **more):
        return self.post(self.message(method, params, **more))

    def call(self, tool, progress=None, **arguments):
        return self.ask("tools/call", {"name": tool, "arguments": arguments}, progress=progress)

    def do(self, tool, **arguments):
        """Calls a tool that must succeed; its structured content."""
        result = self.call(tool, **arguments).result
        assert not result.get("isError"), result
        return result["structuredContent"]

    def fail(self, tool, **arguments):
        """Calls a tool that must fail; what it says."""
        result = self.call(tool, **arguments).result
        assert result["isError"], result
        return result["content"][0]["text"]
