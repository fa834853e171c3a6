# SPDX-License-Identifier: Apache-2.0
"""What the unmodified openai-agents does with its Cloudflare client, against a daemon: openai_agents.py runs it."""
import asyncio
import io
import os
import tarfile
import unittest

import aiohttp
from agents.extensions.sandbox.cloudflare import CloudflareSandboxClient, CloudflareSandboxClientOptions
from agents.sandbox import Manifest
from agents.sandbox.errors import ConfigurationError, ExecTransportError, InvalidManifestPathError, WorkspaceReadNotFoundError

URL, KEY = os.environ["CARREL_URL"], os.environ["CARREL_KEY"]


class Session(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.client = CloudflareSandboxClient()
        self.session = await self.create()

    async def create(self, key=KEY, **how):
        session = await self.client.create(options=CloudflareSandboxClientOptions(worker_url=URL, api_key=key), **how)
        await session.start()
        return session

    async def asyncTearDown(self):
        await self.client.delete(self.session)
        await self.session.aclose()

    async def run_it(self, *command, **how):
        result = await self.session.exec(*command, **how)
        return result.stdout, result.stderr, result.exit_code

    async def test_a_command_has_both_streams_a_status_and_its_directory(self):
        self.assertEqual(await self.run_it("pwd; echo err >&2; exit 3"), (b"/workspace\n", b"err\n", 3))
        self.assertEqual(await self.run_it("printf", "%s", "a b\n$x", shell=False), (b"a b\n$x", b"", 0))
        self.assertEqual((await self.run_it("there-is-none", shell=False))[2], 127)

    async def test_output_comes_as_the_bytes_that_it_is(self):
        out, _, code = await self.run_it("head -c 300000 /dev/urandom | tee random; printf '\\377\\000'")
        self.assertEqual(code, 0)
        self.assertEqual(out, (await self.session.read("random")).read() + b"\xff\0")

    async def test_a_deadline_is_told(self):
        out, err, code = await self.run_it("echo begun; exec sleep 1000", timeout=1)
        self.assertEqual((out, code), (b"begun\n", 124))
        self.assertIn(b"timeout", err)

    async def test_who_leaves_ends_the_command(self):
        task = asyncio.ensure_future(self.session.exec("echo $$ > pid; exec sleep 1000", timeout=900))
        while not (await self.run_it("cat pid 2>/dev/null"))[0]:
            await asyncio.sleep(0.05)
        task.cancel()
        for _ in range(600):
            if not (await self.run_it("pgrep -x sleep"))[0]:
                return
            await asyncio.sleep(0.05)
        self.fail("it runs on")

    async def test_files(self):
        content = bytes(range(256)) * 1000
        for name in ("plain.bin", "d e/ü%2f?#&.bin", "empty"):
            await self.session.write(name, io.BytesIO(b"" if name == "empty" else content))
            self.assertEqual((await self.session.read(name)).read(), b"" if name == "empty" else content)
        with self.assertRaises(WorkspaceReadNotFoundError):
            await self.session.read("none")
        await self.run_it("ln -s /etc/passwd out")
        with self.assertRaises(InvalidManifestPathError):
            await self.session.read("out")

    async def test_files_outside_are_refused(self):
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {KEY}"}) as http:
            for path in ("etc/passwd", "workspace2/x", "workspace%2f..%2fetc%2fpasswd"):
                async with http.get(f"{URL}/v1/sandbox/{self.session.state.sandbox_id}/file/{path}") as answer:
                    self.assertIn(answer.status, (400, 403), path)
                    self.assertIsInstance((await answer.json())["error"], str)

    async def test_persist_and_hydrate(self):
        await self.run_it("mkdir -p a/b; echo 1 > a/b/one; ln -s one a/b/link; chmod 700 a/b/one; mkdir empty")
        archive = (await self.session.persist_workspace()).read()
        names = tarfile.open(fileobj=io.BytesIO(archive)).getnames()
        self.assertEqual(sorted(names), ["a", "a/b", "a/b/link", "a/b/one", "empty"])
        await self.run_it("rm -rf a empty")
        await self.session.hydrate_workspace(io.BytesIO(archive))
        self.assertEqual(await self.run_it("stat -c %a a/b/one; cat a/b/link; test -d empty"), (b"700\n1\n", b"", 0))
        other = await self.create()
        await other.hydrate_workspace(io.BytesIO(archive))
        self.assertEqual((await other.exec("cat a/b/one")).stdout, b"1\n")
        await self.client.delete(other)
        self.assertFalse(await other.running())
        await other.aclose()

    async def test_what_persist_leaves_out(self):
        await self.run_it("mkdir -p keep cache/deep; echo x > cache/deep/f; echo y > keep/f; echo z > keep/not")
        headers = {"Authorization": f"Bearer {KEY}"}
        async with aiohttp.ClientSession(headers=headers) as http:
            url = f"{URL}/v1/sandbox/{self.session.state.sandbox_id}/persist"
            async with http.post(url, params={"excludes": "cache,./keep/not"}) as answer:
                names = tarfile.open(fileobj=io.BytesIO(await answer.read())).getnames()
        self.assertEqual(sorted(names), ["keep", "keep/f"])

    async def test_a_terminal(self):
        update = await self.session.pty_exec_start("python3", "-q", shell=False, tty=True, yield_time_s=3)
        number = update.process_id
        update = await self.session.pty_write_stdin(session_id=number, chars="print(6*7)\n", yield_time_s=2)
        self.assertIn(b"42", update.output)
        update = await self.session.pty_write_stdin(session_id=number, chars="exit(5)\n", yield_time_s=20)
        self.assertEqual((update.exit_code, update.process_id), (5, None))
        update = await self.session.pty_exec_start("stty size; pwd; exit 4", tty=True, yield_time_s=20)
        self.assertIn(b"24 80\r\n/workspace\r\n", update.output)
        self.assertEqual((update.exit_code, update.process_id), (4, None))

    async def test_a_long_command_in_a_terminal(self):
        text = "".join(f"line {i} of a text that is long\n" for i in range(3000))
        update = await self.session.pty_exec_start(f"cat > long <<'end'\n{text}end\nwc -c long", tty=False, yield_time_s=30)
        self.assertEqual(update.exit_code, 0)
        self.assertEqual((await self.session.read("long")).read().decode(), text)

    async def test_a_terminal_ends_with_its_client(self):
        await self.session.pty_exec_start("sleep 1001", tty=True, yield_time_s=1)
        self.assertTrue((await self.run_it("pgrep -f 'sleep 100[1]'"))[0])
        await self.session.pty_terminate_all()
        for _ in range(600):
            if not (await self.run_it("pgrep -f 'sleep 100[1]'"))[0]:
                return
            await asyncio.sleep(0.05)
        self.fail("it runs on")

    async def test_resume(self):
        await self.run_it("echo kept > file")
        state = self.client.deserialize_session_state(self.client.serialize_session_state(self.session.state))
        os.environ["CLOUDFLARE_SANDBOX_API_KEY"] = KEY
        try:
            again = await self.client.resume(state)
            await again.start()
            self.assertEqual((await again.exec("cat file")).stdout, b"kept\n")
            await again.aclose()
        finally:
            del os.environ["CLOUDFLARE_SANDBOX_API_KEY"]

    async def test_a_manifest(self):
        session = await self.create(manifest=Manifest(entries={"notes/a.txt": {"type": "file", "content": b"begun\n"}}))
        self.assertEqual((await session.exec("cat notes/a.txt")).stdout, b"begun\n")
        await self.client.delete(session)
        await session.aclose()

    async def test_errors_say_why(self):
        with self.assertRaisesRegex(ConfigurationError, "HTTP 401: unauthorized: a valid key is needed"):
            await self.create(key="ck_no")
        await self.client.delete(self.session)
        with self.assertRaisesRegex(ExecTransportError, "409.*in the trash"):
            await self.session.exec("true")
        await self.session.aclose()
        self.session = await self.create()


if __name__ == "__main__":
    unittest.main()
