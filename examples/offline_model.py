# SPDX-License-Identifier: Apache-2.0
"""A model for the examples that needs no network: it says what a script tells it to. Put your own in its place."""
from collections.abc import Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult


class ScriptedModel(BaseChatModel):
    """script: one item a turn, a text to say or a list of (tool, arguments) to call. Its place in the script is the number of answers so far."""

    script: list[Any]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> "ScriptedModel":
        return self

    def _generate(self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
        turn = sum(isinstance(message, AIMessage) for message in messages)
        item = self.script[turn]
        calls = [] if isinstance(item, str) else [{"name": name, "args": args, "id": f"call-{turn}-{n}"} for n, (name, args) in enumerate(item)]
        message = AIMessage(content=item if isinstance(item, str) else "", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=message)])
