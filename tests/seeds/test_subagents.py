"""Subagents in documents 000 to 002: started, seen by hooks, recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

import toolspan
from tests.seeds.test_samples import result_of, sample
from tests.session.role_models import Play, troupe
from toolspan import Hooks
from toolspan.formats.claude.work_results import AgentResult
from toolspan.runtime.hooks.events import SessionHookEvent
from toolspan.testing import say, use

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("version", "name"), [("seed", "Task"), ("2.1.325", "Agent")])
async def test_subagent_is_started_by_a_call_and_its_text_is_the_result(
    version: str, name: str, tmp_path: Path
) -> None:
    hooks = Hooks()
    received: list[str] = []

    @hooks.at("SubagentStart")
    def start(_: SessionHookEvent) -> None:
        received.append("start")

    @hooks.at("SubagentStop")
    def stop(_: SessionHookEvent) -> None:
        received.append("stop")

    request = {"description": "Find prices", "prompt": "Look", "subagent_type": "general-purpose"}
    play = Play(
        {
            "Main": [[use(name, **request, run_in_background=False)], say("Thank you.")],
            "Look": [[use("echo", text="tea,3")], say("Tea is 3.")],
        }
    )
    async with troupe(tmp_path, play, version=version, hooks=hooks) as agent:
        await agent.prompt("Main")

    (span,) = toolspan.read(tmp_path / "t.jsonl").spans
    assert (span.tool, span.call.kind, span.state) == (name, "agent", "succeeded")
    assert "Tea is 3." in result_of(span).text
    output = result_of(span).structured
    assert isinstance(output, AgentResult)
    assert (output.status, output.prompt, output.total_tool_use_count) == ("completed", "Look", 1)
    assert output.total_tokens is not None
    assert output.total_duration_ms is not None
    assert output.usage is not None
    (below,) = tmp_path.rglob("agent-*.jsonl")
    assert [(s.tool, s.state) for s in toolspan.read(below).spans] == [("echo", "succeeded")]
    assert span.agent is not None
    assert below.stem == f"agent-{span.agent}"
    assert received == ["start", "stop"]


async def test_background_subagent_is_recorded_as_in_the_sample(tmp_path: Path) -> None:
    request = {"description": "Find prices", "prompt": "Look", "subagent_type": "general-purpose"}
    play = Play({"Main": [[use("Agent", **request, run_in_background=True)], say("Later.")]})
    async with troupe(tmp_path, play, version="2.1.325") as agent:
        await agent.prompt("Main")

    span = toolspan.read(tmp_path / "t.jsonl").spans[0]
    output = result_of(span).structured
    assert isinstance(output, AgentResult)
    assert (output.is_async, output.is_launched, output.prompt) == (True, True, "Look")
    assert output.description == "Find prices"
    assert output.agent_id == span.agent
    assert output.output_file
    assert output.status == sample("S2-35.json")["status"]
