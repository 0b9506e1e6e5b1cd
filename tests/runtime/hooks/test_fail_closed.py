"""Calls whose Python hooks fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import anyio
import pytest

from tests.requirement import requirement
from tests.runtime.calls import call
from toolspan.errors import ToolspanError
from toolspan.runtime.hooks import HookEffects, Hooks, PreToolDecision
from toolspan.runtime.runner import Runner
from toolspan.runtime.tool import tool
from toolspan.types.decision import Allow, Ask
from toolspan.types.events import HookRan, LiveEvent
from toolspan.types.span import Call


@tool
async def act() -> str:
    """Do something."""
    return "done"


def crash(call: Call) -> None:
    raise KeyError("command")


class Mute(Exception):  # noqa: N818 - it has no words
    def __str__(self) -> str:
        raise RuntimeError("no words")


def crash_without_words(call: Call) -> None:
    raise Mute


def nonsense(call: Call) -> object:
    return False


def refuse_in_words(call: Call) -> object:
    return "no, never"


def speak_as_if_it_had_run(call: Call) -> object:
    return HookEffects(stop="no, never")


def hollow(call: Call) -> object:
    return PreToolDecision(decision=False)  # type: ignore[arg-type]


def one_word_for_many(call: Call) -> object:
    return PreToolDecision(contexts="no")  # type: ignore[arg-type]


WRONG = [
    crash, crash_without_words, nonsense, refuse_in_words, speak_as_if_it_had_run, hollow,
    one_word_for_many,
]  # fmt: skip


@requirement("hooks.mute")
@requirement("hooks.fail-closed")
@pytest.mark.anyio
@pytest.mark.parametrize("handler", WRONG)
@pytest.mark.parametrize(("closed", "wanted"), [(True, "hook"), (False, "done")])
async def test_failing_function_denies_the_call_only_with_fail_closed(
    handler: Callable[[Call], None], closed: bool, wanted: str
) -> None:
    hooks = Hooks(fail_closed=closed)
    hooks.pre_tool_use("act")(handler)
    with anyio.fail_after(5):
        (result,) = await Runner([act], hooks=hooks).run([call("a", "act")])

    assert wanted in result.text
    assert bool(result.is_error) is closed


@requirement("hooks.answers-per-point")
@pytest.mark.anyio
@pytest.mark.parametrize("handler", WRONG)
async def test_invalid_answer_to_a_permission_request_denies_the_call(handler: Callable[[Call], None]) -> None:
    hooks = Hooks(fail_closed=True)
    hooks.pre_tool_use("act")(lambda call: Ask())
    hooks.permission_request("act")(handler)
    with anyio.fail_after(5):
        (result,) = await Runner([act], hooks=hooks).run([call("a", "act")])

    assert "failed" in result.text
    assert result.is_error


@requirement("hooks.answers-per-point")
@pytest.mark.anyio
@pytest.mark.parametrize(
    "answer", [Allow(), Ask(), PreToolDecision(), 7, HookEffects(feedback=cast("tuple[str]", "no"))]
)
async def test_invalid_answer_after_a_call_is_reported_and_the_result_kept(answer: object) -> None:
    hooks, events = Hooks(), list[LiveEvent]()
    hooks.post_tool_use("act")(lambda call, event: cast("str", answer))
    with anyio.fail_after(5):
        async with Runner([act], hooks=hooks, direct=[events.append]) as runner:
            (result,) = await runner.run([call("a", "act")])

    assert result.text == "done"
    assert [event.outcome for event in events if isinstance(event, HookRan)] == ["error"]


@requirement("hooks.brackets")
def test_decorator_without_parentheses_is_rejected_at_once() -> None:
    hooks = Hooks()
    with pytest.raises(ToolspanError, match="parentheses"):
        hooks.pre_tool_use(crash)  # type: ignore[arg-type]
