# SPDX-License-Identifier: Apache-2.0
"""The same of Python's AsyncSandbox, as far as it is another program: streams, deadlines, watches, many at once."""
import asyncio
import hashlib
import os
import unittest

import e2b
from e2b import AsyncSandbox, PtySize

MANY = int(os.environ.get("MANY", "10"))


class Drive(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.sandbox = await AsyncSandbox.create(timeout=300)

    async def asyncTearDown(self):
        await self.sandbox.kill()

    async def test_lifecycle(self):
        self.assertTrue(await self.sandbox.is_running())
        self.assertEqual((await self.sandbox.get_info()).sandbox_id, self.sandbox.sandbox_id)
        await self.sandbox.set_timeout(100)
        self.assertTrue(await self.sandbox.pause())
        self.assertFalse(await self.sandbox.is_running())
        again = await AsyncSandbox.connect(self.sandbox.sandbox_id)
        self.assertTrue(await again.is_running())
        self.assertTrue(await again.kill())
        self.assertFalse(await again.kill())
        with self.assertRaises(e2b.NotFoundException):
            await AsyncSandbox.connect(self.sandbox.sandbox_id)

    async def test_commands(self):
        commands, got = self.sandbox.commands, []
        result = await commands.run("echo out; echo err >&2", on_stdout=got.append)
        self.assertEqual((result.stdout, result.stderr, got), ("out\n", "err\n", ["out\n"]))
        with self.assertRaises(e2b.CommandExitException) as raised:
            await commands.run("exit 3")
        self.assertEqual(raised.exception.exit_code, 3)
        with self.assertRaises(e2b.TimeoutException):
            await commands.run("sleep 5", timeout=0.5)  # the server says it: this client does not count
        handle = await commands.run("cat", background=True, stdin=True)
        await commands.send_stdin(handle.pid, "in\n")
        await commands.close_stdin(handle.pid)
        self.assertEqual((await handle.wait()).stdout, "in\n")
        handle = await commands.run("sleep 100", background=True)
        self.assertIn(handle.pid, [p.pid for p in await commands.list()])
        other = await commands.connect(handle.pid)
        self.assertTrue(await handle.kill())
        with self.assertRaises(e2b.CommandExitException):
            await other.wait()
        with self.assertRaises(e2b.NotFoundException):
            await commands.connect(999999)

    async def test_a_terminal(self):
        got = []
        handle = await self.sandbox.pty.create(PtySize(rows=20, cols=70), on_data=got.append)
        await self.sandbox.pty.resize(handle.pid, PtySize(rows=21, cols=71))
        await self.sandbox.pty.send_stdin(handle.pid, b"stty size; exit\n")
        await handle.wait()
        self.assertIn(b"21 71", b"".join(got))

    async def test_files(self):
        files = self.sandbox.files
        await files.write("a/b.txt", "text")
        self.assertEqual(await files.read("a/b.txt"), "text")
        self.assertEqual([e.name for e in await files.list("a")], ["b.txt"])
        self.assertEqual((await files.make_dir("d"), await files.make_dir("d"), await files.exists("x")), (True, False, False))
        self.assertEqual((await files.rename("a/b.txt", "d/c")).path, "/home/user/d/c")
        await files.remove("d/c")
        with self.assertRaises(e2b.FileNotFoundException):
            await files.read("d/c")
        seen = asyncio.Queue()
        watch = await files.watch_dir("d", on_event=lambda event: seen.put_nowait((event.name, event.type.name)))
        await files.write("d/new", "1")
        self.assertEqual(await asyncio.wait_for(seen.get(), 20), ("new", "CREATE"))
        await watch.stop()
        with self.assertRaises(e2b.FileNotFoundException):
            await files.watch_dir("nope", on_event=print)

    async def test_its_end_in_mid_stream(self):
        handle = await self.sandbox.commands.run("while :; do echo x; sleep 0.05; done", background=True)
        await asyncio.sleep(0.3)
        await self.sandbox.kill()
        with self.assertRaises(e2b.TimeoutException):
            await handle.wait()

    async def test_many_at_once(self):
        async def one(number):
            sandbox = await AsyncSandbox.create(timeout=120)
            try:
                bytes_ = os.urandom(100000)
                await sandbox.files.write("f", bytes_)
                said = (await sandbox.commands.run(f"sha256sum < f; echo {number}")).stdout
                self.assertEqual(said, f"{hashlib.sha256(bytes_).hexdigest()}  -\n{number}\n")
            finally:
                self.assertTrue(await sandbox.kill())
        await asyncio.gather(*(one(number) for number in range(MANY)))


if __name__ == "__main__":
    unittest.main()
