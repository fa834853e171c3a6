# SPDX-License-Identifier: Apache-2.0
"""Workers run beside each other: one is talked to, one is killed, the others are waited for."""
from e2b import CommandExitException, Sandbox

with Sandbox.create(timeout=120, envs={"ROLE": "worker"}) as sandbox:
    calculator = sandbox.commands.run("while read a b; do echo $((a * b)); done", background=True, stdin=True)
    endless = sandbox.commands.run("tail -f /dev/null", background=True, timeout=0)
    workers = [sandbox.commands.run(f"sleep 0.{n}; echo $ROLE {n} > out{n}; exit {n}", background=True) for n in range(3)]
    running = {p.pid: p.cmd for p in sandbox.commands.list()}
    assert {calculator.pid, endless.pid} <= set(running), running
    for n, worker in enumerate(workers):
        try:
            assert worker.wait().exit_code == n == 0
        except CommandExitException as ended:
            assert ended.exit_code == n
        assert sandbox.files.read(f"out{n}") == f"worker {n}\n"
    for pair in ("6 7", "10 10"):
        sandbox.commands.send_stdin(calculator.pid, f"{pair}\n")
    sandbox.commands.close_stdin(calculator.pid)
    assert calculator.wait().stdout == "42\n100\n"
    assert endless.kill()
    try:
        endless.wait()
        raise AssertionError("it ended by itself")
    except CommandExitException as ended:
        assert ended.exit_code == -1, ended
print("done")
