"""Rare forms: long first lines, pipes, odd values, truncated and spilled texts."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import BinaryIO, cast

import pytest
from msgspec import Raw

from toolspan.errors import SourceError
from toolspan.formats import json_repair, zstd
from toolspan.formats.claude.narrow import narrow_text_result, strip_reminders
from toolspan.formats.claude.records import decode_permission_decision, unknown_keys
from toolspan.formats.codex.calls import call_arguments, event_command, parse_output, read_call_subject
from toolspan.formats.codex.records import ABSENT, RolloutItem, extract_calls, item_tool_name
from toolspan.formats.codex.results import McpResult, OtherResult, narrow_input, narrow_result
from toolspan.formats.decoding import parse_task_notices
from toolspan.formats.jsonl import read_lines, split_document
from toolspan.formats.registry import choose_format, detect_client, detect_client_in
from toolspan.formats.source import BytesSource, source_for_path
from toolspan.testing.codex_builder import RolloutBuilder
from toolspan.types.results import BashOutputResult, GlobResult, GrepResult, PatchResult, TaskOutputResult

MEGABYTE = 1 << 20


def raw(value: object) -> Raw:
    return Raw(json.dumps(value).encode())


@pytest.mark.parametrize(
    ("start", "client"),
    [
        (b'{"timestamp":"t","type":"session_meta","payload":{"x":"', "codex"),
        (b'{"timestamp":"t","ordinal":0,"type":"response_item","payload":{"x":"', "codex"),
        (b'{"sessionId":"s","type":"user","message":{"content":"', "claude"),
        (b'{"session_id":"s","type":"user","message":{"content":"', "claude"),
        (b'{"milk":"', "unknown"),
    ],
)
def test_start_of_a_long_first_line_determines_the_format(start: bytes, client: str) -> None:
    assert detect_client_in(start + b"x" * MEGABYTE) == client


@pytest.mark.parametrize(
    ("name", "data", "client"),
    [
        ("s.jsonl", b'{"type":"user","message":{"content":"payload: {}"}}\n', "claude"),
        ("s.jsonl", b'{"type":"mode","mode":"x"}\n', "claude"),
        ("s.jsonl", b'{"type":"session_meta","payload":{}}\n', "codex"),
        ("s.jsonl", b'{"type":"mode","payload":1}\n', "claude"),
        ("rollout-x.jsonl", b"garbage\n", "codex"),
        ("rollout-x.jsonl", b'{"type":"user","message":{"content":"x"},"uuid":"u"}\n', "claude"),
        ("/rollout-old/notes.jsonl", b"garbage\n", "claude"),
    ],
)
def test_name_and_first_bytes_determine_the_format(name: str, data: bytes, client: str) -> None:
    assert choose_format(name, b"before" + data + b"after", 6, 6 + len(data)).name == client


@pytest.mark.parametrize("name", ["pipe.jsonl", "pipe.jsonl.zst"])
def test_pipe_is_refused_without_waiting(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)

    with pytest.raises(SourceError, match=f"{name}: not a regular file"):
        source_for_path(tmp_path / name).open()


def test_rollout_compressed_or_decompressed_meanwhile_is_found_by_its_old_name(tmp_path: Path) -> None:
    data = RolloutBuilder().prompt("go").data()
    plain, packed = tmp_path / "rollout-x.jsonl", tmp_path / "rollout-x.jsonl.zst"
    old_plain, old_packed = source_for_path(plain), source_for_path(packed)

    packed.write_bytes(zstd.compress(data))
    assert (old_plain.read(3, 9), old_plain.open(3).read(9)) == (data[3:12], data[3:12])
    packed.unlink()
    plain.write_bytes(data)
    assert (old_packed.read(3, 9), old_packed.open(3).read(9)) == (data[3:12], data[3:12])


def test_compressed_file_can_be_read_from_a_far_offset(tmp_path: Path) -> None:
    data = b"x" * (3 * MEGABYTE) + b"\nlast\n"
    path = tmp_path / "s.jsonl.zst"
    path.write_bytes(zstd.compress(data))

    assert source_for_path(path).read(3 * MEGABYTE + 1, 4) == b"last"
    assert source_for_path(path).read(10 * MEGABYTE, 4) == b""


class Spooled:
    """A source whose streams are of another sort than those of files."""

    name = "spooled"

    def __init__(self, data: bytes) -> None:
        self._data = data

    def open(self, offset: int = 0) -> BinaryIO:
        stream = tempfile.SpooledTemporaryFile()  # noqa: SIM115 - the reader closes it
        stream.write(self._data)
        stream.seek(offset)
        return cast(BinaryIO, stream)

    def read(self, offset: int, length: int) -> bytes:
        return self._data[offset : offset + length]


def test_custom_source_is_read_like_a_file() -> None:
    data = b'{"a":1}\n{"longer":"than a sip"}\nlast'

    assert list(read_lines(Spooled(data))) == list(read_lines(BytesSource(data)))


def test_document_that_the_fast_encoder_refuses_is_encoded() -> None:
    odd = {"half": "\ud83d", "empty": [{}, []], "big": 10**30, "pair": (1, None)}

    encoded = json_repair.encode_document(odd)

    assert encoded.isascii()
    assert json.loads(encoded) == {**odd, "pair": [1, None]}


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"", ""),
        (b'{"a":1}', {"a": 1}),
        (b'{"a":"\xff"}', {"a": "\ufffd"}),
        (b"\xff{", "\ufffd{"),
        (b'{"torn', '{"torn'),
    ],
)
def test_value_that_is_not_a_document_is_text(data: bytes, value: object) -> None:
    assert json_repair.decode_readable(data) == value


def test_line_too_long_to_search_is_torn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_repair, "_RECOVER_LIMIT", 20)

    assert json_repair.recover_objects(b'{"a":1}{"b":2}').reason == "glued_records"
    assert json_repair.recover_objects(b'{"a":1}{"b":2}{"c":3}') == ([], "torn_line")


def test_unknown_keys_are_reported_with_their_path() -> None:
    blocks = [{"type": "text", "newer": 1}, "no block"]
    message = {"role": "user", "fresh": 1, "0": "h", "1": "i", "content": blocks}

    assert list(unknown_keys({"type": "user", "odd": 1, "message": message})) == [
        "odd",
        "message.fresh",
        "message.<number>",
        "message.<number>",
        "message.content.newer",
    ]
    assert list(unknown_keys({"type": "user", "message": "words"})) == []
    assert list(unknown_keys({"message": {"content": "words"}})) == []


@pytest.mark.parametrize("value", [[1], "accept", {"decision": 7}])
def test_decision_of_another_shape_is_ignored(value: object) -> None:
    assert decode_permission_decision(raw(value)) is None


def test_truncated_notice_is_recognised() -> None:
    (notice,) = parse_task_notices("x <task-notification><task-id>b1</task-id><status>done")

    assert (notice.task_id, notice.status, notice.call_id) == ("b1", None, None)
    assert parse_task_notices("nothing") == []


def test_items_have_a_short_description() -> None:
    def describe(**fields: object) -> str | None:
        return read_call_subject(RolloutItem(type="function_call", arguments=raw(json.dumps(fields)))).summary

    assert describe(cmd=["bash", "-lc", "make"]) == "make"
    assert describe(command=["ls", "a b"]) == "ls 'a b'"
    assert describe(command=[1]) is None
    assert describe(path="  ", query="milk") == "milk"
    assert describe(plan=[{"step": "look"}]) == "look"
    assert describe(questions=[{"question": "why?"}]) == "why?"
    assert describe(targets=["a1"]) == "a1"
    assert describe(targets=[7]) is None
    assert describe(input="*** Begin Patch\n*** Update File: a.txt\n") == "a.txt"
    assert describe(session_id=41) == "process 41"
    assert describe(cell_id=True) is None
    assert read_call_subject(RolloutItem(type="function_call", arguments=raw("[1]"))).summary is None


def test_arguments_nested_in_too_many_strings_are_unchanged() -> None:
    wrapped: object = {"a": 1}
    for _ in range(4):
        wrapped = json.dumps(wrapped)

    result = call_arguments(RolloutItem(type="function_call", arguments=raw(wrapped)))

    assert json.loads(result) == json.dumps({"a": 1})
    assert call_arguments(RolloutItem(type="function_call", arguments=raw("  "))) == b"{}"
    assert call_arguments(RolloutItem(type="image_generation_call")) == b"{}"
    assert call_arguments(RolloutItem(type="web_search_call")) == b"{}"


def test_command_of_an_event_may_be_missing_or_odd() -> None:
    assert event_command(ABSENT) is None
    assert event_command(raw({"a": 1})) is None
    assert event_command(Raw(b"\xff")) is None
    assert event_command(raw(["sh", "-c", "ls"])) == "ls"


def test_tools_with_their_own_item_types_have_names() -> None:
    names = {
        kind: item_tool_name(RolloutItem(type=kind))
        for kind in ("local_shell_call", "web_search_call", "image_generation_call")
    }

    assert list(names.values()) == ["local_shell", "web_search", "image_generation"]
    assert item_tool_name(RolloutItem(type="tool_search_call")) == "tool_search"
    assert item_tool_name(RolloutItem(type="function_call", name="q", namespace="mcp__db")) == "mcp__db__q"
    assert item_tool_name(RolloutItem(type="function_call", name="q", namespace="own")) == "q"
    assert extract_calls(RolloutItem(tool_calls=raw({"no": "list"}))) == []
    assert [call.name for call in extract_calls(RolloutItem(tool_calls=raw([{"id": "c1"}])))] == [None]


@pytest.mark.parametrize(
    ("data", "session", "lines", "whole"),
    [
        (b'{"items":[],"session":{"id":"s"}}', b'{"id":"s"}', 0, True),
        (b'{"session":{"id":"s"},"items":[{"a":1},{"b":2}]}', b'{"id":"s"}', 2, True),
        (b'{"session":{"id":"s', None, 0, False),
        (b'{"items":[{"a":1},{"b":', None, 1, False),
        (b'{"items":7}', None, 0, True),
        (b"{}", None, 0, True),
        (b"", None, 0, False),
    ],
)
def test_document_is_split_as_far_as_possible(data: bytes, session: bytes | None, lines: int, whole: bool) -> None:
    result = split_document(data, "items")

    assert (result.fields.get("session"), len(result.lines), result.is_complete) == (session, lines, whole)
    for line in result.lines:
        assert data[line.offset : line.offset + line.length] == line.data


def test_unreadable_headers_leave_the_text() -> None:
    many = "Exit code: 1\n" * 40
    assert parse_output(raw(many)).text == "Exit code: 1\n" * 22  # no header is that long
    assert parse_output(raw("Wall time: 1.2.3 seconds\nOutput:\nx")).wall_ms is None
    assert parse_output(raw({"content": [1], "success": "?"})).flag is None
    metadata = {"exit_code": 1 << 40, "duration_seconds": 1.5}
    result = parse_output(raw(json.dumps({"output": "x", "metadata": metadata})))
    assert (result.text, result.exit_code, result.wall_ms) == ("x", None, 1500.0)


def test_result_is_narrowed_with_the_details_of_its_event() -> None:
    patch = RolloutItem(done=None, changes=raw({"a": {"add": {"content": "x"}}, "b": {"type": "delete"}}))
    result = narrow_result("apply_patch", raw("done"), patch)
    assert isinstance(result, PatchResult)
    assert {path: change.type for path, change in result.changes.items()} == {"a": "add", "b": "delete"}
    odd = narrow_result("apply_patch", raw("done"), RolloutItem(changes=raw({"a": 7})))
    assert isinstance(odd, PatchResult)
    assert odd.changes == {}
    assert narrow_result("mcp__db__q", raw("rows"), None) == McpResult(content=({"type": "text", "text": "rows"},))
    assert narrow_result("mcp__db__q", raw(7), None) == McpResult(content=())
    assert narrow_result("view_image", raw("x"), None) == OtherResult(data=b'"x"')
    assert narrow_input("mcp__db__q", b"[1]").__class__.__name__ == "UnknownInput"


def test_spilled_and_status_texts_are_narrowed() -> None:
    spilled = (
        "<persisted-output>\nOutput too large. Full output saved to: /tmp/x.txt\n\n"
        "Preview (first 2KB):\na:1:milk\n...\n</persisted-output>"
    )
    assert narrow_text_result("Grep", spilled) == GrepResult(mode="content", filenames=(), content="a:1:milk")
    assert not isinstance(narrow_text_result("Glob", spilled), GlobResult)
    status = "<retrieval_status>success</retrieval_status>\n<task_id>b1</task_id>"
    assert isinstance(narrow_text_result("BashOutput", status), TaskOutputResult)
    assert not isinstance(narrow_text_result("BashOutput", "plain words"), BashOutputResult)


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ("a\n\n<system-reminder>\nx\n</system-reminder>\n", "a"),
        ("a\n<system-reminder>x</system-reminder>\n<system-reminder>y</system-reminder>", "a"),
        ("<system-reminder>x</system-reminder>", ""),
        ("a <system-reminder>x</system-reminder>", "a <system-reminder>x</system-reminder>"),
        ("a\n</system-reminder>", "a\n</system-reminder>"),
        ("a\n", "a\n"),
    ],
)
def test_only_notes_on_separate_lines_are_removed(text: str, body: str) -> None:
    assert strip_reminders(text) == body


@pytest.mark.parametrize(
    ("data", "client"),
    [
        (b"", "empty"),
        (b"\n \n", "empty"),
        (b'{"type":"user","message":{"content":"hi"},"uuid":"u","sessionId":"s"}\n', "claude"),
        (b'{"type":"summary","summary":"x","leafUuid":"u"}\n', "claude"),
        (b'{"type":"assistant","message":{"content":[]},"session_id":"s"}\n', "claude"),
        (b'garbage\n{"type":"system","subtype":"init","session_id":"s"}\n', "claude"),
        (b'{"type":"summary","summary":"x"}{"type":"summary","summary":"y"}\n', "claude"),
        (b'{"timestamp":"t","type":"session_meta","payload":{}}\n', "codex"),
        (b'{"type":"response_item","payload":{"type":"function_call"}}\n', "codex"),
        (b'{"record_type":"state"}\n{"type":"function_call","call_id":"c"}\n', "codex"),
        (b"just a text\nof two lines\n", "unknown"),
        (b"\x00\x01\x02\xff", "unknown"),
        (b'{"a":1}\n[1]\n7\n', "unknown"),
    ],
)
def test_first_records_determine_the_client(data: bytes, client: str) -> None:
    assert detect_client(BytesSource(data)) == client
