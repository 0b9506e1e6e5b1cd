"""Queue, validation, hooks and permissions in document 004."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from tests.runtime.calls import EventLog
from tests.runtime.hooks.hook_sessions import at, command, decides, says

from lab.seeds.conversation import LATEST, Object, Played, call, play, text
from lab.seeds.test_samples import assistant_record, transcript, user_record
from toolspan import Allow, Deny, Hooks, Output, Rules, Runner, ToolContext, ToolError, tool
from toolspan.runtime.hooks import PreToolDecision
from toolspan.runtime.permissions.decide import PermissionRequest
from toolspan.runtime.profiles import profile
from toolspan.runtime.schema.issues import Invalid, Valid
from toolspan.runtime.tool import Refusal, Tool
from toolspan.types.events import Finished, Progressed, Started
from toolspan.types.span import Call, Hook

pytestmark = pytest.mark.anyio

SCHEMA: Mapping[str, object] = {"type": "object", "properties": {"word": {"type": "string"}}}


def parse(tool_input: Mapping[str, object]) -> Valid | Invalid:
    return Valid(dict(tool_input), dict(tool_input))


@tool
async def echo(word: str) -> str:
    """Say it again."""
    return word


# Definitions and surroundings


def test_client_of_the_document_has_a_profile() -> None:
    assert profile("2.0.65").name == "2.0.65"


async def test_tool_is_a_name_a_schema_a_check_and_a_function() -> None:
    async def run(value: Mapping[str, object], ctx: ToolContext) -> Output:
        place = ctx.cwd / "below"
        return Output(str(value["word"]), modify=lambda before: replace(before, cwd=place))

    async def validate(value: Mapping[str, object], ctx: ToolContext) -> Refusal | None:
        return Refusal("not that word", kind="not_found") if value["word"] == "bad" else None

    made = Tool(
        name="speak",
        description="Speak.",
        input_schema=SCHEMA,
        parse=parse,
        run=run,
        concurrent=False,
        validate=validate,
    )
    async with Runner([made], cwd="/") as runner:
        good, bad = await runner.finish([call("speak", "a", word="good"), call("speak", "b", word="bad")])

    assert (good.content, runner.context.cwd) == ("good", Path("/below"))
    assert (bad.content, bad.span.error_kind) == ("<tool_use_error>not that word</tool_use_error>", "not_found")


async def test_call_receives_input_context_permission_message_and_progress() -> None:
    seen: dict[str, object] = {}

    @tool
    async def look(ctx: ToolContext, count: int = 3) -> str:
        """Look around."""
        may = await ctx.can_use_tool("echo", {"word": "x"})
        ctx.progress("step", done=count)
        seen.update(
            count=count,
            may=type(may),
            message=ctx.message and ctx.message["id"],
            cancelled=ctx.cancelled,
            chain=ctx.tracking.chain_id,
            running=ctx.in_progress,
            decided=[type(value) for value in ctx.decisions.values()],
        )
        return "seen"

    log = EventLog()
    message = {"id": "msg_1", "role": "assistant", "content": [call("look", "a")]}
    rules = Rules(allow=["look"], deny=["echo"])
    await Runner([look, echo], policies=[rules], direct=[log]).run(message)

    assert seen == {
        "count": 3,
        "may": Deny,
        "message": "msg_1",
        "cancelled": False,
        "chain": "main",
        "running": frozenset({"a"}),
        "decided": [Allow],
    }
    kinds = [type(event) for event in log.events]
    assert kinds.index(Started) < kinds.index(Progressed) < kinds.index(Finished)


# The queue


async def test_finished_results_are_returned_once_and_the_rest_awaited() -> None:
    second_done, go_on = anyio.Event(), anyio.Event()

    @tool(concurrent=True)
    async def slow() -> str:
        """Wait."""
        await go_on.wait()
        return "slow"

    @tool(concurrent=True)
    async def quick() -> str:
        """Be quick."""
        second_done.set()
        return "quick"

    async with Runner([slow, quick]) as runner, runner.batch() as batch:
        batch.add(call("slow", "a"))
        batch.add(call("quick", "b"))
        await second_done.wait()
        while runner.in_progress != {"a"}:
            await anyio.lowlevel.checkpoint()
        first = [item.call_id for item in batch.completed()]
        again = batch.completed()
        go_on.set()
        rest = [item.call_id async for item in batch.remaining()]

    assert (first, again, rest) == (["b"], [], ["a"])
    assert runner.in_progress == frozenset()


async def test_output_of_a_call_is_kept_with_it() -> None:
    hooks = Hooks()

    @tool(structured_output=True)
    async def answer() -> Output:
        """Give everything there is."""
        return Output(
            "words",
            structured={"n": 1},
            companions=("a note",),
            structured_output={"shape": 1},
            modify=lambda context: replace(context, values={"seen": True}),
        )

    @hooks.pre_tool_use()
    def speak(call: Call) -> PreToolDecision:
        return PreToolDecision(contexts=("mind",))

    async with Runner([answer], hooks=hooks) as runner:
        (done,) = await runner.finish([call("answer", "a")])

    assert (done.content, done.structured, done.structured_output) == ("words", {"n": 1}, {"shape": 1})
    assert done.companions == ("a note",)
    assert [item.text for item in done.contexts] == ["mind"]
    assert runner.context.values == {"seen": True}


# The way of a call


async def test_every_failure_ends_in_one_error_result(tmp_path: Path) -> None:
    hooks = Hooks()

    @hooks.pre_tool_use("hooked")
    def no(call: Call) -> Deny:
        return Deny("not here")

    def made(name: str, error: Exception) -> Tool:
        @tool(name=name)
        async def breaks(word: str = "") -> str:
            """Break."""
            raise error

        return breaks

    names = {
        "missing": "unknown_tool",
        "echo": "invalid_input",
        "hooked": "hook_blocked",
        "denied": "rule_denied",
        "domain": "unknown",
        "crash": "unknown",
    }
    tools = [echo, *(made(name, ToolError("told")) for name in ("hooked", "denied", "domain"))]
    played = await play(
        tmp_path,
        [call(name, f"toolu_{name}") for name in names],
        tools=[*tools, made("crash", ValueError("unforeseen"))],
        hooks=hooks,
        policies=[Rules(deny=["denied"])],
        version=LATEST,
    )

    assert [block["tool_use_id"] for block in played.results] == [f"toolu_{n}" for n in names]
    assert {block["is_error"] for block in played.results} == {True}
    assert [span.error_kind for span in played.session.spans] == list(names.values())
    assert "InputValidationError" in played.results[1]["content"]
    assert played.results[4]["content"] == "told"
    assert len(played.transcript.spans) == len(names)


async def test_unknown_tool_is_reported_as_in_the_document(tmp_path: Path) -> None:
    played = await play(tmp_path, [call("Teleport")])

    assert played.results[0]["content"] == ("<tool_use_error>No such tool available</tool_use_error>")


async def test_call_cancelled_before_its_start_gets_a_fixed_answer() -> None:
    log = EventLog()
    async with Runner([echo], direct=[log]) as runner, runner.batch() as batch:
        batch.add(call("echo", "a", word="x"))
        batch.cancel()
        (done,) = await batch.drain()

    assert (done.span.state, done.content) == ("cancelled", profile().messages.cancelled)
    assert log.of(Started) == []


# Hooks


async def hooked(folder: Path, block: Object, **more: object) -> Played:
    calls = [call("echo", word="hello")]
    return await play(folder, calls, tools=[echo], hooks=block, version=LATEST, **more)  # type: ignore[arg-type]


async def test_asking_hook_reaches_the_approver(tmp_path: Path) -> None:
    request: list[str] = []

    def approver(question: PermissionRequest, ask: object) -> Allow:
        request.append(question.tool)
        return Allow()

    played = await hooked(tmp_path, at("PreToolUse", decides("ask")), approver=approver)

    assert (request, played.span().state) == (["echo"], "succeeded")


HOOK_LINES = {
    "hook_cancelled": "cancelled",
    "hook_error_during_execution": "error",
    "hook_stopped_continuation": "stopped",
    "hook_permission_decision": "decision",
    "hook_additional_context": "context",
}


@pytest.mark.parametrize(("kind", "outcome"), HOOK_LINES.items())
def test_hook_records_are_read(kind: str, outcome: str) -> None:
    about = {"type": kind, "hookName": "PreToolUse:Read", "hookEvent": "PreToolUse"}
    message = {"content": ["x"], "message": "x", "decision": "allow"}
    (span,) = transcript(
        assistant_record(call("Read")),
        {"type": "attachment", "attachment": {**about, **message, "toolUseID": "toolu_1"}},
        user_record({"type": "tool_result", "tool_use_id": "toolu_1", "content": "x"}),
    ).spans

    assert [event.outcome for event in span.events if isinstance(event, Hook)] == [outcome]


async def test_stop_hooks_are_summarised(tmp_path: Path) -> None:
    stop = says({"continue": False, "stopReason": "enough"})
    played = await play(
        tmp_path, [text("Done.")], tools=[echo], hooks=at("Stop", command("true"), stop), version=LATEST
    )

    (line,) = (line for line in played.lines if line.get("subtype") == "stop_hook_summary")
    assert line["type"] == "system"
    assert (line["hookCount"], len(line["hookInfos"]), line["hookErrors"]) == (2, 2, [])
    assert (line["preventedContinuation"], line["stopReason"]) == (True, "enough")
