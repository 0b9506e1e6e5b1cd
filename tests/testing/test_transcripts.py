"""The transcript builder writes the records of each client version."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolspan.formats import json_repair
from toolspan.formats.claude import records as claude
from toolspan.reading.transcript import Transcript, read
from toolspan.testing import TranscriptBuilder, claude_results
from toolspan.types.span import Hook

VERSIONS = ["1.0.88", "2.0.65", "2.1.80", "2.1.197", "2.1.325"]
BASH = {"command": "ls"}
TEXT = "one\ntwo\n"


def story(version: str = "2.1.325") -> TranscriptBuilder:
    b = TranscriptBuilder(version=version)
    b.prompt("Go on").thinking("Hm.", after_ms=900).text("I will.", after_ms=100)
    first = b.call("Read", {"file_path": "/home/dev/project/a"}, after_ms=10)
    second = b.call("Bash", BASH, after_ms=10)
    b.hook(second, "PreToolUse", command="./check", text="fine")
    b.result(second, claude_results.ran("a", version=version), after_ms=40)
    b.result(first, claude_results.read("/home/dev/project/a", TEXT, version=version), after_ms=5)
    task = b.call("Agent", {"description": "look", "prompt": "Look"}, after_ms=500)
    child = b.agent(task, description="look").prompt("Look")
    child.result(child.call("Bash", BASH), claude_results.ran("a"), after_ms=30)
    child.text("Looked.")
    report = claude_results.reported(child.agent_id, "Looked.", prompt="Look", calls=1, took_ms=30, version=version)
    b.until(child).result(task, report)
    b.text("Done.").compact("We looked.").prompt("And?")
    b.call("Bash", BASH)
    return b.interrupt().title("A look around")


def records(b: TranscriptBuilder) -> list[dict[str, Any]]:
    return [json.loads(line) for line in b.lines()]


def written(b: TranscriptBuilder, folder: Path) -> Transcript:
    return read(b.write(folder / f"{b.session_id}.jsonl"))


@pytest.mark.parametrize("version", VERSIONS)
def test_every_record_decodes_without_odd_values_and_encodes_to_the_same_json(version: str) -> None:
    b = story(version)
    files = [data for name, data in b.files().items() if name.endswith(".jsonl")]
    lines = [line for data in files for line in data.splitlines()]

    decoded = [claude.decode_entry(line) for line in lines]

    assert [odd for _, odd in decoded if odd] == []
    assert all(entry.is_known for entry, _ in decoded)
    again = [claude.encode_entry(entry, line) for (entry, _), line in zip(decoded, lines, strict=True)]
    assert all(json_repair.is_same_json(*pair) for pair in zip(again, lines, strict=True))


def test_records_are_compact_and_keep_their_key_order() -> None:
    first = TranscriptBuilder().prompt("Grüße").lines()[0]

    assert first.startswith(b'{"parentUuid":null,"isSidechain":false,"promptId":"')
    assert '"content":"Grüße"'.encode() in first


def test_calls_are_one_batch_until_a_result_comes(tmp_path: Path) -> None:
    b = TranscriptBuilder().prompt("Go").text("Three.")
    first, two = b.call("Bash", BASH), b.call("Bash", BASH)
    b.result(first, "1").result(two, "2")
    three = b.call("Bash", BASH)
    b.result(three, "3")

    batches = {span.id: span.call.message_id for span in written(b, tmp_path).spans}

    assert batches[two] == batches[first] != batches[three]


def test_call_can_join_its_batch_after_a_result(tmp_path: Path) -> None:
    b = TranscriptBuilder().prompt("Go")
    b.result(b.call("Bash", BASH, message="msg_one"), "1")
    b.result(b.call("Bash", BASH, message="msg_one"), "2")

    assert {span.call.message_id for span in written(b, tmp_path).spans} == {"msg_one"}


def test_token_counts_need_a_message() -> None:
    with pytest.raises(ValueError, match="before its token counts"):
        TranscriptBuilder().prompt("Go").usage(output_tokens=1)


def test_error_repeats_its_text_in_the_structured_result() -> None:
    b = TranscriptBuilder().prompt("Go")
    b.result(b.call("Bash", BASH), "Exit code 1", is_error=True)

    last = records(b)[-1]

    assert last["toolUseResult"] == "Error: Exit code 1"
    assert list(last["message"]["content"][0]) == ["type", "content", "is_error", "tool_use_id"]


@pytest.mark.parametrize(
    ("body", "ending"),
    [
        (claude_results.ran(), ("succeeded", None)),
        (claude_results.in_background("b1", "/tmp/b1"), ("succeeded", None)),
        (claude_results.spilled("x\n" * 20_000, "/tmp/x.txt"), ("succeeded", None)),
        (claude_results.exited(1, "no"), ("failed", "command_failed")),
        (claude_results.timed_out("2m 0s"), ("timed_out", "command_timeout")),
        (claude_results.rejected(), ("denied", "user_denied")),
        (claude_results.rejected("not now"), ("denied", "user_denied")),
        (claude_results.denied_by_rule("ls"), ("denied", "rule_denied")),
        (claude_results.blocked_by_hook("Bash", "./check", "no"), ("blocked_by_hook", "hook_blocked")),
        (claude_results.refused("Error: No such tool available: Bash"), ("failed", "unknown_tool")),
    ],
)
def test_body_has_the_type_of_its_builder(
    body: claude_results.Body, ending: tuple[str, str | None], tmp_path: Path
) -> None:
    b = TranscriptBuilder().prompt("Go")
    b.result(b.call("Bash", BASH), body)

    (span,) = written(b, tmp_path).spans

    assert (span.state, span.error_kind) == ending


def test_hooks_leave_attachments_on_the_call_and_on_its_result(tmp_path: Path) -> None:
    b = TranscriptBuilder().prompt("Go")
    call_id = b.call("Bash", BASH)
    b.hook(call_id, "PreToolUse", command="./before", outcome="context", text="careful")
    b.result(call_id, claude_results.ran("a"))
    result = b.last
    b.hook(call_id, "PostToolUse", command="./after", outcome="blocked", text="not like that")

    (span,) = written(b, tmp_path).spans
    actual = records(b)

    hooks = [event for event in span.events if isinstance(event, Hook)]
    assert [(hook.point, hook.outcome) for hook in hooks] == [("PreToolUse", "context"), ("PostToolUse", "blocked")]
    assert span.state == "succeeded"
    assert (actual[2]["parentUuid"], actual[-1]["parentUuid"]) == (actual[1]["uuid"], result)


def test_interrupt_rejects_open_calls(tmp_path: Path) -> None:
    b = TranscriptBuilder().prompt("Go")
    b.result(b.call("Bash", BASH), claude_results.ran("a"))
    b.call("Bash", BASH)
    b.interrupt().text("Once upon a time").interrupt()

    texts = [block["text"] for record in records(b) for block in record["message"]["content"] if "text" in block]
    assert [span.state for span in written(b, tmp_path).spans] == ["succeeded", "denied"]
    assert texts[-3::2] == ["[Request interrupted by user for tool use]", "[Request interrupted by user]"]


@pytest.mark.parametrize(("version", "state"), [("2.1.325", "interrupted"), ("2.1.80", "never_answered")])
def test_resume_answers_open_calls_if_the_client_does(version: str, state: str, tmp_path: Path) -> None:
    b = TranscriptBuilder(version=version).prompt("Go")
    b.call("Bash", BASH)
    b.resume(after_ms=60_000).prompt("Go on")

    assert [span.state for span in written(b, tmp_path).spans] == [state]


@pytest.mark.parametrize("version", VERSIONS)
def test_title_is_found_and_the_users_title_takes_precedence(version: str, tmp_path: Path) -> None:
    b = TranscriptBuilder(version=version).prompt("Go").title("Mine", custom=True)
    if version in ("2.1.197", "2.1.325"):
        b.title("Made up")

    assert written(b, tmp_path).info.title == "Mine"


def test_damaged_lines_are_reported_with_their_kind(tmp_path: Path) -> None:
    b = TranscriptBuilder().prompt("Go")
    lost = b.call("Bash", BASH)
    b.tear(200, ended=True).result(lost, "a").glue().text("Glued.").raw(b"\xff").text("End.")
    b.call("Bash", BASH)
    b.tear(50)

    transcript = written(b, tmp_path)

    assert [span.state for span in transcript.spans] == ["orphan_result"]
    damage = {result.place.line: result.code for result in transcript.findings if result.place}
    assert damage == {2: "torn_line", 3: "glued_records", 4: "invalid_utf8", 6: "torn_last_line"}
    assert {result.acceptance for result in transcript.findings if result.code == "invalid_utf8"} == {"skips"}


@pytest.mark.parametrize(
    ("version", "names"),
    [
        ("1.0.88", ["s.jsonl"]),
        ("2.0.65", ["agent-{id}.jsonl", "s.jsonl"]),
        ("2.1.325", ["s.jsonl", "s/subagents/agent-{id}.jsonl", "s/subagents/agent-{id}.meta.json"]),
    ],
)
def test_subagents_are_where_their_client_writes_them(version: str, names: list[str], tmp_path: Path) -> None:
    b = TranscriptBuilder(version=version).prompt("Go")
    child = b.agent(b.call("Task", {"prompt": "Look"})).prompt("Look")
    b.write(tmp_path / "s.jsonl")

    result = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*"))

    assert result == [name.format(id=child.agent_id) for name in names]


def test_records_of_a_subagent_name_it_and_its_session() -> None:
    b = TranscriptBuilder().prompt("Go")
    call_id = b.call("Agent", {"prompt": "Look"}, after_ms=100)
    child = b.agent(call_id, kind="Explore", description="look").prompt("Look", after_ms=5)
    child.result(child.call("Bash", BASH), claude_results.ran("a"))
    child.result(child.call("Bash", BASH), claude_results.exited(1))

    first, _, fine, _, error = records(child)
    meta = json.loads(b.files()[f"{b.session_id}/subagents/agent-{child.agent_id}.meta.json"])

    assert (first["parentUuid"], first["isSidechain"]) == (None, True)
    assert (first["agentId"], first["sessionId"]) == (child.agent_id, b.session_id)
    assert ("toolUseResult" in fine, "toolUseResult" in error) == (False, True)
    assert (meta["toolUseId"], meta["agentType"]) == (call_id, "Explore")


def test_records_of_inline_subagents_are_in_the_file_of_their_session(tmp_path: Path) -> None:
    b = TranscriptBuilder(version="1.0.88").prompt("Go")
    call_id = b.call("Task", {"prompt": "Look"})
    child = b.agent(call_id).prompt("Look")
    child.result(child.call("Bash", BASH), claude_results.ran("a"), after_ms=50)
    b.until(child).result(call_id, claude_results.reported("", "Fine.", prompt="Look", calls=1, took_ms=50))

    transcript = written(b, tmp_path)

    sides = [record["isSidechain"] for record in records(b)]
    assert sides == [False, False, True, True, True, False]
    assert [(span.tool, span.state) for span in transcript.spans] == [("Task", "succeeded"), ("Bash", "succeeded")]


def test_fork_starts_with_the_records_of_another_session(tmp_path: Path) -> None:
    b = TranscriptBuilder().prompt("Go")
    b.result(b.call("Bash", BASH), "a")
    twin = b.fork("00000000-0000-4000-8000-000000000001").prompt("Otherwise")
    b.text("Done.")

    old, new = records(b), records(twin)

    assert [record["uuid"] for record in new[:3]] == [record["uuid"] for record in old[:3]]
    assert {record["sessionId"] for record in new} == {twin.session_id}
    assert {record["sessionId"] for record in old} == {b.session_id}
    assert new[3]["parentUuid"] == old[2]["uuid"]
    assert new[3]["uuid"] != old[3]["uuid"]


def test_sidecar_is_in_the_session_folder(tmp_path: Path) -> None:
    b = TranscriptBuilder().prompt("Go")
    path = b.sidecar("tool-results/b1.txt", b"much")
    b.result(b.call("Bash", BASH), claude_results.spilled("x\n" * 16_000, path))

    (span,) = written(b, tmp_path).spans

    assert span.result is not None
    assert span.result.persisted_path == path
    assert path.endswith(f"/{b.session_id}/tool-results/b1.txt")
    assert (tmp_path / b.session_id / "tool-results" / "b1.txt").read_bytes() == b"much"


@pytest.mark.parametrize("version", VERSIONS)
def test_stream_contains_the_same_calls_as_the_files(version: str, tmp_path: Path) -> None:
    b = story(version)
    stream = tmp_path / "stream.jsonl"
    stream.write_bytes(b"\n".join([*b.stream_lines(), b""]))
    b.write(tmp_path / "s.jsonl")

    files = [read(path) for path in tmp_path.rglob("*.jsonl") if path != stream]
    streamed = read(stream)

    output = {span.id: span.tool for transcript in files for span in transcript.spans}
    assert {span.id: span.tool for span in streamed.spans} == output
    assert streamed.findings == []
    assert [span.call.parent_call is not None for span in streamed.spans].count(True) == 1


def test_stream_form_lists_denials_and_has_no_parents() -> None:
    b = TranscriptBuilder().prompt("Go")
    call_id = b.call("Bash", BASH)
    b.result(call_id, claude_results.denied_by_rule("ls")).text("Then not.")

    first, call, result, _, last = (json.loads(line) for line in b.stream_lines())

    assert (first["subtype"], last["type"], last["result"]) == ("init", "result", "Then not.")
    assert not {"parentUuid", "sessionId", "toolUseResult"} & (call.keys() | result.keys())
    assert last["permission_denials"] == [{"tool_name": "Bash", "tool_use_id": call_id, "tool_input": BASH}]


def test_edit_of_missing_text_raises_value_error() -> None:
    with pytest.raises(ValueError, match="does not contain 'three'"):
        claude_results.edited("/a", TEXT, "three", "four")


@pytest.mark.parametrize(
    ("version", "content"),
    [
        ("2.1.325", "The file /a has been updated successfully. (file state is current"),
        ("2.1.80", "The file /a has been updated successfully."),
        ("2.0.65", "The file /a has been updated. Here's the result of running `cat -n`"),
    ],
)
def test_text_of_an_edit_depends_on_the_client_version(version: str, content: str) -> None:
    body = claude_results.edited("/a", TEXT, "two", "three", version=version)

    assert str(body.content).startswith(content)


def test_read_numbers_lines_as_its_client_does() -> None:
    assert claude_results.read("/a", TEXT).content == "1\tone\n2\ttwo\n3\t"
    assert claude_results.read("/a", TEXT, version="2.1.80").content == "     1→one\n     2→two\n     3→"
    assert claude_results.read("/a", TEXT, offset=2, limit=1).content == "2\ttwo"
