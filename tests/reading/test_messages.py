"""Messages between calls: roles and order."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from toolspan.formats.source import BytesSource
from toolspan.reading.transcript import read, read_content
from toolspan.testing import TranscriptBuilder, claude_results
from toolspan.types.session import Message


def messages_of(data: bytes) -> list[Message]:
    return list(read(BytesSource(data)).messages())


def heard(data: bytes) -> list[tuple[str, str]]:
    return [(message.voice, message.text) for message in messages_of(data)]


def line(kind: str, **fields: object) -> bytes:
    return json.dumps({"type": kind, "uuid": "u1", "sessionId": "s1", **fields}).encode() + b"\n"


def test_prompts_texts_and_thinking_come_in_file_order() -> None:
    builder = TranscriptBuilder().prompt("why?").thinking("hmm").text("because")

    assert heard(builder.data()) == [("prompt", "why?"), ("thinking", "hmm"), ("text", "because")]


def test_calls_and_results_are_not_messages() -> None:
    builder = TranscriptBuilder().prompt("list")
    call = builder.call("Bash", {"command": "ls"})
    builder.result(call, claude_results.ran("a.txt"))

    assert heard(builder.data()) == [("prompt", "list")]


def test_empty_thinking_is_not_a_message() -> None:
    assert heard(TranscriptBuilder().prompt("x").thinking("").data()) == [("prompt", "x")]


def test_message_has_its_time_line_and_agent() -> None:
    builder = TranscriptBuilder(start=datetime(2026, 11, 2, 9, tzinfo=UTC)).prompt("go")
    call = builder.call("Agent", {"prompt": "count", "description": "Count"})
    agent = builder.agent(call).prompt("count", after_ms=1500)

    (message,) = messages_of(agent.data())

    assert message.at == "2026-11-02T09:00:01.500Z"
    assert message.agent_id == agent.agent_id
    assert message.place.line == 1


def test_compaction_has_its_reason_and_then_its_summary() -> None:
    builder = TranscriptBuilder().prompt("go").text("done").compact("We did it.", trigger="manual")

    boundary, summary = heard(builder.data())[-2:]

    assert boundary[0] == "system"
    assert boundary[1].startswith("Conversation compacted (manual")
    assert summary == ("summary", "We did it.")


def test_interrupt_and_notification_have_separate_roles() -> None:
    builder = TranscriptBuilder().prompt("go")
    call = builder.call("Bash", {"command": "sleep 9", "run_in_background": True})
    builder.result(call, claude_results.in_background("b1", "/tmp/b1.output"))
    builder.task_notification(call, "b1", "finished", queued=True).text("so").interrupt()

    assert [voice for voice, _ in heard(builder.data())] == ["prompt", "notification", "text", "interrupt"]


def test_text_queued_while_the_model_works_is_a_prompt() -> None:
    queued = {"type": "queued_command", "prompt": "also this", "commandMode": "prompt"}

    assert heard(line("attachment", attachment=queued)) == [("prompt", "also this")]


def test_api_error_has_its_attempt() -> None:
    spoken = line(
        "assistant",
        isApiErrorMessage=True,
        message={"model": "<synthetic>", "content": [{"type": "text", "text": "API Error: 500"}]},
    )
    retried = line(
        "system", subtype="api_error", error={"message": "Overloaded", "status": 529}, retryAttempt=2, maxRetries=10
    )

    assert heard(spoken + retried) == [("error", "API Error: 500"), ("error", "Overloaded (attempt 2 of 10)")]


def test_synthetic_assistant_text_is_injected() -> None:
    message = {"model": "<synthetic>", "content": [{"type": "text", "text": "No response."}]}

    assert heard(line("assistant", message=message)) == [("injected", "No response.")]


def test_informational_records_are_messages_and_bookkeeping_is_not() -> None:
    told_line = line("system", subtype="informational", content="Now using another model")
    kept_back = line("system", subtype="turn_duration", durationMs=5)

    assert heard(told_line + kept_back) == [("system", "Now using another model")]


def test_only_hooks_outside_calls_are_messages() -> None:
    start = {"type": "hook_additional_context", "hookEvent": "SessionStart", "content": ["be kind"]}
    of_call = {**start, "hookEvent": "PreToolUse", "toolUseID": "toolu_1"}

    assert heard(line("attachment", attachment=start) + line("attachment", attachment=of_call)) == [
        ("injected", "SessionStart hook: be kind")
    ]


def test_prompt_beside_a_result_is_a_message() -> None:
    content = [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "x"}, {"type": "text", "text": "and now?"}]

    assert heard(line("user", message={"role": "user", "content": content})) == [("prompt", "and now?")]


def test_repeated_record_is_one_message() -> None:
    builder = TranscriptBuilder().prompt("once").data()

    twice = read_content(read(BytesSource(builder + builder)))

    assert [message.text for message in twice.messages] == ["once"]
