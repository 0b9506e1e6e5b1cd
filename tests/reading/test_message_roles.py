"""Roles of messages: user, model, or client."""

from __future__ import annotations

import json

import pytest

from toolspan import read
from toolspan.formats.source import BytesSource
from toolspan.testing import TranscriptBuilder
from toolspan.testing.codex_builder import RolloutBuilder


def line(kind: str, **fields: object) -> bytes:
    return json.dumps({"type": kind, "uuid": "u1", "sessionId": "s1", **fields}).encode() + b"\n"


def user(content: object, **fields: object) -> bytes:
    return line("user", message={"role": "user", "content": content}, **fields)


def claude_messages(data: bytes) -> list[tuple[str, str]]:
    return [(message.voice, message.text) for message in read(BytesSource(data)).messages()]


def codex_messages(made: RolloutBuilder) -> list[tuple[str, str]]:
    transcript = read(BytesSource(made.data(), "rollout-x.jsonl"))
    return [(message.voice, message.text) for message in transcript.messages()]


CLAUDE = [
    ("[Request interrupted by user]", "interrupt"),
    ("<task-notification><status>done</status></task-notification>", "notification"),
    ("<command-name>/clear</command-name>", "command"),
    ("  <bash-stdout>a</bash-stdout>", "command"),
    ("<system-reminder>be kind</system-reminder>", "injected"),
    ("<b>bold</b> is a tag too", "prompt"),
    ("why?", "prompt"),
]


@pytest.mark.parametrize(("text", "voice"), CLAUDE)
@pytest.mark.parametrize("form", ["string", "block"])
def test_start_of_a_user_record_determines_the_role(text: str, voice: str, form: str) -> None:
    content = text if form == "string" else [{"type": "text", "text": text}]

    assert claude_messages(user(content)) == [(voice, text)]
    first = read(BytesSource(user(content))).info.first_prompt
    assert first == (text if voice == "prompt" else None)


@pytest.mark.parametrize(
    ("fields", "voice"),
    [
        ({"isMeta": True}, "injected"),
        ({"isCompactSummary": True}, "summary"),
        ({"origin": {"kind": "task-notification"}}, "notification"),
    ],
)
def test_flags_of_a_user_record_override_its_text(fields: dict[str, object], voice: str) -> None:
    assert claude_messages(user("go on", **fields)) == [(voice, "go on")]


def test_image_is_a_prompt_without_text() -> None:
    data = user([{"type": "image", "source": {}}])

    assert claude_messages(data) == [("prompt", "[image]")]
    info = read(BytesSource(data)).info
    assert (info.prompts, info.first_prompt) == (1, None)


def test_user_record_without_a_message_is_not_a_message() -> None:
    data = line("user") + user([]) + line("user", message={"role": "user"})

    assert claude_messages(data) == []
    assert read(BytesSource(data)).info.prompts == 0


@pytest.mark.parametrize(
    ("text", "voice"),
    [
        ("[Request interrupted by user for tool use]", "interrupt"),
        ("<task-notification></task-notification>", "notification"),
        ("<system-reminder>x</system-reminder>", "injected"),
        ("and now?", "prompt"),
    ],
)
def test_text_beside_a_result_has_its_own_role(text: str, voice: str) -> None:
    content = [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "x"}, {"type": "text", "text": text}]

    assert claude_messages(user(content)) == [(voice, text)]


def test_assistant_content_may_be_plain_text_or_missing() -> None:
    data = line("assistant", message={"role": "assistant", "content": "yes"}) + line("assistant")

    assert claude_messages(data) == [("text", "yes")]


def test_attachment_record_without_attachment_is_not_a_message() -> None:
    assert claude_messages(line("attachment") + user("go")) == [("prompt", "go")]


def test_compaction_record_needs_no_details() -> None:
    plain = line("system", subtype="compact_boundary", content="Conversation compacted")
    odd = line("system", subtype="microcompact_boundary", microcompactMetadata={"preTokens": "?"})
    own_type = line("compact_boundary", compactMetadata={"trigger": "auto", "preTokens": 1200})

    assert claude_messages(plain + odd + own_type) == [
        ("system", "Conversation compacted"),
        ("system", "Conversation compacted"),
        ("system", "Conversation compacted (auto, 1,200 tokens before)"),
    ]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"content": "Overloaded"}, "Overloaded"),
        ({"error": "busy"}, "busy"),
        ({"error": {"status": 529}}, "API error 529"),
        ({"error": {"formatted": "529 busy", "message": "busy"}}, "529 busy"),
        ({"error": {}, "retryAttempt": 3}, "API error (attempt 3)"),
        ({}, "API error"),
    ],
)
def test_model_error_is_shown_with_its_details(fields: dict[str, object], text: str) -> None:
    assert claude_messages(line("system", subtype="api_error", **fields)) == [("error", text)]


def test_what_somebody_typed_as_a_local_command_is_a_command() -> None:
    data = line("system", subtype="local_command", content="<command-name>/cost</command-name>")

    assert claude_messages(data) == [("command", "<command-name>/cost</command-name>")]


CODEX = [
    ("<turn_aborted>\nBy the user.\n</turn_aborted>", "interrupt"),
    ("<subagent_notification>{}</subagent_notification>", "notification"),
    ("<user_shell_command>ls</user_shell_command>", "command"),
    ("<environment_context>\n</environment_context>", "injected"),
    ("# AGENTS.md instructions for /p", "injected"),
    ("why?", "prompt"),
]


@pytest.mark.parametrize(("text", "voice"), CODEX)
def test_start_of_a_codex_message_determines_the_role(text: str, voice: str) -> None:
    rollout = RolloutBuilder().injected(text)

    ((result, message),) = codex_messages(rollout)

    assert result == voice
    assert message == ("Turn aborted: interrupted" if voice == "interrupt" else text)


@pytest.mark.parametrize(
    ("kinds", "voice"), [(["user.text"], "prompt"), (["client.note"], "injected"), ([], "injected")]
)
def test_newer_clients_record_the_author_of_each_part(kinds: list[str], voice: str) -> None:
    rollout = RolloutBuilder().item(
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "<skill> as a word"}],
            "internal_chat_message_metadata_passthrough": {"content_item_kinds": kinds},
        }
    )

    assert [voice for voice, _ in codex_messages(rollout)] == [voice]


def test_developer_text_is_the_clients() -> None:
    content = [{"type": "input_text", "text": "Be brief."}]
    rollout = RolloutBuilder().item({"type": "message", "role": "developer", "content": content})

    assert codex_messages(rollout) == [("injected", "Be brief.")]


def test_turn_events_of_the_client_are_messages() -> None:
    rollout = RolloutBuilder()
    rollout.event("error", message="stream lost").event("warning", message="old model")
    rollout.event("task_complete", error={"message": "quota is used up"})
    rollout.event("turn_complete", error=[1]).event("task_complete")
    rollout.event("turn_aborted", reason="replaced").roll_back(2)
    rollout.completed("Plan", "p1", text="1. look").event("item_completed")
    rollout.completed("Unheard", "x1")
    rollout.item({"type": "agent_message", "content": [{"type": "text", "text": "agent is done"}]})
    rollout.compact("")

    assert codex_messages(rollout) == [
        ("error", "stream lost"),
        ("system", "old model"),
        ("error", "quota is used up"),
        ("error", "The turn failed"),
        ("interrupt", "Turn aborted: replaced"),
        ("system", "2 turns taken back"),
        ("text", "1. look"),
        ("notification", "agent is done"),
        ("summary", "Conversation compacted"),
    ]


def test_titles_compactions_and_the_branch_are_read() -> None:
    builder = TranscriptBuilder(git_branch="topic").prompt("go").title("Own words", custom=True)
    builder.title("Made up").compact("We went.")

    info = read(BytesSource(builder.data())).info

    assert (info.title, info.compactions, info.git_branch) == ("Own words", 1, "topic")
