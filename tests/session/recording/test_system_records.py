"""System records: compactions, errors, blocked prompts and notifications."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import toolspan
from tests.requirement import requirement
from tests.session.recording.emitted import (
    SESSION,
    decided,
    finished,
    hook,
    message,
    no_failure,
    origin,
    recorder,
    use,
    wrong,
)
from toolspan.session.recording import (
    BackgroundNotice,
    Compaction,
    Recorder,
    RefusedPrompt,
    RequestFailure,
    StopSummary,
    TurnLimitReached,
)
from toolspan.types.events import Decided
from toolspan.types.ids import CallId

VERSIONS = ("2.0.65", "2.1.327")
every_version = pytest.mark.parametrize("version", VERSIONS)


def last_line(path: Path) -> dict[str, Any]:
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    result: dict[str, Any] = [line for line in lines if "uuid" in line][-1]
    return result


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / f"{SESSION}.jsonl"


def begun(path: Path, version: str = "2.1.327") -> Recorder:
    keeper = recorder(path, version=version)
    keeper.record_prompt("Look")
    return keeper


@requirement("record.system-lines")
@every_version
def test_compaction_marks_earlier_calls_as_compacted(version: str, path: Path) -> None:
    keeper = begun(path, version)
    keeper.record_reply(message(use("a", "Bash", command="ls")))
    keeper.record_result(finished("a", "Bash", "x"))
    done = Compaction(summary="We looked.", trigger="manual", tokens_before=900, duration_ms=12.4)
    keeper.handle(done)
    keeper.record_prompt("Go on")
    keeper.record_reply(message("Yes.", id="msg_02"))
    keeper.close()

    transcript = toolspan.read(path)

    assert transcript.info.compactions == 1
    assert [span.branch for span in transcript.spans] == ["compacted"]
    text = [(item.voice, item.text) for item in transcript.messages()]
    assert ("system", "Conversation compacted (manual, 900 tokens before)") in text
    assert ("summary", "We looked.") in text
    assert wrong(path) == []


@requirement("record.system-lines")
@pytest.mark.parametrize("status", [529, None])
def test_retried_and_abandoned_requests_are_read_as_errors(status: int | None, path: Path) -> None:
    keeper = begun(path)
    trouble = RequestFailure(message="Overloaded", kind="overloaded_error", status=status, text="API Error: Overloaded")
    again = RequestFailure(
        message="Overloaded", kind="overloaded_error", status=status, attempt=2, max_retries=9, wait_s=1.5
    )
    keeper.handle(again)
    output = last_line(path)
    assert (output["retryAttempt"], output["maxRetries"], output["retryInMs"]) == (2, 9, 1500)
    assert output["error"].get("status") == status
    keeper.handle(trouble)
    output = last_line(path)
    assert (output["isApiErrorMessage"], output.get("apiErrorStatus")) == (True, status)
    keeper.close()

    transcript = toolspan.read(path)

    assert [(item.voice, item.text) for item in transcript.messages()] == [
        ("prompt", "Look"),
        ("error", "Overloaded (attempt 2 of 9)"),
        ("error", "API Error: Overloaded"),
    ]
    assert transcript.tokens.output_tokens == 0
    assert wrong(path) == []


@requirement("record.system-lines")
@every_version
def test_background_notification_is_part_of_the_turn(version: str, path: Path) -> None:
    text = (
        "<task-notification>\n<task-id>b1</task-id>\n<tool-use-id>a</tool-use-id>\n"
        "<status>completed</status>\n<summary>done</summary>\n</task-notification>"
    )
    keeper = begun(path, version)
    keeper.record_reply(message(use("a", "Bash", command="make", run_in_background=True)))
    keeper.record_result(finished("a", "Bash", "started"))
    keeper.handle(BackgroundNotice(text))
    keeper.close()

    transcript = toolspan.read(path)

    assert ("notification", text) in [(item.voice, item.text) for item in transcript.messages()]
    assert [type(event).__name__ for event in transcript.spans[0].events] == ["Notification"]
    assert transcript.info.prompts == 1


@requirement("record.system-lines")
@every_version
def test_turn_started_by_a_notification_is_marked_where_clients_do_so(version: str, path: Path) -> None:
    keeper = begun(path, version)
    keeper.record_prompt("<task-notification></task-notification>", is_notification=True)
    keeper.close()

    output = last_line(path)

    assert output.get("origin") == (None if version == "2.0.65" else {"kind": "task-notification"})
    assert output.get("turnOrigin") == ("task_notification" if version == "2.1.327" else None)


@requirement("record.system-lines")
@every_version
def test_reached_turn_limit_is_recorded_where_clients_do_so(version: str, path: Path) -> None:
    keeper = begun(path, version)
    keeper.handle(TurnLimitReached(max_turns=5, turns=6))
    keeper.close()

    attached = last_line(path).get("attachment")

    output = {"type": "max_turns_reached", "maxTurns": 5, "turnCount": 6}
    assert attached == (output if version == "2.1.327" else None)


@requirement("record.system-lines")
@every_version
@pytest.mark.parametrize("is_stop", [True, False])
def test_blocked_prompt_is_recorded_with_the_reason(version: str, is_stop: bool, path: Path) -> None:
    keeper = begun(path, version)
    keeper.handle(RefusedPrompt(prompt="secret", message="[guard]: no", reason="no", is_stop=is_stop))
    keeper.close()

    output = last_line(path)

    assert (output["subtype"], output["level"]) == ("informational", "warning")
    assert output["content"] == (
        "Operation stopped by hook: [guard]: no"
        if is_stop
        else "UserPromptSubmit operation blocked by hook:\n[guard]: no\n\nOriginal prompt: secret"
    )
    assert output.get("preventContinuation") == (True if version == "2.1.327" else None)
    ending = output.get("promptSubmitEnding", {}).get("ending")
    expected = {"kind": "blocked_by_hook", "reason": "no"}
    assert ending == (expected if version == "2.1.327" and not is_stop else None)


@requirement("record.system-lines")
def test_end_of_a_turn_records_its_handlers(path: Path) -> None:
    keeper = begun(path)
    handlers = (("check.sh", 12.6), ("guard.sh", None))
    keeper.handle(StopSummary(handlers=handlers, errors=("no",), stop="enough", report_id="x1"))
    keeper.close()

    output = last_line(path)

    assert output["hookInfos"] == [{"command": "check.sh", "durationMs": 13}, {"command": "guard.sh"}]
    assert (output["hookCount"], output["preventedContinuation"], output["stopReason"]) == (2, True, "enough")
    assert wrong(path) == []


CONSENT: list[tuple[Decided, dict[str, object]]] = [
    (
        decided("a", allowed=True, source="user_session"),
        {"decision": "accept", "source": "user_temporary", "grantScope": "session"},
    ),
    (
        Decided(call_id=CallId("a"), allowed=True, source="config", basis="rule", origin="x", at=0),
        {"decision": "accept", "source": "config", "reasonType": "rule", "ruleSource": "x"},
    ),
    (
        Decided(call_id=CallId("a"), allowed=False, source="config", basis="rule", origin="x", at=0),
        {"decision": "reject", "source": "config", "reasonType": "rule", "ruleSource": "x", "reasonCode": "rule:x"},
    ),
    (
        Decided(call_id=CallId("a"), allowed=False, source="config", basis="rule", at=0),
        {"decision": "reject", "source": "config", "reasonType": "rule", "reasonCode": "unknown"},
    ),
    (
        Decided(call_id=CallId("a"), allowed=False, source="mode", basis="mode", at=0),
        {"decision": "reject", "source": "mode", "reasonType": "mode", "reasonCode": "mode:default"},
    ),
    (
        Decided(call_id=CallId("a"), allowed=True, source="user", basis="outside", asked=True, at=0),
        {"decision": "accept", "source": "user", "reasonCode": "workingDir"},
    ),
    (
        Decided(call_id=CallId("a"), allowed=True, source="user_temporary", basis="rule", origin="x", asked=True, at=0),
        {
            "decision": "accept",
            "source": "user_temporary",
            "ruleSource": "x",
            "grantScope": "once",
            "reasonCode": "rule:x",
        },
    ),
]


@requirement("record.decisions")
@pytest.mark.parametrize(("answer", "wanted"), CONSENT)
def test_citations_of_a_reply_are_recorded(answer: Decided, wanted: dict[str, object], path: Path) -> None:
    keeper = begun(path)
    keeper.record_reply(message(use("a", "Bash", command="ls")))
    keeper.record_result(finished("a", "Bash", "x", decision=answer))
    keeper.close()

    assert last_line(path)["permissionDecision"] == wanted


@requirement("record.hooks")
def test_attachment_has_the_text_that_the_model_reads(path: Path) -> None:
    keeper = begun(path)
    keeper.record_reply(message(use("a", "Bash", command="ls")))
    rendered = []
    for ran in (
        hook("a", "PreToolUse", "context", text="be kind"),
        hook("a", "PreToolUse", "stopped", text="enough"),
        hook("a", "SessionStart", "success", text="hello", stdout="hello"),
        hook("a", "PreToolUse", "message", text="for people"),
    ):
        keeper.record_hook(ran)
        if ran.outcome == "stopped":  # recorded after the result
            continue
        rendered.append(last_line(path).get("rendered"))
    keeper.record_result(finished("a", "Bash", "x"))
    rendered.append(last_line(path).get("rendered"))
    keeper.close()

    text = [item[0]["content"].splitlines()[1] if item else None for item in rendered]
    assert text == [
        "PreToolUse:Bash hook additional context: be kind",
        "SessionStart:Bash hook success: hello",
        None,
        "PreToolUse:Bash hook stopped continuation: enough",
    ]


def test_transcript_that_is_a_pipe_has_no_intent_log(tmp_path: Path) -> None:
    path = tmp_path / "pipe.jsonl"
    os.mkfifo(path)
    keeper = recorder(path)

    assert keeper.open_intent_log() is None
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("version", VERSIONS)
def test_open_calls_are_answered_once_in_the_form_of_the_version(version: str, path: Path) -> None:
    keeper = begun(path, version)
    keeper.record_reply(message(use("a", "Bash", command="ls"), use("b", "Bash", command="ls")))
    keeper.close()
    blocks = [
        {"type": "tool_result", "tool_use_id": name, "content": text}
        for name, text in (("a", "lost"), ("b", ""), ("gone", "x"))
    ]
    again = Recorder.resume(path, origin(path.parent, version=version), no_failure)
    again.set_resume_answers([])
    again.set_resume_answers([{"role": "user", "content": "words"}])
    again.set_resume_answers([{"role": "user", "content": blocks}])
    assert again.open_calls == {"a", "b"}
    again.record_prompt("and now?", meta=True)
    again.close()

    transcript = toolspan.read(path)

    states = {span.id: span.result.text for span in transcript.spans if span.result}
    assert states == {"a": "lost", "b": ""}
    assert wrong(path) == []


def test_turn_continued_in_a_resumed_file_keeps_its_id(path: Path) -> None:
    keeper = begun(path)
    keeper.record_reply(message(use("a", "Bash", command="ls")))
    keeper.close()
    prompt = json.loads(path.read_bytes().splitlines()[0])
    again = Recorder.resume(path, origin(path.parent), no_failure)
    again.record_result(finished("a", "Bash", "x"))
    again.close()

    assert prompt["promptId"]
    assert last_line(path)["promptId"] == prompt["promptId"]
