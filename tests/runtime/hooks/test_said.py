"""What handlers mean: exit codes, answers in JSON, text; per client version."""

from __future__ import annotations

import json

import pytest

from tests.requirement import requirement
from toolspan.runtime.hooks.events import HookPoint
from toolspan.runtime.hooks.protocol import HookOutput, HookOutputParser, HookResponse
from toolspan.runtime.profiles import profile
from toolspan.types.decision import Allow, Ask, Deny


def said(answer: object, code: int = 0, point: HookPoint = "PreToolUse", **more: str) -> HookResponse:
    text = answer if isinstance(answer, str) else json.dumps(answer)
    values = profile(more.get("version", "2.1.325")).hooks
    heard = HookOutput(stdout=text, stderr=more.get("stderr", ""), exit_code=code)
    return HookOutputParser(point, "cmd", "Bash", values).parse_hook_output(heard)


def pre(**given: object) -> dict[str, object]:
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **given}}


@requirement("hooks.answers")
@pytest.mark.parametrize(
    ("answer", "decision"),
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
def test_an_answer_decides_in_its_current_and_its_older_form(answer: object, decision: object) -> None:
    assert said(answer).decision == decision


@requirement("hooks.answers")
@pytest.mark.parametrize("text", ["words", "{not json", '["a"]', '"{}"'])
def test_what_is_no_json_object_is_text(text: str) -> None:
    assert said(text) == HookResponse(plain_text=text)


@requirement("hooks.answers")
@pytest.mark.parametrize("point", ["UserPromptSubmit", "SessionStart"])
def test_text_is_for_the_model_where_a_prompt_or_a_session_begins(point: HookPoint) -> None:
    assert said("words\n", point=point).contexts == ("words",)
    assert said("words\n", point="PostToolUse").contexts == ()


@requirement("hooks.exit-codes")
def test_exit_code_2_refuses_with_what_was_printed_as_errors() -> None:
    assert said("", 2, stderr="no\n").decision == Deny("[cmd]: no\n", "hook")
    assert said("", 2).decision == Deny("[cmd]: No stderr output", "hook")
    assert said("", 2, point="Stop", stderr="go on").block == "[cmd]: go on"
    assert said("", 2, point="PermissionRequest", stderr="no").decision is None


@requirement("hooks.exit-codes")
def test_exit_code_2_outranks_the_answer_in_newer_clients() -> None:
    allow = pre(permissionDecision="allow")

    assert isinstance(said(allow, 2).decision, Deny)
    assert isinstance(said(allow, 2, version="2.1.80").decision, Allow)


@requirement("hooks.exit-codes")
def test_the_words_of_an_answer_that_refuses_are_kept_beside_exit_code_2() -> None:
    deny = pre(permissionDecision="deny", permissionDecisionReason="because")

    assert said(deny, 2, stderr="x").decision == Deny("because", "hook")


@requirement("hooks.exit-codes")
def test_other_exit_codes_do_not_count_beside_an_answer_and_fail_without_one() -> None:
    assert isinstance(said(pre(permissionDecision="deny"), 1).decision, Deny)
    assert said("text", 1, stderr="bad\n").error == "Failed with non-blocking status code: bad"


@requirement("hooks.versions")
def test_the_flat_decision_of_the_older_documents_counts_only_in_their_profile() -> None:
    flat = {"decision": "allow", "reason": "fine", "additionalContext": "note"}

    assert said(flat, version="seed") == HookResponse(decision=Allow("fine", "hook"), contexts=("note",), is_json=True)
    assert said(flat).error is not None
    assert said(flat).decision is None


@requirement("hooks.versions")
def test_older_clients_ask_nobody_and_take_a_new_input_only_with_a_decision() -> None:
    assert said(pre(permissionDecision="ask"), version="2.1.80").decision is None
    assert said(pre(updatedInput={"a": 1}), version="2.0.65").input is None
    assert said(pre(updatedInput={"a": 1})).input == {"a": 1}


@requirement("hooks.answers")
def test_an_answer_can_end_the_turn_and_speak_to_the_person() -> None:
    answer = {"continue": False, "stopReason": "enough", "systemMessage": "hello"}

    assert said(answer) == HookResponse(stop="enough", message="hello", is_json=True)


@requirement("hooks.answers")
def test_a_question_of_consent_is_answered_with_a_behavior() -> None:
    def asked(**decision: object) -> HookResponse:
        given = {"hookEventName": "PermissionRequest", "decision": decision}
        return said({"hookSpecificOutput": given}, point="PermissionRequest")

    yes = asked(behavior="allow", updatedInput={"a": 1}, updatedPermissions=[{"type": "setMode"}])
    assert yes.decision == Allow(None, "hook", {"a": 1})
    assert yes.permission_updates == ({"type": "setMode"},)
    assert asked(behavior="deny", message="no", interrupt=True).decision == Deny("no", "hook", True)
