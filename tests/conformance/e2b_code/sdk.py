# SPDX-License-Identifier: Apache-2.0
"""E2B's code interpreter, as PyPI has it: the sync client, then the async one, on a daemon that the environment names."""
import asyncio
import os
import unittest

from e2b_code_interpreter import AsyncSandbox, Sandbox

SHOW = """
from IPython.display import HTML, JSON, Javascript, Latex, Markdown, SVG
display(HTML("<b>é</b>"), Markdown("# m"), Latex("$x$"), JSON({"a": 1}), Javascript("1"), SVG("<svg/>"))
display({"image/png": b"png", "image/jpeg": b"jpg", "application/pdf": b"pdf", "x/y": "z"}, raw=True)
"""
CHARTS = """
import matplotlib.pyplot as plt
plt.plot([1, 2, 3], [4, 5, 6], label="a"); plt.title("lines"); plt.xlabel("Time (s)"); plt.show()
plt.scatter([1, 2], [3, 4]); plt.show()
plt.bar(["a", "b"], [1, 2]); plt.title("bars"); plt.show()
plt.pie([1, 1, 2], labels=list("xyz")); plt.show()
plt.boxplot([[1, 2, 3, 4], [4, 5, 6]]); plt.show()
figure, (one, two) = plt.subplots(1, 2); one.plot([1, 2]); two.bar(["a"], [1]); figure.suptitle("both"); plt.show()
"""


def check_shown(test, e):
    test.assertIsNone(e.error)
    for name, value in (("html", "<b>é</b>"), ("markdown", "# m"), ("latex", "$x$"), ("json", {"a": 1}), ("javascript", "1"), ("svg", "<svg/>"),
                        ("png", "cG5n"), ("jpeg", "anBn"), ("pdf", "cGRm")):
        test.assertIn(value, [r[name] for r in e.results], name)
    test.assertEqual({"x/y": "z"}, e.results[-1].extra)


class Sync(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.sandbox = Sandbox.create()

    @classmethod
    def tearDownClass(cls):
        cls.sandbox.kill()

    def test_state_output_and_errors(self):
        heard = []
        e = self.sandbox.run_code("x = 20\nprint('one')\nimport sys; print('two', file=sys.stderr)\nx + 1", on_stdout=heard.append, on_stderr=heard.append, on_result=heard.append)
        self.assertEqual(("21", ["one\n"], ["two\n"], None), (e.text, e.logs.stdout, e.logs.stderr, e.error))
        self.assertEqual(3, len(heard))
        self.assertEqual("40", self.sandbox.run_code("x * 2").text)
        e = self.sandbox.run_code("1 / 0")
        self.assertEqual(("ZeroDivisionError", "division by zero"), (e.error.name, e.error.value))
        self.assertIn("1 / 0", e.error.traceback)
        self.assertEqual("b", self.sandbox.run_code("import os; os.environ['A']", envs={"A": "b"}).text)
        self.assertEqual("/home/user", self.sandbox.run_code("os.getcwd()").text)

    def test_what_is_shown(self):
        check_shown(self, self.sandbox.run_code(SHOW))

    def test_other_languages(self):
        self.assertEqual(["/home/user\n"], self.sandbox.run_code("cd; pwd", language="bash").logs.stdout)
        self.assertEqual("2", self.sandbox.run_code("1 + 1", language="javascript").text)
        with self.assertRaisesRegex(Exception, "python, javascript, typescript or bash"):
            self.sandbox.run_code("1", language="r")

    def test_contexts(self):
        context = self.sandbox.create_code_context(cwd="/tmp")
        self.assertEqual(("/tmp", "python"), (context.cwd, context.language))
        self.assertEqual("/tmp", self.sandbox.run_code("import os; y = 1; os.getcwd()", context=context).text)
        self.assertEqual("NameError", self.sandbox.run_code("y").error.name)
        self.assertIn(context.id, [c.id for c in self.sandbox.list_code_contexts()])
        self.sandbox.restart_code_context(context)
        self.assertEqual("NameError", self.sandbox.run_code("y", context=context).error.name)
        self.sandbox.remove_code_context(context)
        with self.assertRaisesRegex(Exception, "not found"):
            self.sandbox.run_code("1", context=context)

    def test_timeouts_interrupt_and_kernels_are_replaced(self):
        self.sandbox.run_code("z = 5")
        with self.assertRaisesRegex(Exception, "timed out"):
            self.sandbox.run_code("import time; time.sleep(600)", timeout=1)
        self.assertEqual("5", self.sandbox.run_code("z").text)
        self.assertEqual("UnexpectedEndOfExecution", self.sandbox.run_code("import os; os._exit(1)").error.name)
        self.assertEqual("NameError", self.sandbox.run_code("z").error.name)

    @unittest.skipUnless(os.environ.get("E2B_READY"), "no sandbox with matplotlib was made ready")
    def test_charts(self):
        sandbox = Sandbox.connect(os.environ["E2B_READY"])
        e = sandbox.run_code(CHARTS, envs={"PYTHONPATH": ""})
        self.assertIsNone(e.error, e.error)
        charts = [r.chart for r in e.results]
        self.assertEqual(["line", "scatter", "bar", "pie", "box_and_whisker", "superchart"], [c.type.value for c in charts])
        self.assertTrue(all(r.png for r in e.results))
        self.assertEqual(("lines", "Time (s)", "s", [(1.0, 4.0), (2.0, 5.0), (3.0, 6.0)]), (charts[0].title, charts[0].x_label, charts[0].x_unit, charts[0].elements[0].points))
        self.assertEqual([("a", 1), ("b", 2)], [(b.label, b.value) for b in charts[2].elements])
        self.assertEqual([90, 90, 180], [round(p.angle) for p in charts[3].elements])
        self.assertEqual((1, 2.5, 4), (charts[4].elements[0].min, charts[4].elements[0].median, charts[4].elements[0].max))
        self.assertEqual(["line", "bar"], [c.type.value for c in charts[5].elements])
        self.assertEqual({"a": [1, 2]}, sandbox.run_code("import pandas; pandas.DataFrame({'a': [1, 2]})").results[0].data)


class Async(unittest.IsolatedAsyncioTestCase):
    async def test_all_of_it(self):
        sandbox = await AsyncSandbox.create()
        try:
            self.assertEqual("2", (await sandbox.run_code("1 + 1")).text)
            check_shown(self, await sandbox.run_code(SHOW))
            context = await sandbox.create_code_context(language="bash")
            both = await asyncio.gather(sandbox.run_code("sleep 0.2; echo a", context=context), sandbox.run_code("echo b", context=context))
            self.assertEqual([["a\n"], ["b\n"]], [e.logs.stdout for e in both])
            self.assertEqual(2, len(await sandbox.list_code_contexts()))
            await sandbox.restart_code_context(context)
            await sandbox.remove_code_context(context)
            with self.assertRaisesRegex(Exception, "timed out"):
                await sandbox.run_code("import time; time.sleep(600)", timeout=1)
            self.assertEqual("2", (await sandbox.run_code("1 + 1")).text)
        finally:
            await sandbox.kill()


if __name__ == "__main__":
    unittest.main()
