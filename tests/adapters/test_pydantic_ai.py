"""Toolspan inside pydantic-ai's own loop, with a scripted model."""

import asyncio
import base64
import io
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest
from PIL import Image

import toolspan
from tests.requirement import requirement
from toolspan import Rules, Session, coding_tools, tool

pytest.importorskip("pydantic_ai")

from pydantic_ai import Agent
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from toolspan.adapters.pydantic_ai import ToolspanToolset

LONG = 30
Turn = Sequence[ToolCallPart]


def script(*turns: Turn) -> FunctionModel:
    """A model that asks for these calls, a turn each, and then is done."""
    left = list(turns)

    def say(_messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=list(left.pop(0)) if left else [TextPart("done")])

    return FunctionModel(say)


async def results(session: Session, *turns: Turn) -> list[ToolReturnPart]:
    agent = Agent(script(*turns), toolsets=[ToolspanToolset(session)])
    with anyio.fail_after(LONG):
        ran = await agent.run("go")
    assert ran.output == "done"
    parts = [part for message in ran.all_messages() for part in message.parts]
    return [part for part in parts if isinstance(part, ToolReturnPart)]


def call(tool: str, call_id: str, **given: object) -> ToolCallPart:
    return ToolCallPart(tool, dict(given), tool_call_id=call_id)


@requirement("adapters.one-result")
@pytest.mark.anyio
async def test_every_call_gets_one_result_and_is_on_record(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello\n", encoding="utf-8")
    transcript = tmp_path / "s.jsonl"
    async with Session(cwd=tmp_path, transcript=transcript) as session:
        found = await results(
            session,
            [call("Read", "r", file_path=str(tmp_path / "a.txt"))],
            [call("Bash", "b", command="exit 3"), call("Bash", "w", cmd="x")],
            [call("Bash", "b", command="echo the same id")],
        )
    assert [(one.tool_call_id, one.outcome) for one in found] == [
        ("r", "success"),
        ("b", "failed"),
        ("w", "failed"),
        ("b", "success"),
    ]
    assert found[0].content == "1\thello\n2\t"
    assert "Exit code 3" in str(found[1].content)
    assert "InputValidationError" in str(found[2].content)
    assert [span.state for span in toolspan.read(transcript).spans] == [
        "succeeded",
        "failed",
        "failed",
        "succeeded",
    ]


@requirement("adapters.denied")
@pytest.mark.anyio
async def test_a_refusal_reaches_the_model_as_a_result(tmp_path: Path) -> None:
    rules = Rules(deny=["Bash(touch:*)"])
    async with Session(cwd=tmp_path, transcript=None, policies=[rules]) as session:
        (found,) = await results(session, [call("Bash", "b", command="touch made")])
    assert found.outcome == "failed"
    assert "has been denied" in str(found.content)
    assert not (tmp_path / "made").exists()


@requirement("adapters.faults")
@pytest.mark.anyio
async def test_a_tool_that_raises_does_not_break_the_loop(tmp_path: Path) -> None:
    @tool
    def broken() -> str:
        """Fail."""
        raise KeyError("gone")

    async with Session(cwd=tmp_path, transcript=None, tools=[broken]) as session:
        (found,) = await results(session, [call("broken", "b")])
    assert found.outcome == "failed"
    assert "gone" in str(found.content)


@requirement("adapters.parallel")
@pytest.mark.anyio
async def test_calls_that_may_overlap_do_and_others_wait_for_each_other(tmp_path: Path) -> None:
    both = asyncio.Barrier(2)
    inside: list[str] = []

    @tool(concurrent=True)
    async def meet() -> str:
        """Wait for the other."""
        await both.wait()
        return "met"

    @tool
    async def alone(name: str) -> str:
        """Be the only one."""
        assert not inside
        inside.append(name)
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        inside.remove(name)
        return name

    async with Session(cwd=tmp_path, transcript=None, tools=[meet, alone]) as session:
        found = await results(
            session,
            [call("meet", "1"), call("meet", "2")],
            [call("alone", "3", name="a"), call("alone", "4", name="b")],
        )
    assert [one.content for one in found] == ["met", "met", "a", "b"]


@requirement("adapters.one-result")
@pytest.mark.anyio
async def test_pictures_are_pictures_and_a_runner_will_do(tmp_path: Path) -> None:
    picture = io.BytesIO()
    Image.new("RGB", (4, 4), "red").save(picture, "PNG")
    (tmp_path / "a.png").write_bytes(picture.getvalue())
    async with toolspan.Runner(coding_tools(), cwd=tmp_path) as runner:
        agent = Agent(
            script([call("Read", "r", file_path=str(tmp_path / "a.png"))]),
            toolsets=[ToolspanToolset(runner)],
        )
        with anyio.fail_after(LONG):
            ran = await agent.run("go")
    (part,) = [
        part
        for message in ran.all_messages()
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    ]
    assert isinstance(part.content, BinaryContent)
    assert part.content.data.startswith(b"\x89PNG")
    assert base64.b64encode(part.content.data)


@requirement("adapters.parallel")
@pytest.mark.anyio
async def test_a_run_that_is_cancelled_ends_its_calls_and_records_them(tmp_path: Path) -> None:
    transcript = tmp_path / "s.jsonl"
    async with Session(cwd=tmp_path, transcript=transcript) as session:
        with anyio.fail_after(LONG):
            async with anyio.create_task_group() as group:
                command = "touch up; exec sleep 1000"
                group.start_soon(results, session, [call("Bash", "b", command=command)])
                while not (tmp_path / "up").exists():
                    await anyio.sleep(0.01)
                group.cancel_scope.cancel()
    assert [span.state for span in toolspan.read(transcript).spans] == ["interrupted"]
