# SPDX-License-Identifier: Apache-2.0
"""deepagents, and nothing changes that a person has not approved: the agent's changes become a plan, which LangGraph's interrupt
hands to a person. pip install 'carrel[deepagents]'"""
from deepagents import create_deep_agent
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from offline_model import ScriptedModel

import carrel
from carrel.deepagents import CarrelBackend

model = ScriptedModel(script=[
    [("execute", {"command": "mkdir 2024 && mv *-2024.txt 2024/"})],
    [("ls", {"path": "/2024"})],
    "The reports of 2024 have a directory of their own.",
])

with carrel.Local() as c:
    files = c.workspace("thread-1").files
    files.write_many({f"/{month}-{year}.txt": "report" for year in (2024, 2025) for month in ("jan", "feb")})
    with CarrelBackend(client=c, writes="plan") as backend:
        agent = create_deep_agent(model=model, backend=backend, middleware=backend.approval(), checkpointer=InMemorySaver())
        config = {"configurable": {"thread_id": "thread-1"}}
        result = agent.invoke({"messages": [("user", "Tidy up.")]}, config)
        print(result["__interrupt__"][0].value["action_requests"][0]["description"])
        # => plan … of thread-1: closed
        # =>   mkdir    2024
        # =>   move     feb-2024.txt -> 2024/feb-2024.txt
        # =>   move     jan-2024.txt -> 2024/jan-2024.txt
        print(files.glob("*-2024.txt"))  # => ['/feb-2024.txt', '/jan-2024.txt']

        result = agent.invoke(Command(resume={"decisions": [{"type": "approve"}]}), config)
        print(result["carrel_plan"]["state"])  # => applied
        print(files.glob("*-2024.txt"))  # => ['/2024/feb-2024.txt', '/2024/jan-2024.txt']

        agent_plan = backend.for_thread("thread-1").get_plan(result["carrel_plan"]["id"])
        print(agent_plan.undo().state)  # => undone
        print(files.glob("*-2024.txt"))  # => ['/feb-2024.txt', '/jan-2024.txt']
