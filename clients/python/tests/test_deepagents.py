# SPDX-License-Identifier: Apache-2.0
"""The deepagents backend and the LangChain tools with a scripted model, against a real daemon. CARREL names the program, EXAMPLES where
offline_model.py is."""
import asyncio
import gc
import os
import sys
import unittest

from deepagents import create_deep_agent
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

import carrel
from carrel.deepagents import CarrelBackend
from carrel.langchain import workspace_tools
from test_client import free_port

sys.path.insert(0, os.environ["EXAMPLES"])
from offline_model import ScriptedModel  # noqa: E402

YES = Command(resume={"decisions": [{"type": "approve"}]})


def no(message=None):
    return Command(resume={"decisions": [{"type": "reject", **({"message": message} if message else {})}]})


class Agents(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.port = free_port()
        cls.local = carrel.Local(settings={"listen": f"127.0.0.1:{cls.port}"})
        cls.addClassCleanup(cls.local.close)
        cls.c = cls.local.client

    def setUp(self):
        self.thread = self.id().rsplit(".", 1)[-1].replace("_", "-")[:60]
        self.config = {"configurable": {"thread_id": self.thread}}

    def person(self, **key):
        """A client over TCP, with the key of an owner."""
        made = self.c.create_key(scopes=["owner"], owner="alice", **key)
        client = carrel.Carrel(f"http://127.0.0.1:{self.port}", made["key"])
        self.addCleanup(client.close)
        return client

    def agent(self, script, memory=None, **how):
        how.setdefault("client", self.c)
        backend = CarrelBackend(writes="plan", **how)
        self.addCleanup(backend.close)
        return backend, create_deep_agent(model=ScriptedModel(script=script), backend=backend, middleware=backend.approval(),
                                          checkpointer=memory or InMemorySaver())

    def start(self, agent):
        return agent.invoke({"messages": [("user", "go")]}, self.config)

    def facts(self, ws):
        return {(item["path"], item["type"], item.get("sha256"), item["mode"]) for item in ws.files.inventory() if "type" in item}


class Planned(Agents):
    # Half of it by one command, the rest by native calls on files: both land in the same plan.
    REORGANISE = [
        [("execute", {"command": "for f in case-*.txt; do d=${f#case-}; d=by-ending/${d%.txt}; d=${d%?}/${d: -1}; mkdir -p ${d%/*}; mv $f $d.txt; done"})],
        [("glob", {"pattern": "**/by-ending/**/*.txt", "path": "/"}), ("ls", {"path": "/"})],
        [("write_file", {"file_path": "/INDEX.md", "content": "500 cases, by ending\n"}),
         ("edit_file", {"file_path": "/readme.txt", "old_string": "unsorted", "new_string": "sorted"}), ("delete", {"file_path": "/junk"})],
        [("read_file", {"file_path": "/INDEX.md"}), ("grep", {"pattern": "sorted", "path": "/", "glob": "readme.txt"})],
        "The cases are sorted.",
    ]

    def filled(self, client):
        ws = client.workspace(self.thread, policy={"writes": "plan", "plan": {"approval": "required"}})
        files = {f"/case-{n:03}.txt": f"case {n}\n" * 10 for n in range(500)}
        self.assertEqual(set(ws.files.write_many({**files, "/readme.txt": "unsorted\n", "/junk/x": "x"})), {None})
        return ws

    def check_end(self, ws, before, end, for_thread):
        self.assertEqual(end["carrel_plan"]["state"], "applied")
        self.assertEqual(end["messages"][-1].text, "The cases are sorted.")
        after = self.facts(ws)
        moved = [path for path, kind, *_ in after if path.startswith("/by-ending/") and kind == "file"]
        self.assertEqual(len(moved), 500)
        self.assertEqual({sha for path, _, sha, _ in after if path.startswith("/by-ending/") and sha},
                         {sha for path, _, sha, _ in before if path.startswith("/case-")})
        self.assertEqual((ws.files.read("/INDEX.md"), ws.files.read("/readme.txt")), ("500 cases, by ending\n", "sorted\n"))
        self.assertFalse(ws.files.exists("/junk"))
        decisions = [record["operation"] for record in ws.audit(operation="plan.*")]
        self.assertIn("plan.approve", decisions)
        plan = for_thread.get_plan(end["carrel_plan"]["id"])
        self.assertEqual(plan.undo().state, "undone")
        self.assertEqual(self.facts(ws), before)

    def test_five_hundred_files_are_reorganised_approved_applied_and_undone(self):
        person = self.person()
        ws = self.filled(person)
        before = self.facts(ws)
        backend, agent = self.agent(self.REORGANISE, client=person)
        asked = self.start(agent)
        request = asked["__interrupt__"][0].value
        self.assertEqual(self.facts(ws), before, "something changed that nobody has approved")
        args = request["action_requests"][0]["args"]
        self.assertEqual(args["counts"]["move"], 500)
        self.assertIn("case-499.txt -> by-ending/49/9.txt", request["action_requests"][0]["description"])
        self.assertIn("+500 cases, by ending", request["action_requests"][0]["description"])
        self.assertEqual(person.plans(state="pending")[0].hash, args["hash"])
        self.check_end(ws, before, agent.invoke(YES, self.config), backend.for_thread(self.thread))
        keys = {key["id"] for key in person.keys() if not key["revoked"]}
        backend.close()
        self.assertEqual(len(keys - {key["id"] for key in person.keys() if not key["revoked"]}), 1, "the agent's key is left")

    def test_the_same_with_await_over_the_socket(self):
        ws = self.filled(self.c)
        before = self.facts(ws)
        backend, agent = self.agent(self.REORGANISE)

        async def main():
            asked = await agent.ainvoke({"messages": [("user", "go")]}, self.config)
            self.assertEqual(await asyncio.to_thread(self.facts, ws), before)
            self.assertIn("__interrupt__", asked)
            end = await agent.ainvoke(YES, self.config)
            await backend.aclose()
            return end
        end = asyncio.run(main())
        again = CarrelBackend(client=self.c, writes="plan")
        self.addCleanup(again.close)
        self.check_end(ws, before, end, again.for_thread(self.thread))

    def test_what_is_rejected_changes_nothing_and_the_agent_reads_why(self):
        backend, agent = self.agent([[("write_file", {"file_path": "/a", "content": "1"})], "done",
                                     [("write_file", {"file_path": "/b", "content": "2"})], "better"])
        self.start(agent)
        asked = agent.invoke(no("call it b"), self.config)
        ws = self.c.workspace(self.thread)
        self.assertEqual(ws.files.glob("[ab]"), [])
        self.assertIn("call it b", str([message.content for message in asked["messages"] if message.type == "human"]))
        description = asked["__interrupt__"][0].value["action_requests"][0]["description"]
        self.assertIn("create   b", description)
        self.assertNotIn("create   a", description)
        end = agent.invoke(no(), self.config)
        self.assertEqual((end["carrel_plan"]["state"], ws.files.glob("[ab]")), ("rejected", []))

    def test_an_answer_that_is_none_applies_nothing(self):
        backend, agent = self.agent([[("write_file", {"file_path": "/a", "content": "1"})], "done"])
        self.start(agent)
        ws = self.c.workspace(self.thread)
        for answer in (True, "approve", {"type": "approve"}, {"decisions": []}, {"decisions": [{"type": "approve"}] * 2}, {"decisions": [{"type": "yes"}]},
                       {"decisions": ["approve"]}):
            asked = agent.invoke(Command(resume=answer), self.config)
            self.assertIn("answer with", asked["__interrupt__"][0].value["action_requests"][0]["description"], answer)
            self.assertFalse(ws.files.exists("/a"))
        self.assertEqual(agent.invoke(YES, self.config)["carrel_plan"]["state"], "applied")
        self.assertTrue(ws.files.exists("/a"))

    def test_what_changed_meanwhile_is_kept_and_the_agent_begins_anew(self):
        ws = self.c.workspace(self.thread)
        ws.files.write("/a", "1\n")
        backend, agent = self.agent([[("edit_file", {"file_path": "/a", "old_string": "1", "new_string": "2"})], "done",
                                     [("edit_file", {"file_path": "/a", "old_string": "owner", "new_string": "both"})], "again"])
        self.start(agent)
        ws.files.write("/a", "owner\n")
        asked = agent.invoke(YES, self.config)
        self.assertEqual(ws.files.read("/a"), "owner\n")
        self.assertIn("could not be applied", str([message.content for message in asked["messages"]]))
        self.assertEqual(agent.invoke(YES, self.config)["carrel_plan"]["state"], "applied")
        self.assertEqual(ws.files.read("/a"), "both\n")

    def test_who_decides_sees_what_was_found(self):
        backend, agent = self.agent([[("write_file", {"file_path": "/.envrc", "content": "x"})], "done"])
        request = self.start(agent)["__interrupt__"][0].value["action_requests"][0]
        self.assertEqual(request["args"]["verdict"], "review")
        self.assertIn("review .envrc: programs read it", request["description"])
        self.assertEqual(agent.invoke(YES, self.config)["carrel_plan"]["state"], "applied")

    def test_what_the_policy_refuses_is_not_applied_also_when_approved(self):
        ws = self.c.workspace(self.thread, policy={"writes": "plan", "plan": {"protect": ["kept"]}})
        ws.files.write("/kept", "1")
        backend, agent = self.agent([[("write_file", {"file_path": "/kept", "content": "2"})], "done", "I see."])
        request = self.start(agent)["__interrupt__"][0].value["action_requests"][0]
        self.assertIn("refuse kept", request["description"])
        end = agent.invoke(YES, self.config)
        self.assertIn("could not be applied", str([message.content for message in end["messages"]]))
        self.assertEqual((ws.files.read("/kept"), end["messages"][-1].text), ("1", "I see."))

    def test_nothing_changed_nothing_asked_also_in_the_next_turn(self):
        backend, agent = self.agent([[("write_file", {"file_path": "/a", "content": "1"})], "done", [("ls", {"path": "/"})], "looked"])
        self.start(agent)
        self.assertEqual(agent.invoke(YES, self.config)["carrel_plan"]["state"], "applied")
        end = self.start(agent)
        self.assertNotIn("__interrupt__", end)
        self.assertIsNone(end["carrel_plan"])

    def test_another_process_goes_on_where_the_question_was_asked(self):
        memory, person = InMemorySaver(), self.person()
        script = [[("write_file", {"file_path": "/a", "content": "1"})], "done"]
        first, agent = self.agent(script, memory, client=person)
        self.start(agent)
        first.close()  # its key is revoked
        backend, again = self.agent(script, memory, client=person)
        self.assertEqual(again.invoke(YES, self.config)["carrel_plan"]["state"], "applied")
        self.assertEqual(backend.for_thread(self.thread).files.read("/a"), "1")

    def test_keys_that_were_made_before(self):
        person = self.person()
        person.workspace(self.thread, policy={"writes": "plan", "plan": {"approval": "required"}})
        agents = person.create_key(scopes=["agent"], workspaces=[self.thread])["key"]
        count = len(person.keys())
        with carrel.Carrel(f"http://127.0.0.1:{self.port}", agents) as only:
            # An agent's key alone works, and decides nothing.
            backend, agent = self.agent([[("write_file", {"file_path": "/a", "content": "1"})], "done"], client=only, agent_key=agents)
            self.start(agent)
            asked = agent.invoke(YES, self.config)
            self.assertIn("came to nothing", asked["__interrupt__"][0].value["action_requests"][0]["description"])
            self.assertFalse(person.workspace(self.thread).files.exists("/a"))
            # What was answered first is not remembered: the last word counts.
            backend, agent = self.agent([], agent.checkpointer, client=only, agent_key=agents, person=person)
            self.assertEqual(agent.invoke(no(), self.config)["carrel_plan"]["state"], "rejected")
            self.assertFalse(person.workspace(self.thread).files.exists("/a"))
        self.assertEqual(len(person.keys()), count)
        with self.assertRaises(ValueError):
            CarrelBackend(client=person, agent_key=agents)
        with self.assertRaises(ValueError):
            CarrelBackend(client=person, writes="plans")
        with self.assertRaises(ValueError):
            CarrelBackend(client=person).approval()


    def test_keys_of_a_backend_that_is_forgotten_are_revoked(self):
        def keys():
            return {key["id"] for key in self.c.keys() if not key["revoked"]}
        before = keys()
        backend = CarrelBackend(self.thread, client=self.c, writes="plan")
        self.assertEqual(len(keys() - before), 2)
        del backend
        gc.collect()
        self.assertEqual(keys(), before)


class Direct(Agents):
    def test_each_thread_has_its_own_workspace(self):
        backend = CarrelBackend(client=self.c)
        for name in ("one", "two"):
            agent = create_deep_agent(model=ScriptedModel(script=[[("write_file", {"file_path": "/who", "content": name})], "ok"]), backend=backend)
            agent.invoke({"messages": [("user", "go")]}, {"configurable": {"thread_id": f"{self.thread}-{name}"}})
        self.assertEqual([self.c.workspace(f"{self.thread}-{name}", create=False).files.read("/who") for name in ("one", "two")], ["one", "two"])
        with self.assertRaises(carrel.CarrelError) as caught:
            backend.ls("/")
        self.assertIn("thread_id", str(caught.exception))

    def test_the_environments_of_old_backends(self):
        backend = CarrelBackend(self.thread, client=self.c)
        with self.assertRaises(carrel.EnvFailed) as caught:  # this daemon has neither uv nor bun
            backend.ensure_python_init()
        self.assertEqual(caught.exception.code, "tools_missing")
        with self.assertRaises(carrel.EnvFailed):
            backend.ensure_node_init()

    def test_large_files_through_the_backend(self):
        backend = CarrelBackend(self.thread, client=self.c)
        data = os.urandom(1 << 20) * 100
        done = backend.upload_files([("/large", data), ("/small", b"1"), ("relative", b"")])
        self.assertEqual([one.error for one in done], [None, None, "invalid_path"])
        got = backend.download_files(["/small", "/large", "/none"])
        self.assertEqual((got[0].content, got[1].content == data, got[2].error), (b"1", True, "file_not_found"))

    def test_output_is_in_its_order_and_of_much_the_middle_is_left_out(self):
        backend = CarrelBackend(self.thread, client=self.c)
        line = "echo 1; sleep 1; echo 2 >&2; sleep 1; echo 3"
        much = "echo first; yes 0123456789 | head -n 5000000; echo last; exit 2"

        async def main():
            done = await backend.aexecute(line), await backend.aexecute(much)
            await backend.aclose()
            return done
        for few, many in ((backend.execute(line), backend.execute(much)), asyncio.run(main())):
            self.assertEqual((few.output, few.truncated), ("1\n2\n3\n", False))
            self.assertEqual((many.exit_code, many.truncated), (2, True))
            self.assertTrue(many.output.startswith("first\n0123456789\n") and many.output.endswith("0123456789\nlast\n"))
            self.assertIn("\n[... 44514251 bytes are left out here ...]\n", many.output)
            self.assertLess(len(many.output), 11 << 20)
        (tool,) = workspace_tools(self.thread, client=self.c, only=["execute"])
        said = tool.invoke({"command": much})
        self.assertTrue(said.startswith("first\n") and said.endswith("last\n[exit 2: exit]"), said[-100:])
        self.assertLess(len(said), 200_000)

    def test_all_that_grep_finds_is_told_or_that_it_is_not_all(self):
        backend = CarrelBackend(self.thread, client=self.c)
        backend.upload_files([("/many", b"hit\n" * 5000)])
        found = backend.grep("hit", "/many")
        self.assertEqual((len(found.matches), found.truncated), (5000, False))
        self.assertEqual((len(backend.grep("hit", "/many", max_count=1500).matches), backend.grep("hit", "/many", max_count=1500).truncated), (1500, True))
        backend.upload_files([("/more", b"hit\n" * 100_001)])
        found = backend.grep("hit", "/more")
        self.assertEqual((len(found.matches), found.truncated), (100_000, True))

    def test_names_that_are_no_text_do_not_end_an_agent(self):
        self.c.workspace(self.thread).files.write(b"/d/\xff.txt", "hit\n")
        script = [[("ls", {"path": "/d"}), ("glob", {"pattern": "**/*.txt"}), ("grep", {"pattern": "hit", "output_mode": "content"})], "done"]
        agent = create_deep_agent(model=ScriptedModel(script=script), backend=CarrelBackend(client=self.c), checkpointer=InMemorySaver())
        end = agent.invoke({"messages": [("user", "go")]}, self.config)
        said = [message.text for message in end["messages"] if message.type == "tool"]
        self.assertEqual(len(said), 3)
        for text in said:
            self.assertIn("\\udcff.txt", text)
            text.encode()

    def test_connections_do_not_grow_with_threads(self):
        backend = CarrelBackend(client=self.c)
        count = lambda: len(os.listdir("/proc/self/fd"))

        async def work(number):
            agent = create_deep_agent(model=ScriptedModel(script=[[("ls", {"path": "/"})], "ok"]), backend=backend)
            await agent.ainvoke({"messages": [("user", "go")]}, {"configurable": {"thread_id": f"{self.thread}-{number}"[-60:]}})

        async def main():
            await work(0)
            before = count()
            for number in range(1, 16):
                await work(number)
            self.assertLessEqual(count(), before + 3)
            await backend.aclose()
        asyncio.run(main())

    def test_tools_do_what_they_say_with_and_without_await(self):
        plan = [("write_file", {"file_path": "/d/a.txt", "content": "one\ntwo\n"}, "wrote /d/a.txt"),
                ("edit_file", {"file_path": "/d/a.txt", "old_string": "two", "new_string": "2"}, "replaced 1 in /d/a.txt"),
                ("edit_file", {"file_path": "/d/a.txt", "old_string": "two", "new_string": "2"}, "Error: "),
                ("read_file", {"file_path": "/d/a.txt", "offset": 1}, "2\n"), ("read_file", {"file_path": "/d/a.txt", "limit": 1}, "one\n\n[go on with offset 1]"),
                ("ls", {"path": "/d"}, "/d/a.txt"), ("glob", {"pattern": "*.txt"}, "/d/a.txt"), ("grep", {"pattern": "on"}, "/d/a.txt:1:one"),
                ("grep", {"pattern": "on", "glob": "*.py"}, "(nothing)"), ("execute", {"command": "cat d/a.txt; exit 3"}, "one\n2\n[exit 3: exit]"),
                ("execute", {"command": "sleep 100", "timeout": 1}, "\n[exit 124: timeout]"), ("delete", {"file_path": "/d"}, "deleted /d"),
                ("ls", {"path": "/d"}, "Error: ")]
        tools = {tool.name: tool for tool in workspace_tools(self.thread, client=self.c)}
        self.assertEqual(set(tools), {name for name, *_ in plan})

        async def main():
            return [await tools[name].ainvoke(args) for name, args, _ in plan]
        for answers in ([tools[name].invoke(args) for name, args, _ in plan], asyncio.run(main())):
            for (name, args, want), got in zip(plan, answers, strict=True):
                self.assertTrue(got.startswith(want) if want.startswith("Error") else got == want, (name, args, got))
        self.assertEqual([tool.name for tool in workspace_tools(self.thread, client=self.c, only=["ls"])], ["ls"])
        with self.assertRaises(ValueError):
            workspace_tools(self.thread, client=self.c, only=["rm"])


class Provider(Agents):
    def test_dcode_finds_and_uses_it(self):
        from importlib.metadata import entry_points

        (entry,) = [entry for entry in entry_points(group="deepagents_code.sandbox_providers") if entry.name == "carrel"]
        os.environ["CARREL_SOCKET"] = self.local.socket
        self.addCleanup(os.environ.pop, "CARREL_SOCKET")
        from deepagents_code.integrations.sandbox_provider import SandboxNotFoundError, SandboxProvider

        provider = entry.load()()
        self.assertIsInstance(provider, SandboxProvider)
        self.assertEqual((provider.metadata.name, provider.metadata.supports_sandbox_id), ("carrel", True))
        made = provider.get_or_create()
        self.assertEqual(made.execute("echo hi").output, "hi\n")
        made.write("/a", "1")
        self.assertEqual(provider.get_or_create(sandbox_id=made.id).read("/a").file_data["content"], "1")
        provider.delete(sandbox_id=made.id)
        with self.assertRaises(SandboxNotFoundError):
            provider.get_or_create(sandbox_id="never")
        provider.delete(sandbox_id="never")


class Notebook(Agents):
    def test_a_cell_is_run_in_a_workspace(self):
        from IPython.core.interactiveshell import InteractiveShell

        os.environ["CARREL_SOCKET"] = self.local.socket
        self.addCleanup(os.environ.pop, "CARREL_SOCKET")
        shell = InteractiveShell.instance(colors="NoColor")
        shell.run_line_magic("load_ext", "carrel.jupyter")
        result = shell.run_cell_magic("carrel", self.thread, "echo one\nfalse || echo '<two>'")
        self.assertEqual(result.stdout, "one\n<two>\n")
        self.assertIn("&lt;two&gt;", shell.display_formatter.format(result)[0]["text/html"])
        self.assertEqual(shell.run_cell_magic("carrel", f"{self.thread} python3", "print(6 * 7)").stdout, "42\n")
        with self.assertRaises(ValueError):
            shell.run_cell_magic("carrel", "", "true")


if __name__ == "__main__":
    unittest.main()
