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
    values = profile(more.get("version", "2.1.327")).hooks
    output = HookOutput(stdout=text, stderr=more.get("stderr", ""), exit_code=code)
    return HookOutputParser(point, "cmd", "Bash", values).parse_hook_output(output)


def pre(**fields: object) -> dict[str, object]:
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **fields}}


@requirement("hooks.responses")
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


@requirement("hooks.responses")
@pytest.mark.parametrize("text", ["words", "{not json", '["a"]', '"{}"'])
def test_output_that_is_not_a_json_object_is_text(text: str) -> None:
    assert parse(text) == HookResponse(plain_text=text)


@requirement("hooks.responses")
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
    assert isinstance(parse(allow, 2, version="2.0.65").decision, Allow)


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
def test_oldest_client_uses_a_new_input_only_with_a_decision() -> None:
    assert parse(pre(permissionDecision="ask", updatedInput={"a": 1}), version="2.0.65").input is None
    assert parse(pre(updatedInput={"a": 1}), version="2.0.65").input is None
    assert parse(pre(updatedInput={"a": 1})).input == {"a": 1}


@requirement("hooks.responses")
def test_json_output_can_end_the_turn_and_show_a_message() -> None:
    output = {"continue": False, "stopReason": "enough", "systemMessage": "hello"}

    assert parse(output) == HookResponse(stop="enough", message="hello", is_json=True)


@requirement("hooks.responses")
def test_permission_request_is_answered_with_a_behavior() -> None:
    def parse_permission(**decision: object) -> HookResponse:
        fields = {"hookEventName": "PermissionRequest", "decision": decision}
        return parse({"hookSpecificOutput": fields}, point="PermissionRequest")

    update = {"type": "setMode", "mode": "plan", "destination": "session"}
    yes = parse_permission(behavior="allow", updatedInput={"a": 1}, updatedPermissions=[update])
    assert yes.decision == Allow(None, "hook", {"a": 1})
    assert yes.permission_updates == (update,)
    assert parse_permission(behavior="deny", message="no", interrupt=True).decision == Deny("no", "hook", True)


def permission(**decision: object) -> dict[str, object]:
    return {"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": decision}}


@requirement("hooks.responses")
@pytest.mark.parametrize(
    "output",
    [
        pre(permissionDecision="allow", permissionDecisionReason=None),
        pre(permissionDecision="allow", updatedInput=None),
        pre(permissionDecision="allow") | {"systemMessage": None}, pre(permissionDecision="allow") | {"decision": None},
        pre(permissionDecision=None, updatedInput={"command": "ls"}), {"decision": "approve", "reason": None},
        {"decision": "approve", "hookSpecificOutput": None},
    ],
)  # fmt: skip
def test_output_with_a_null_field_allows_nothing(output: dict[str, object]) -> None:
    response = parse(output)

    assert (response.decision, response.input) == (None, None)
    assert response.error is not None and "is null" in response.error


@requirement("hooks.responses")
@pytest.mark.parametrize(
    "output",
    [
        {"continue": None, **pre(permissionDecision="deny")},
        {"suppressOutput": None, "stopReason": None, **pre(permissionDecision="deny")},
        '{"x": ' + "9" * 5_000 + ', "decision": "block"}',
        '{"\\ud800": 1, "decision": "block", "reason": "\\udfff"}',
        '{"x": ' + "[" * 20_000 + "]" * 20_000 + ', "decision": "block"}',
    ],
)
def test_a_denial_beside_unusual_fields_counts(output: object) -> None:
    decision = parse(output).decision

    assert isinstance(decision, Deny)
    (decision.reason or "").encode()  # it contains no surrogates


def test_a_permission_request_is_denied_despite_a_null_field() -> None:
    decision = {"behavior": "deny", "interrupt": None}
    output = {"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": decision}}

    assert isinstance(parse(output, point="PermissionRequest").decision, Deny)


def test_output_with_a_null_field_still_objects_and_asks() -> None:
    reasonless = {"permissionDecisionReason": None}

    assert parse(pre(permissionDecision="deny", **reasonless)).decision == Deny(None, "hook")
    assert parse(pre(permissionDecision="ask", **reasonless)).decision == Ask(None, "hook")
    assert parse({"decision": "block", "reason": None}).decision == Deny(None, "hook")
    assert parse(permission(behavior="deny", message=None), point="PermissionRequest").decision == Deny(None, "hook")


@requirement("hooks.responses")
@pytest.mark.parametrize(
    "update",
    [
        {}, {"type": "nope"}, {"type": "setMode", "mode": "plan"},
        {"type": "setMode", "mode": "nope", "destination": "session"},
        {"type": "addRules", "rules": ["Bash"], "behavior": "allow", "destination": "session"},
        {"type": "addRules", "rules": [{"toolName": "Bash"}], "behavior": "allow", "destination": "policySettings"},
        {"type": "addRules", "rules": [{"toolName": "Bash", "ruleContent": None}], "behavior": "allow",
         "destination": "session"},
        {"type": "addDirectories", "directories": "/tmp", "destination": "session"},
    ],
)  # fmt: skip
def test_an_invalid_permission_update_makes_the_whole_answer_invalid(update: dict[str, object]) -> None:
    response = parse(permission(behavior="allow", updatedPermissions=[update]), point="PermissionRequest")

    assert response.decision is None
    assert response.error is not None and response.error.startswith("Hook JSON output validation failed")


@requirement("hooks.responses")
def test_fields_of_other_points_and_behaviors_may_contain_anything() -> None:
    assert parse(pre(permissionDecision="deny", retry="x", watchPaths=5, decision=5)).decision == Deny(None, "hook")
    answers = [permission(behavior="deny", updatedInput=5), permission(behavior="allow", message=5, interrupt=None)]

    denied, allowed = (parse(answer, point="PermissionRequest").decision for answer in answers)

    assert (denied, allowed) == (Deny(None, "hook"), Allow(None, "hook"))


@requirement("hooks.responses")
@pytest.mark.parametrize("start", ["\ufeff", "\u00a0", "\f", "\u2028\n"])
@pytest.mark.parametrize("extra", ["", ', "x": 1e999', ', "x": "\\ud800"'])
def test_a_denial_counts_despite_odd_spaces_numbers_and_letters(start: str, extra: str) -> None:
    text = json.dumps(pre(permissionDecision="deny")).removesuffix("}") + extra + "}"

    assert parse(start + text).decision == Deny(None, "hook")


@requirement("hooks.responses")
@pytest.mark.parametrize("text", ['{"decision": "approve", "x": NaN}', '{"decision": "approve"} note', "\x00{}"])
def test_text_that_only_looks_like_json_is_plain_text(text: str) -> None:
    response = parse(text)

    assert (response.decision, response.plain_text) == (None, text)
