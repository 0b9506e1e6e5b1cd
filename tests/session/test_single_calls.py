"""Single calls from a loop outside toolspan."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

import toolspan
from tests.runtime.waiting_tools import Held, meeting
from toolspan import Call, Hooks, Permissions, Session, ToolspanError
from toolspan.runtime.hooks.events import HookEffects, ToolHookEvent
from toolspan.session.single_calls import SingleCallResult, SingleCallRunner

pytestmark = pytest.mark.anyio


async def test_overlapping_calls_are_one_message(tmp_path: Path) -> None:
    transcript = tmp_path / "s.jsonl"
    async with Session(
        permissions=Permissions.allow_all(), cwd=tmp_path, transcript=transcript, tools=[meeting()]
    ) as session:
        lane = SingleCallRunner(session)
        async with anyio.create_task_group() as group:
            group.start_soon(lane.run_call, "meet", {})
            group.start_soon(lane.run_call, "meet", {})
        await lane.run_call("meet", {})

    spans = toolspan.read(transcript).spans
    messages = [span.call.message_id for span in spans]
    assert [span.state for span in spans] == ["succeeded"] * 3
    assert messages[0] == messages[1] != messages[2]


async def test_call_cancelled_in_the_queue_is_recorded_and_unblocks_the_next(tmp_path: Path) -> None:
    hold = Held("hold")
    answers: list[SingleCallResult] = []
    transcript = tmp_path / "s.jsonl"
    async with Session(
        permissions=Permissions.allow_all(), cwd=tmp_path, transcript=transcript, tools=[hold.tool]
    ) as session:
        lane = SingleCallRunner(session)

        async def call(name: str) -> None:
            answers.append(await lane.run_call("hold", {}, call_id=name))

        async with anyio.create_task_group() as group:
            group.start_soon(call, "first")
            await hold.inside.wait()
            async with anyio.create_task_group() as waiting:
                waiting.start_soon(call, "second")
                await anyio.wait_all_tasks_blocked()
                waiting.cancel_scope.cancel()
            group.start_soon(call, "third")
            await anyio.wait_all_tasks_blocked()
            assert session.runner.in_progress == {"first"}
            hold.go_on.set()

    assert [answer.finished.call_id for answer in answers] == ["first", "third"]
    states = {span.id: span.state for span in toolspan.read(transcript).spans}
    assert states == {"first": "succeeded", "second": "cancelled", "third": "succeeded"}


async def test_repeated_id_is_reported_and_an_unknown_tool_answered(tmp_path: Path) -> None:
    async with Session(permissions=Permissions.allow_all(), cwd=tmp_path, transcript=None) as session:
        lane = SingleCallRunner(session)
        answer = await lane.run_call("Nothing", {}, call_id="a")
        with pytest.raises(ToolspanError, match="was used before"):
            await lane.run_call("Nothing", {}, call_id="a")
        again = await lane.run_call("Bash", {"command": "echo hi"})
    assert answer.is_error
    assert again.all_blocks() == [{"type": "text", "text": "hi"}]


async def test_hook_messages_follow_the_result_of_their_call(tmp_path: Path) -> None:
    hooks = Hooks()

    @hooks.post_tool_use("Bash")
    def note(_call: Call, _moment: ToolHookEvent) -> HookEffects:
        return HookEffects(contexts=("look twice",))

    async with Session(permissions=Permissions.allow_all(), cwd=tmp_path, transcript=None, hooks=hooks) as session:
        answer = await SingleCallRunner(session).run_call("Bash", {"command": "echo hi"})
    first, second = answer.all_blocks()
    assert first == {"type": "text", "text": "hi"}
    assert "look twice" in str(second["text"])
