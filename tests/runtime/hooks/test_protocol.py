"""The meaning of exit codes, JSON output and text, by client version."""

from __future__ import annotations

import json

import pytest

from tests.requirement import requirement
from toolspan.runtime.hooks.events import HookPoint
from toolspan.runtime.hooks.protocol import HookOutput, HookOutputParser, HookResponse
from toolspan.runtime.profiles import profile
from toolspan.types.decision import Allow, Ask, Deny


def parse(response: object, code: int = 0, point: HookPoint = "PreToolUse", **more: str) -> HookResponse:
    text = response if isinstance(response, str) else json.dumps(response)
    values = profile(more.get("version", "2.1.325")).hooks
    output = HookOutput(stdout=text, stderr=more.get("stderr", ""), exit_code=code)
    return HookOutputParser(point, "cmd", "Bash", values).parse_hook_output(output)


def pre(**fields: object) -> dict[str, object]:
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **fields}}


@requirement("hooks.answers")
@pytest.mark.parametrize(
    ("output", "decision"),
    [
        (pre(permissionDecision="allow", permissionDecisionReason="y"), Allow("y", "hook")),
        (pre(permissionDecision="deny", permissionDecisionReason="n"), Deny("n", "hook")),
        (pre(permissionDecision="deny"), Deny(None, "hook")),
        (pre(permissionDecision="ask", permissionDecisionReason="a"), Ask("a", "hook")),
        ({"decision": "approve", "reason": "y"}, Allow("y", "hook")),
        ({"decision": "block", "reason": "n"}, Deny("n", "hook")),
        ({"unknown": 1, **pre(permissionDecision="deny", other=2)}, Deny(None, "hook")),
        ({}, None),
    ],
)
def test_json_output_decides_in_its_current_and_its_older_form(output: object, decision: object) -> None:
    assert parse(output).decision == decision


@requirement("hooks.answers")
@pytest.mark.parametrize("text", ["words", "{not json", '["a"]', '"{}"'])
def test_output_that_is_not_a_json_object_is_text(text: str) -> None:
    assert parse(text) == HookResponse(plain_text=text)


@requirement("hooks.answers")
@pytest.mark.parametrize("point", ["UserPromptSubmit", "SessionStart"])
def test_text_is_context_at_the_start_of_a_prompt_or_session(point: HookPoint) -> None:
    assert parse("words\n", point=point).contexts == ("words",)
    assert parse("words\n", point="PostToolUse").contexts == ()


@requirement("hooks.exit-codes")
def test_exit_code_2_denies_with_stderr_as_the_reason() -> None:
    assert parse("", 2, stderr="no\n").decision == Deny("[cmd]: no\n", "hook")
    assert parse("", 2).decision == Deny("[cmd]: No stderr output", "hook")
    assert parse("", 2, point="Stop", stderr="go on").block == "[cmd]: go on"
    assert parse("", 2, point="PermissionRequest", stderr="no").decision is None


@requirement("hooks.exit-codes")
def test_exit_code_2_overrides_the_json_output_in_newer_clients() -> None:
    allow = pre(permissionDecision="allow")

    assert isinstance(parse(allow, 2).decision, Deny)
    assert isinstance(parse(allow, 2, version="2.1.80").decision, Allow)


@requirement("hooks.exit-codes")
def test_reason_in_json_output_is_kept_with_exit_code_2() -> None:
    deny = pre(permissionDecision="deny", permissionDecisionReason="because")

    assert parse(deny, 2, stderr="x").decision == Deny("because", "hook")


@requirement("hooks.exit-codes")
def test_other_exit_codes_are_ignored_with_json_output_and_fail_without_it() -> None:
    assert isinstance(parse(pre(permissionDecision="deny"), 1).decision, Deny)
    assert parse("text", 1, stderr="bad\n").error == "Failed with non-blocking status code: bad"


@requirement("hooks.versions")
def test_flat_decision_is_valid_only_in_its_profile() -> None:
    flat = {"decision": "allow", "reason": "fine", "additionalContext": "note"}

    assert parse(flat, version="seed") == HookResponse(decision=Allow("fine", "hook"), contexts=("note",), is_json=True)
    assert parse(flat).error is not None
    assert parse(flat).decision is None


@requirement("hooks.versions")
def test_older_clients_ignore_ask_and_use_a_new_input_only_with_a_decision() -> None:
    assert parse(pre(permissionDecision="ask"), version="2.1.80").decision is None
    assert parse(pre(updatedInput={"a": 1}), version="2.0.65").input is None
    assert parse(pre(updatedInput={"a": 1})).input == {"a": 1}


@requirement("hooks.answers")
def test_json_output_can_end_the_turn_and_show_a_message() -> None:
    output = {"continue": False, "stopReason": "enough", "systemMessage": "hello"}

    assert parse(output) == HookResponse(stop="enough", message="hello", is_json=True)


@requirement("hooks.answers")
def test_permission_request_is_answered_with_a_behavior() -> None:
    def parse_permission(**decision: object) -> HookResponse:
        fields = {"hookEventName": "PermissionRequest", "decision": decision}
        return parse({"hookSpecificOutput": fields}, point="PermissionRequest")

    yes = parse_permission(behavior="allow", updatedInput={"a": 1}, updatedPermissions=[{"type": "setMode"}])
    assert yes.decision == Allow(None, "hook", {"a": 1})
    assert yes.permission_updates == ({"type": "setMode"},)
    assert parse_permission(behavior="deny", message="no", interrupt=True).decision == Deny("no", "hook", True)
