"""The loop between a model and the tools, and its failures."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

import toolspan
from tests.requirement import requirement
from tests.runtime.hooks.hook_sessions import at, command
from tests.runtime.waiting_tools import Held, interrupting
from toolspan import Hooks, Permissions, Session, testing, tool
from toolspan.formats.evidence import UNANSWERED_MESSAGE
from toolspan.runtime.hooks.events import HookPoint, HookRunner, SessionHookEvent
from toolspan.runtime.hooks.load import load_hooks
from toolspan.runtime.profiles import VERSIONS, profile
from toolspan.runtime.settings import SettingsLayer, merge_settings
from toolspan.runtime.settings.load import parse_settings
from toolspan.session import Agent, AgentLimits
from toolspan.session.agent import Budget
from toolspan.session.models.base import (
    BlockDone,
    Model,
    ModelEvent,
    ModelRequest,
    ModelStream,
    ReplyBegan,
    ReplyStopped,
    TextDelta,
)
from toolspan.session.models.retry import RetryingModel, RetryOptions
from toolspan.session.models.scripted import ScriptStep
from toolspan.session.resume import load_history
from toolspan.testing import ScriptedModel, check_history, say, use

pytestmark = pytest.mark.anyio


@tool(concurrent=True)
async def echo(text: str) -> str:
    """Give the text back."""
    return text


async def at_once(_seconds: float) -> None:
    await anyio.lowlevel.checkpoint()


PATIENT = RetryOptions(retries=2, sleep=at_once)


@asynccontextmanager
async def talking(
    folder: Path,
    model: Model,
    limits: AgentLimits | None = None,
    hooks: HookRunner | None = None,
    version: str = "2.1.327",
) -> AsyncIterator[Agent]:
    path = folder / "t.jsonl"
    session = Session(
        permissions=Permissions.allow_all(), cwd=folder, tools=[echo], transcript=path, hooks=hooks, profile=version
    )
    async with session:
        yield Agent(session, RetryingModel(model, PATIENT), system="Work.", limits=limits)
    assert check_history(session.messages) == []


def joined(messages: Sequence[dict[str, object]]) -> list[tuple[object, list[object]]]:
    made: list[tuple[object, list[object]]] = []
    for message in messages:
        if not made or made[-1][0] != message["role"]:
            made.append((message["role"], []))
        content = message["content"]
        made[-1][1].extend(content if isinstance(content, list) else [content])
    return made


def states(folder: Path) -> list[str]:
    return [span.state for span in toolspan.read(folder / "t.jsonl").spans]


@requirement("permission.nothing-hidden")
async def test_a_file_that_a_prompt_mentions_is_not_put_into_the_conversation(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("the content\n", encoding="utf-8")
    script = ScriptedModel([say("No.")])
    async with talking(tmp_path, script) as agent:
        await agent.prompt("Look at @secret.txt and @./secret.txt.")

    assert "@./secret.txt" in repr(script.requests)
    assert "the content" not in repr(script.requests)


async def test_turn_ends_when_the_model_sends_no_calls(tmp_path: Path) -> None:
    def repeat(messages: object) -> dict[str, object]:
        return say(f"They said {' and '.join(testing.last_result_texts(messages))}.")  # type: ignore[arg-type]

    script = ScriptedModel([[say("I ask."), use("echo", text="a"), use("echo", text="b")], repeat])
    async with talking(tmp_path, script) as agent:
        ended = await agent.prompt("Ask twice.")

    assert (ended.reason, ended.text, ended.turns) == ("completed", "They said a and b.", 2)
    assert not ended.is_error
    assert ended.tokens["output_tokens"] > 0
    assert states(tmp_path) == ["succeeded", "succeeded"]
    assert script.requests[0]["system"] == "Work."


@requirement("agent.early-start")
async def test_call_runs_while_the_reply_still_streams(tmp_path: Path) -> None:
    runs = anyio.Event()

    @tool
    async def begin() -> str:
        """Say that it runs."""
        runs.set()
        return "ran"

    class Slow:
        name = "slow"

        async def stream(self, request: ModelRequest) -> ModelStream:
            question = len(request.messages) == 1
            yield ReplyBegan("m1" if question else "m2", "slow")
            if question:
                block: dict[str, object] = {"type": "tool_use", "id": "c1", "name": "begin"}
                block["input"] = {}
                yield BlockDone(block)
                yield TextDelta("And ")
                await runs.wait()  # comes only if the call was started
                yield TextDelta("so on.")
                yield BlockDone({"type": "text", "text": "And so on."})
            yield ReplyStopped("tool_use" if question else "end_turn")

        async def close(self) -> None: ...

    path = tmp_path / "t.jsonl"
    async with Session(permissions=Permissions.allow_all(), cwd=tmp_path, tools=[begin], transcript=path) as session:
        ended = await Agent(session, Slow()).prompt("Go.")

    assert ended.reason == "completed"
    assert check_history(session.messages) == []
    assert [message["role"] for message in session.messages] == ["user", "assistant", "user"]
    assert joined(load_history(path)) == joined(session.messages)


async def test_broken_reply_keeps_its_complete_calls(tmp_path: Path) -> None:
    broken = testing.drop(say("I look."), use("echo", text="a"), say("and then I"))
    script = ScriptedModel([broken, say("It says a.")])
    async with talking(tmp_path, script) as agent:
        ended = await agent.prompt("Go.")

    assert (ended.reason, ended.text) == ("completed", "It says a.")
    assert states(tmp_path) == ["succeeded"]
    content = agent.session.messages[1]["content"]
    assert isinstance(content, list)
    assert [block["type"] for block in content] == ["text", "tool_use"]


async def test_broken_reply_without_calls_is_not_recorded(tmp_path: Path) -> None:
    script = ScriptedModel([testing.drop(say("I was going to")), say("Here.")])
    async with talking(tmp_path, script) as agent:
        ended = await agent.prompt("Go.")

    assert ended.text == "Here."
    reply = [(m.voice, m.text) for m in toolspan.read(tmp_path / "t.jsonl").messages()]
    assert [text for voice, text in reply if voice == "text"] == ["Here."]
    assert [text for voice, text in reply if voice == "error"]


class Odd:
    """A model that sends this reply first and then finishes."""

    name = "odd"

    def __init__(self, *events: ModelEvent | Exception) -> None:
        self._events = [events]

    async def stream(self, request: ModelRequest) -> ModelStream:
        done = (BlockDone({"type": "text", "text": "Done."}), ReplyStopped("end_turn"))
        yield ReplyBegan(f"m{len(request.messages)}", "odd")
        for event in self._events.pop() if self._events else done:
            if isinstance(event, Exception):
                raise event
            yield event

    async def close(self) -> None: ...


CALL: dict[str, object] = {"type": "tool_use", "id": "a", "name": "echo", "input": {"text": "hi"}}


@requirement("agent.malformed-input")
@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (ScriptedModel([testing.cut(use("echo", text="half")), say("Done.")]), ["failed"]),
        (
            ScriptedModel([testing.garble(use("echo", text="half")), [use("echo", text="x")], say("Done.")]),
            ["failed", "succeeded"],
        ),
        (Odd(BlockDone(CALL), ValueError("no")), ["succeeded"]),
        (Odd(BlockDone(CALL)), ["succeeded"]),
    ],
    ids=["cut call", "malformed input", "fault after a call", "stream without an end"],
)
async def test_damaged_reply_gets_results_and_the_turn_continues(
    tmp_path: Path, model: Model, expected: list[str]
) -> None:
    async with talking(tmp_path, model) as agent:
        ended = await agent.prompt("Go.")

    assert (ended.reason, ended.text) == ("completed", "Done.")
    assert states(tmp_path) == expected


@pytest.mark.parametrize(
    ("fault", "output"),
    [
        (ValueError("no\nsuch thing"), "ValueError: no such thing"),
        (ExceptionGroup("two", [KeyError("a"), TypeError()]), "ExceptionGroup: two"),
        (BlockDone({}), "a block without a type"),
    ],
)
async def test_exception_in_a_model_ends_the_turn_with_an_error(
    tmp_path: Path, fault: ModelEvent | Exception, output: str
) -> None:
    async with talking(tmp_path, Odd(TextDelta("Well"), fault)) as agent:
        first = await agent.prompt("Go.")
        second = await agent.prompt("Again.")

    assert first.reason == "model_error"
    assert f"the model implementation failed: {output}" in str(first.error)
    assert (second.reason, second.text) == ("completed", "Done.")


async def test_call_that_cannot_be_answered_ends_the_turn(tmp_path: Path) -> None:
    call: dict[str, object] = {"type": "tool_use", "id": "", "name": "echo", "input": {}}
    async with talking(tmp_path, Odd(BlockDone(call), ReplyStopped("tool_use"))) as agent:
        first = await agent.prompt("Go.")
        second = await agent.prompt("Go.")

    assert first.reason == "model_error"
    assert "needs an id" in (first.error or "")
    assert second.text == "Done."


async def test_missing_reply_ends_the_turn_and_the_next_prompt_works(tmp_path: Path) -> None:
    script = ScriptedModel([[use("echo", text="a")], testing.fail(400, message="Nope."), say("Fine now.")])
    async with talking(tmp_path, script) as agent:
        first = await agent.prompt("Go.")
        second = await agent.prompt("And now?")

    assert (first.reason, first.error) == ("model_error", "API Error: 400 Nope.")
    assert (second.reason, second.text) == ("completed", "Fine now.")
    reply = [(m.voice, m.text) for m in toolspan.read(tmp_path / "t.jsonl").messages()]
    assert ("error", "API Error: 400 Nope.") in reply
    assert joined(load_history(tmp_path / "t.jsonl")) == joined(agent.session.messages)


async def test_turn_limit_ends_the_turn_and_is_named(tmp_path: Path) -> None:
    script = ScriptedModel([], then=[use("echo", text="again")])
    async with talking(tmp_path, script, AgentLimits(turns=3)) as agent:
        ended = await agent.prompt("Go.")
    assert (ended.reason, ended.turns) == ("max_turns", 3)
    assert states(tmp_path) == ["succeeded"] * 3

    for step, reason in ((testing.cut(say("A long story")), "max_tokens"), (testing.refuse(), "refusal")):
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        async with talking(folder, ScriptedModel([step, say("Yes.")])) as agent:
            ended = await agent.prompt("Go.")
            again = await agent.prompt("Go on.")
        assert (ended.reason, again.text) == (reason, "Yes.")


@requirement("agent.interrupt")
async def test_interrupt_keeps_the_partial_reply_and_the_next_prompt_works(tmp_path: Path) -> None:
    waits = anyio.Event()

    class Endless:
        name = "endless"

        async def stream(self, request: ModelRequest) -> ModelStream:
            yield ReplyBegan(f"m{len(request.messages)}", "endless")
            yield TextDelta("I think that")
            if len(request.messages) > 1:
                yield BlockDone({"type": "text", "text": "I think that"})
                yield ReplyStopped("end_turn")
                return
            waits.set()
            await anyio.sleep_forever()

        async def close(self) -> None: ...

    async with talking(tmp_path, Endless()) as agent:
        async with interrupting(agent, waits):
            first = await agent.prompt("Go.")
        second = await agent.prompt("Go on.")

    assert (first.reason, first.text) == ("aborted_streaming", "I think that")
    assert second.reason == "completed"
    voices = [m.voice for m in toolspan.read(tmp_path / "t.jsonl").messages()]
    assert voices == ["prompt", "text", "interrupt", "prompt", "text"]
    assert joined(load_history(tmp_path / "t.jsonl")) == joined(agent.session.messages)


@requirement("agent.interrupt")
@pytest.mark.parametrize(("point", "text"), [("UserPromptSubmit", ""), ("Stop", "Yes."), ("PreCompact", "")])
async def test_interrupt_ends_running_turn_hooks(tmp_path: Path, point: HookPoint, text: str) -> None:
    hooks, inside = Hooks(), anyio.Event()

    @hooks.at(point)
    async def hang(occasion: SessionHookEvent) -> None:
        if not inside.is_set():
            inside.set()
            await anyio.sleep_forever()

    model = ScriptedModel([], then=say("Yes."))
    small = AgentLimits(budget=Budget(tokens=1)) if point == "PreCompact" else None
    async with talking(tmp_path, model, small, hooks) as agent, anyio.create_task_group() as group:

        async def stop() -> None:
            await inside.wait()
            assert agent.is_busy
            agent.interrupt()

        group.start_soon(stop)
        if point == "PreCompact":
            agent.context_tokens = 10
        first = await agent.prompt("Go.")
        assert not agent.is_busy
        second = await agent.prompt("Go on.")

    assert (first.reason, first.text) == ("aborted_streaming", text)
    assert first.error == "interrupted by the user"
    assert (second.reason, second.text) == ("completed", "Yes.")
    assert joined(load_history(tmp_path / "t.jsonl")) == joined(agent.session.messages)


@pytest.mark.parametrize("block", [5, {}, {"type": "text", "text": " "}, {"type": "tool_result", "tool_use_id": "a"}])
async def test_invalid_prompt_is_refused_and_not_recorded(tmp_path: Path, block: Any) -> None:
    async with talking(tmp_path, ScriptedModel([], then=say("Yes."))) as agent:
        with pytest.raises(ValueError, match="prompt"):
            await agent.prompt([{"type": "text", "text": "Go."}, block])
        assert agent.session.messages == []
        assert (await agent.prompt("Go.")).text == "Yes."


@requirement("agent.interrupt")
async def test_interrupt_answers_running_calls(tmp_path: Path) -> None:
    forever = Held("forever")
    script = ScriptedModel([[use("forever")], say("Sorry.")])
    path = tmp_path / "t.jsonl"
    async with Session(
        permissions=Permissions.allow_all(), cwd=tmp_path, tools=[forever.tool], transcript=path
    ) as session:
        agent = Agent(session, script)
        async with interrupting(agent, forever.inside):
            ended = await agent.prompt("Go.")
        again = await agent.prompt("Why?")

    assert (ended.reason, again.text) == ("aborted_tools", "Sorry.")
    assert check_history(session.messages) == []


async def test_long_conversation_is_compacted(tmp_path: Path) -> None:
    script = ScriptedModel([[use("echo", text="x" * 4000)], say("NOTES: x was echoed."), say("Done.")])
    async with talking(tmp_path, script, AgentLimits(budget=Budget(tokens=1000))) as agent:
        ended = await agent.prompt("Echo a lot.")

    assert (ended.reason, ended.text) == ("completed", "Done.")
    request = script.requests[2]["messages"]
    assert isinstance(request, list)
    assert "NOTES: x was echoed." in str(request)
    assert "x" * 4000 not in str(request)
    transcript = toolspan.read(tmp_path / "t.jsonl")
    voices = [message.voice for message in transcript.messages()]
    assert voices == ["prompt", "system", "summary", "text"]
    assert [span.branch for span in transcript.spans] == ["compacted"]
    assert joined(load_history(tmp_path / "t.jsonl")) == joined(agent.session.messages)


async def test_conversation_too_long_for_the_server_is_compacted(tmp_path: Path) -> None:
    script = ScriptedModel(
        [
            [use("echo", text="a")],
            testing.fail(400, message="prompt is too long: 200001 tokens > 200000 maximum"),
            say("NOTES"),
            say("Done."),
        ]
    )
    async with talking(tmp_path, script) as agent:
        ended = await agent.prompt("Go.")

    assert (ended.reason, ended.turns) == ("completed", 2)


async def test_deferred_call_is_resumed(tmp_path: Path) -> None:
    wait = '{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"defer"}}'
    handlers = at("PreToolUse", command(f"[ -e ready ] || printf '%s' '{wait}'"))
    layer = SettingsLayer("user", tmp_path / "s.json", parse_settings({"hooks": handlers}, "s.json"), {})
    hooks = load_hooks(merge_settings([layer], trusted=True), profile()).hooks
    script = ScriptedModel([[use("echo", text="a")], say("It says a.")])
    async with talking(tmp_path, script, hooks=hooks) as agent:
        first = await agent.prompt("Go.")
        (tmp_path / "ready").touch()
        second = await agent.resume_deferred()

    assert (first.reason, second.reason) == ("tool_deferred", "completed")
    assert second.text == "It says a."


async def test_hooks_see_the_prompt_the_end_of_the_turn_and_the_compaction(tmp_path: Path) -> None:
    hooks = Hooks()
    seen: list[str] = []

    @hooks.at("SessionStart")
    def start(occasion: SessionHookEvent) -> None:
        seen.append(str(occasion.subject))

    @hooks.at("UserPromptSubmit")
    def prompt(_: object) -> None:
        seen.append("prompt")

    @hooks.at("PreCompact")
    def compact(_: object) -> None:
        seen.append("before")

    @hooks.at("Stop")
    def stop(_: object) -> None:
        seen.append("stop")

    script = ScriptedModel([[use("echo", text="x" * 4000)], say("NOTES"), say("Done.")])
    async with talking(tmp_path, script, AgentLimits(budget=Budget(tokens=1000)), hooks) as agent:
        await agent.prompt("Go.")

    assert seen == ["startup", "prompt", "before", "compact", "stop"]


STEPS: Sequence[ScriptStep] = (
    say("Words."),
    [testing.think("Hm."), say("Words.")],
    [use("echo", text="a")],
    [say("I ask."), use("echo", text="a"), use("echo", text="b")],
    [use("echo", wrong=1), use("nothing")],
    testing.cut(say("Too long a story")),
    testing.cut(say("I write."), use("echo", text="too long")),
    testing.cut(testing.think("Hm, hm, hm.")),
    testing.garble(use("echo", text="half")),
    testing.refuse(),
    testing.refuse(say("No.")),
    testing.fail(529),
    testing.fail(400),
    testing.fail(529, after=[say("I was")]),
    testing.fail(529, after=[use("echo", text="a"), say("I was")]),
    testing.drop(),
    testing.drop(say("I was")),
    testing.drop(use("echo", text="a"), testing.think("and")),
    [say("  ")],
    [],
)


@given(st.lists(st.sampled_from(range(len(STEPS))), max_size=12), st.sampled_from(VERSIONS))
def test_history_stays_valid_for_any_model(order: list[int], version: str) -> None:
    async def story() -> None:
        folder = Path(tempfile.mkdtemp(dir=scratch))
        script = ScriptedModel([STEPS[n] for n in order], then=say("The end."))
        async with talking(folder, script, AgentLimits(turns=6), version=version) as agent:
            for prompt in ("One.", "Two.", "Three."):
                await agent.prompt(prompt)
                assert check_history(agent.session.messages) == []
        assert joined(load_history(folder / "t.jsonl")) == joined(agent.session.messages)
        assert UNANSWERED_MESSAGE not in str(agent.session.messages)
        assert "never_answered" not in states(folder)

    with tempfile.TemporaryDirectory() as scratch:
        anyio.run(story)
