"""The order of things in the life of one call, and who wins when several have a say."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import anyio
import pytest

from tests.requirement import requirement
from tests.runtime.made import Told, call
from tests.runtime.waiting import Held
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
    with anyio.fail_after(5):
        return await runner.finish(blocks)


def listening(fired: list[str], **answers: object) -> Hooks:
    """Hooks that note what they hear and give the answers they are told to."""
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


@requirement("run.no-hooks-when-invalid")
async def test_hooks_do_not_fire_for_calls_that_cannot_run() -> None:
    fired: list[str] = []
    careful = tool(name="careful", validate_input=lambda given, ctx: "not today")(double.function)
    runner = Runner([double, careful], hooks=listening(fired))

    finished = await run(runner, call("a", "halve", n=1), call("b", "double", n="one"), call("c", "careful", n=1))

    assert fired == []
    assert [one.span.error_kind for one in finished] == ["unknown_tool", "invalid_input", "invalid_input"]
    assert finished[2].content == "<tool_use_error>not today</tool_use_error>"


@requirement("run.order-of-events")
async def test_events_of_a_call_come_in_the_order_of_its_life() -> None:
    told = Told()
    runner = Runner([double], hooks=listening([]), policies=[lambda question: Allow()], direct=[told])

    await run(runner, call("a", "double", n=2))

    kinds = [type(event) for event in told.events[:-1]]
    assert kinds == [Requested, HookRan, Decided, Started, HookRan, Finished]


@requirement("run.updated-input")
async def test_a_hooks_input_is_checked_again() -> None:
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


@requirement("run.updated-input")
async def test_of_several_inputs_the_last_counts_and_the_rules_see_it() -> None:
    seen: list[object] = []
    hooks = Hooks()
    hooks.pre_tool_use()(lambda call: Allow(input={"n": 3}))
    hooks.pre_tool_use()(lambda call: PreToolDecision(input={"n": 4}))

    def policy(question: PermissionRequest) -> None:
        seen.append(question.input["n"])

    finished = await run(Runner([double], hooks=hooks, policies=[policy]), call("a", "double", n=1))

    assert (seen, finished[0].content) == ([4], "8")


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


@requirement("permission.precedence")
@pytest.mark.parametrize(("rule", "hook", "mode", "state"), PRECEDENCE)
async def test_who_decides(rule: Decision | None, hook: Decision | None, mode: Decision | None, state: str) -> None:
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


@requirement("permission.rule-input")
async def test_a_hooks_consent_does_not_undo_the_input_a_policy_gave() -> None:
    runner = Runner([double], hooks=listening([], before=Allow()), policies=[lambda question: Allow(input={"n": 50})])

    assert (await run(runner, call("a", "double", n=1)))[0].content == "100"


def crashing(question: PermissionRequest) -> Decision | None:
    raise ValueError("no idea")


def answering_garbage(question: PermissionRequest) -> Decision | None:
    return cast("Decision", "allow")


async def cancelled_inside(question: PermissionRequest) -> Decision | None:
    raise asyncio.CancelledError


@requirement("permission.fails-closed")
@pytest.mark.parametrize("policy", [crashing, answering_garbage, cancelled_inside])
async def test_a_policy_that_fails_refuses(policy: Policy) -> None:
    told = Told()

    finished = await run(Runner([double], policies=[policy], direct=[told]), call("a", "double", n=1))

    assert finished[0].span.state in ("denied", "failed")
    assert told.of(Started) == []


@requirement("run.deny-and-stop")
async def test_a_refusal_without_a_word_ends_what_runs_and_what_waits() -> None:
    told = Told()
    endless = Held("endless", concurrent=True)

    @tool(concurrent=True)
    async def asked() -> str:
        return "asked"

    async def policy(question: PermissionRequest) -> Decision | None:
        if question.tool != "asked":
            return None
        await endless.inside.wait()
        return Deny(None, "user_reject", stop=True)

    runner = Runner([endless.tool, asked, double], policies=[policy], direct=[told])
    finished = await run(runner, call("a", "endless"), call("b", "asked"), call("c", "double", n=1))

    assert [one.span.state for one in finished] == ["interrupted", "denied", "cancelled"]
    assert [str(one.call_id) for one in told.of(Started)] == ["a"]


@requirement("run.deny-with-words")
async def test_a_refusal_with_a_word_ends_only_that_call() -> None:
    def policy(question: PermissionRequest) -> Decision | None:
        return Deny("use 2", "user_reject") if question.input["n"] == 1 else None

    finished = await run(Runner([double], policies=[policy]), call("a", "double", n=1), call("b", "double", n=2))

    assert [one.span.state for one in finished] == ["denied", "succeeded"]
    assert "the user said:\nuse 2" in str(finished[0].content)


@requirement("run.hook-stop")
@pytest.mark.parametrize("answers", [{"before": PreToolDecision(stop="no")}, {"after": HookEffects(stop="no")}])
async def test_a_hook_that_stops_lets_the_call_finish_and_ends_those_that_wait(answers: dict[str, object]) -> None:
    async with Runner([double], hooks=listening([], **answers)) as runner:
        with anyio.fail_after(5):
            async with runner.batch() as batch:
                for one in "ab":
                    batch.add(call(one, "double", n=1))
                finished = await batch.drain()
                batch.add(call("c", "double", n=1))
                late = await batch.drain()

    assert [one.span.state for one in finished] == ["succeeded", "cancelled"]
    assert (batch.stop, late[2].span.state) == ("no", "cancelled")


@requirement("run.hook-trouble")
@pytest.mark.parametrize(
    "after",
    [
        HookEffects(output=ReplacedOutput(cast("str", 7))),
        HookEffects(output=ReplacedOutput("x", {1, 2})),
        HookEffects(contexts=cast("tuple[str, ...]", (7,))),
        7,
    ],
)
async def test_what_a_hook_gets_wrong_afterwards_leaves_the_result_alone(after: object) -> None:
    finished = await run(Runner([double], hooks=listening([], after=after)), call("a", "double", n=1))

    assert (finished[0].content, finished[0].span.state) == ("2", "succeeded")


@requirement("run.hook-output")
async def test_a_hook_can_put_another_output_in_place_and_speak_beside_it() -> None:
    after = HookEffects(output=ReplacedOutput("three", {"n": 3}), contexts=("mind",), feedback=("hm",))

    finished = await run(Runner([double], hooks=listening([], after=after)), call("a", "double", n=1))

    assert (finished[0].content, finished[0].structured) == ("three", {"n": 3})
    assert [(one.name, one.text) for one in finished[0].contexts] == [
        ("PostToolUse:double", "mind"),
        ("PostToolUse:double", "hm"),
    ]


def failing(error: BaseException) -> Tool:
    @tool(name="fails")
    async def fails() -> str:
        raise error

    return fails


class Unspeakable(Exception):  # noqa: N818 - its name is what is told of it
    """An exception that has no words."""

    def __str__(self) -> str:
        raise self


@requirement("run.tool-raises")
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
async def test_whatever_a_tool_raises_is_its_calls_result_and_hurts_no_other(error: BaseException, text: str) -> None:
    fired: list[str] = []
    runner = Runner([failing(error), double], hooks=listening(fired))

    finished = await run(runner, call("a", "fails"), call("b", "double", n=1))

    assert [one.content for one in finished] == [text, "2"]
    assert finished[0].structured == f"Error: {text}"
    assert fired == ["before a", f"failed a: {text}", "before b", "after b"]


@requirement("run.tool-timeout")
async def test_a_tools_own_time_limit_ends_it() -> None:
    slow = replace(failing(ValueError()), name="slow", timeout=0.01, run=_forever)

    finished = await run(Runner([slow, double]), call("a", "slow"), call("b", "double", n=1))

    assert [one.span.state for one in finished] == ["timed_out", "succeeded"]
    assert "timed out after 0.01s" in str(finished[0].content)


async def _forever(value: object, ctx: ToolContext) -> Output | ToolFailure:
    await anyio.sleep_forever()
    return Output()


@requirement("run.tool-failure")
async def test_a_failure_that_a_tool_tells_of_keeps_its_kind_and_code() -> None:
    @tool
    async def fails() -> ToolFailure:
        return ToolFailure("gone", kind="not_found", exit_code=3, structured={"odd": {1}})

    finished = (await run(Runner([fails]), call("a", "fails")))[0]
    result = finished.span.result

    assert result is not None
    assert (result.is_error, result.exit_code, finished.span.error_kind) == (True, 3, "not_found")
    assert (finished.content, finished.structured) == ("gone", "Error: gone")


@requirement("run.alias")
async def test_rules_and_hooks_know_a_tool_by_its_own_name_too() -> None:
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


@requirement("run.cut")
async def test_a_call_in_whose_middle_the_reply_ended_is_answered_and_not_run() -> None:
    told = Told()
    with anyio.fail_after(5):
        async with Runner([double], direct=[told]) as runner, runner.batch() as batch:
            batch.add(call("a", "double", n=1), truncated=True)
            finished = await batch.drain()

    assert finished[0].span.error_kind == "invalid_input"
    assert told.of(Started) == []
