"""Permission questions: a missing or failing answer denies."""

from __future__ import annotations

from typing import cast

import anyio
import pytest

from tests.requirement import requirement
from tests.runtime.calls import EventLog, call
from toolspan.runtime.context import ToolContext
from toolspan.runtime.permissions import Rules, mode_policy
from toolspan.runtime.permissions.decide import Approver, PermissionRequest
from toolspan.runtime.runner import Runner
from toolspan.runtime.tool import tool
from toolspan.types.decision import Allow, Ask, Deny
from toolspan.types.events import Decided, PermissionRequested, Started

pytestmark = pytest.mark.anyio


@tool
async def double(n: int) -> str:
    """Twice as much."""
    return str(2 * n)


def asks(question: PermissionRequest) -> Ask:
    return Ask("is it?")


async def answered(approver: Approver | None) -> tuple[str, str, EventLog]:
    log = EventLog()
    runner = Runner([double], policies=[asks], approver=approver, direct=[log])
    with anyio.fail_after(5):
        (finished,) = await runner.finish([call("a", "double", n=1)])
    return finished.span.state, str(finished.content), log


@requirement("consent.approver")
async def test_approver_answer_is_followed_and_reported() -> None:
    state, text, output = await answered(lambda question, ask: Allow(None, "user_temporary"))

    assert (state, text) == ("succeeded", "2")
    assert [item.reason for item in output.of(PermissionRequested)] == ["is it?"]
    assert [(item.allowed, item.source) for item in output.of(Decided)] == [(True, "user_temporary")]


@requirement("consent.approver")
async def test_approver_may_change_the_input_which_is_validated() -> None:
    async def four(question: PermissionRequest, ask: Ask) -> Allow:
        return Allow(None, "user_temporary", {"n": 4})

    async def wrong(question: PermissionRequest, ask: Ask) -> Allow:
        return Allow(None, "user_temporary", {"m": 4})

    assert (await answered(four))[:2] == ("succeeded", "8")
    state, text, output = await answered(wrong)
    assert (state, "InputValidationError" in text, output.of(Started)) == ("failed", True, [])


@requirement("consent.approver")
async def test_unknown_keys_of_an_approvers_input_are_dropped() -> None:
    def answers_for_any_tool(question: PermissionRequest, ask: Ask) -> Allow:
        return Allow(None, "user_temporary", {"n": 4, "answers": {}})

    assert (await answered(answers_for_any_tool))[:2] == ("succeeded", "8")


def crashes(question: PermissionRequest, ask: Ask) -> Allow | Deny:
    raise ValueError("no idea")


async def gives_nothing(question: PermissionRequest, ask: Ask) -> Allow | Deny:
    return cast("Allow", None)


async def asks_back(question: PermissionRequest, ask: Ask) -> Allow | Deny:
    return cast("Allow", Ask())


def says_true(question: PermissionRequest, ask: Ask) -> Allow | Deny:
    return cast("Allow", True)


@requirement("consent.fails-closed")
@pytest.mark.parametrize("approver", [crashes, gives_nothing, asks_back, says_true])
async def test_failing_approver_denies(approver: Approver) -> None:
    state, text, output = await answered(approver)

    assert state == "denied"
    assert "Tool permission request failed" in text
    assert output.of(Started) == []
    assert [item.allowed for item in output.of(Decided)] == [False]


@requirement("consent.nobody")
async def test_missing_approver_denies() -> None:
    state, text, output = await answered(None)

    assert (state, text, output.of(PermissionRequested)) == ("denied", "is it?", [])
    assert [item.allowed for item in output.of(Decided)] == [False]


@requirement("consent.can-use-tool")
async def test_tool_can_query_permissions() -> None:
    reply: list[object] = []

    @tool
    async def asking(ctx: ToolContext) -> str:
        for name, fields in (("double", {"n": 1}), ("double", {}), ("halve", {}), ("asking", {})):
            reply.append(await ctx.can_use_tool(name, fields))
        return "asked"

    runner = Runner(
        [asking, double], policies=[Rules(deny=["double"], allow=["asking"])], fallback=mode_policy("default")
    )
    with anyio.fail_after(5):
        await runner.run([call("a", "asking")])

    assert [type(item) for item in reply] == [Deny, Deny, Deny, Allow]


@requirement("consent.decisions")
async def test_tool_sees_the_answer_to_its_own_question() -> None:
    seen: list[object] = []

    @tool
    async def looking(ctx: ToolContext) -> str:
        seen.extend(ctx.decisions.values())
        return "x"

    with anyio.fail_after(5):
        await Runner([looking], policies=[Rules(allow=["looking"])]).run([call("a", "looking")])

    assert seen == [Allow("looking", "config", rule="looking", basis="rule")]
