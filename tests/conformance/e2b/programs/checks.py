# SPDX-License-Identifier: Apache-2.0
"""The same tests for several candidates at once, each in a sandbox of its own, with a limit of time: which of them pass?"""
import asyncio

from e2b import AsyncSandbox, CommandExitException, TimeoutException

TESTS = "import candidate\nassert [candidate.f(n) for n in range(10)] == [n * n for n in range(10)]\n"
CANDIDATES = {"right": "def f(n): return n * n", "wrong": "def f(n): return n + n", "broken": "def f(n) return n", "slow": "def f(n):\n    while True: pass"}


async def judge(text):
    sandbox = await AsyncSandbox.create(timeout=60)
    try:
        await asyncio.gather(sandbox.files.write("candidate.py", text), sandbox.files.write("tests.py", TESTS))
        await sandbox.commands.run("python3 tests.py", timeout=5)
        return "passed"
    except CommandExitException as ended:
        return ended.stderr.strip().splitlines()[-1].split(":")[0]
    except TimeoutException:
        return "too slow"
    finally:
        await sandbox.kill()


async def main():
    said = dict(zip(CANDIDATES, await asyncio.gather(*map(judge, CANDIDATES.values()))))
    assert said == {"right": "passed", "wrong": "AssertionError", "broken": "SyntaxError", "slow": "too slow"}, said


asyncio.run(main())
print("done")
