"""Events of a call from the records around it."""

from __future__ import annotations

import json

import toolspan
from toolspan.formats.source import BytesSource
from toolspan.testing import TranscriptBuilder, claude_results
from toolspan.types.span import Hook, Note, Notification, Progress, Span


def line(kind: str, **fields: object) -> bytes:
    return json.dumps({"type": kind, "timestamp": "2026-11-02T09:00:09Z", **fields}).encode()


def attached(**note: object) -> bytes:
    return line("attachment", attachment=note)


def start_call() -> tuple[TranscriptBuilder, str]:
    builder = TranscriptBuilder().prompt("go")
    return builder, builder.call("Bash", {"command": "make"}, id="toolu_1")


def only(builder: TranscriptBuilder) -> Span:
    (span,) = toolspan.read(BytesSource(builder.data(), "s.jsonl")).spans
    return span


def test_recorded_denial_counts_without_a_result() -> None:
    for field in ("toolUseID", "tool_use_id"):
        builder, call = start_call()
        builder.raw(line("system", subtype="permission_denied", **{field: call}))

        assert only(builder).state == "denied"


def test_end_of_a_stream_names_denied_and_deferred_calls() -> None:
    builder, call = start_call()
    builder.raw(line("result", permission_denials=[{"tool_use_id": call}, {}], deferred_tool_use={}))
    assert only(builder).state == "denied"

    for key in ("id", "tool_use_id"):
        builder, call = start_call()
        builder.raw(line("result", deferred_tool_use={key: call}))
        assert only(builder).deferred


def test_progress_records_of_a_stream_are_counted_with_the_call() -> None:
    builder, call = start_call()
    for _ in range(3):
        builder.raw(line("tool_progress", tool_use_id=call))
    builder.raw(line("tool_progress"))  # of no call
    builder.raw(line("progress", toolUseID=call))  # without data
    builder.result(call, claude_results.ran("ok"))

    (progress,) = [event for event in only(builder).events if isinstance(event, Progress)]

    assert (progress.kind, progress.count) == ("tool_progress", 3)


def test_repeated_notice_is_one_event() -> None:
    notice = (
        "<task-notification><task-id>b1</task-id><tool-use-id>toolu_1</tool-use-id>"
        "<status>completed</status><summary>done</summary></task-notification>"
    )
    nobody = "<task-notification><task-id>b1</task-id></task-notification>"
    builder, call = start_call()
    builder.result(call, claude_results.in_background("b1", "/tmp/b1.output"))
    builder.raw(line("queue-operation", operation="enqueue", content=notice))
    builder.raw(attached(type="queued_command", prompt=notice, commandMode="task-notification"))
    builder.raw(line("queue-operation", operation="enqueue", content=nobody))

    (output,) = [event for event in only(builder).events if isinstance(event, Notification)]

    assert (output.task_id, output.status, output.summary) == ("b1", "completed", "done")


def test_deferring_and_denying_hooks_are_events_of_the_call() -> None:
    builder, call = start_call()
    builder.raw(attached(type="hook_deferred_tool", toolUseID=call, hookName="PreToolUse:Bash", exitCode=0))
    span = only(builder)
    (hook,) = [event for event in span.events if isinstance(event, Hook)]
    assert span.deferred
    assert (hook.point, hook.name, hook.outcome) == ("PreToolUse", "PreToolUse:Bash", "deferred")

    builder, call = start_call()
    error = {"blockingError": "not here", "command": "guard"}
    builder.raw(attached(type="hook_blocking_error", toolUseID=call, hookEvent="PreToolUse", blockingError=error))
    (hook,) = [event for event in only(builder).events if isinstance(event, Hook)]
    assert hook.outcome == "blocked"
    assert hook.text == "not here"


def test_unknown_attachment_is_a_note_with_its_text() -> None:
    builder, call = start_call()
    builder.raw(attached(type="diagnostics", toolUseID=call, content="two problems"))
    builder.raw(attached(type="marker", toolUseID=call))
    builder.raw(line("attachment"))
    builder.result(call, claude_results.ran("ok"))

    notes = [(event.kind, event.text) for event in only(builder).events if isinstance(event, Note)]

    assert notes == [("diagnostics", "two problems"), ("marker", None)]


def test_hook_after_a_call_shows_that_it_had_started() -> None:
    states = {}
    for point in ("PreToolUse", "PostToolUse"):
        builder, call = start_call()
        data = {"type": "hook_progress", "hookEvent": point, "hookName": point, "command": "x"}
        builder.raw(line("progress", parentToolUseID=call, data=data))
        builder.result(call, claude_results.rejected()).interrupt()
        states[point] = only(builder).state

    assert states == {"PreToolUse": "denied", "PostToolUse": "interrupted"}


def test_progress_of_a_subagent_names_it() -> None:
    builder = TranscriptBuilder().prompt("go")
    call = builder.call("Agent", {"prompt": "look", "description": "Look"})
    data = {"type": "agent_progress", "agentId": "a1b2"}
    builder.raw(line("progress", parentToolUseID=call, data=data))

    assert only(builder).agent == "a1b2"
