# SPDX-License-Identifier: Apache-2.0
"""Writes by all the ways there are, with the key of an agent of planned writes: openai_agents.py runs it and looks at the tree."""
import asyncio
import io
import os

from agents.extensions.sandbox.cloudflare import CloudflareSandboxClient, CloudflareSandboxClientOptions


async def main():
    options = CloudflareSandboxClientOptions(worker_url=os.environ["CARREL_URL"], api_key=os.environ["CARREL_KEY"])
    client = CloudflareSandboxClient()
    session = await client.create(options=options)
    await session.start()
    assert (await session.exec("echo 1 > by-command")).exit_code == 0
    await session.write("by-file", io.BytesIO(b"2"))
    update = await session.pty_exec_start("echo 3 > by-terminal", tty=True, yield_time_s=20)
    assert update.exit_code == 0, update
    archive = await session.persist_workspace()
    await session.hydrate_workspace(archive)
    assert (await session.exec("cat by-command by-file by-terminal")).stdout == b"1\n23\n"
    again = await client.create(options=options)
    assert again.state.sandbox_id == session.state.sandbox_id, "the key is for one workspace"
    await again.aclose()
    await client.delete(session)  # which its key may not; the client does not mind
    print(session.state.sandbox_id, "done")


asyncio.run(main())
