# SPDX-License-Identifier: Apache-2.0
"""deepagents: an agent whose files and commands are those of its thread's workspace. pip install 'carrel[deepagents]'"""
from deepagents import create_deep_agent
from offline_model import ScriptedModel

import carrel
from carrel.deepagents import CarrelBackend

model = ScriptedModel(script=[
    [("write_file", {"file_path": "/primes.py", "content": "print([n for n in range(2, 30) if all(n % d for d in range(2, n))])"})],
    [("execute", {"command": "python3 /primes.py"})],
    "There are ten of them.",
])

with carrel.Local() as c:
    agent = create_deep_agent(model=model, backend=CarrelBackend(client=c))
    result = agent.invoke({"messages": [("user", "Which primes are there below 30?")]}, {"configurable": {"thread_id": "thread-1"}})
    print(result["messages"][-2].text.splitlines()[0])  # => [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]
    print(result["messages"][-1].text)  # => There are ten of them.
    print(c.workspace("thread-1").files.glob("*.py"))  # => ['/primes.py']
