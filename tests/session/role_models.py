"""A scripted model for several agents: the first prompt of a conversation selects its script."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from toolspan import Permissions, Session, ToolContext, tool
from toolspan.runtime.profiles import Profile, profile
from toolspan.runtime.tool import Tool
from toolspan.session import Agent
from toolspan.session.subagents import SubagentConfig, Subagents
from toolspan.testing import ScriptedModel, check_history, say
from toolspan.tools import agent_tool, send_message_tool, task_output_tool, task_stop_tool
from toolspan.types.events import LiveEvent

Step = Any
Part = Sequence[Step]


def first_words(messages: Sequence[Mapping[str, Any]]) -> str:
    content = messages[0]["content"]
    return content if isinstance(content, str) else str(content[-1]["text"])


class Play:
    """A scripted model with a part for everybody; parts are found by the words they begin with."""

    def __init__(self, parts: Mapping[str, Part]) -> None:
        self._parts = parts
        self.spoken: Counter[str] = Counter()
        self.model = ScriptedModel([], then=self._next)

    def _next(self, messages: Any) -> Step:
        text = first_words(messages)
        name = next((item for item in self._parts if text.startswith(item)), text)
        number = self.spoken[name]
        self.spoken[name] += 1
        part = self._parts.get(name, ())
        step = part[number] if number < len(part) else say(f"{name} is done.")
        return step(messages) if callable(step) else step

    def requests(self, name: str) -> list[dict[str, Any]]:
        result: list[dict[str, Any]] = []
        for request in self.model.requests:
            messages: Any = request["messages"]
            if first_words(messages).startswith(name):
                result.append(dict(request))
        return result


@tool(concurrent=True)
async def echo(text: str) -> str:
    """Give the text back."""
    return text


@tool(concurrent=True)
async def hang(ctx: ToolContext) -> str:
    """Never end by itself."""
    ctx.progress("hangs")
    await anyio.sleep_forever()
    return ""


def tools_of(version: Profile) -> list[Tool]:
    makers: list[Callable[[Profile], Tool]] = [
        agent_tool, send_message_tool, task_output_tool, task_stop_tool,
    ]  # fmt: skip
    return [make(version) for make in makers] + [echo, hang]


@asynccontextmanager
async def troupe(
    folder: Path,
    play: Play,
    *,
    version: str = "2.1.327",
    staff: SubagentConfig | None = None,
    events: list[LiveEvent] | None = None,
    tools: Sequence[Tool] = (),
    **around: Any,
) -> AsyncIterator[Agent]:
    received: list[LiveEvent] = [] if events is None else events
    chosen = profile(version)
    session = Session(
        cwd=folder,
        tools=[*tools_of(chosen), *tools],
        profile=chosen,
        **{"permissions": Permissions.allow_all(), "transcript": folder / "t.jsonl", **around},
        direct=[received.append],
    )
    agent = Agent(session, play.model, system="Work.")
    Subagents(agent, staff)
    async with session:
        yield agent
    assert check_history(session.messages) == []
