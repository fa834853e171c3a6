# SPDX-License-Identifier: Apache-2.0
"""For LangChain and plain LangGraph: a workspace as tools, and planned changes that wait for a person.

    from carrel.langchain import workspace_tools
    agent = create_agent(model, tools=workspace_tools("thread-1"))
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import AgentState, hook_config
from langchain_core.messages import HumanMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.types import interrupt
from typing_extensions import NotRequired, TypedDict

from ._desk import Desk, Desks
from ._sync.client import Carrel
from ._sync.plans import Plan
from ._sync.workspace import Workspace
from ._tools import TOOLS
from .errors import CarrelError
from .models import name_of

__all__ = ["PlanState", "approval", "workspace_tools"]

MOST_SHOWN = 50_000  # characters of a description


def workspace_tools(workspace: str | Workspace | None = None, *, client: Carrel | None = None, url: str | None = None, key: str | None = None,
                    only: Sequence[str] | None = None) -> list[BaseTool]:
    """execute, read_file, write_file, edit_file, delete, ls, glob and grep in a workspace; only: some of them. Left out, the workspace is
    that of the LangGraph thread in which a tool is called. What goes wrong is the tool's answer, for the model to read."""
    desks = Desks(workspace, client=client, url=url, key=key, writes="direct", person=None, agent_key=None)
    unknown = set(only or ()) - {name for name, *_ in TOOLS}
    if unknown:
        raise ValueError(f"only: there is no tool {', '.join(sorted(unknown))}; there are {', '.join(name for name, *_ in TOOLS)}")
    return [tool(desks, *made) for made in TOOLS if only is None or made[0] in only]


def tool(desks: Desks, name: str, schema: Any, sync: Any, asynchronous: Any) -> BaseTool:
    def run(**how: Any) -> str:
        try:
            return str(sync(desks.here().workspace, **how))
        except CarrelError as error:
            return f"Error: {error}"

    async def arun(**how: Any) -> str:
        try:
            return str(await asynchronous(await desks.here_in_loop(), **how))
        except CarrelError as error:
            return f"Error: {error}"

    return StructuredTool.from_function(func=run, coroutine=arun, name=name, description=schema.__doc__, args_schema=schema, infer_schema=False)


# --- planned changes ---


class PlanState(TypedDict):
    """What the agent has changed, as a plan. state: of the plan, or "failed"; error: why the last answer of a person came to nothing."""
    id: str
    workspace: str
    hash: str
    state: str
    error: NotRequired[str]


WAITS = ("closed", "pending", "approved")


class _State(AgentState[Any]):
    carrel_plan: NotRequired[PlanState | None]


def approval_request(plan: Plan, error: str | None = None) -> dict[str, Any]:
    """The plan as LangChain's human-in-the-loop asks about a tool call, so that whatever shows those shows it."""
    counts = plan.info.get("counts") or {}
    text = f"{error}\n\n" if error else ""
    text += plan.show()
    for finding in plan.info.get("findings") or []:
        text += f"\n{finding['severity']} {name_of(finding)}: {finding['message']}; {finding['remedy']}".encode(errors="backslashreplace").decode()
    if any(counts.get(kind) for kind in ("create", "write")):
        text += "\n\n" + plan.diff()
    if len(text) > MOST_SHOWN:
        text = text[:MOST_SHOWN] + f"\n… all of it: carrel plan show {plan.workspace} {plan.id} --diff"
    args = {"workspace": plan.workspace, "plan": plan.id, "hash": plan.hash, "operations": plan.info.get("operations"), "counts": counts,
            "verdict": plan.info.get("verdict")}
    return {"action_requests": [{"name": "apply_plan", "args": args, "description": text}],
            "review_configs": [{"action_name": "apply_plan", "allowed_decisions": ["approve", "reject"]}]}


def decided(answer: Any) -> tuple[bool, str | None]:
    """What a person answered: {"decisions": [{"type": "approve"}]}, or "reject" with a "message". Anything else is an error: nothing is
    applied by mistake."""
    decisions = answer.get("decisions") if isinstance(answer, dict) else None
    one = decisions[0] if isinstance(decisions, list) and len(decisions) == 1 and isinstance(decisions[0], dict) else {}
    if one.get("type") not in ("approve", "reject"):
        raise ValueError(f'answer with {{"decisions": [{{"type": "approve"}}]}}, or "reject" and a "message"; not with {answer!r}')
    message = one.get("message")
    return one["type"] == "approve", str(message) if message else None


def act(desk: Desk, plan: PlanState, answer: Any) -> dict[str, Any]:
    """Carries out what was decided; the change of the graph's state that tells it."""
    try:
        yes, why = decided(answer)
        if yes:
            return {"carrel_plan": {**plan, "state": desk.carry_out(plan["id"], plan["hash"]).state}}
        desk.turn_down(plan["id"], why)
        told: dict[str, Any] = {"carrel_plan": {**plan, "state": "rejected"}}
        if why:  # there is something to do better
            told |= {"messages": [HumanMessage(f"Your changes were rejected, the files are as they were before them: {why}")], "jump_to": "model"}
        return told
    except CarrelError as error:
        if error.code in ("plan_stale", "plan_conflict", "plan_refused"):
            text = f"Your changes were approved and could not be applied, the files are as they were before them: {error} Make them anew."
            return {"carrel_plan": {**plan, "state": "failed"}, "messages": [HumanMessage(text)], "jump_to": "model"}
        return ask_again(plan, str(error))
    except ValueError as error:
        return ask_again(plan, str(error))


def ask_again(plan: PlanState, why: str) -> dict[str, Any]:
    """By way of the graph, not of an exception: LangGraph would give the same answer to the same question for ever."""
    return {"carrel_plan": {**plan, "error": f"Your answer came to nothing: {why}"}, "jump_to": "end"}


class PlanClosing(AgentMiddleware[Any, Any, Any]):
    """When the agent is done: its changes become a plan, which is in the graph's state before anybody is asked."""

    state_schema = _State

    def __init__(self, desks: Desks) -> None:
        super().__init__()
        self.desks = desks

    def after_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        plan = self.desks.here().close_plan()
        if plan:
            return {"carrel_plan": PlanState(id=plan.id, workspace=plan.workspace, hash=plan.hash or "", state=plan.state)}
        waits = (state.get("carrel_plan") or {}).get("state") in WAITS
        return None if waits else {"carrel_plan": None}


class PlanApproval(AgentMiddleware[Any, Any, Any]):
    """Then: a person is asked, by LangGraph's interrupt, and what is approved is applied."""

    state_schema = _State

    def __init__(self, desks: Desks) -> None:
        super().__init__()
        self.desks = desks

    @hook_config(can_jump_to=["model", "end"])  # "end" is where the steps after the agent begin: it asks again
    def after_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        plan = cast(PlanState, dict(state.get("carrel_plan") or {}))
        if not plan or plan["state"] not in WAITS:
            return None
        desk = self.desks.here()
        answer = interrupt(approval_request(desk.person.get_plan(plan["id"]), plan.pop("error", None)))
        return act(desk, plan, answer)


def approval(desks: Desks) -> list[AgentMiddleware[Any, Any, Any]]:
    """The last of them is the first to run after the agent."""
    return [PlanApproval(desks), PlanClosing(desks)]
