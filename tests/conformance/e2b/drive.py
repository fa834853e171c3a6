# SPDX-License-Identifier: Apache-2.0
"""Every public method of Python's Sandbox, synchronous: what it gives, and which errors it raises. Needs E2B_API_URL, E2B_SANDBOX_URL and
E2B_API_KEY of a daemon."""
import hashlib
import io
import json
import os
import time
import unittest
import urllib.error
import urllib.request

import e2b
import surface
from e2b import PtySize, Sandbox, SandboxQuery, SandboxState

API = os.environ.get("E2B_API_URL") or f"https://api.{os.environ['E2B_DOMAIN']}"
FREEZES = os.environ.get("E2B_TEST_FREEZES")  # the daemon's host can let commands stand still


def until(what, patience=20):
    """The first true answer of it."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        got = what()
        if got:
            return got
        time.sleep(0.05)
    raise AssertionError("it does not come")


def ask(path):
    """What the client keeps to itself, or only E2B's command line asks for."""
    with urllib.request.urlopen(urllib.request.Request(API + path, headers={"X-API-Key": os.environ["E2B_API_KEY"]})) as answer:
        return json.load(answer)


def pause_mode(sandbox):
    return ask(f"/sandboxes/{sandbox.sandbox_id}")["pauseMode"]


class Drive(unittest.TestCase):
    def setUp(self):
        self.sandbox = Sandbox.create(timeout=300, metadata={"test": self.id(), "a b": "c&d"}, envs={"FROM_SANDBOX": "1"})
        self.addCleanup(self.sandbox.kill)


class Lifecycle(Drive):
    def test_what_is_told_of_it(self):
        info = self.sandbox.get_info()
        self.assertEqual((info.sandbox_id, info.template_id, info.state), (self.sandbox.sandbox_id, "base", SandboxState.RUNNING))
        self.assertEqual(info.metadata, {"test": self.id(), "a b": "c&d"})
        self.assertAlmostEqual((info.end_at - info.started_at).total_seconds(), 300, delta=1)
        self.assertTrue(self.sandbox.is_running())
        [now] = self.sandbox.get_metrics()
        self.assertTrue(0 < now.mem_used < now.mem_total and 0 < now.disk_used < now.disk_total and now.cpu_count > 0, now)
        self.assertIn(f"3000-{self.sandbox.sandbox_id}.", self.sandbox.get_host(3000))

    def test_lists(self):
        query = SandboxQuery(metadata={"test": self.id(), "a b": "c&d"})
        self.assertEqual([s.sandbox_id for s in Sandbox.list(query=query).next_items()], [self.sandbox.sandbox_id])
        self.assertEqual(Sandbox.list(query=SandboxQuery(metadata={"a b": "no"})).next_items(), [])
        others = [Sandbox.create(timeout=60, metadata={"page": self.id()}) for _ in range(4)]
        for other in others:
            self.addCleanup(other.kill)
        pages = Sandbox.list(query=SandboxQuery(metadata={"page": self.id()}), limit=3)
        got = [s.sandbox_id for s in pages.next_items()]
        self.assertEqual((len(got), pages.has_next), (3, True))
        got += [s.sandbox_id for s in pages.next_items()]
        self.assertFalse(pages.has_next)
        self.assertEqual(got, [s.sandbox_id for s in reversed(others)])

    def test_its_time(self):
        self.sandbox.set_timeout(1000)
        self.assertGreater((self.sandbox.get_info().end_at - self.sandbox.get_info().started_at).total_seconds(), 900)
        Sandbox.connect(self.sandbox.sandbox_id, timeout=10)
        self.assertGreater((self.sandbox.get_info().end_at - self.sandbox.get_info().started_at).total_seconds(), 900)
        short = Sandbox.create(timeout=1)
        until(lambda: not short.is_running())
        with self.assertRaises(e2b.SandboxNotFoundException):
            short.set_timeout(10)
        with self.assertRaises(e2b.TimeoutException):
            short.commands.run("true")

    def test_killed(self):
        running = self.sandbox.commands.run("sleep 100", background=True)
        self.assertTrue(self.sandbox.kill())
        with self.assertRaises(e2b.TimeoutException):
            running.wait()
        self.assertFalse(self.sandbox.kill())
        self.assertFalse(self.sandbox.is_running())
        for call in (lambda: self.sandbox.files.read("a"), lambda: self.sandbox.files.list("."), lambda: self.sandbox.commands.list()):
            with self.assertRaises(e2b.TimeoutException):
                call()
        for call in (self.sandbox.get_info, lambda: Sandbox.connect(self.sandbox.sandbox_id)):
            with self.assertRaises(e2b.NotFoundException):
                call()

    def test_paused_and_resumed(self):
        self.sandbox.files.write("kept.txt", "kept")
        self.assertTrue(self.sandbox.pause())
        self.assertFalse(self.sandbox.pause())
        self.assertEqual(self.sandbox.get_info().state, SandboxState.PAUSED)
        self.assertFalse(self.sandbox.is_running())
        self.assertEqual([s.sandbox_id for s in Sandbox.list(query=SandboxQuery(metadata={"test": self.id()}, state=[SandboxState.PAUSED])).next_items()],
                         [self.sandbox.sandbox_id])
        again = self.sandbox.connect()
        self.assertEqual(again.files.read("kept.txt"), "kept")
        self.assertTrue(again.is_running())

    @unittest.skipUnless(FREEZES, "this daemon's host has no freezer: pausing keeps files")
    def test_pausing_keeps_memory(self):
        handle = self.sandbox.commands.run("i=0; while :; do i=$((i+1)); echo $i; sleep 0.05; done", background=True, timeout=0)
        self.sandbox.pause()
        with self.assertRaises(e2b.TimeoutException):
            handle.wait()
        self.assertEqual(pause_mode(self.sandbox), "full")
        self.sandbox.connect()
        self.assertIn(handle.pid, [p.pid for p in self.sandbox.commands.list()])
        lines = []
        again = self.sandbox.commands.connect(handle.pid)
        for out, _, _ in again:
            lines.append(int(out.split()[0]))
            if len(lines) > 3:
                break
        self.assertEqual(lines, sorted(lines))
        self.assertGreater(lines[0], 1)
        self.sandbox.pause(keep_memory=False)
        self.assertEqual(pause_mode(self.sandbox), "filesystem")
        self.sandbox.connect()
        self.assertEqual(self.sandbox.commands.list(), [])

    def test_paused_at_its_end_and_resumed_by_who_asks(self):
        sandbox = Sandbox.create(timeout=1, lifecycle={"on_timeout": "pause", "auto_resume": True})
        self.addCleanup(sandbox.kill)
        until(lambda: sandbox.get_info().state == SandboxState.PAUSED)
        self.assertEqual(sandbox.commands.run("echo up").stdout, "up\n")

    def test_the_same_key_makes_one(self):
        one = Sandbox.create(timeout=60, idempotency_key="k-" + self.sandbox.sandbox_id)
        self.addCleanup(one.kill)
        self.assertEqual(Sandbox.create(timeout=60, idempotency_key="k-" + self.sandbox.sandbox_id).sandbox_id, one.sandbox_id)

    def test_its_network_is_names(self):
        self.sandbox.update_network({"allow_out": ["example.org"], "deny_out": ["0.0.0.0/0"]})
        self.assertTrue(self.sandbox.get_info().allow_internet_access)
        self.sandbox.update_network({"deny_out": ["0.0.0.0/0"]})
        self.assertFalse(self.sandbox.get_info().allow_internet_access)

    def test_what_there_is_not(self):
        """docs/from-e2b.md has this list."""
        for call in (self.sandbox.create_snapshot, self.sandbox.fork, lambda: Sandbox.create(volume_mounts={"/mnt/v": "v"}),
                     lambda: self.sandbox.update_network({"allow_out": ["1.1.1.1"]})):
            with self.assertRaises(e2b.SandboxException) as raised:
                call()
            self.assertIn("400", str(raised.exception))
        with self.assertRaises(e2b.SandboxException):
            Sandbox.create(template="no-such-template")
        with self.assertRaises(e2b.SandboxException):
            self.sandbox.files.write("a", "b", metadata={"k": "v"})
        self.assertFalse(Sandbox.delete_snapshot("no-such"))
        with self.assertRaises(e2b.AuthenticationException):
            Sandbox.create(api_key="e2b_0000")


class Commands(Drive):
    def test_run(self):
        result = self.sandbox.commands.run("echo out; echo err >&2; pwd; echo $HOME $USER $FROM_SANDBOX $MINE", envs={"MINE": "2"})
        self.assertEqual((result.stdout, result.stderr, result.exit_code), ("out\n/home/user\n/home/user user 1 2\n", "err\n", 0))
        self.assertEqual(self.sandbox.commands.run("pwd", cwd="/tmp").stdout, "/tmp\n")
        self.assertEqual(self.sandbox.commands.run("echo $FROM_SANDBOX", envs={"FROM_SANDBOX": "mine"}).stdout, "mine\n")
        got = []
        self.sandbox.commands.run("printf a; sleep 0.1; printf b", on_stdout=got.append)
        self.assertEqual("".join(got), "ab")
        with self.assertRaises(e2b.CommandExitException) as raised:
            self.sandbox.commands.run("echo why >&2; exit 7")
        self.assertEqual((raised.exception.exit_code, raised.exception.stderr, raised.exception.error), (7, "why\n", "exit status 7"))
        self.assertEqual(self.sandbox.commands.run("head -c 3000000 /dev/zero | tr '\\0' 'ä' | wc -c").stdout, "3000000\n")

    def test_errors(self):
        for error, argv in ((e2b.InvalidArgumentException, {"cwd": "/nope"}), (e2b.AuthenticationException, {"user": "nobody-else"}),
                            (e2b.SandboxException, {"user": "root"}), (e2b.TimeoutException, {"timeout": 0.5})):
            with self.assertRaises(error, msg=argv):
                self.sandbox.commands.run("sleep 5", **argv)
        # The client is told at its deadline; the command is killed then, and gone a moment later.
        gone = "for i in $(seq 100); do pgrep -f '^sleep 5' >/dev/null || { echo none; exit; }; sleep 0.1; done; pgrep -a sleep"
        self.assertEqual(self.sandbox.commands.run(gone).stdout, "none\n", "what was too late runs on")

    def test_logs(self):
        self.sandbox.commands.run("echo one")
        with self.assertRaises(e2b.CommandExitException):
            self.sandbox.commands.run("exit 3")
        logs = f"sandboxes/{self.sandbox.sandbox_id}/logs"
        lines = [entry["line"] for entry in ask(f"/{logs}")["logs"]]
        self.assertEqual(lines, ["started: /bin/bash -l -c echo one", "ended (exit, exit code 0): /bin/bash -l -c echo one",
                                 "started: /bin/bash -l -c exit 3", "ended (exit, exit code 3): /bin/bash -l -c exit 3"])
        [last] = ask(f"/v2/{logs}?direction=backward&limit=1")["logs"]
        self.assertEqual((last["level"], last["fields"]["exit_code"]), ("error", 3))
        self.assertEqual(len(ask(f"/v2/{logs}?search=echo")["logs"]), 2)

    def test_in_the_background(self):
        handle = self.sandbox.commands.run("for i in 1 2 3; do echo $i; sleep 0.1; done", background=True)
        self.assertIn(handle.pid, [p.pid for p in self.sandbox.commands.list()])
        self.sandbox.commands.run(f"kill -0 {handle.pid}")
        self.assertEqual(handle.wait().stdout, "1\n2\n3\n")
        self.assertNotIn(handle.pid, [p.pid for p in self.sandbox.commands.list()])
        slow = self.sandbox.commands.run("sleep 100", background=True)
        other = self.sandbox.commands.connect(slow.pid)
        self.assertTrue(slow.kill())
        with self.assertRaises(e2b.CommandExitException) as raised:
            other.wait()
        self.assertEqual(raised.exception.exit_code, -1)
        until(lambda: not self.sandbox.commands.kill(slow.pid))
        self.assertFalse(self.sandbox.commands.kill(999999))
        with self.assertRaises(e2b.NotFoundException):
            self.sandbox.commands.connect(999999)

    def test_a_stream_that_is_left_goes_on(self):
        handle = self.sandbox.commands.run("sleep 0.5; echo late; sleep 0.2", background=True, timeout=0)
        handle.disconnect()
        self.assertEqual(self.sandbox.commands.connect(handle.pid).wait().stdout, "late\n")

    def test_input(self):
        handle = self.sandbox.commands.run("cat", background=True, stdin=True)
        for piece in ("one ", "two\n"):
            self.sandbox.commands.send_stdin(handle.pid, piece)
        self.sandbox.commands.close_stdin(handle.pid)
        self.assertEqual(handle.wait().stdout, "one two\n")
        with self.assertRaises(e2b.NotFoundException):
            self.sandbox.commands.send_stdin(999999, "x")
        handle = self.sandbox.commands.run("sleep 1; wc -c", background=True, stdin=True)
        self.sandbox.commands.stream_input(handle.pid, (b"x" * 100000 for _ in range(120)))  # more than what waits at once
        self.sandbox.commands.close_stdin(handle.pid)
        self.assertEqual(handle.wait().stdout, "12000000\n")

    def test_terminals(self):
        got = []
        handle = self.sandbox.pty.create(PtySize(rows=24, cols=80))
        self.sandbox.pty.resize(handle.pid, PtySize(rows=33, cols=99))
        self.sandbox.pty.send_stdin(handle.pid, b"stty size; echo x$((40+2)); exit 4\n")
        with self.assertRaises(e2b.CommandExitException) as raised:
            handle.wait(on_pty=got.append)
        self.assertEqual(raised.exception.exit_code, 4)
        self.assertIn(b"33 99", b"".join(got))
        self.assertIn(b"x42", b"".join(got))
        handle = self.sandbox.pty.create(PtySize(rows=24, cols=80))
        self.assertTrue(self.sandbox.pty.kill(handle.pid))


class Files(Drive):
    def test_written_and_read(self):
        files = self.sandbox.files
        written = files.write("a.txt", "häh")
        self.assertEqual((written.name, written.path, files.read("a.txt")), ("a.txt", "/home/user/a.txt", "häh"))
        files.write("/tmp/deep/er/b", b"\0\xff\r\n--")
        self.assertEqual(bytes(files.read("/tmp/deep/er/b", format="bytes")), b"\0\xff\r\n--")
        self.assertEqual(b"".join(files.read("a.txt", format="stream")), "häh".encode())
        self.assertEqual(files.read("a.txt", gzip=True), "häh")
        files.write("empty", "")
        self.assertEqual(files.read("empty"), "")
        paths = [w.path for w in files.write_files([{"path": "m1", "data": "1"}, {"path": 'odd " name;', "data": io.BytesIO(b"2")}])]
        self.assertEqual(paths, ["/home/user/m1", '/home/user/odd " name;'])
        self.assertEqual(files.read('odd " name;'), "2")
        self.assertEqual(self.sandbox.commands.run("stat -c '%a %U %G' a.txt").stdout, "644 user user\n")

    def test_large(self):
        bytes_ = os.urandom(1 << 20) * 24
        digest = hashlib.sha256(bytes_).hexdigest()
        for more in ({}, {"gzip": True}):
            self.sandbox.files.write("big", io.BytesIO(bytes_) if more else bytes_, **more)
            self.assertEqual(self.sandbox.commands.run("sha256sum < big").stdout[:64], digest)
        self.assertEqual(hashlib.sha256(self.sandbox.files.read("big", format="bytes")).hexdigest(), digest)

    def test_directories(self):
        files = self.sandbox.files
        self.assertEqual((files.make_dir("d/e"), files.make_dir("d/e")), (True, False))
        files.write("d/f", "x")
        self.sandbox.commands.run("ln -s d link; ln -s nowhere broken; chmod 750 d")
        entries = {e.name: e for e in files.list(".")}
        self.assertEqual(entries["d"].permissions, "drwxr-x---")
        self.assertEqual((entries["link"].type, entries["link"].symlink_target), (e2b.FileType.SYMLINK, "/home/user/d"))
        self.assertEqual([e.path for e in files.list("d", depth=2)], ["/home/user/d/e", "/home/user/d/f"])
        info = files.get_info("d/f")
        self.assertEqual((info.size, info.mode, info.owner, info.group, info.type), (1, 0o644, "user", "user", e2b.FileType.FILE))
        self.assertEqual(files.rename("d/f", "g/h").path, "/home/user/g/h")
        self.assertEqual((files.exists("d/f"), files.exists("g/h")), (False, True))
        files.remove("g")
        files.remove("g")
        self.assertFalse(files.exists("g"))

    def test_errors(self):
        files = self.sandbox.files
        files.make_dir("d")
        files.write("f", "")
        missing, invalid = e2b.FileNotFoundException, e2b.InvalidArgumentException
        for error, call in ((missing, lambda: files.read("nope")), (missing, lambda: files.list("nope")), (missing, lambda: files.get_info("nope")),
                            (missing, lambda: files.rename("nope", "x")), (missing, lambda: files.watch_dir("nope")),
                            (invalid, lambda: files.read("d")), (invalid, lambda: files.list("f")), (invalid, lambda: files.make_dir("f")),
                            (invalid, lambda: files.write("d", "x")), (invalid, lambda: files.watch_dir("f")),
                            (e2b.AuthenticationException, lambda: files.read("f", user="nobody-else"))):
            with self.assertRaises(error):
                call()

    def test_watched(self):
        self.sandbox.files.make_dir("d")
        watch = self.sandbox.files.watch_dir("d", recursive=True)
        seen = []

        def told(event):
            seen.extend((e.name, e.type.name) for e in watch.get_new_events())
            return event in seen
        self.sandbox.files.write("d/new", "1")
        self.sandbox.commands.run("mkdir d/sub; echo 2 >> d/new")
        until(lambda: told(("sub", "CREATE")))
        self.sandbox.commands.run("mv d/new d/sub/old")
        until(lambda: told(("sub/old", "CREATE")))
        self.sandbox.commands.run("rm d/sub/old")
        until(lambda: told(("sub/old", "REMOVE")))
        for event in (("new", "CREATE"), ("new", "WRITE"), ("sub", "CREATE"), ("new", "RENAME")):
            self.assertIn(event, seen)
        watch.stop()

    def test_signed_addresses(self):
        self.sandbox.files.write("s.txt", "signed")
        url = self.sandbox.download_url("s.txt", use_signature_expiration=100)
        self.assertEqual(urllib.request.urlopen(url).read(), b"signed")
        for wrong in (url.replace("s.txt", "t.txt"), url.replace("signature=v1_", "signature=v1_A"), url.split("&signature")[0]):
            with self.assertRaises(urllib.error.HTTPError) as raised:
                urllib.request.urlopen(wrong)
            self.assertEqual(raised.exception.code, 401)
            raised.exception.close()
        past = self.sandbox.download_url("s.txt", use_signature_expiration=-10)
        with self.assertRaises(urllib.error.HTTPError) as raised:
            urllib.request.urlopen(past)
        self.assertIn(b"signature is already expired", raised.exception.read())
        raised.exception.close()


class Git(Drive):
    def test_every_command(self):
        git, run, here = self.sandbox.git, self.sandbox.commands.run, "/home/user/repo"
        run("git init -q --bare -b main origin.git")
        git.clone("/home/user/origin.git", path=here)
        git.configure_user("A", "a@example.com", scope="local", path=here)
        git.set_config("core.abbrev", "12", scope="local", path=here)
        self.assertEqual(git.get_config("core.abbrev", scope="local", path=here), "12")
        self.sandbox.files.write("repo/a", "1")
        self.assertFalse(git.status(here).is_clean)
        git.add(here)
        git.commit(here, "first")
        self.assertTrue(git.status(here).is_clean)
        self.assertEqual(git.remote_get(here, "origin"), "/home/user/origin.git")
        git.remote_add(here, "second", "/home/user/origin.git")
        git.push(here, remote="origin", branch=git.branches(here).current_branch)
        git.create_branch(here, "next")
        self.assertEqual(git.branches(here).current_branch, "next")
        self.sandbox.files.write("repo/a", "2")
        git.restore(here, paths=["a"])
        self.assertEqual(self.sandbox.files.read("repo/a"), "1")
        self.sandbox.files.write("repo/a", "3")
        git.reset(here, mode="hard")
        self.assertEqual(self.sandbox.files.read("repo/a"), "1")
        git.checkout_branch(here, "main")
        git.delete_branch(here, "next")
        self.assertEqual(git.branches(here).branches, ["main"])
        git.pull(here, remote="origin", branch="main")
        git.init("/home/user/other", initial_branch="main")
        git.dangerously_authenticate("a", "secret", host="git.example.com")
        self.assertIn("git.example.com", self.sandbox.files.read(".git-credentials"))
        with self.assertRaises(e2b.CommandExitException):
            git.clone("/home/user/nowhere")


class Rest(Drive):
    def test_what_is_seldom_called(self):
        sandbox = self.sandbox
        self.assertEqual(sandbox.get_mcp_url(), f"https://{sandbox.get_host(sandbox.mcp_port)}/mcp")
        with self.assertRaises(e2b.SandboxException):
            sandbox.get_mcp_token()  # a file that no sandbox without MCP has, and root's
        self.assertIsNone(sandbox.traffic_access_token)
        self.assertEqual(sandbox.list_snapshots().next_items(), [])
        cat = sandbox.commands.run("cat", background=True, stdin=True)
        cat.send_stdin("by its handle\n")
        cat.close_stdin()
        self.assertEqual(cat.wait().stdout, "by its handle\n")
        url = sandbox.upload_url("up.txt")
        body = b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\nup\r\n--b--\r\n'
        urllib.request.urlopen(urllib.request.Request(url, data=body, headers={"Content-Type": "multipart/form-data; boundary=b"})).close()
        self.assertEqual(sandbox.files.read("up.txt"), "up")
        handle = sandbox.pty.create(PtySize(rows=24, cols=80), timeout=0)
        again = sandbox.pty.connect(handle.pid)
        sandbox.pty.stream_input(handle.pid, iter([b"ex", b"it\n"]))
        self.assertEqual(again.wait().exit_code, 0)
        self.assertTrue(sandbox.beta_pause())
        self.assertFalse(sandbox.is_running())


class Surface(unittest.TestCase):
    def test_nothing_public_was_left_out(self):
        sandbox = Sandbox.create(timeout=60)
        kinds = [type(part) for part in (sandbox.files, sandbox.commands, sandbox.pty, sandbox.git)]
        sandbox.kill()
        self.assertEqual(surface.not_driven(Sandbox, *kinds, e2b.CommandHandle, e2b.WatchHandle), [])


if __name__ == "__main__":
    surface.begin()
    unittest.main(testLoader=surface.Ordered())
