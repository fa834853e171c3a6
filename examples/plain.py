# SPDX-License-Identifier: Apache-2.0
"""Plain Python: a desk of its own for a script, and nothing left of it afterwards. pip install carrel"""
import carrel

with carrel.Local() as c:  # a private daemon; with one that runs already: c = carrel.Carrel()
    ws = c.workspace("thread-1")
    ws.files.write("/plot.py", "print(6 * 7)")
    print(ws.run("python3 plot.py").stdout, end="")  # => 42

    for output in ws.stream("echo one; echo two >&2; exit 3"):
        print(output.stream, output.text, end="")
    # => stdout one
    # => stderr two

    with ws.plan() as p:  # nothing changes yet
        p.run("mkdir old && mv plot.py old/")
    print(ws.files.exists("/plot.py"))  # => True
    p.apply()
    print(ws.files.glob("*.py"))  # => ['/old/plot.py']
    p.undo()
    print(ws.files.glob("*.py"))  # => ['/plot.py']
