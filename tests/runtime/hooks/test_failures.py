"""Handlers and functions that hang, flood, crash or do not exist."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

import anyio
import pytest

from tests.requirement import requirement
from tests.runtime.calls import call
from tests.runtime.hooks.hook_sessions import at, command, hooks, says, tool_event
from tests.runtime.process.commands import find_survivors_in
from toolspan.errors import ToolspanError
from toolspan.runtime.hooks import HookEffects, Hooks, PreToolDecision
from toolspan.runtime.hooks.events import SessionHookEvent
from toolspan.runtime.hooks.handlers import COMMAND_OUTPUT_LIMIT
from toolspan.runtime.runner import Runner
from toolspan.runtime.tool import tool
from toolspan.types.decision import Allow, Ask, Deny
from toolspan.types.events import HookRan, HookReport, LiveEvent
from toolspan.types.span import Call

pytestmark = pytest.mark.anyio

BROKEN: dict[str, dict[str, object]] = {
    "not found": command("/no/such/program"),
    "crash": command("kill -9 $$"),
    "exit 1": command("echo words; echo trouble >&2; exit 1"),
    "flood": command("head -c 9000000 /dev/zero | tr '\\0' x"),
    "wrong point": says({"hookSpecificOutput": {"hookEventName": "Stop"}}),
    "wrong word": says({"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "maybe"}}),
    "wrong type": says({"continue": "no"}),
    "no program": command("/no/such/program", args=[]),
    "hang": command("sleep 1000", timeout=0.2),
    "no server": {"type": "http", "url": "http://127.0.0.1:1/"},
    "no tool": {"type": "mcp_tool", "server": "db", "tool": "check"},
    "no model": {"type": "prompt", "prompt": "fine?"},
}


async def report_on(tmp_path: Path, handler: dict[str, object]) -> HookReport:
    async with hooks(tmp_path, at("PreToolUse", handler)) as runner:
        before = await runner.run_pre_tool_use(tool_event("Bash", tmp_path))
        assert before.decision is None
    [report] = before.reports
    return report


@requirement("hooks.fail-open")
@pytest.mark.parametrize("name", BROKEN)
async def test_failing_handler_is_reported_and_blocks_nothing(tmp_path: Path, name: str) -> None:
    report = await report_on(tmp_path, BROKEN[name])

    assert report.outcome == ("cancelled" if name == "hang" else "error")
    assert report.text


@requirement("hooks.settings-fail-closed")
@pytest.mark.parametrize("name", BROKEN)
async def test_failing_handler_denies_the_call_if_it_fails_closed(tmp_path: Path, name: str) -> None:
    handler = {**BROKEN[name], "onFailure": "block"}

    async with hooks(tmp_path, at("PreToolUse", handler)) as runner:
        before = await runner.run_pre_tool_use(tool_event("Bash", tmp_path))

    assert isinstance(before.decision, Deny)
    assert 'blocking because onFailure is "block"' in str(before.decision.reason)


CUT_JSON = {
    "truncated": '{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny"',
    "byte order mark": '\ufeff  {"decision": "block"',
    "two objects": '{"decision": "block"}\n{"decision": "block"}',
    "list": '[{"decision": "block"}]',
    "truncated list": "[1,",
    "not a number": '{"decision": "block", "x": NaN}',
}


@requirement("hooks.settings-fail-closed")
@pytest.mark.parametrize("text", CUT_JSON.values(), ids=CUT_JSON)
@pytest.mark.parametrize("option", ["onFailure", "fail_closed"])
async def test_output_that_begins_like_json_and_is_not_an_object_fails_closed(
    tmp_path: Path, text: str, option: str
) -> None:
    handler = {**says(text), "onFailure": "block"} if option == "onFailure" else says(text)

    async with hooks(tmp_path, at("PreToolUse", handler), fail_closed=option == "fail_closed") as runner:
        before = await runner.run_pre_tool_use(tool_event("Bash", tmp_path))

    assert isinstance(before.decision, Deny)
    assert "failed; blocking because" in str(before.decision.reason)
    assert before.reports[-1].outcome == "blocked"


@requirement("hooks.fail-open")
@pytest.mark.parametrize("text", CUT_JSON.values(), ids=CUT_JSON)
async def test_output_that_is_not_an_object_is_text_for_other_handlers(tmp_path: Path, text: str) -> None:
    report = await report_on(tmp_path, says(text))

    assert (report.outcome, report.decision) == ("success", None)


@requirement("hooks.settings-fail-closed")
async def test_plain_text_passes_a_handler_that_fails_closed(tmp_path: Path) -> None:
    async with hooks(tmp_path, at("PreToolUse", says("all {good}")), fail_closed=True) as runner:
        before = await runner.run_pre_tool_use(tool_event("Bash", tmp_path))

    assert before.decision is None


@requirement("hooks.exit-codes")
async def test_objection_counts_even_if_the_output_is_too_long(tmp_path: Path) -> None:
    flood = f"yes | head -c {COMMAND_OUTPUT_LIMIT + 1}; echo not this one >&2; exit 2"
    block = {**at("PreToolUse", command(flood)), **at("PermissionRequest", command(flood))}

    async with hooks(tmp_path, block) as runner:
        before = await runner.run_pre_tool_use(tool_event("Bash", tmp_path))
        request = await runner.run_permission_request(tool_event("Bash", tmp_path))

    assert isinstance(before.decision, Deny)
    assert "not this one" in str(before.decision.reason)
    assert [report.outcome for report in before.reports] == ["blocked"]
    # Where the approver would be asked only a valid answer counts, and this one is not.
    assert request.decision is None
    assert [report.outcome for report in request.reports] == ["error"]


@requirement("hooks.settings-fail-closed")
async def test_all_handlers_can_be_made_to_fail_closed(tmp_path: Path) -> None:
    block = {
        **at("PreToolUse", command("exit 1")),
        **at("UserPromptSubmit", command("exit 1")),
        **at("Stop", command("exit 1")),
    }

    async with hooks(tmp_path, block, fail_closed=True) as runner:
        before = await runner.run_pre_tool_use(tool_event("Bash", tmp_path))
        prompt = await runner.run_session_event(SessionHookEvent(point="UserPromptSubmit", fields={"prompt": "x"}))
        stop = await runner.run_session_event(SessionHookEvent(point="Stop"))

    assert isinstance(before.decision, Deny)
    assert prompt.feedback
    assert not stop.feedback  # otherwise the turn would never end


@requirement("hooks.settings-fail-closed")
async def test_fail_closed_rejects_settings_with_a_handler_that_would_be_ignored(tmp_path: Path) -> None:
    with pytest.raises(ToolspanError, match="not a regular expression"):
        async with hooks(tmp_path, at("PreToolUse", matcher="["), fail_closed=True):
            pass


@requirement("hooks.time-limit")
async def test_timed_out_handler_is_terminated_with_its_children(tmp_path: Path) -> None:
    hang = command("sleep 1000 & echo $! > child; sleep 1000", timeout=0.3)

    report = await report_on(tmp_path, hang)

    assert (report.timed_out, report.timeout_ms) == (True, 300.0)
    assert not find_survivors_in(tmp_path, "hook-PreToolUse")


@requirement("hooks.time-limit")
async def test_cancelled_handler_leaves_no_process_behind(tmp_path: Path) -> None:
    block = at("PreToolUse", command("touch begun; sleep 1000"))

    async with hooks(tmp_path, block) as runner:
        async with anyio.create_task_group() as group:
            group.start_soon(runner.run_pre_tool_use, tool_event("Bash", tmp_path))
            while not (tmp_path / "begun").exists():
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()

        assert not find_survivors_in(tmp_path, "hook-PreToolUse")


async def test_daemon_does_not_delay_its_handler_and_ends_with_the_session(tmp_path: Path) -> None:
    daemon = command("sleep 1000 & echo words")

    async with hooks(tmp_path, at("PreToolUse", daemon)) as runner:
        before = await runner.run_pre_tool_use(tool_event("Bash", tmp_path))
        assert [report.text for report in before.reports] == ["words"]
        assert find_survivors_in(tmp_path, "hook-PreToolUse")

    assert not find_survivors_in(tmp_path, "hook-PreToolUse")


async def test_async_handler_does_not_delay_the_call(tmp_path: Path) -> None:
    block = at("PreToolUse", {**command("sleep 1000; exit 2"), "async": True})

    async with hooks(tmp_path, block) as runner:
        before = await runner.run_pre_tool_use(tool_event("Bash", tmp_path))

    assert before.decision is None


async def test_handlers_at_the_end_of_a_session_have_a_short_timeout(tmp_path: Path) -> None:
    async with hooks(tmp_path, at("SessionEnd", command("sleep 1000"))) as runner:
        after = await runner.run_session_event(SessionHookEvent(point="SessionEnd", fields={"reason": "other"}))

    assert [report.timeout_ms for report in after.reports] == [1500.0]


@tool
async def act() -> str:
    """Return a text."""
    return "done"


def crash(call: Call) -> None:
    raise KeyError("command")


class Mute(Exception):  # noqa: N818 - not an error of its own
    def __str__(self) -> str:
        raise RuntimeError("no message")


def crash_without_message(call: Call) -> None:
    raise Mute


def return_number(call: Call) -> object:
    return False


def return_text(call: Call) -> object:
    return "no, never"


def return_post_tool_effects(call: Call) -> object:
    return HookEffects(stop="no, never")


def return_empty_decision(call: Call) -> object:
    return PreToolDecision(decision=False)  # type: ignore[arg-type]


def return_text_as_contexts(call: Call) -> object:
    return PreToolDecision(contexts="no")  # type: ignore[arg-type]


WRONG = [
    crash, crash_without_message, return_number, return_text, return_post_tool_effects, return_empty_decision,
    return_text_as_contexts,
]  # fmt: skip


@pytest.mark.parametrize("handler", WRONG)
@pytest.mark.parametrize(("closed", "expected"), [(True, "hook"), (False, "done")])
async def test_failing_function_denies_the_call_only_with_fail_closed(
    handler: Callable[[Call], None], closed: bool, expected: str
) -> None:
    hooks = Hooks(fail_closed=closed)
    hooks.pre_tool_use("act")(handler)
    (result,) = await Runner([act], hooks=hooks).run([call("a", "act")])

    assert expected in result.text
    assert bool(result.is_error) is closed


@pytest.mark.parametrize("handler", WRONG)
async def test_invalid_answer_to_a_permission_request_denies_the_call(handler: Callable[[Call], None]) -> None:
    hooks = Hooks(fail_closed=True)
    hooks.pre_tool_use("act")(lambda call: Ask())
    hooks.permission_request("act")(handler)
    (result,) = await Runner([act], hooks=hooks).run([call("a", "act")])

    assert "failed" in result.text
    assert result.is_error


@pytest.mark.parametrize(
    "output", [Allow(), Ask(), PreToolDecision(), 7, HookEffects(feedback=cast("tuple[str]", "no"))]
)
async def test_invalid_answer_after_a_call_is_reported_and_the_result_kept(output: object) -> None:
    hooks, events = Hooks(), list[LiveEvent]()
    hooks.post_tool_use("act")(lambda call, event: cast("str", output))
    async with Runner([act], hooks=hooks, direct=[events.append]) as runner:
        (result,) = await runner.run([call("a", "act")])

    assert result.text == "done"
    assert [event.outcome for event in events if isinstance(event, HookRan)] == ["error"]


def test_decorator_without_parentheses_is_rejected_at_once() -> None:
    hooks = Hooks()
    with pytest.raises(ToolspanError, match="parentheses"):
        hooks.pre_tool_use(crash)  # type: ignore[arg-type]
