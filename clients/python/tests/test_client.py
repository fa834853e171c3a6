# SPDX-License-Identifier: Apache-2.0
"""The client against a real daemon: over the socket and TCP, sync and async. CARREL names the program."""
import asyncio
import io
import os
import signal
import socket
import tempfile
import threading
import unittest
import zipfile

import carrel


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Client(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.port = free_port()
        cls.local = carrel.Local(settings={"listen": f"127.0.0.1:{cls.port}"})
        cls.addClassCleanup(cls.local.close)
        cls.c = cls.local.client
        cls.key = cls.c.create_key(scopes=["user"], owner="alice")["key"]

    def setUp(self):
        self.ws = self.c.workspace(self.id().rsplit(".", 1)[-1].replace("_", "-")[:60])

    def test_a_command_has_output_status_and_reason(self):
        result = self.ws.run("echo out; echo err >&2; exit 3")
        self.assertEqual((result.stdout, result.stderr, result.exit_code, result.reason), ("out\n", "err\n", 3, "exit"))
        self.assertIn("exit 3", str(result))
        self.assertIn("out", result._repr_html_())
        with self.assertRaises(carrel.CommandFailed) as caught:
            self.ws.run("echo why >&2; exit 4", check=True)
        self.assertIn("why", str(caught.exception))

    def test_arguments_input_directory_and_variables(self):
        self.ws.files.mkdir("/d")
        self.assertEqual(self.ws.run(["sh", "-c", 'pwd; echo "$X"; cat', "a b"], cwd="d", env={"X": "1 2"}, stdin="in").stdout, "/d\n1 2\nin")
        self.assertEqual(self.ws.run("cat", stdin=b"\xff\x00").stdout_bytes, b"\xff\x00")

    def test_a_deadline_is_told(self):
        result = self.ws.run("sleep 100", timeout=0.3)
        self.assertTrue(result.timed_out)
        self.assertEqual((result.exit_code, result.reason), (124, "timeout"))

    def test_output_comes_as_it_is_made(self):
        command = self.ws.stream("echo 1; until test -e seen; do sleep 0.05; done; echo 2", timeout=60)
        for output in command:
            if output.text == "1\n":
                self.ws.files.write("/seen", "")
        self.assertEqual((command.result.stdout, command.result.reason), ("1\n2\n", "exit"))

    def test_output_that_is_not_kept(self):
        seen = []
        result = self.ws.run("echo 1; echo 2 >&2; exit 3", keep=False, on_output=lambda output: seen.append(output.text))
        self.assertEqual((sorted(seen), result.stdout, result.stderr, result.exit_code), (["1\n", "2\n"], "", "", 3))

    def test_background_input_signal_and_kill(self):
        command = self.ws.start("cat; echo done", stdin_open=True)
        command.write("abc")
        command.close_stdin()
        self.assertEqual(command.wait().stdout, "abcdone\n")
        command = self.ws.start("sleep 1000")
        self.assertEqual([item["exec_id"] for item in self.ws.execs(state="running")], [command.id])
        command.kill()
        self.assertEqual(self.ws.command(command.id).wait().reason, "signal")

    def test_a_terminal(self):
        command = self.ws.start("test -t 0 && stty size", pty=(100, 30))
        self.assertIn("30 100", command.wait().stdout)

    def test_files(self):
        files = self.ws.files
        entry = files.write("/a/b/c.txt", "one\ntwo\n")
        self.assertEqual(files.read("a/b/c.txt"), "one\ntwo\n")
        self.assertEqual(files.read_bytes("/a/b/c.txt", start=4, end=7), b"two")
        self.assertEqual(files.lines("/a/b/c.txt", offset=1).content, "two\n")
        self.assertEqual(files.edit("/a/b/c.txt", "one", "1"), 1)
        with self.assertRaises(carrel.Conflict):
            files.write("/a/b/c.txt", "x", if_match=entry.etag)
        with self.assertRaises(carrel.Conflict):
            files.write("/a/b/c.txt", "x", new=True)
        files.write("/a/b/c.txt", "three\n", append=True)
        self.assertEqual(files.read("/a/b/c.txt"), "1\ntwo\nthree\n")
        self.assertEqual([entry.name for entry in files.ls("/a")], ["b"])
        self.assertEqual(files.glob("**/*.txt"), ["/a/b/c.txt"])
        self.assertEqual([(m.path, m.line, m.text) for m in files.grep("two", "/a")], [("/a/b/c.txt", 2, "two")])
        self.assertEqual((files.grep("t", "/a").truncated, files.grep("t", "/a", limit=1).truncated, files.glob("*.txt").truncated), (False, True, False))
        files.mv("/a/b/c.txt", "/n/d.txt")
        files.cp("/n", "/m")
        self.assertTrue(files.exists("/m/d.txt"))
        self.assertFalse(files.exists("/m/d.txt/x"))
        files.symlink("/l", "m/d.txt")
        self.assertEqual((files.stat("/l").type, files.stat("/l").target, files.stat("/l", follow=True).type), ("symlink", "m/d.txt", "file"))
        files.chmod("/m/d.txt", 0o600)
        self.assertEqual(files.stat("/m/d.txt").mode, "0600")
        files.rm("/m", recursive=True)
        with self.assertRaises(FileNotFoundError) as caught:
            files.read("/m/d.txt")
        self.assertEqual(caught.exception.code, "file_not_found")

    def test_names_and_content_that_are_no_text(self):
        name = os.fsdecode(b"/caf\xe9")
        self.ws.files.write(name, b"\xff")
        self.assertEqual(self.ws.files.read_bytes(name), b"\xff")
        self.assertIn(name, [entry.path for entry in self.ws.files.ls("/")])
        read = self.ws.files.read_many([name, "/none"])
        self.assertEqual(read[0], b"\xff")
        self.assertIsInstance(read[1], carrel.FileNotFound)
        self.assertEqual(self.ws.files.write_many({"/x": "1", "/y": b"\x00", "/z": "a\0b"}), [None, None, None])
        self.assertEqual(self.ws.files.read_bytes("/z"), b"a\0b")

    def test_trees_go_up_and_down(self):
        with tempfile.TemporaryDirectory() as top:
            os.makedirs(f"{top}/in/sub/empty")
            for name in ("in/f", "in/sub/g"):
                with open(f"{top}/{name}", "w", encoding="utf-8") as file:
                    file.write(name)
            os.chmod(f"{top}/in/f", 0o755)
            self.ws.files.upload(f"{top}/in", "/up")
            self.assertEqual(self.ws.run("find up -type f -exec cat {} + ; test -x up/f && ls -d up/sub/empty").stdout.count("/"), 5)
            self.ws.run("ln -s /etc/passwd up/link")
            with self.assertRaises(Exception):  # a link that leads out of it
                self.ws.files.download("/up", f"{top}/bad")
            self.ws.files.rm("/up/link")
            self.ws.files.download("/up", f"{top}/out")
            with open(f"{top}/out/sub/g", encoding="utf-8") as file:
                self.assertEqual(file.read(), "in/sub/g")

    def test_a_watch_tells_changes(self):
        seen = []
        ready = threading.Event()

        def look():
            for change in self.ws.files.watch("/"):
                seen.append((change.path, change.event))
                ready.set()
                if change.path == "/w.txt":
                    return
        watcher = threading.Thread(target=look, daemon=True)
        watcher.start()
        self.assertTrue(ready.wait(30))
        self.ws.files.write("/w.txt", "1")
        watcher.join(30)
        self.assertEqual(seen[0][1], "ready")
        self.assertIn(("/w.txt", "create"), seen)

    def test_a_plan_is_looked_at_applied_and_undone(self):
        self.ws.files.write("/a.txt", "1")
        with self.ws.plan() as p:
            p.run("mkdir old && mv a.txt old/")
            self.assertEqual(p.run("ls old").stdout, "a.txt\n")
        self.assertTrue(self.ws.files.exists("/a.txt"))
        self.assertIn("a.txt -> old/a.txt", p.show())
        self.assertIn("move", p.diff())
        self.assertEqual(p.apply().state, "applied")
        self.assertTrue(self.ws.files.exists("/old/a.txt"))
        self.assertEqual(p.undo().state, "undone")
        self.assertTrue(self.ws.files.exists("/a.txt"))
        with self.assertRaises(ZeroDivisionError), self.ws.plan() as broken:
            broken.run("touch never")
            raise ZeroDivisionError
        self.assertEqual(self.ws.plans()[0].state, "discarded")

    def test_a_plan_that_is_written(self):
        self.ws.files.write("/a.txt", "1")
        plan = self.ws.submit_plan({"moves": [{"src": "a.txt", "dest": "b.txt"}]})
        plan.apply()
        self.assertEqual(self.ws.files.read("/b.txt"), "1")

    def test_plans_are_approved_rejected_queued_and_cancelled(self):
        ws = self.c.workspace("decided", policy={"plan": {"approval": "required"}})
        person = carrel.Carrel(self.local.socket, self.c.create_key(scopes=["admin"], owner="boss")["key"])
        self.addCleanup(person.close)

        def written(name):
            return ws.submit_plan([{"op": "create", "path": name, "content": "x"}])
        plan = written("a")
        self.assertEqual(plan.state, "pending")
        with self.assertRaises(carrel.PlanRefused) as caught:
            plan.apply()
        self.assertEqual(caught.exception.code, "approval_required")
        self.assertIn(plan.id, [item.id for item in person.plans(state="pending")])
        theirs = person.workspace("decided").get_plan(plan.id)
        self.assertEqual(theirs.approve("looks good").state, "approved")
        self.assertEqual(theirs.apply(background=True).wait().state, "applied")
        self.assertEqual(ws.files.read("/a"), "x")
        self.assertEqual(person.workspace("decided").get_plan(written("b").id).reject("no").state, "rejected")
        other = written("c").verify(["test", "-e", "c"])
        self.assertEqual(other.info["verdict"], "clean", other.info)
        with self.assertRaises(carrel.Conflict):
            other.cancel()
        other.discard()
        self.assertEqual(other.state, "discarded")
        with self.assertRaises(carrel.InvalidRequest):
            ws.submit_plan([{"op": "create", "path": "../out", "content": "x"}])
        with self.assertRaises(carrel.NotFound):
            ws.get_plan("p" + "a" * 26)

    def test_trash_backup_and_restore(self):
        self.ws.files.write("/kept/f", "1")
        with tempfile.TemporaryDirectory() as top:
            self.ws.backup(f"{top}/b.tar")
            self.ws.files.rm("/kept", recursive=True)
            self.assertTrue(self.ws.restore(f"{top}/b.tar").ok)
            self.assertEqual(os.listdir(top), ["b.tar"])
        self.ws.delete()
        self.assertIn(self.ws.id, [ws.id for ws in self.c.workspaces(deleted=True)])
        self.assertEqual(self.c.undelete(self.ws.id).files.read("/kept/f"), "1")
        self.ws.update(labels={"case": "7"})
        self.assertEqual(self.ws.refresh().info["labels"], {"case": "7"})
        self.ws.sleep()
        self.ws.delete(purge=True)
        with self.assertRaises(carrel.NotFound):
            self.ws.refresh()

    def test_more_of_files(self):
        files = self.ws.files
        files.write_many({"/d/a.txt": "1", "/d/e/b.txt": "1"})
        self.assertEqual(files.glob("**/*", "/d", directories=True), ["/d/a.txt", "/d/e", "/d/e/b.txt"])
        self.assertEqual([entry.type for entry in files.find("e*", "/d", directories=True)], ["directory"])
        items = list(files.inventory("/d"))
        self.assertEqual(items[-1]["summary"]["files"], 2)
        self.assertEqual(len({item["sha256"] for item in items if item.get("type") == "file"}), 1)
        self.ws.run("chmod 000 d/e")
        self.assertEqual(files.repair("/d")["changed"], 1)
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("in/zip.txt", "z")
        self.assertEqual(files.unpack(archive.getvalue(), "/z", format="zip")["files"], 1)
        with files.tar("/z") as tar:
            self.assertIn("in/zip.txt", [name.removeprefix("./") for name in tar.getnames()])
        self.assertEqual(b"".join(files.pieces("/z/in/zip.txt")), b"z")

    def test_what_happens_is_told_as_it_happens(self):
        told, recorded = self.ws.events(), self.ws.audit(follow=True, operation="exec.*")
        seen, ready = [], threading.Event()

        def follow(items, member):
            for item in items:
                ready.set()
                seen.append(item[member])
                if item[member].startswith(("exec.end", "exec_end")):
                    return
        threads = [threading.Thread(target=follow, args=args, daemon=True) for args in ((told, "type"), (recorded, "operation"))]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):  # also those that were there a moment too late
            self.ws.run("true")
            for thread in threads:
                thread.join(0.2)
        self.assertIn("exec.start", seen)

    def test_the_daemon_says_how_it_is(self):
        self.assertEqual((self.c.health()["status"], self.c.ready()["status"]), ("ok", "ready"))
        self.assertEqual(self.c.version(), self.c.health()["version"])
        self.assertIn("carrel_exec_total", self.c.metrics())
        self.assertGreaterEqual(self.c.host()["workspaces"], 1)
        with carrel.Carrel(self.local.socket, self.key) as alice, self.assertRaises(carrel.Forbidden):
            alice.host()

    def test_templates_ports_environments_and_keys(self):
        built = self.c.create_workspace()
        built.files.write("/from-template", "1")
        self.assertEqual(self.c.templates(), [])
        with self.assertRaises(carrel.NotFound):
            self.c.template("none")
        state = self.c.create_template("mine", built.id)["state"]
        while state == "freezing":
            state = self.c.template("mine")["state"]
        self.assertEqual([item["name"] for item in self.c.templates()], ["mine"])
        self.assertEqual(self.c.workspace("on-template", template="mine").info["template"]["name"], "mine")
        self.c.workspace("on-template").delete(purge=True)
        self.c.delete_template("mine")
        self.assertEqual(self.c.templates(), [])
        self.assertIsNone(self.ws.env.show()["python"])
        with self.assertRaises(carrel.EnvFailed):
            self.ws.env.node()
        port = self.ws.open_port(8000)
        self.assertEqual([(item["port"], item["access"]) for item in self.ws.ports()], [(8000, "key")])
        self.assertEqual(port["workspace"], self.ws.id)
        self.ws.close_port(8000)
        self.assertEqual(self.ws.ports(), [])
        made = self.c.create_key(scopes=["read"], owner="alice", name="looks")
        self.assertIn("looks", [key["name"] for key in self.c.keys()])
        with carrel.Carrel(self.local.socket, made["key"]) as reader:
            with self.assertRaises(carrel.Forbidden):
                reader.create_workspace("no")
            self.c.revoke_key(made["id"])
            with self.assertRaises(carrel.Unauthorized):
                reader.workspaces()
        self.assertEqual(self.c.adopt(dry_run=True)["adopted"], 0)

    def test_a_terminal_is_written_to_and_resized(self):
        command = self.ws.start("stty -echo; echo ready; read line; stty size; echo got $line", pty=(80, 24))
        for output in command:
            if "ready" in output.text:
                command.resize(132, 43)
                command.write("words\n")
        self.assertIn("43 132\r\ngot words\r\n", command.result.stdout)
        self.assertEqual(command.info()["state"], "ended")
        with self.assertRaises(carrel.Conflict):
            command.resize(1, 1)

    def test_errors_are_classes_with_the_daemons_sentence(self):
        with self.assertRaises(carrel.NotFound):
            self.c.workspace("none", create=False)
        with self.assertRaises(carrel.InvalidRequest) as caught:
            self.ws.run(["true"], cwd="/x\0y")
        self.assertTrue(caught.exception.request_id)
        tcp = f"http://127.0.0.1:{self.port}"
        with self.assertRaises(carrel.Unauthorized), carrel.Carrel(tcp, "wrong") as c:
            c.workspaces()
        with self.assertRaises(carrel.NotFound), carrel.Carrel(tcp, self.key) as c:  # somebody else's
            c.workspace(self.ws.id, create=False)
        with self.assertRaises(carrel.ConnectionFailed) as caught, carrel.Carrel(f"http://127.0.0.1:{free_port()}") as c:
            c.version()
        self.assertIn("carrel serve", str(caught.exception))
        with self.assertRaises(ValueError):
            self.ws.run("true", timeout=0)

    def test_tcp_with_a_key(self):
        with carrel.Carrel(f"http://127.0.0.1:{self.port}", self.key) as alice:
            ws = alice.workspace("alices")
            self.assertEqual(ws.run("echo hi").stdout, "hi\n")
            self.assertEqual([w.id for w in alice.workspaces()], ["alices"])
            self.assertTrue(any(record["operation"] == "exec.start" for record in alice.audit(workspace="alices")))

    def test_a_stream_that_the_daemon_ends_says_why(self):
        def beginner():
            made = self.c.create_key(scopes=["user"], owner="bob")
            client = carrel.Carrel(f"http://127.0.0.1:{self.port}", made["key"])
            self.addCleanup(client.close)
            return made["id"], client

        key, client = beginner()
        seen = []
        with self.assertRaises(carrel.Unauthorized) as caught:
            for output in client.workspace("told").stream("echo 1; sleep 100"):
                seen.append(output.text)
                self.c.revoke_key(key)
        self.assertEqual((seen, caught.exception.code), (["1\n"], "unauthorized"))
        self.assertIn("no longer valid", str(caught.exception))
        key, client = beginner()
        told = client.workspace("told").files.watch()
        self.assertEqual("ready", next(told).event)
        self.c.revoke_key(key)
        with self.assertRaises(carrel.Unauthorized):
            next(told)

    def test_many_at_once_from_one_loop(self):
        async def main():
            async with carrel.AsyncCarrel(self.local.socket) as c:
                ws = await c.workspace("async")
                await ws.files.write("/n", "1")
                results = await asyncio.gather(*[ws.run(f"echo {n}") for n in range(40)])
                self.assertEqual([r.stdout for r in results], [f"{n}\n" for n in range(40)])
                async with ws.plan() as p:
                    await p.run("rm n")
                self.assertIn("delete", await p.show())
                seen = [output.text async for output in ws.stream("echo x")]
                self.assertEqual(seen, ["x\n"])
        asyncio.run(main())

    def front(self):
        with open(f"/proc/{self.local._process.pid}/task/{self.local._process.pid}/children", encoding="ascii") as file:
            children = file.read().split()
        for child in children:
            with open(f"/proc/{child}/comm", encoding="ascii") as file:
                if file.read().strip() == "carrel-front":
                    return int(child)
        raise AssertionError("there is no front")

    def test_a_reader_goes_on_where_it_was_when_the_front_dies(self):
        command = self.ws.stream("for i in $(seq 40); do echo line $i; sleep 0.05; done")
        for number, _ in enumerate(command):
            if number == 5:
                os.kill(self.front(), signal.SIGKILL)
        self.assertEqual(command.result.stdout, "".join(f"line {n}\n" for n in range(1, 41)))


if __name__ == "__main__":
    unittest.main()
