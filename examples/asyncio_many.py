# SPDX-License-Identifier: Apache-2.0
"""asyncio: many commands at once from one loop, and a terminal. pip install carrel"""
import asyncio

import carrel


async def main(socket: str) -> None:
    async with carrel.AsyncCarrel(socket) as c:
        ws = await c.workspace("thread-1")
        results = await asyncio.gather(*[ws.run(f"echo $(( {n} * {n} ))") for n in range(20)])
        print(sum(int(result.stdout) for result in results))  # => 2470

        command = await ws.start("read name; echo hello $name; stty size", pty=(80, 24))
        await command.resize(100, 30)
        await command.write("world\n")
        print((await command.wait()).stdout.splitlines()[1:])  # => ['hello world', '30 100']


local = carrel.Local()
try:
    asyncio.run(main(local.socket))
finally:
    local.close()
