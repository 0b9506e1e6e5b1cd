"""What holds in the loop of every other library."""

import asyncio
import importlib
from pathlib import Path
from typing import cast

import pytest

from tests.adapters.loop import Loop, call
from tests.requirement import requirement
from tests.run.waiting import meeting
from toolspan import Rules, Session, tool

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["langgraph", "pydantic_ai"])
def results(request: pytest.FixtureRequest) -> Loop:
    pytest.importorskip(request.param)
    return cast("Loop", importlib.import_module(f"tests.adapters.{request.param}_loop").results)


@requirement("adapters.denied")
async def test_a_refusal_reaches_the_model_as_a_result(results: Loop, tmp_path: Path) -> None:
    rules = Rules(deny=["Bash(touch:*)"])
    async with Session(cwd=tmp_path, transcript=None, policies=[rules]) as session:
        (found,) = await results(session, [call("Bash", "b", command="touch made")])
    assert found.failed
    assert "has been denied" in str(found.content)
    assert not (tmp_path / "made").exists()


@requirement("adapters.faults")
async def test_a_tool_that_raises_does_not_break_the_loop(results: Loop, tmp_path: Path) -> None:
    @tool
    def broken() -> str:
        """Fail."""
        raise KeyError("gone")

    async with Session(cwd=tmp_path, transcript=None, tools=[broken]) as session:
        (found,) = await results(session, [call("broken", "b")])
    assert found.failed
    assert "gone" in str(found.content)


@requirement("adapters.parallel")
async def test_calls_that_may_overlap_do_and_others_wait_for_each_other(
    results: Loop, tmp_path: Path
) -> None:
    inside: list[str] = []

    @tool
    async def alone(name: str) -> str:
        """Be the only one."""
        assert not inside
        inside.append(name)
        for _ in range(5):
            await asyncio.sleep(0)
        inside.remove(name)
        return name

    async with Session(cwd=tmp_path, transcript=None, tools=[meeting(), alone]) as session:
        found = await results(
            session,
            [call("meet", "1"), call("meet", "2")],
            [call("alone", "3", name="a"), call("alone", "4", name="b")],
        )
    assert [one.content for one in found] == ["met", "met", "a", "b"]
