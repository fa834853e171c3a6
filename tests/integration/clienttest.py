# SPDX-License-Identifier: Apache-2.0
"""What the tests of the client packages share."""
import json
import os
import re
import subprocess

SRC = os.environ["SRC"]


def run(argv, timeout=120, **how):
    """Its output; a failure is the test's, with what it said."""
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout, check=False, **how)
    assert done.returncode == 0, f"{argv} ended with {done.returncode}:\n{done.stdout[-4000:]}"
    return done.stdout


def surface(client, asked):
    """Complaints, where what a client says that it covers (clients/CLIENT/operations.json), docs/openapi.json and what its methods ask for
    (asked: {"Class.method": operationId, or None}) are not the same. For a client of any language: one program in it makes `asked`."""
    told = load(f"clients/{client}/operations.json")
    document = load("docs/openapi.json")
    ours = {name: operation for operation, names in told["operations"].items() for name in names}
    theirs = {operation["operationId"] for methods in document["paths"].values() for method, operation in methods.items() if method != "parameters"}
    left = told["not_for_clients"]
    complaints = [f"{operation} is in docs/openapi.json, and {client} neither has it nor says why not" for operation in theirs - set(told["operations"]) - set(left)]
    complaints += [f"{operation} of {client}'s list is not in docs/openapi.json" for operation in (set(told["operations"]) | set(left)) - theirs]
    complaints += [f"{operation} is both in {client} and not for clients" for operation in set(told["operations"]) & set(left)]
    complaints += [f"{name}: no method, or no reason" for name, value in {**told["operations"], **left, **told["without_operation"]}.items() if not value]
    complaints += [f"{client} lists {name}, and has no such method" for name in (set(ours) | set(told["without_operation"])) - set(asked)]
    complaints += [f"{name} is a method that {client} does not list" for name in set(asked) - set(ours) - set(told["without_operation"])]
    complaints += [f"{name} asks for {asked[name]}, and its list says {operation}" for name, operation in ours.items() if asked.get(name, operation) != operation]
    complaints += [f"{name} asks for {asked[name]}, and its list says nothing" for name in told["without_operation"] if asked.get(name)]
    return sorted(complaints)


def load(path):
    with open(f"{SRC}/{path}", encoding="utf-8") as file:
        return json.load(file)


def example(argv, path, **how):
    """Runs an example; what it prints must be what its comments `# => …` (or `// => …`) say, in which … stands for anything."""
    with open(path, encoding="utf-8") as file:
        wanted = re.findall(r"(?:#|//) => (.*)$", file.read(), re.M)
    said = run([*argv, path], **how).splitlines()
    assert wanted, f"{path} says nothing of what it prints"
    assert len(said) == len(wanted), f"{path} printed {said}"
    for line, want in zip(said, wanted, strict=True):
        pattern = ".*".join(re.escape(part) for part in want.split("…"))
        assert re.fullmatch(pattern, line), f"{path} printed {line!r} for {want!r}"


def python_blocks(path):
    with open(path, encoding="utf-8") as file:
        return re.findall(r"^```python\n(.*?)^```$", file.read(), re.M | re.S)
