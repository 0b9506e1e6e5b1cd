"""Hooks that are functions: which ones run, and how their answers are combined."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import anyio
import pytest

from tests.runtime.calls import pending_call
from toolspan.errors import ToolspanError
from toolspan.runtime.hooks import HookEffects, Hooks, PreToolDecision
from toolspan.runtime.hooks.events import ReplacedOutput, ToolHookEvent
from toolspan.types.decision import Allow, Ask, Decision, Deny
from toolspan.types.span import Call

pytestmark = pytest.mark.anyio


def tool_event(tool: str = "Bash", known_as: str | None = None) -> ToolHookEvent:
    return ToolHookEvent(call=pending_call(tool), input={}, cwd=Path("/"), known_as=known_as)


@pytest.mark.parametrize(
    ("matcher", "tool", "matches"),
    [
        ("*", "Bash", True),
        ("", "Bash", True),
        ("Bash", "Bash", True),
        ("Bash", "BashOutput", False),
        ("Edit|Write", "Write", True),
        ("Edit|Write", "MultiEdit", False),
        ("mcp__db__*", "mcp__db__query", True),
        ("mcp__.*__query", "mcp__db__query", True),
        ("Note.*", "NotebookEdit", True),
        ("note.*", "NotebookEdit", False),
    ],
)
async def test_function_runs_for_the_tools_its_matcher_names(matcher: str, tool: str, matches: bool) -> None:
    hooks = Hooks()
    hooks.pre_tool_use(matcher)(lambda call: Deny("no"))

    assert ((await hooks.run_pre_tool_use(tool_event(tool))).decision is not None) is matches


async def test_matcher_is_compared_with_the_canonical_tool_name() -> None:
    hooks = Hooks()
    hooks.pre_tool_use("Agent")(lambda call: Deny("no"))

    assert (await hooks.run_pre_tool_use(tool_event("Task", known_as="Agent"))).decision is not None


def test_invalid_matcher_is_rejected_at_once() -> None:
    with pytest.raises(ToolspanError, match="not a valid matcher"):
        Hooks().pre_tool_use("Bash(")(lambda call: None)


@pytest.mark.parametrize(
    ("answers", "strongest"),
    [
        ([None, Allow()], Allow),
        ([Allow(), Ask(), Allow()], Ask),
        ([Ask(), Deny("no"), Allow()], Deny),
        ([PreToolDecision(decision=Deny("no")), Allow()], Deny),
        ([None, None], type(None)),
    ],
)
async def test_strictest_of_several_decisions_is_used(
    answers: list[Decision | PreToolDecision | None], strongest: type
) -> None:
    hooks = Hooks()
    for answer in answers:
        hooks.pre_tool_use()(lambda call, answer=answer: answer)

    before = await hooks.run_pre_tool_use(tool_event())

    assert type(before.decision) is strongest
    assert before.decision is None or before.decision.source == "hook"


async def test_input_of_the_last_registered_function_is_used() -> None:
    hooks = Hooks()
    hooks.pre_tool_use()(lambda call: Allow(input={"n": 1}))
    hooks.pre_tool_use()(lambda call: PreToolDecision(decision=Allow(input={"n": 2})))
    hooks.pre_tool_use()(lambda call: None)

    before = await hooks.run_pre_tool_use(tool_event())

    assert before.input == {"n": 2}
    assert before.decision == Allow(None, "hook")


def crashes(call: Call) -> None:
    raise ValueError("no")


async def is_cancelled_inside(call: Call) -> None:
    raise asyncio.CancelledError


def answers_garbage(call: Call) -> None:
    return cast("None", 7)


@pytest.mark.parametrize("handler", [crashes, is_cancelled_inside, answers_garbage])
async def test_failing_function_is_reported_and_does_not_affect_the_others(handler: object) -> None:
    hooks = Hooks()
    later = anyio.Event()

    async def denies(call: Call) -> Deny:
        await later.wait()
        return Deny("no")

    async def opens(call: Call) -> None:
        later.set()

    hooks.pre_tool_use()(handler)  # type: ignore[type-var]
    hooks.pre_tool_use()(denies)
    hooks.pre_tool_use()(opens)

    before = await hooks.run_pre_tool_use(tool_event())

    assert before.decision == Deny("no", "hook")
    assert [report.outcome for report in before.reports] == ["error", "blocked", "success"]


async def test_contexts_may_be_given_as_a_list() -> None:
    hooks = Hooks()
    text = cast("tuple[str, ...]", ["one", "two"])
    hooks.pre_tool_use()(lambda call: PreToolDecision(contexts=text))
    hooks.post_tool_use()(lambda call, tool_event: HookEffects(contexts=text))

    before, after = await hooks.run_pre_tool_use(tool_event()), await hooks.run_post_tool_use(tool_event())

    assert before.contexts == after.contexts == ("one", "two")


async def test_functions_of_a_point_run_concurrently() -> None:
    combined = asyncio.Barrier(2)
    hooks = Hooks()
    for _ in range(2):

        @hooks.post_tool_use()
        async def meet(call: Call, tool_event: ToolHookEvent) -> str:
            await combined.wait()
            return "met"

    assert (await hooks.run_post_tool_use(tool_event())).contexts == ("met", "met")


async def test_effects_after_a_call_are_combined() -> None:
    hooks = Hooks()
    hooks.post_tool_use()(lambda call, tool_event: HookEffects(output=ReplacedOutput("a"), stop="one"))
    hooks.post_tool_use()(lambda call, tool_event: HookEffects(output=ReplacedOutput("b"), feedback=("hm",)))
    hooks.post_tool_use_failure()(lambda call, tool_event: "failed")
    hooks.post_tool_batch()(lambda spans: HookEffects(stop=f"{len(spans)}"))

    after = await hooks.run_post_tool_use(tool_event())

    assert (after.output, after.stop, after.feedback) == (ReplacedOutput("b"), "one", ("hm",))
    assert (await hooks.run_post_tool_use_failure(tool_event())).contexts == ("failed",)
    assert (await hooks.run_post_tool_batch([])).stop == "0"
    assert not hooks.is_empty
    assert Hooks().is_empty


def test_unknown_hook_point_is_refused() -> None:
    with pytest.raises(ToolspanError, match="there is no hook point 'PreTooolUse'"):
        Hooks().at("PreTooolUse")  # type: ignore[arg-type]


async def test_hook_that_fails_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    hooks = Hooks()
    hooks.pre_tool_use()(lambda _: False)  # type: ignore[type-var]
    with caplog.at_level("WARNING", logger="toolspan"):
        for _ in range(2):
            decision = await hooks.run_pre_tool_use(tool_event())
            assert decision.decision is None

    (record,) = caplog.records
    assert "failed, and it has no effect: TypeError: a handler at PreToolUse answers with" in record.getMessage()
