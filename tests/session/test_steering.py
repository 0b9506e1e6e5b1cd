"""Prompts sent while a reply is in progress follow its results."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from tests.runtime.waiting_tools import Held
from toolspan import Hooks, Permissions, Session
from toolspan.runtime.hooks.events import HookEffects, PreToolDecision, SessionHookEvent
from toolspan.session.models.base import BlockDone, ModelEvent, ModelFailed, ReplyBegan, ReplyStopped, TextDelta
from toolspan.session.resume import load_history
from toolspan.testing import check_history
from toolspan.types.span import Call

pytestmark = pytest.mark.anyio
CALL: dict[str, object] = {"type": "tool_use", "id": "a", "name": "hang", "input": {}}
REPLY: dict[str, object] = {"role": "assistant", "content": [CALL]}


def describe_blocks(messages: list[dict[str, object]]) -> list[tuple[str, object]]:
    return [
        (str(message["role"]), block.get("text", block["type"]))
        for message in messages
        if isinstance(content := message["content"], list)
        for block in content
    ]


async def run_meanwhile(session: Session, hang: Held, *message: str, cut: bool = False) -> bool:
    """Run the reply, send a prompt while its call runs, then release or interrupt the call."""
    goes_on = False

    async def run() -> None:
        nonlocal goes_on
        goes_on = await session.run(REPLY)

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await hang.inside.wait()
        for text in message:
            await session.submit(text)
        assert ("user", message[0]) not in describe_blocks(session.messages)
        if cut:
            session.interrupt()
        hang.go_on.set()
    return goes_on


async def test_prompt_during_calls_follows_their_results(tmp_path: Path) -> None:
    hang, path = Held("hang"), tmp_path / "t.jsonl"
    async with Session(
        permissions=Permissions.allow_all(), cwd=tmp_path, tools=[hang.tool], transcript=path
    ) as session:
        session.say("go")
        turn = session.hook_environment.prompt_id
        assert await run_meanwhile(session, hang, "faster", "and louder")

        assert describe_blocks(session.messages)[1:] == [
            ("assistant", "tool_use"),
            ("user", "tool_result"),
            ("user", "faster"),
            ("user", "and louder"),
        ]
        assert check_history(session.messages) == []
        assert session.hook_environment.prompt_id == turn
    assert describe_blocks(load_history(path))[-3:] == describe_blocks(session.messages)[-3:]


async def test_prompt_before_an_interrupt_is_kept_and_the_turn_ends(tmp_path: Path) -> None:
    hang = Held("hang")
    async with Session(
        permissions=Permissions.allow_all(), cwd=tmp_path, tools=[hang.tool], transcript=None
    ) as session:
        session.say("go")
        assert not await run_meanwhile(session, hang, "faster", cut=True)

        assert session.stopped == "interrupted by the user"
        assert describe_blocks(session.messages)[-1] == ("user", "faster")
        assert check_history(session.messages) == []


async def test_prompt_hook_context_is_sent_with_the_prompt(tmp_path: Path) -> None:
    hang, hooks = Held("hang"), Hooks()

    @hooks.at("UserPromptSubmit")
    def add(occasion: SessionHookEvent) -> HookEffects:
        return HookEffects(contexts=(f"said: {occasion.fields['prompt']}",))

    async with Session(
        permissions=Permissions.allow_all(), cwd=tmp_path, tools=[hang.tool], hooks=hooks, transcript=None
    ) as session:
        await session.submit("go")
        assert await run_meanwhile(session, hang, "faster")

        (_, text), (_, beside) = describe_blocks(session.messages)[-2:]
        assert (text, "said: faster" in str(beside)) == ("faster", True)
        assert check_history(session.messages) == []


async def test_prompt_during_a_deferred_call_waits_for_its_result(tmp_path: Path) -> None:
    hang, hooks, request = Held("hang"), Hooks(), list[Call]()
    hang.go_on.set()

    @hooks.pre_tool_use()
    def put_off(call: Call) -> PreToolDecision:
        request.append(call)
        if len(request) == 1:
            session.say("faster")
        return PreToolDecision(defer=len(request) == 1)

    async with Session(
        permissions=Permissions.allow_all(), cwd=tmp_path, tools=[hang.tool], hooks=hooks, transcript=None
    ) as session:
        session.say("go")
        assert not await session.run(REPLY)
        assert describe_blocks(session.messages)[-1] == ("assistant", "tool_use")
        assert await session.run_deferred()

        assert describe_blocks(session.messages)[-2:] == [("user", "tool_result"), ("user", "faster")]


@pytest.mark.parametrize("fails", [False, True])
async def test_prompt_during_a_reply_follows_it(tmp_path: Path, fails: bool) -> None:
    async with Session(
        permissions=Permissions.allow_all(), cwd=tmp_path, tools=[], transcript=tmp_path / "t.jsonl"
    ) as session:

        async def stream() -> AsyncIterator[ModelEvent]:
            yield ReplyBegan(message_id="m", model="m")
            yield TextDelta("Well")
            session.say("shorter")
            if fails:
                raise ModelFailed("gone")
            yield BlockDone({"type": "text", "text": "Well."})
            yield ReplyStopped("end_turn")

        session.say("go")
        if fails:
            with pytest.raises(ModelFailed):
                await session.run(stream())
        else:
            assert await session.run(stream())

        reply = [] if fails else [("assistant", "Well.")]
        assert describe_blocks(session.messages) == [("user", "go"), *reply, ("user", "shorter")]
