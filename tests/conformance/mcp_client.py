# SPDX-License-Identifier: Apache-2.0
"""The official Python client: lists the tools and calls those of $SCRIPT, one after the other; said is which."""
import asyncio
import json
import os

import httpx2
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client


async def call_all(session):
    await session.initialize()
    tools = {tool.name: tool for tool in (await session.list_tools()).tools}
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
        result = json.loads((await session.call_tool(name, arguments)).model_dump_json(by_alias=True))
        assert not result.get("isError"), (name, result)
        known[name] = result["structuredContent"]
        print("called", name)


async def main():
    if os.environ["WHERE"] == "http":
        async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {os.environ['CARREL_KEY']}"}, timeout=60) as http:
            async with streamable_http_client(os.environ["CARREL_URL"] + "/mcp", http_client=http) as streams:
                async with ClientSession(streams[0], streams[1]) as session:
                    await call_all(session)
    else:
        server = StdioServerParameters(command=os.environ["CARREL"], args=["mcp"], env=dict(os.environ))
        async with stdio_client(server) as streams:
            async with ClientSession(streams[0], streams[1]) as session:
                await call_all(session)

asyncio.run(main())
