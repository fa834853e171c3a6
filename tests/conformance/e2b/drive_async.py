# SPDX-License-Identifier: Apache-2.0
"""The same of Python's AsyncSandbox, as far as it is another program: streams, deadlines, watches, many at once."""
import asyncio
import hashlib
import os
import unittest

import e2b
import surface
from e2b import AsyncSandbox, PtySize

MANY = int(os.environ.get("MANY", "10"))


class Base(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.sandbox = await AsyncSandbox.create(timeout=300)

    async def asyncTearDown(self):
        await self.sandbox.kill()


class Drive(Base):
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


class Rest(Base):
    async def test_git(self):
        git, run, here = self.sandbox.git, self.sandbox.commands.run, "/home/user/repo"
        await run("git init -q --bare -b main origin.git")
        await git.clone("/home/user/origin.git", path=here)
        await git.configure_user("A", "a@example.com", scope="local", path=here)
        await git.set_config("core.abbrev", "12", scope="local", path=here)
        self.assertEqual(await git.get_config("core.abbrev", scope="local", path=here), "12")
        await self.sandbox.files.write("repo/a", "1")
        await git.add(here)
        await git.commit(here, "first")
        self.assertTrue((await git.status(here)).is_clean)
        self.assertEqual(await git.remote_get(here, "origin"), "/home/user/origin.git")
        await git.remote_add(here, "second", "/home/user/origin.git")
        await git.push(here, remote="origin", branch="main")
        await git.create_branch(here, "next")
        await self.sandbox.files.write("repo/a", "2")
        await git.restore(here, paths=["a"])
        await git.reset(here, mode="hard")
        self.assertEqual(await self.sandbox.files.read("repo/a"), "1")
        await git.checkout_branch(here, "main")
        await git.delete_branch(here, "next")
        self.assertEqual((await git.branches(here)).branches, ["main"])
        await git.pull(here, remote="origin", branch="main")
        await git.init("/home/user/other", initial_branch="main")
        await git.dangerously_authenticate("a", "secret", host="git.example.com")
        with self.assertRaises(e2b.CommandExitException):
            await git.clone("/home/user/nowhere")

    async def test_what_is_seldom_called(self):
        sandbox = self.sandbox
        self.assertEqual(sandbox.get_mcp_url(), f"https://{sandbox.get_host(sandbox.mcp_port)}/mcp")
        with self.assertRaises(e2b.SandboxException):
            await sandbox.get_mcp_token()
        self.assertIsNone(sandbox.traffic_access_token)
        self.assertIsInstance(await sandbox.get_metrics(), list)
        self.assertEqual(await sandbox.list_snapshots().next_items(), [])
        self.assertFalse(await AsyncSandbox.delete_snapshot("no-such"))
        self.assertIn(sandbox.sandbox_id, [s.sandbox_id for s in await AsyncSandbox.list().next_items()])
        await sandbox.update_network({"deny_out": ["0.0.0.0/0"]})
        paths = await sandbox.files.write_files([{"path": "m1", "data": "1"}, {"path": "m2", "data": b"2"}])
        self.assertEqual([w.path for w in paths], ["/home/user/m1", "/home/user/m2"])
        self.assertEqual((await sandbox.files.get_info("m1")).size, 1)
        self.assertIn("signature=v1_", sandbox.download_url("m1"))
        self.assertIn("signature=v1_", sandbox.upload_url("m1"))
        self.assertFalse(await sandbox.commands.kill(999999))
        cat = await sandbox.commands.run("cat", background=True, stdin=True)
        await cat.send_stdin("by its handle\n")
        pieces = sandbox.commands.stream_input(cat.pid)
        for piece in (b"and ", b"more\n"):
            await pieces.send(piece)
        await pieces.close()
        await cat.close_stdin()
        self.assertEqual((await cat.wait()).stdout, "by its handle\nand more\n")
        self.assertEqual((cat.stdout, cat.stderr, cat.exit_code, cat.error), ("by its handle\nand more\n", "", 0, None))
        left = await sandbox.commands.run("sleep 60", background=True)
        await left.disconnect()
        handle = await sandbox.pty.create(PtySize(rows=24, cols=80), on_data=lambda _: None, timeout=0)
        again = await sandbox.pty.connect(handle.pid, on_data=lambda _: None)
        pieces = sandbox.pty.stream_input(handle.pid)
        for piece in (b"ex", b"it\n"):
            await pieces.send(piece)
        await pieces.close()
        self.assertEqual((await again.wait()).exit_code, 0)
        other = await sandbox.pty.create(PtySize(rows=24, cols=80), on_data=lambda _: None)
        self.assertTrue(await sandbox.pty.kill(other.pid))
        self.assertTrue(await sandbox.beta_pause())
        self.assertTrue(await (await sandbox.connect()).is_running())


class Surface(Base):
    async def test_nothing_public_was_left_out(self):
        kinds = [type(part) for part in (self.sandbox.files, self.sandbox.commands, self.sandbox.pty, self.sandbox.git)]
        self.assertEqual(surface.not_driven(AsyncSandbox, *kinds, e2b.AsyncCommandHandle, e2b.AsyncWatchHandle), [])


if __name__ == "__main__":
    surface.begin()
    unittest.main(testLoader=surface.Ordered())
