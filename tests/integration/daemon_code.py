#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
# TIMEOUT: 400
# TAKES: 50
"""Code that is run piece by piece in one state: what comes of it, what of code that never ends, kernels that die, and
kernels that say what no kernel says."""
import json
import shutil
import subprocess
import time
import unittest

from carreltest import PATIENCE
from daemontest import DaemonTest

NODE = shutil.which("node", path="/usr/bin:/usr/local/bin")


class CodeTest(DaemonTest):
    def setUp(self):
        super().setUp()
        self.key = self.daemon.key("alice")
        self.ws = self.daemon.post("/v1/workspaces", {}, key=self.key).json["id"]
        self.at = f"/v1/workspaces/{self.ws}/code"

    def ask(self, code, status=200, key=None, **more):
        answer = self.daemon.post(self.at, {"code": code, **more}, key=key or self.key)
        self.assertEqual(status, answer.status, answer.bytes)
        return [json.loads(line) for line in answer.bytes.splitlines()] if status == 200 else answer.json["error"]

    def run_code(self, code, **more):
        """What it printed, its results, and its error, of an answer that is whole."""
        lines = self.ask(code, **more)
        self.assertEqual("number_of_executions", lines[0]["type"], lines)
        self.assertEqual("end_of_execution", lines[-1]["type"], lines)
        out = {name: "".join(line["text"] for line in lines if line["type"] == name) for name in ("stdout", "stderr")}
        results = [{k: v for k, v in line.items() if k != "type"} for line in lines if line["type"] == "result"]
        errors = [line for line in lines if line["type"] == "error"]
        return out, results, errors

    def value(self, code, **more):
        _, results, errors = self.run_code(code, **more)
        self.assertEqual([], errors)
        return results[-1]["text"] if results else None

    def stream(self, code, **more):
        return self.daemon.stream("POST", self.at, {"code": code, **more}, key=self.key)

    def until(self, what):
        deadline = time.monotonic() + PATIENCE
        while not what():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)


class Python(CodeTest):
    def test_state_output_and_the_last_value(self):
        out, results, errors = self.run_code("x = 20\nprint('one')\nimport sys; print('two', file=sys.stderr)\nx + 1")
        self.assertEqual(({"stdout": "one\n", "stderr": "two\n"}, [{"is_main_result": True, "text": "21"}], []), (out, results, errors))
        self.assertEqual("40", self.value("x * 2"))
        self.assertEqual("hello", self.value("'hello'"))
        self.assertIsNone(self.value("y = 1"))
        self.assertIsNone(self.value("x;"))
        self.assertEqual("7", self.value("import asyncio\nawait asyncio.sleep(0)\n7"))
        self.assertEqual("40", self.value("def f():\n  return 40\n\nf()"))

    def test_all_that_was_printed_comes_in_order_before_the_end(self):
        out, _, _ = self.run_code("import subprocess\nfor i in range(300):\n  print(i)\nsubprocess.run('seq 300 20000', shell=True)\nprint('end', end='')")
        self.assertEqual([*map(str, range(300)), *map(str, range(300, 20001)), "end"], out["stdout"].split("\n"))

    def test_errors_have_a_name_a_value_and_where(self):
        _, _, [error] = self.run_code("def f(x):\n  return 1 / x\nf(0)")
        self.assertEqual(("ZeroDivisionError", "division by zero"), (error["name"], error["value"]))
        self.assertIn("line 2, in f", error["traceback"])
        self.assertIn("return 1 / x", error["traceback"])
        self.assertNotIn("<carrel>", error["traceback"])
        _, _, [error] = self.run_code("f(")
        self.assertEqual("SyntaxError", error["name"])
        self.assertNotIn("ast.py", error["traceback"])
        self.assertEqual("EOFError", self.run_code("input()")[2][0]["name"])

    def test_what_is_shown_in_other_forms(self):
        code = """
class Rich:
    def _repr_html_(self): return '<b>é</b>'
    def _repr_png_(self): return b'\\x89PNG'
    def _repr_json_(self): return {'a': [1]}
    def __repr__(self): return 'rich'
display(Rich())
display({'application/pdf': b'%PDF', 'x/y': 'z', 'text/latex': '$x$', 'image/svg+xml': '<svg/>', 'image/jpeg': b'j', 'text/markdown': '#', 'application/javascript': '1'}, raw=True)
Rich()"""
        _, results, errors = self.run_code(code)
        self.assertEqual([], errors)
        rich = {"text": "rich", "html": "<b>é</b>", "png": "iVBORw==", "json": {"a": [1]}}
        self.assertEqual([{"is_main_result": False, **rich},
                          {"is_main_result": False, "pdf": "JVBERg==", "latex": "$x$", "svg": "<svg/>", "jpeg": "ag==", "markdown": "#", "javascript": "1", "extra": {"x/y": "z"}},
                          {"is_main_result": True, **rich}], results)

    def test_lines_that_are_not_python(self):
        self.assertEqual("magic\n", self.run_code("!echo magic")[0]["stdout"])
        self.assertEqual("['a', 'b']", self.value("found = !printf 'a\\nb\\n'\nfound"))
        self.assertEqual("in bash\n", self.run_code("%%bash\necho in bash")[0]["stdout"])
        self.assertEqual("NameError", self.run_code("%nothing")[2][0]["name"])

    def test_variables_for_one_run(self):
        self.assertEqual("b", self.value("import os; os.environ['A']", env={"A": "b"}))
        self.assertEqual("None", self.value("repr(os.environ.get('A'))"))
        self.ask("1", 400, env={"A": 5})
        self.ask("1", 400, env={"A=B": "5"})

    def test_it_has_a_commands_rights(self):
        self.assertEqual("True", self.value("import os\nos.getpid() > 1 and open('/proc/self/status').read().count('NoNewPrivs:\\t1') == 1 and not os.path.exists('/proc/1/root/etc')"))
        execs = self.daemon.get(f"/v1/workspaces/{self.ws}/exec", key=self.key).json["execs"]
        self.assertEqual(["running"], [e["state"] for e in execs])


class Others(CodeTest):
    def test_bash(self):
        self.assertEqual("3 /usr\n", self.run_code("X=3; cd /usr\necho $X $PWD", language="bash")[0]["stdout"])
        out, _, [error] = self.run_code("echo $X; ls /nope", language="bash")
        self.assertEqual(("3\n", "ExitStatus"), (out["stdout"], error["name"]))
        self.assertIn("/nope", out["stderr"])
        self.assertEqual("b it's\n", self.run_code("echo $A \"it's\"", language="bash", env={"A": "b"})[0]["stdout"])
        self.assertEqual("[]\n", self.run_code('echo "[$A]"', language="bash")[0]["stdout"])
        _, _, [error] = self.run_code("exit 3", language="bash")
        self.assertIn("status 3", error["value"])
        self.assertEqual("again\n", self.run_code("echo again", language="bash")[0]["stdout"])
        _, _, errors = self.run_code("X=4; sleep 600; echo not this", language="bash", timeout_ms=700)
        self.assertEqual("TimeoutError", errors[-1]["name"])
        self.assertEqual("4\n", self.run_code("echo $X", language="bash")[0]["stdout"])

    @unittest.skipUnless(NODE, "the host has no Node that sandboxes see")
    def test_javascript(self):
        out, results, _ = self.run_code("const x = 5; console.log('hi'); console.error('no'); ({a: [x]})", language="javascript")
        self.assertEqual(({"stdout": "hi\n", "stderr": "no\n"}, "{ a: [ 5 ] }"), (out, results[0]["text"]))
        self.assertEqual("10", self.value("await Promise.resolve(x * 2)", language="js"))
        self.assertEqual("function", self.value("import fs, { readFileSync as r } from 'fs'; import * as p from 'path'; typeof r && typeof p.join", language="js"))
        self.assertEqual("hello", self.value("'hello'", language="js"))
        _, _, [error] = self.run_code("throw new TypeError('bad')", language="js")
        self.assertEqual(("TypeError", "bad"), (error["name"], error["value"]))
        self.assertEqual("SyntaxError", self.run_code("function (", language="js")[2][0]["name"])
        self.assertEqual("[{\"is_main_result\": false, \"html\": \"<b>\"}]", json.dumps(self.run_code("await display({'text/html': '<b>'}, {raw: true})", language="js")[1]))

    @unittest.skipUnless(NODE, "the host has no Node that sandboxes see")
    def test_an_interrupted_javascript_keeps_its_state(self):
        self.value("let kept = {a: 1}; class Kept {}", language="js")
        never = "for (;;) kept.a++"
        for code in (never, "await new Promise(() => {})", f"await 1; {never}", f"await new Promise(done => setTimeout(done, 10)); {never}",
                     f"setTimeout(() => {{ {never} }}, 10); await new Promise(() => {{}})"):
            self.assertEqual(["Interrupted", "TimeoutError"], [e["name"] for e in self.run_code(code, language="js", timeout_ms=400)[2]], code)
            self.assertEqual("object true", self.value("typeof kept + ' ' + (new Kept() instanceof Kept)", language="js"), code)
        _, _, errors = self.run_code("require('child_process').execSync('sleep 600')", language="js", timeout_ms=400)
        self.assertIn("Command failed: sleep 600", errors[0]["value"])
        self.assertEqual("1 6", self.value("await new Promise(done => setTimeout(() => done(Math.sign(kept.a) + ' ' + 6), 10))", language="js"))

    @unittest.skipUnless(NODE, "the host has no Node that sandboxes see")
    def test_typescript_or_why_not(self):
        lines = self.daemon.post(self.at, {"code": "interface A { b: number }\nconst a: A = { b: 5 }; a.b", "language": "typescript"}, key=self.key)
        if lines.status == 200:
            self.assertIn(b'"text":"5"', lines.bytes)
        else:
            self.assertEqual("kernel_failed", lines.json["error"]["code"])
            self.assertIn("reads no TypeScript", lines.json["error"]["message"])

    def test_languages_that_are_not_there(self):
        self.assertIn("python, javascript", self.ask("1", 400, language="r")["message"])


class Ends(CodeTest):
    def test_code_without_end_is_interrupted(self):
        self.value("x = 5")
        for code in ("while True: pass", "import time; time.sleep(600)", "import subprocess; subprocess.run(['sleep', '600'])"):
            _, _, errors = self.run_code(code, timeout_ms=500)
            self.assertEqual(["KeyboardInterrupt", "TimeoutError"], [e["name"] for e in errors])
        self.assertEqual("5", self.value("x"))

    def test_code_that_will_not_be_interrupted_ends_with_its_kernel(self):
        _, _, errors = self.run_code("import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nx = 5\nimport time\ntime.sleep(600)", timeout_ms=500)
        self.assertEqual(["UnexpectedEndOfExecution", "TimeoutError"], [e["name"] for e in errors])
        self.assertEqual("NameError", self.run_code("x")[2][0]["name"])

    def test_a_client_that_leaves_interrupts_what_it_asked_for(self):
        self.value("seen = []")
        stream = self.stream("import time\nprint('begun')\ntry:\n  time.sleep(600)\nfinally:\n  seen.append(1)")
        while b"begun" not in stream.readline():
            pass
        stream.keep.close()
        stream.close()
        self.assertEqual("[1]", self.value("seen"))

    def test_a_kernel_that_dies_is_told_and_replaced(self):
        self.value("x = 5")
        for code in ("import os; os._exit(3)", "import os, signal; os.kill(os.getpid(), 9)"):
            _, _, [error] = self.run_code(code)
            self.assertEqual("UnexpectedEndOfExecution", error["name"])
        self.assertIn("exit code 137", error["value"])
        self.assertEqual("NameError", self.run_code("x")[2][0]["name"])
        self.value("x = 6")
        self.daemon.post(f"/v1/workspaces/{self.ws}/sleep", key=self.key)
        self.assertEqual("NameError", self.run_code("x")[2][0]["name"])

    def test_what_waits_behind_it_goes_on(self):
        first = self.stream("import time; time.sleep(0.5); x = 1")
        others = [self.stream(f"x += 1; {i}") for i in range(3)]
        for i, stream in enumerate([first, *others]):
            lines = stream.read().splitlines()
            self.assertIn(b"end_of_execution", lines[-1])
            if i:
                self.assertIn(b'"text":"%d"' % (i - 1), b"".join(lines))
            stream.keep.close()
        self.assertEqual("4", self.value("x"))

    def test_kernels_are_not_believed(self):
        """Code reaches the descriptor on which its kernel is heard. What it says there harms its own kernel alone."""
        for line in ("nothing", '{"run":1,"type":"result"}', '{"run":1,"type":"else"}', "[" * 5000):  # more of them: unit/test_code_line
            lines = self.ask(f"import os, time\nfor fd in range(3, 20):\n  try: os.write(fd, b'''{line}\\n''')\n  except OSError: pass\ntime.sleep(600)")
            self.assertEqual(["error", "end_of_execution"], [each["type"] for each in lines[-2:]], line)
            self.assertEqual("UnexpectedEndOfExecution", lines[-2]["name"])
        lines = self.ask("import os\nwhile True:\n  for fd in range(3, 20):\n    try: os.write(fd, b'x' * 65536)\n    except OSError: pass")
        self.assertEqual("UnexpectedEndOfExecution", lines[-2]["name"])
        self.assertEqual("2", self.value("1 + 1"))

    def test_an_answer_that_is_not_read_keeps_the_kernel_waiting(self):
        stream = self.stream("for i in range(400000): print('x' * 60)")
        stream.read(1 << 16)
        time.sleep(0.5)
        resident = int(subprocess.run(["ps", "-o", "rss=", "-p", str(self.daemon.front_pid())], capture_output=True, text=True, check=True).stdout)
        self.assertLess(resident, 200 << 10)
        rest = stream.read()
        self.assertTrue(rest.endswith(b'{"type":"end_of_execution"}\n'))
        stream.keep.close()

    def test_a_key_that_is_revoked_hears_no_more(self):
        """Here and not in daemon_revoked: two streams of one context wait for each other."""
        made = self.daemon.post("/v1/keys", {"owner": "alice", "scopes": ["user"]}).json
        other = self.daemon.stream("POST", self.at, {"code": "import time; print('begun'); time.sleep(600)"}, key=made["key"])
        while b"begun" not in other.readline():
            pass
        self.assertLess(self.daemon.request("DELETE", f"/v1/keys/{made['id']}").status, 300)
        self.assertIn(b'"type":"error"', other.read())
        other.keep.close()
        self.assertEqual("2", self.value("1 + 1"))


class Contexts(CodeTest):
    def test_made_listed_restarted_deleted(self):
        made = self.daemon.post(f"{self.at}/contexts", {"language": "python", "cwd": "/tmp"}, key=self.key)
        self.assertEqual(201, made.status)
        one = made.json["id"]
        self.assertEqual({"id": one, "language": "python", "cwd": "/tmp"}, made.json)
        self.assertEqual("/tmp", self.value("import os; x = 1; os.getcwd()", context=one))
        self.assertEqual("NameError", self.run_code("x")[2][0]["name"])
        self.assertEqual(["/tmp", "/"], [c["cwd"] for c in self.daemon.get(f"{self.at}/contexts", key=self.key).json["contexts"]])
        self.assertEqual(204, self.daemon.post(f"{self.at}/contexts/{one}/restart", key=self.key).status)
        self.assertEqual("NameError", self.run_code("x", context=one)[2][0]["name"])
        running = self.stream("print('begun'); import time; time.sleep(600)", context=one)
        while b"begun" not in running.readline():
            pass
        self.assertEqual(204, self.daemon.request("DELETE", f"{self.at}/contexts/{one}", key=self.key).status)
        self.assertIn(b"UnexpectedEndOfExecution", running.read())
        running.keep.close()
        self.assertEqual("not_found", self.ask("1", 404, context=one)["code"])
        self.assertEqual(404, self.daemon.request("DELETE", f"{self.at}/contexts/{one}", key=self.key).status)

    def test_what_cannot_be(self):
        self.ask("1", 400, context="c", language="python")
        self.assertEqual(400, self.daemon.post(self.at, {}, key=self.key).status)
        self.assertEqual(400, self.daemon.post(self.at, {"code": "1", "more": 1}, key=self.key).status)
        self.assertEqual(400, self.daemon.post(f"{self.at}/contexts", {"cwd": "tmp"}, key=self.key).status)
        nowhere = self.daemon.post(f"{self.at}/contexts", {"cwd": "/nowhere"}, key=self.key).json["id"]
        self.assertIn("/nowhere", self.ask("1", 500, context=nowhere)["message"])

    def test_of_others(self):
        one = self.daemon.post(f"{self.at}/contexts", {}, key=self.key).json["id"]
        bob = self.daemon.key("bob")
        theirs = self.daemon.post("/v1/workspaces", {}, key=bob).json["id"]
        self.assertEqual(404, self.daemon.post(self.at, {"code": "1"}, key=bob).status)
        for method, path in (("POST", f"contexts/{one}/restart"), ("DELETE", f"contexts/{one}")):
            self.assertEqual(404, self.daemon.request(method, f"/v1/workspaces/{theirs}/code/{path}", key=bob).status)
        self.assertEqual(404, self.daemon.post(f"/v1/workspaces/{theirs}/code", {"code": "1", "context": one}, key=bob).status)

    def test_not_of_a_workspace_that_had_the_name_before(self):
        self.assertEqual(201, self.daemon.post("/v1/workspaces", {"id": "again"}, key=self.key).status)
        at = "/v1/workspaces/again/code"
        one = self.daemon.post(f"{at}/contexts", {}, key=self.key).json["id"]
        self.assertLess(self.daemon.request("DELETE", "/v1/workspaces/again?purge=1", key=self.key).status, 300)
        self.until(lambda: self.daemon.post("/v1/workspaces", {"id": "again"}, key=self.key).status == 201)
        self.assertEqual(404, self.daemon.post(at, {"code": "1", "context": one}, key=self.key).status)
        self.assertEqual([], self.daemon.get(f"{at}/contexts", key=self.key).json["contexts"])

    def test_there_are_so_many_and_no_more(self):
        statuses = [self.daemon.post(f"{self.at}/contexts", {}, key=self.key).status for _ in range(65)]
        self.assertEqual([201] * 64 + [429], statuses)


if __name__ == "__main__":
    unittest.main()
