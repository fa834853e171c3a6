# SPDX-License-Identifier: Apache-2.0
"""MCP: a program with the protocol's own client, over `carrel mcp`, as Claude Code and others start it. pip install carrel mcp"""
import asyncio

from mcp import Client, StdioServerParameters

import carrel


async def main(local: carrel.Local) -> None:
    local.client.workspace("thread-1")
    server = StdioServerParameters(command=local.program, args=["mcp", "--workspace", "thread-1"], env={"CARREL_SOCKET": local.socket})
    async with Client(server) as client:
        async def call(tool: str, **arguments: object) -> dict:
            """As a model would."""
            return (await client.call_tool(tool, arguments)).structured_content

        print([tool.name for tool in (await client.list_tools()).tools][:4])  # => ['execute', 'read_file', 'write_file', 'edit_file']
        await call("write_file", path="/plot.py", content="print(6 * 7)")
        print((await call("execute", command="python3 plot.py"))["output"].strip())  # => 42

        plan = (await call("plan_run", command="mkdir old && mv *.py old/"))["plan"]["id"]
        print([match["path"] for match in (await call("glob", pattern="*.py"))["matches"]])  # => ['/plot.py']
        print((await call("plan_apply", plan=plan))["state"])  # => applied
        print([match["path"] for match in (await call("glob", pattern="*.py"))["matches"]])  # => ['/old/plot.py']


local = carrel.Local()
try:
    asyncio.run(main(local))
finally:
    local.close()
