"""Child sessions, on which subagents are built."""

from __future__ import annotations

from pathlib import Path

import pytest

import toolspan
from toolspan import Hooks, Permissions, Session, ToolContext, tool
from toolspan.runtime.hooks.events import SessionHookEvent
from toolspan.session import Agent
from toolspan.session.environment import SubagentInfo
from toolspan.testing import ScriptedModel, check_history, say, use

pytestmark = pytest.mark.anyio


@tool(concurrent=True)
async def echo(text: str) -> str:
    """Give the text back."""
    return text


async def test_tool_starts_a_child_session_with_separate_context_tools_and_transcript(tmp_path: Path) -> None:
    hooks = Hooks()
    seen: list[str] = []

    for point in ("SessionStart", "UserPromptSubmit", "SubagentStart", "SubagentStop", "Stop"):

        @hooks.at(point)
        def note(occasion: SessionHookEvent) -> None:
            seen.append(occasion.point)

    child_model = ScriptedModel([[use("echo", text="below")], say("It says below.")], seed="child")

    @tool
    async def delegate(prompt: str, ctx: ToolContext) -> str:
        """Let somebody else do it."""
        assert session.recorder is not None
        recorder = session.recorder.subagent_recorder("a1", {"agentType": "helper", "toolUseId": ctx.call.id})
        async with Session(
            permissions=Permissions.allow_all(),
            cwd=tmp_path,
            tools=[echo],
            hooks=hooks,
            transcript=recorder,
            session_id=session.session_id,
            subagent=SubagentInfo("a1", "helper"),
        ) as child:
            ended = await Agent(child, child_model).prompt(prompt)
        assert check_history(child.messages) == []
        return ended.text

    path = tmp_path / "t.jsonl"
    model = ScriptedModel([[use("delegate", prompt="Echo, please.")], say("Done.")])
    session = Session(permissions=Permissions.allow_all(), cwd=tmp_path, tools=[delegate], hooks=hooks, transcript=path)
    async with session:
        ended = await Agent(session, model).prompt("Have it echoed.")

    assert ended.reason == "completed"
    assert "It says below." in str(session.messages)
    assert [schema["name"] for schema in child_model.requests[0]["tools"]] == ["echo"]  # type: ignore[attr-defined]
    assert seen == ["SessionStart", "UserPromptSubmit", "SubagentStart", "SubagentStop", "Stop"]
    (below,) = (tmp_path / "t" / "subagents").glob("*.jsonl")
    assert [(s.tool, s.state) for s in toolspan.read(path).spans] == [("delegate", "succeeded")]
    assert [(s.call.agent_id, s.state) for s in toolspan.read(below).spans] == [("a1", "succeeded")]
