"""Chats of Gemini CLI."""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta
from pathlib import Path

import pytest

from tests.formats import gemini_chats as chats
from toolspan import check, history, read
from toolspan.formats.gemini.tools import FileChangeDisplay, RunShellCommandInput
from toolspan.formats.source import BytesSource
from toolspan.reading.discovery import find_transcripts, has_working_folder
from toolspan.reading.timeline import build_timeline
from toolspan.reading.transcript import Transcript, read_content
from toolspan.types.inputs import BashInput
from toolspan.types.session import Tokens


@pytest.fixture(params=["document", "lines", "one line"])
def chat(request: pytest.FixtureRequest) -> Transcript:
    data = {
        "document": chats.document(),
        "lines": chats.lines(),
        "one line": json.dumps(json.loads(chats.document())).encode(),
    }[request.param]
    return read(BytesSource(data))


def test_call_state_follows_its_status_and_error(chat: Transcript) -> None:
    assert chat.client == "gemini"
    assert [(span.id, span.state, span.error_kind) for span in chat.spans] == [
        ("read_file_1_0", "succeeded", None),
        ("run_shell_command_1_1", "failed", "command_failed"),
        ("replace_2_0", "failed", "no_match"),
        ("run_shell_command_2_1", "denied", "rule_denied"),
        ("write_file_2_2", "cancelled", "cancelled"),
        ("glob_3_0", "never_answered", None),
    ]
    assert not chat.findings


def test_inputs_and_results_are_read_from_the_file(chat: Transcript) -> None:
    first, shell, *_, last = chat.spans

    assert first.result is not None
    assert first.result.text == "print(1)\n"
    assert isinstance(shell.input, RunShellCommandInput)
    assert isinstance(shell.input, BashInput)
    assert shell.input.command == "make test"
    assert shell.result is not None
    assert shell.result.exit_code == 2
    assert (last.result, last.call.target) == (None, "*.py")


def test_duration_is_from_the_reply_to_the_end_of_the_call_and_never_negative(chat: Transcript) -> None:
    durations = {str(span.id): span.duration for span in chat.spans}

    assert durations["run_shell_command_1_1"] == timedelta(seconds=3)
    assert durations["run_shell_command_2_1"] is None  # it ended before the reply was recorded


def test_messages_and_tokens_count_once(chat: Transcript) -> None:
    texts = [(message.voice, message.text) for message in chat.messages()]

    assert texts[:3] == [("prompt", "Fix the tëst."), ("thinking", "Plan\nThink about m2."), ("text", "I look at it.")]
    assert ("system", "Update available.") in texts
    assert chat.tokens == Tokens(input_tokens=303, output_tokens=75, cache_read_input_tokens=120)
    assert chat.info.models == ("gemini-3-pro",)
    assert (chat.info.first_prompt, chat.info.prompts) == ("Fix the tëst.", 1)
    assert chat.session_id == chats.SESSION


def test_rewritten_message_replaces_the_earlier_one() -> None:
    waiting = chats.reply("m2", "", 1, [chats.call("a", "glob", {"pattern": "*"}, status="executing")])
    done = chats.reply("m2", "Found.", 1, [chats.call("a", "glob", {"pattern": "*"}, output="x.py")])
    chat = read(BytesSource(chats.lines(chats.header(), chats.user("m1", "go"), waiting, done)))

    (span,) = chat.spans
    assert (span.state, span.result and span.result.text) == ("succeeded", "x.py")
    assert [message.text for message in chat.messages() if message.voice == "text"] == ["Found."]
    assert chat.tokens.output_tokens == 25


def test_withdrawn_messages_are_abandoned_and_kept() -> None:
    old = chats.reply("m2", "", 1, [chats.call("a", "glob", {"pattern": "*"}, output="x")])
    new = chats.reply("m4", "", 3, [chats.call("b", "glob", {"pattern": "*"}, output="y")])
    records = (chats.header(), chats.user("m1", "go"), old, {"$rewindTo": "m2"}, new, {"$set": {"summary": "Globbing"}})
    chat = read(BytesSource(chats.lines(*records)))

    assert [(span.id, span.branch) for span in chat.spans] == [("a", "abandoned"), ("b", "active")]
    assert chat.info.title == "Globbing"


def test_messages_inside_an_update_are_read() -> None:
    messages = [chats.user("m1", "go"), chats.reply("m2", "", 1, [chats.call("a", "glob", {}, output="x")])]
    chat = read(BytesSource(chats.lines(chats.header(), {"$set": {"messages": messages}})))

    (span,) = chat.spans
    assert span.result is not None
    assert (span.result.text, span.call.prompt_id) == ("x", "m1")


def test_displayed_result_is_typed_by_its_shape() -> None:
    display = {"fileDiff": "--- a\n+++ b\n", "fileName": "a.py", "originalContent": None, "newContent": "y"}
    edit = chats.call("e", "replace", {"file_path": "a.py"}, output="ok", display=display)
    (span,) = read(BytesSource(chats.document([chats.reply("m", calls=[edit])]))).spans

    assert span.result is not None
    assert isinstance(span.result.structured, FileChangeDisplay)
    assert span.result.structured.new_content == "y"


@pytest.mark.parametrize("cut", [0, 1, 30, 400, -2])
def test_truncated_chat_is_read_to_the_cut(cut: int, tmp_path: Path) -> None:
    path = chats.write_chat(tmp_path, chats.document()[:cut])

    chat = read(path)

    assert chat.client == "gemini"
    assert len(chat.spans) == (6 if cut < 0 else 0)
    assert [finding.code for finding in chat.findings] == ["torn_last_line"]


def test_doctor_finds_new_fields_and_that_records_survive_encoding() -> None:
    odd = {**chats.call("a", "glob", {"pattern": "*", "depth": 3}, output="x"), "mood": "good"}
    report = check(
        BytesSource(chats.lines(chats.header(), {**chats.reply("m", calls=[odd]), "new": 1})), roundtrip=True
    )

    assert {finding.explanation.rpartition("(")[2] for finding in report.findings} == {
        "new)",
        "toolCalls.mood)",
        "glob: depth)",
    }
    assert (report.roundtrip_equal, report.entries) == (2, {"session": 1, "gemini": 1})


def test_sessions_and_their_subagents_are_found(tmp_path: Path) -> None:
    main = chats.write_chat(tmp_path, chats.document())
    (main.parent.parent / "logs.json").write_bytes(b"[]")
    agent = main.parent / chats.SESSION / "c0ffee00-aaaa.jsonl"
    agent.parent.mkdir()
    agent.write_bytes(
        chats.lines(
            chats.header("c0ffee00-aaaa", kind="subagent", directories=["/w"]),
            chats.reply("a1", "", 2, [chats.call("grep_9_0", "grep_search", {"pattern": "x"}, output="1")]),
        )
    )

    files = find_transcripts(tmp_path)
    assert [(file.path, file.name.role, file.name.session_id) for file in files] == [
        (agent, "agent", "1a2b3c4d"),
        (main, "session", "1a2b3c4d"),
    ]
    (session,) = history(tmp_path).call_table.sessions
    assert (session.id, len(session.agents)) == (chats.SESSION, 1)
    (row,) = session.agents[0].calls
    assert (row.session, row.agent) == (chats.SESSION, "c0ffee00-aaaa")
    timeline = build_timeline([read_content(read(main)), read_content(read(agent))])
    assert [each.agent_id for each in timeline.iter_timelines()] == [None, "c0ffee00-aaaa"]


def test_session_belongs_to_the_folder_with_its_hash(tmp_path: Path) -> None:
    folder_hash = hashlib.sha256(b"/home/dev/app").hexdigest()
    chats.write_chat(tmp_path, chats.document(projectHash=folder_hash))
    (file,) = find_transcripts(tmp_path)

    assert has_working_folder(file, "/home/dev/app")
    assert not has_working_folder(file, "/home/dev")
