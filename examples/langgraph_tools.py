# SPDX-License-Identifier: Apache-2.0
"""Plain LangGraph: a graph of two nodes, with a workspace as its tools. pip install 'carrel[langchain]'"""
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from offline_model import ScriptedModel

import carrel
from carrel.langchain import workspace_tools

model = ScriptedModel(script=[
    [("write_file", {"file_path": "/notes/todo.md", "content": "- water the plants\n"})],
    [("ls", {"path": "/notes"})],
    [("grep", {"pattern": "plants"}), ("read_file", {"file_path": "/nowhere"})],
    "Done.",
])

with carrel.Local() as c:
    tools = workspace_tools(client=c)  # of the thread's workspace
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [model.bind_tools(tools).invoke(state["messages"])]})
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    result = graph.compile().invoke({"messages": [("user", "Remind me.")]}, {"configurable": {"thread_id": "thread-1"}})
    for message in result["messages"]:
        if message.type == "tool":
            print(f"{message.name}: {message.text}")
    # => write_file: wrote /notes/todo.md
    # => ls: /notes/todo.md
    # => grep: /notes/todo.md:1:- water the plants
    # => read_file: Error: …
