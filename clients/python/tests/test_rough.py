# SPDX-License-Identifier: Apache-2.0
"""The client where things go wrong, are large, slow or many. CARREL names the program."""
import asyncio
import gc
import hashlib
import http.server
import os
import signal
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import unittest
from contextlib import contextmanager, suppress

import carrel
from carrel._async import connection as async_connection
from carrel._sync import connection
from test_client import free_port

LARGE = 100 << 20
VERSION = b'{"version": "0.1.0", "api": 1, "api_oldest": 1}'


def tree_of(pid):
    """It and all below it: their names by their ids."""
    found, left = {}, [pid]
    while left:
        one = left.pop()
        try:
            with open(f"/proc/{one}/comm", encoding="ascii") as file:
                found[one] = file.read().strip()
            with open(f"/proc/{one}/task/{one}/children", encoding="ascii") as file:
                left += [int(child) for child in file.read().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def front_of(local):
    return next(pid for pid, name in tree_of(local._process.pid).items() if name == "carrel-front")


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def resident():
    """KiB of memory that this process has now."""
    with open("/proc/self/status", encoding="ascii") as file:
        return int(next(line for line in file if line.startswith("VmRSS")).split()[1])


@contextmanager
def server(answer):
    """An HTTP server: answer(handler) for every GET and POST."""
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            answer(self)

        do_POST = do_GET

        def log_message(self, *_):
            pass

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_):  # who breaks off is the test
            pass

    with Server(("127.0.0.1", 0), Handler) as it:
        thread = threading.Thread(target=it.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{it.server_port}"
        finally:
            it.shutdown()
            thread.join()


def says(status, body):
    def answer(handler):
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)
    return answer


@contextmanager
def breaking(port, times, most):
    """Passes on to that port, and of the first so many connections not more than so many bytes of the answers. Yields its address and how
    often it broke."""
    broke = []

    class Pass(socketserver.BaseRequestHandler):
        def handle(self):
            left = most if len(broke) < times else float("inf")
            with socket.create_connection(("127.0.0.1", port)) as behind:
                there = threading.Thread(target=pour, args=(self.request, behind, float("inf")))
                there.start()
                if pour(behind, self.request, left):
                    broke.append(1)
                for end in (behind, self.request):
                    with suppress(OSError):
                        end.shutdown(socket.SHUT_RDWR)
                there.join()

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Pass) as it:
        thread = threading.Thread(target=it.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{it.server_address[1]}", broke
        finally:
            it.shutdown()
            thread.join()


def pour(source, target, left):
    """Whether it was cut, in the middle of a piece."""
    with suppress(OSError):
        while data := source.recv(65536):
            if len(data) > left:
                target.sendall(data[:left // 2])
                return True
            left -= len(data)
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    return False


def silent_workspace(stop):
    """A daemon that has a workspace, and says nothing of its commands."""
    def answer(handler):
        if "/exec" in handler.path:
            stop.wait(60)
        else:
            says(200, VERSION if handler.path == "/v1/version" else b'{"id": "a", "owner": "o", "state": "awake"}')(handler)
    return answer


class WrongServers(unittest.TestCase):
    def refused(self, kind, answer, *words):
        """By both halves, the same way."""
        with server(answer) as url:
            with carrel.Carrel(url, "k", timeout=0.5) as c, self.assertRaises(kind) as caught:
                c.workspace("a")

            async def other():
                async with carrel.AsyncCarrel(url, "k", timeout=0.5) as c:
                    await c.workspace("a")
            with self.assertRaises(kind) as again:
                asyncio.run(other())
        self.assertEqual(str(caught.exception), str(again.exception))
        for word in words:
            self.assertIn(word, str(caught.exception))
        return caught.exception

    def test_what_is_no_daemon_is_told_apart_from_an_old_and_a_new_one(self):
        self.refused(carrel.WrongServer, says(200, b"<html>"), "is the address right?")
        self.refused(carrel.WrongServer, says(404, b"<html>"), "404")
        self.refused(carrel.WrongServer, says(200, b'{"version": 1}'))
        self.refused(carrel.WrongServer, says(200, b"[]"))
        self.refused(carrel.WrongServer, says(302, b""))
        error = b'{"error": {"code": "%s", "message": "so it is"}}'
        self.refused(carrel.OldDaemon, says(404, error % b"not_found"), "older than this client")
        self.refused(carrel.OldDaemon, says(401, error % b"unauthorized"), "older than this client")
        self.refused(carrel.OldDaemon, says(200, b'{"version": "9", "api": 9, "api_oldest": 8}'), "upgrade the client")
        self.refused(carrel.OldDaemon, says(200, b'{"version": "0", "api": 0, "api_oldest": 0}'), "upgrade the daemon")
        self.refused(carrel.Unavailable, says(503, error % b"unavailable"), "so it is")

    def test_addresses_that_are_none(self):
        for url in ("http://", "http://:80", "http://a:x", "http://a:99999"):
            with self.assertRaises(ValueError, msg=url):
                carrel.Carrel(url)
        with self.assertRaises(carrel.ConnectionFailed) as caught, carrel.Carrel("/nowhere/carrel.sock") as c:
            c.version()
        self.assertIn("/nowhere/carrel.sock", str(caught.exception))

    def test_one_that_says_nothing_is_given_up(self):
        stop = threading.Event()
        self.addCleanup(stop.set)
        hello = connection.HELLO_TIMEOUT
        self.addCleanup(setattr, connection, "HELLO_TIMEOUT", hello)
        self.addCleanup(setattr, async_connection, "HELLO_TIMEOUT", hello)
        connection.HELLO_TIMEOUT = async_connection.HELLO_TIMEOUT = 0.5
        error = self.refused(carrel.TimedOut, lambda handler: stop.wait(60))
        self.assertEqual(error.code, "timed_out")

        def later(handler):
            says(200, VERSION)(handler) if handler.path == "/v1/version" else stop.wait(60)
        self.refused(carrel.TimedOut, later, "within 0.5 s")
        for answer in (later, silent_workspace(stop)):
            with server(answer) as url, carrel.Carrel(url, timeout=0.5) as c, self.assertRaises(carrel.TimedOut):
                c.workspace("a").run("true")
        with server(later) as url, carrel.Carrel(url, timeout=0.5) as c, self.assertRaises(carrel.TimedOut):
            next(iter(c.events()))

    def test_a_stream_that_has_begun_may_take_its_time(self):
        def slowly(handler):
            if handler.path == "/v1/version":
                says(200, VERSION)(handler)
                return
            handler.send_response(200)
            handler.end_headers()
            threading.Event().wait(1.5)
            handler.wfile.write(b'data: {"type": "late"}\n\n')
            handler.close_connection = True
        with server(slowly) as url, carrel.Carrel(url, timeout=0.5) as c:
            self.assertEqual(next(iter(c.events()))["type"], "late")

    def test_a_stream_that_is_none_of_ours(self):
        for line in (b"<html>", b"[1]", b"7", b'{"type": '):
            def answer(handler, line=line):
                says(200, VERSION if handler.path == "/v1/version" else b"data:" + line + b"\n" if "events" in handler.path else line + b"\n")(handler)
            with server(answer) as url, carrel.Carrel(url) as c:
                for stream in (c.events(), c.audit(follow=True)):
                    with self.assertRaises(carrel.WrongServer, msg=line) as caught:
                        next(iter(stream))
                    self.assertIn("not as Carrel does", str(caught.exception))

    def test_a_connection_that_breaks_is_tried_again_only_for_what_looks(self):
        asked = []

        def breaks(handler):
            if handler.path == "/v1/version":
                says(200, VERSION)(handler)
                return
            asked.append(handler.command)
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
            handler.close_connection = True
        self.refused(carrel.ConnectionFailed, breaks, "may be done or not")
        self.assertEqual(asked, ["GET", "GET"] * 2)
        asked.clear()
        with server(breaks) as url, carrel.Carrel(url) as c:
            with self.assertRaises(carrel.ConnectionFailed):
                c.create_key(scopes=["read"])
            self.assertEqual(asked, ["POST"])


class Daemon(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.port = free_port()
        cls.local = carrel.Local(settings={"listen": f"127.0.0.1:{cls.port}"})
        cls.addClassCleanup(cls.local.close)
        cls.c = cls.local.client
        cls.key = cls.c.create_key(scopes=["owner"], owner="alice")["key"]

    def setUp(self):
        self.ws = self.c.workspace(self.id().rsplit(".", 1)[-1].replace("_", "-")[:60])

    def ways(self):
        """A workspace over the socket, and one over TCP with a key."""
        yield "socket", self.ws
        with carrel.Carrel(f"http://127.0.0.1:{self.port}", self.key) as c:
            yield "tcp", c.workspace(f"tcp-{self.ws.id}"[:60])

    # --- what is no text ---

    def test_output_that_is_no_text(self):
        result = self.ws.run("printf 'a\\377b'; printf '\\376' >&2")
        self.assertEqual((result.stdout_bytes, result.stderr_bytes, result.stdout), (b"a\xffb", b"\xfe", "a\ufffdb"))
        # A letter whose bytes come one by one is one letter; what is never finished is told at the end.
        seen = [output.text for output in self.ws.stream("printf 'x\\303'; sleep 0.5; printf '\\251y'; sleep 0.5; printf '\\303'")]
        self.assertEqual("".join(seen), "x\u00e9y\ufffd")
        self.assertFalse(any("\ufffd" in text for text in seen[:-1]), seen)

    def test_names_that_are_no_text(self):
        files, raw = self.ws.files, b"/d\xe9/n\xff.txt"
        name = os.fsdecode(raw)
        files.write(raw, "needle\n")
        self.assertEqual(files.glob("**/*.txt"), [name])
        self.assertEqual([match.path for match in files.grep("needle")], [name])
        self.assertEqual(files.edit(raw, "needle", "n"), 1)
        self.assertEqual(files.lines(name).content, "n\n")
        files.cp(raw, b"/d\xe9/\xfe")
        files.mv(b"/d\xe9/\xfe", b"/d\xe9/\xfd")
        self.assertEqual([entry.path for entry in files.ls(b"/d\xe9")], [name, os.fsdecode(b"/d\xe9/\xfd")])
        changes = files.watch(b"/d\xe9")
        self.assertEqual(next(changes).event, "ready")
        files.write(b"/d\xe9/\xfc", "")
        self.assertEqual(next(changes).path, os.fsdecode(b"/d\xe9/\xfc"))
        changes.close()
        with tempfile.TemporaryDirectory() as top:
            files.download("/", f"{top}/out")
            self.assertTrue(os.path.exists(os.fsencode(top) + b"/out" + raw))
            files.upload(f"{top}/out", b"/up\xff")
            self.assertTrue(files.exists(b"/up\xff" + raw))
        with self.ws.plan() as p:
            p.run(b"mv d?/n*.txt /moved".decode())
        p.show().encode()
        self.assertIn("moved", p.plan.operations()._repr_html_())
        p.discard()
        with self.assertRaises(carrel.InvalidRequest) as caught:
            self.ws.run("echo \udcff")
        self.assertIn("UTF-8", str(caught.exception))

    def test_what_a_notebook_shows_is_text_not_markup(self):
        result = self.ws.run("echo '<script>'; echo '<b>' >&2")
        self.assertIn("&lt;script&gt;", result._repr_html_())
        self.assertNotIn("<script>", result._repr_html_())
        with self.ws.plan() as p:
            p.run("echo '<u>' > '<u>'")
        for shown in (p, p.plan, p.show(), p.diff(), p.plan.operations()):
            self.assertNotIn("<u>", shown._repr_html_(), type(shown))
        self.assertIn("color", p.diff()._repr_html_())

    # --- much ---

    def test_a_hundred_megabytes_through_each_call_on_files(self):
        block = os.urandom(1 << 20).replace(b"\n", b"x")[:(1 << 20) - 1] + b"\n"
        data = block * (LARGE >> 20)
        want = hashlib.sha256(data).hexdigest()
        for way, ws in self.ways():
            with self.subTest(way=way), tempfile.TemporaryDirectory() as top:
                files = ws.files

                def is_it(content, what):
                    self.assertEqual(hashlib.sha256(content).hexdigest(), want, what)
                self.assertEqual(files.write("/w", data).size, LARGE)
                is_it(files.read_bytes("/w"), "read_bytes")
                self.assertEqual(len(files.read_bytes("/w", start=5)), LARGE - 5)
                files.download("/w", f"{top}/d")
                with open(f"{top}/d", "rb") as file:
                    is_it(file.read(), "download")
                files.upload(f"{top}/d", "/u")
                os.mkdir(f"{top}/tree")
                os.rename(f"{top}/d", f"{top}/tree/d")
                files.upload(f"{top}/tree", "/t")
                files.rm("/u")
                files.cp("/t/d", "/c")
                files.mv("/c", "/m")
                files.download("/t", f"{top}/back")
                with open(f"{top}/back/d", "rb") as file:
                    is_it(file.read(), "a tree")
                self.assertEqual(files.write_many({"/a": b"1", "/m": data, "/b": b"2"}), [None] * 3)
                read = files.read_many(["/a", "/m", "/b"])
                self.assertEqual((read[0], read[2]), (b"1", b"2"))
                is_it(read[1], "read_many")
                self.assertIsInstance(files.grep("\n".join(["x"]), "/m", limit=1), list)
                sums = {item["path"]: item["sha256"] for item in files.inventory("/") if item.get("type") == "file" and item["size"] == LARGE}
                self.assertEqual(sums, {"/w": want, "/m": want, "/t/d": want})
                self.assertEqual(ws.run(f"head -c {LARGE} w | sha256sum").stdout.split()[0], want)
                ws.backup(f"{top}/backup.tar")
                files.rm("/t", recursive=True)
                self.assertTrue(ws.restore(f"{top}/backup.tar").ok)
                self.assertEqual(files.stat("/t/d").size, LARGE)
                for path in ("/w", "/m", "/t"):
                    files.rm(path, recursive=True)

    def test_the_same_with_await(self):
        data = os.urandom(1 << 20) * (LARGE >> 20)

        async def main(where, id):
            async with carrel.AsyncCarrel(where.socket or where.url, where.key) as c:
                files = (await c.workspace(id)).files
                with tempfile.TemporaryDirectory() as top:
                    await files.write("/w", data)
                    self.assertTrue(await files.read_bytes("/w") == data)
                    await files.download("/w", f"{top}/d")
                    await files.upload(f"{top}/d", "/u/d")
                    await files.download("/u", f"{top}/tree")
                    await files.upload(f"{top}/tree", "/t")
                    self.assertEqual(await files.write_many({"/m": data, "/n": b"1"}), [None, None])
                    read = await files.read_many(["/t/d", "/n"])
                    self.assertTrue(read[0] == data and read[1] == b"1")
                    for path in ("/w", "/u", "/t", "/m"):
                        await files.rm(path, recursive=True)
        for way, ws in self.ways():
            with self.subTest(way=way):
                asyncio.run(main(ws.client.where, ws.id))

    def test_what_is_passed_on_in_pieces_is_never_held_as_a_whole(self):
        script = ("import carrel, sys\nws = carrel.Carrel(sys.argv[1]).workspace(sys.argv[2])\nfiles, top = ws.files, sys.argv[3]\n"
                  "files.write('/few', 'x'); files.download('/few', top + '/few')\n"
                  "def most():\n    return int(next(line for line in open('/proc/self/status') if line.startswith('VmHWM')).split()[1])\nbefore = most()\n"
                  "files.download('/large', top + '/large'); files.upload(top + '/large', '/again/large'); files.download('/again', top + '/tree')\n"
                  "files.upload(top + '/tree', '/tree'); ws.backup(top + '/tar'); assert ws.restore(top + '/tar').ok\n"
                  "assert sum(len(piece) for piece in files.pieces('/tree/large')) == 100 << 20\n"
                  "print(most() - before)\n")
        self.ws.run(f"head -c {LARGE} /dev/zero > large", check=True)
        with tempfile.TemporaryDirectory() as top:
            said = subprocess.run([sys.executable, "-c", script, self.local.socket, self.ws.id, top], stdout=subprocess.PIPE, text=True, check=True).stdout
        self.assertLess(int(said), 48 << 10, "KiB of memory")
        self.ws.delete(purge=True)

    def test_a_slow_reader_of_much_output_loses_nothing(self):
        want = hashlib.sha256(b"".join(b"%d\n" % n for n in range(1, 2_000_001))).hexdigest()
        for way, ws in self.ways():
            with self.subTest(way=way):
                got, waits = hashlib.sha256(), 0
                for output in ws.stream("seq 2000000"):
                    got.update(output.data)
                    if waits < 20:
                        waits += 1
                        threading.Event().wait(0.05)
                self.assertEqual(got.hexdigest(), want)

                async def main(where=ws.client.where, id=ws.id):
                    got = hashlib.sha256()
                    async with carrel.AsyncCarrel(where.socket or where.url, where.key) as c:
                        async for output in (await c.workspace(id)).stream("seq 2000000"):
                            got.update(output.data)
                            if output.offset < 1 << 20:
                                await asyncio.sleep(0.05)
                    self.assertEqual(got.hexdigest(), want)
                asyncio.run(main())

    def test_a_connection_that_breaks_again_and_again_loses_no_byte(self):
        want = hashlib.sha256(b"".join(b"%d\n" % n for n in range(1, 400_001))).hexdigest()
        with breaking(self.port, 12, 150_000) as (url, broke):
            with carrel.Carrel(url, self.key) as c:
                result = c.workspace("breaks").run("seq 400000")
            self.assertEqual(hashlib.sha256(result.stdout_bytes).hexdigest(), want)
            self.assertGreater(len(broke), 5)

            async def main():
                async with carrel.AsyncCarrel(url, self.key) as c:
                    return await (await c.workspace("breaks")).run("seq 400000")
            broke.clear()
            self.assertEqual(hashlib.sha256(asyncio.run(main()).stdout_bytes).hexdigest(), want)
            self.assertGreater(len(broke), 5)

    def test_two_hundred_commands_at_once_from_one_loop(self):
        async def main(url, key, name):
            async with carrel.AsyncCarrel(url, key) as c:
                ws = await c.workspace(name)

                async def one(n):
                    await ws.files.write(f"/in/{n}", f"{n}\n" * 100)
                    return await ws.run(f"cat in/{n}; echo err {n} >&2; exit {n % 100}")

                async def all_of_them():
                    for n, result in enumerate(await asyncio.gather(*[one(n) for n in range(200)])):
                        self.assertEqual((result.stdout, result.stderr, result.exit_code), (f"{n}\n" * 100, f"err {n}\n", n % 100))
                few = descriptors()
                await all_of_them()
                gc.collect()
                before = resident()
                for _ in range(3):
                    await all_of_them()
                gc.collect()
                after = descriptors(), resident()
                self.assertLessEqual(after[0], few + 34)  # connections that are kept for the next call
                self.assertLess(after[1] - before, 32 << 10, "KiB of memory")
        ours = descriptors()
        asyncio.run(main(self.local.socket, None, self.ws.id))
        gc.collect()
        self.assertLessEqual(descriptors(), ours + 1)
        asyncio.run(main(f"http://127.0.0.1:{self.port}", self.key, "many-tcp"))
        gc.collect()
        self.assertLessEqual(descriptors(), ours + 1)

    # --- what is broken off ---

    def test_streams_that_are_left_leave_nothing_open(self):
        command = self.ws.start("while :; do echo x; sleep 0.01; done")
        self.addCleanup(command.kill)
        list(zip(range(3), self.ws.command(command.id)))
        gc.collect()
        before = descriptors()
        for _ in range(40):
            for _output in self.ws.command(command.id):
                break
        gc.collect()
        self.assertLessEqual(descriptors(), before + 2)

        async def other():
            async with carrel.AsyncCarrel(self.local.socket) as c:
                ws = await c.workspace(self.ws.id)
                for _ in range(40):
                    async for _output in ws.command(command.id):
                        break
        asyncio.run(other())
        for _ in range(200):  # the daemon notices by and by
            if self.c.host()["streams"] == 0:
                break
            threading.Event().wait(0.05)
        self.assertEqual(self.c.host()["streams"], 0)

    def test_a_client_that_is_killed_ends_nothing_and_another_sees_all(self):
        script = ("import carrel, sys\nws = carrel.Carrel(sys.argv[1]).workspace(sys.argv[2])\n"
                  "command = ws.stream('for i in $(seq 60); do echo line $i; sleep 0.05; done')\n"
                  "for output in command:\n    print(command.id, flush=True)\n")
        with subprocess.Popen([sys.executable, "-c", script, self.local.socket, self.ws.id], stdout=subprocess.PIPE, text=True) as killed:
            exec_id = killed.stdout.readline().strip()
            killed.kill()
        result = self.ws.command(exec_id).wait()
        self.assertEqual((result.stdout, result.exit_code), ("".join(f"line {n}\n" for n in range(1, 61)), 0))

    def test_the_front_dies_under_readers_and_loses_no_byte(self):
        want = "".join(f"line {n}\n" for n in range(1, 81))
        line = "for i in $(seq 80); do echo line $i; sleep 0.05; done"
        for way, ws in self.ways():
            with self.subTest(way=way):
                async def main(where=ws.client.where, id=ws.id):
                    async with carrel.AsyncCarrel(where.socket or where.url, where.key) as c:
                        begun = asyncio.Event()
                        async_ws = await c.workspace(id)
                        runs = [asyncio.create_task(async_ws.run(line, on_output=lambda _: begun.set())) for _ in range(10)]
                        await begun.wait()
                        for _ in range(2):
                            await asyncio.sleep(0.8)
                            os.kill(front_of(self.local), signal.SIGKILL)
                        done = await asyncio.gather(*runs, return_exceptions=True)
                        lost = [one for one in done if isinstance(one, BaseException)]
                        # One whose start was still unanswered is told so, and may run: never anything else.
                        self.assertTrue(all(isinstance(one, carrel.ConnectionFailed) for one in lost), lost)
                        self.assertEqual({one.stdout for one in done if one not in lost}, {want})
                        self.assertLess(len(lost), 3)
                asyncio.run(main())

    def test_the_front_dies_in_the_middle_of_calls_on_files(self):
        self.ws.files.write("/f", b"x" * (8 << 20))
        stop, failures = threading.Event(), []
        written = [threading.Event() for _ in range(4)]

        def work(n):
            with carrel.Carrel(self.local.socket) as c:
                files = c.workspace(self.ws.id).files
                while not stop.is_set():
                    try:
                        assert len(files.read_bytes("/f")) == 8 << 20
                        assert files.write(f"/w{n}", b"y" * 100000).size == 100000
                        written[n].set()
                    except (carrel.ConnectionFailed, carrel.Unavailable):
                        pass
                    except BaseException as error:
                        failures.append(error)
                        raise
        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(3):
            threading.Event().wait(0.7)
            os.kill(front_of(self.local), signal.SIGKILL)
        for event in written:  # on a busy machine it takes a while until each has got through
            event.wait(60)
        stop.set()
        for thread in threads:
            thread.join(60)
            self.assertFalse(thread.is_alive(), "it hangs")
        self.assertEqual(failures, [])
        for n in range(4):
            self.assertEqual(self.ws.files.stat(f"/w{n}").size, 100000)


class Restart(unittest.TestCase):
    def test_a_daemon_that_goes_and_comes_back(self):
        with tempfile.TemporaryDirectory(dir="/tmp", prefix="carrel-") as state:
            os.chmod(state, 0o755)
            local = carrel.Local(state)
            with carrel.Carrel(local.socket) as c:
                ws = c.workspace("a")
                ws.files.write("/kept", "1")
                command = ws.start("for i in $(seq 1000); do echo $i; sleep 0.1; done")
                said = []

                def read():
                    try:
                        said.append(c.workspace("a").command(command.id).wait())
                    except carrel.CarrelError as error:
                        said.append(error)
                reader = threading.Thread(target=read)
                reader.start()
                threading.Event().wait(0.5)
                local.close()
                for call in (lambda: ws.files.read("/kept"), lambda: ws.files.write("/kept", "2"), lambda: ws.run("true"), lambda: c.version()):
                    with self.assertRaises(carrel.ConnectionFailed) as caught:
                        call()
                    self.assertIn("carrel serve", str(caught.exception))
                local = carrel.Local(state)
                self.addCleanup(local.close)
                self.assertEqual(ws.files.read("/kept"), "1")
                self.assertEqual(ws.run("echo again").stdout, "again\n")
                reader.join(90)
                self.assertFalse(reader.is_alive(), "it hangs")
                self.assertEqual(getattr(said[0], "reason", None), "signal", said)
                local.close()


if __name__ == "__main__":
    unittest.main()
