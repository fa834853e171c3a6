# SPDX-License-Identifier: Apache-2.0
"""The official Python client, in the protocol that $MODE says: lists the tools and calls those of $SCRIPT, one after the other; said is which."""
import asyncio
import json
import os

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

MODE = os.environ["MODE"]


async def call_all(client):
    assert client.protocol_version == (MODE if MODE != "legacy" else "2025-11-25"), client.protocol_version
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    known = {}

    def fill(value):
        if not (isinstance(value, str) and value.startswith("$")):
            return value
        found = known
        for name in value[1:].split("."):
            found = found[name]
        return found

    for name, given in json.loads(os.environ["SCRIPT"]):
        takes = json.loads(tools[name].model_dump_json(by_alias=True))["inputSchema"]["properties"]
        arguments = {key: fill(value) for key, value in given.items()}
        if "workspace" in takes:
            arguments["workspace"] = "desk"
        result = json.loads((await client.call_tool(name, arguments)).model_dump_json(by_alias=True))
        assert not result.get("isError"), (name, result)
        known[name] = result["structuredContent"]
        print("called", name)
    [content] = (await client.read_resource("carrel://desk/.bashrc")).contents
    assert content.text


async def main():
    if os.environ["WHERE"] == "http":
        async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {os.environ['CARREL_KEY']}"}, timeout=60) as http:
            async with Client(streamable_http_client(os.environ["CARREL_URL"] + "/mcp", http_client=http), mode=MODE) as client:
                await call_all(client)
    else:
        async with Client(StdioServerParameters(command=os.environ["CARREL"], args=["mcp"], env=dict(os.environ)), mode=MODE) as client:
            await call_all(client)

asyncio.run(main())
