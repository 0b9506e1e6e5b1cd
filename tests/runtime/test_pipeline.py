"""The stages of a call, and the precedence of decisions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import anyio
import pytest

from tests.runtime.calls import EventLog, call
from tests.runtime.waiting_tools import Held
from toolspan.errors import ToolError
from toolspan.runtime.context import ToolContext
from toolspan.runtime.hooks import HookEffects, Hooks, PreToolDecision
from toolspan.runtime.hooks.events import ReplacedOutput, ToolHookEvent
from toolspan.runtime.permissions.decide import PermissionRequest, Policy
from toolspan.runtime.runner import Runner
from toolspan.runtime.tool import Output, Tool, ToolFailure, tool
from toolspan.types.decision import Allow, Ask, Decision, Deny
from toolspan.types.events import Decided, Finished, HookRan, Requested, Started
from toolspan.types.span import Call

pytestmark = pytest.mark.anyio


@tool
async def double(n: int) -> str:
    """Twice as much."""
    return str(2 * n)


async def run(runner: Runner, *blocks: dict[str, object]) -> list[Finished]:
    return await runner.finish(blocks)


def listening(fired: list[str], **answers: object) -> Hooks:
    hooks = Hooks()

    @hooks.pre_tool_use()
    def before(call: Call) -> Decision | None:
        fired.append(f"before {call.id}")
        return cast("Decision | None", answers.get("before"))

    @hooks.post_tool_use()
    def after(call: Call, moment: ToolHookEvent) -> HookEffects | None:
        fired.append(f"after {call.id}")
        return cast("HookEffects | None", answers.get("after"))

    @hooks.post_tool_use_failure()
    def after_failure(call: Call, moment: ToolHookEvent) -> HookEffects | None:
        fired.append(f"failed {call.id}: {moment.error}")
        return cast("HookEffects | None", answers.get("after_failure"))

    return hooks


async def test_hooks_do_not_run_for_calls_that_cannot_run() -> None:
    fired: list[str] = []
    careful = tool(name="careful", validate_input=lambda fields, ctx: "not today")(double.function)
    runner = Runner([double, careful], hooks=listening(fired))

    finished = await run(runner, call("a", "halve", n=1), call("b", "double", n="one"), call("c", "careful", n=1))

    assert fired == []
    assert [item.span.error_kind for item in finished] == ["unknown_tool", "invalid_input", "invalid_input"]
    assert finished[2].content == "<tool_use_error>not today</tool_use_error>"


async def test_events_of_a_call_come_in_order() -> None:
    log = EventLog()
    runner = Runner([double], hooks=listening([]), policies=[lambda question: Allow()], direct=[log])

    await run(runner, call("a", "double", n=2))

    kinds = [type(event) for event in log.events[:-1]]
    assert kinds == [Requested, HookRan, Decided, Started, HookRan, Finished]


async def test_input_of_a_hook_is_validated_again() -> None:
    good, bad = PreToolDecision(input={"n": 5}), Allow(input={"n": "five"})

    ran = await run(Runner([double], hooks=listening([], before=good)), call("a", "double", n=1))
    not_run = await run(Runner([double], hooks=listening([], before=bad)), call("a", "double", n=1))

    assert ran[0].content == "10"
    assert not_run[0].span.error_kind == "invalid_input"
    assert str(not_run[0].content) == (
        "PreToolUse hook for double returned updatedInput that failed schema validation: double failed due to the"
        " following issue:\nThe parameter `n` type is expected as `number` but provided as `string`\n"
        "The tool input from the model was valid; the hook's rewrite of it was not."
    )


async def test_last_of_several_hook_inputs_is_used_and_checked_by_rules() -> None:
    observed: list[object] = []
    hooks = Hooks()
    hooks.pre_tool_use()(lambda call: Allow(input={"n": 3}))
    hooks.pre_tool_use()(lambda call: PreToolDecision(input={"n": 4}))

    def policy(question: PermissionRequest) -> None:
        observed.append(question.input["n"])

    finished = await run(Runner([double], hooks=hooks, policies=[policy]), call("a", "double", n=1))

    assert (observed, finished[0].content) == ([4], "8")


PRECEDENCE: Sequence[tuple[Decision | None, Decision | None, Decision | None, str]] = [
    (Deny("rule"), Allow(), Allow(), "denied"),
    (Allow(), Deny("hook"), Allow(), "blocked_by_hook"),
    (Ask(), Deny("hook"), Allow(), "blocked_by_hook"),
    (Ask(), Allow(), Allow(), "denied"),
    (Allow(), Ask(), Allow(), "denied"),
    (Allow(), None, Deny("mode"), "succeeded"),
    (None, Allow(), Deny("mode"), "succeeded"),
    (None, Ask(), Allow(), "denied"),
    (None, None, Deny("mode"), "denied"),
    (None, None, Ask(), "denied"),
    (None, None, Allow(), "succeeded"),
    (None, None, None, "succeeded"),
]


@pytest.mark.parametrize(("rule", "hook", "mode", "state"), PRECEDENCE)
async def test_strictest_decision_applies(
    rule: Decision | None, hook: Decision | None, mode: Decision | None, state: str
) -> None:
    def fallback(question: PermissionRequest) -> Decision | None:
        return mode

    def policy(question: PermissionRequest) -> Decision | None:
        return rule

    runner = Runner(
        [double],
        hooks=listening([], before=hook),
        policies=[policy] if rule else [],
        fallback=fallback if mode else None,
    )

    finished = await run(runner, call("a", "double", n=1))

    assert finished[0].span.state == state


async def test_approval_of_a_hook_keeps_the_input_of_a_policy() -> None:
    runner = Runner([double], hooks=listening([], before=Allow()), policies=[lambda question: Allow(input={"n": 50})])

    assert (await run(runner, call("a", "double", n=1)))[0].content == "100"


def crashing(question: PermissionRequest) -> Decision | None:
    raise ValueError("no idea")


def answering_garbage(question: PermissionRequest) -> Decision | None:
    return cast("Decision", "allow")


async def cancelled_inside(question: PermissionRequest) -> Decision | None:
    raise asyncio.CancelledError


@pytest.mark.parametrize("policy", [crashing, answering_garbage, cancelled_inside])
async def test_failing_policy_denies(policy: Policy) -> None:
    log = EventLog()

    finished = await run(Runner([double], policies=[policy], direct=[log]), call("a", "double", n=1))

    assert finished[0].span.state in ("denied", "failed")
    assert log.of(Started) == []


async def test_denial_without_a_message_ends_running_and_queued_calls() -> None:
    log = EventLog()
    endless = Held("endless", concurrent=True)

    @tool(concurrent=True)
    async def asked() -> str:
        return "asked"

    async def policy(question: PermissionRequest) -> Decision | None:
        if question.tool != "asked":
            return None
        await endless.inside.wait()
        return Deny(None, "user_reject", stop=True)

    runner = Runner([endless.tool, asked, double], policies=[policy], direct=[log])
    finished = await run(runner, call("a", "endless"), call("b", "asked"), call("c", "double", n=1))

    assert [item.span.state for item in finished] == ["interrupted", "denied", "cancelled"]
    assert [str(item.call_id) for item in log.of(Started)] == ["a"]


async def test_denial_with_a_message_ends_only_that_call() -> None:
    def policy(question: PermissionRequest) -> Decision | None:
        return Deny("use 2", "user_reject") if question.input["n"] == 1 else None

    finished = await run(Runner([double], policies=[policy]), call("a", "double", n=1), call("b", "double", n=2))

    assert [item.span.state for item in finished] == ["denied", "succeeded"]
    assert "the user said:\nuse 2" in str(finished[0].content)


@pytest.mark.parametrize("answers", [{"before": PreToolDecision(stop="no")}, {"after": HookEffects(stop="no")}])
async def test_stopping_hook_lets_the_call_finish_and_ends_queued_calls(answers: dict[str, object]) -> None:
    async with Runner([double], hooks=listening([], **answers)) as runner, runner.batch() as batch:
        for item in "ab":
            batch.add(call(item, "double", n=1))
        finished = await batch.drain()
        batch.add(call("c", "double", n=1))
        late = await batch.drain()

    assert [item.span.state for item in finished] == ["succeeded", "cancelled"]
    assert (batch.stop, late[2].span.state) == ("no", "cancelled")


@pytest.mark.parametrize(
    "after",
    [
        HookEffects(output=ReplacedOutput(cast("str", 7))),
        HookEffects(output=ReplacedOutput("x", {1, 2})),
        HookEffects(contexts=cast("tuple[str, ...]", (7,))),
        7,
    ],
)
async def test_error_in_a_post_hook_does_not_change_the_result(after: object) -> None:
    finished = await run(Runner([double], hooks=listening([], after=after)), call("a", "double", n=1))

    assert (finished[0].content, finished[0].span.state) == ("2", "succeeded")


async def test_hook_can_replace_the_output_and_add_a_message() -> None:
    after = HookEffects(output=ReplacedOutput("three", {"n": 3}), contexts=("mind",), feedback=("hm",))

    finished = await run(Runner([double], hooks=listening([], after=after)), call("a", "double", n=1))

    assert (finished[0].content, finished[0].structured) == ("three", {"n": 3})
    assert [(context.name, context.text) for context in finished[0].contexts] == [
        ("PostToolUse:double", "mind"),
        ("PostToolUse:double", "hm"),
    ]


def failing(error: BaseException) -> Tool:
    @tool(name="fails")
    async def fails() -> str:
        raise error

    return fails


class Unspeakable(Exception):  # noqa: N818 - its name is its message
    """An exception whose message cannot be formatted."""

    def __str__(self) -> str:
        raise self


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ToolError("said so"), "said so"),
        (ValueError("bad"), "ValueError: bad"),
        (ValueError(), "ValueError"),
        (ExceptionGroup("two", [ValueError("a")]), "ExceptionGroup: two (1 sub-exception)"),
        (SystemExit(2), "SystemExit: 2"),
        (
            BaseExceptionGroup("of a task group", [SystemExit(2)]),
            "BaseExceptionGroup: of a task group (1 sub-exception)",
        ),
        (asyncio.CancelledError(), "CancelledError"),
        (TimeoutError("inside"), "inside"),
        (Unspeakable(), "Unspeakable"),
    ],
)
async def test_exception_of_a_tool_is_the_result_of_its_call_only(error: BaseException, text: str) -> None:
    fired: list[str] = []
    runner = Runner([failing(error), double], hooks=listening(fired))

    finished = await run(runner, call("a", "fails"), call("b", "double", n=1))

    assert [item.content for item in finished] == [text, "2"]
    assert finished[0].structured == f"Error: {text}"
    assert fired == ["before a", f"failed a: {text}", "before b", "after b"]


async def test_timeout_of_a_tool_ends_it() -> None:
    slow = replace(failing(ValueError()), name="slow", timeout=0.01, run=_forever)

    finished = await run(Runner([slow, double]), call("a", "slow"), call("b", "double", n=1))

    assert [item.span.state for item in finished] == ["timed_out", "succeeded"]
    assert "timed out after 0.01s" in str(finished[0].content)


async def _forever(value: object, ctx: ToolContext) -> Output | ToolFailure:
    await anyio.sleep_forever()
    return Output()


async def test_reported_failure_keeps_its_kind_and_code() -> None:
    @tool
    async def fails() -> ToolFailure:
        return ToolFailure("gone", kind="not_found", exit_code=3, structured={"odd": {1}})

    finished = (await run(Runner([fails]), call("a", "fails")))[0]
    result = finished.span.result

    assert result is not None
    assert (result.is_error, result.exit_code, finished.span.error_kind) == (True, 3, "not_found")
    assert (finished.content, finished.structured) == ("gone", "Error: gone")


async def test_rules_and_hooks_match_the_canonical_tool_name() -> None:
    fired: list[str] = []
    hooks = Hooks()
    named = replace(double, aliases=("twice",))

    @hooks.pre_tool_use("double")
    def heard(call: Call) -> None:
        fired.append(call.tool)

    def policy(question: PermissionRequest) -> Decision | None:
        return Deny("no") if question.tool == "double" else None

    finished = await run(Runner([named], hooks=hooks, policies=[policy]), call("a", "twice", n=1))

    assert (fired, finished[0].span.state) == (["twice"], "denied")
