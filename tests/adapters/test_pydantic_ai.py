"""Toolspan inside pydantic-ai's own loop, with a scripted model."""

from pathlib import Path

import anyio
import pytest
from PIL import Image

import toolspan
from tests.adapters.loop import LONG, call
from tests.requirement import requirement
from toolspan import Session, coding_tools

pytest.importorskip("pydantic_ai")

from pydantic_ai.messages import BinaryContent

from tests.adapters.pydantic_ai_loop import results


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
    ended = [("r", False), ("b", True), ("w", True), ("b", False)]
    assert [(one.id, one.failed) for one in found] == ended
    assert found[0].content == "1\thello\n2\t"
    assert "Exit code 3" in str(found[1].content)
    assert "InputValidationError" in str(found[2].content)
    assert [span.state for span in toolspan.read(transcript).spans] == [
        "succeeded",
        "failed",
        "failed",
        "succeeded",
    ]


@requirement("adapters.one-result")
@pytest.mark.anyio
async def test_pictures_are_pictures_and_a_runner_will_do(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4), "red").save(tmp_path / "a.png")
    async with toolspan.Runner(coding_tools(), cwd=tmp_path) as runner:
        (found,) = await results(runner, [call("Read", "r", file_path=str(tmp_path / "a.png"))])
    assert isinstance(found.content, BinaryContent)
    assert found.content.data.startswith(b"\x89PNG")


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
