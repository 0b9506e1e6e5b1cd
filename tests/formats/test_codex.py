"""Codex records of every version, decoded and encoded to equal JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from toolspan.formats import json_repair
from toolspan.formats.codex import records
from toolspan.formats.codex.calls import CommandOutput, call_arguments, format_command, parse_output, read_call_subject
from toolspan.formats.codex.records import RolloutItem, extract_calls, item_tool_name
from toolspan.formats.jsonl import split_document
from toolspan.formats.source import BytesSource
from toolspan.reading.transcript import read
from toolspan.testing import codex_builder
from toolspan.testing.codex_builder import RolloutAge, RolloutBuilder


def story(age: RolloutAge) -> RolloutBuilder:
    rollout = RolloutBuilder(age=age).prompt("Show me the notes")
    call = rollout.thinking("They are in a file").call("exec_command", {"cmd": "cat notes.txt"})
    rollout.completed("CommandExecution", call, status="completed", exit_code=0)
    return rollout.output(call, "Exit code: 0\nOutput:\nmilk").text("Milk").tokens(900, 20, cached=800)


@pytest.mark.parametrize("age", ["bare", "enveloped", "paginated"])
def test_records_of_every_version_encode_to_equal_json(age: RolloutAge) -> None:
    for line in story(age).lines:
        record = records.decode_record(line).entry
        assert record.is_known, line
        assert json_repair.is_same_json(records.encode_record(record, line), line)


KEYS = st.sampled_from(["type", "payload", "call_id", "output", "info", "item", "x", "timestamp"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(KEYS, JSON, max_size=5))
def test_any_object_encodes_to_equal_json(result: dict[str, object]) -> None:
    line = json_repair.encode_document(result)
    record, _ = records.decode_record(line)
    assert json_repair.is_same_json(records.encode_record(record, line), line)


def test_unknown_kind_is_kept_and_recognised() -> None:
    for line in (
        b'{"type":"event_msg","payload":{"type":"from_the_future"}}',
        b'{"type":"response_item","payload":{"type":"telepathy_call"}}',
        b'{"type":"weather","payload":{"sun":true}}',
    ):
        record = records.decode_record(line).entry
        assert not record.is_known
        assert record.kind


def test_value_of_another_type_is_reported_and_the_rest_is_read() -> None:
    line = b'{"type":"response_item","payload":{"type":"function_call","name":7,"call_id":"c"}}'
    record, odd = records.decode_record(line)
    assert odd == ("payload.name",)
    assert record.item.call_id == "c"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"cmd":"ls"}', {"cmd": "ls"}),
        ('"{\\"cmd\\":\\"ls\\"}"', {"cmd": "ls"}),
        ("", {}),
        ("  ", {}),
        ("[1]", [1]),
        ('{"cmd":', '{"cmd":'),
        ("ls -l", "ls -l"),
    ],
)
def test_arguments_are_json_text_and_unchanged_if_invalid(arguments: str, expected: object) -> None:
    line = json.dumps({"type": "function_call", "arguments": arguments, "call_id": "c"}).encode()
    item = records.decode_record(line).entry.item
    assert json.loads(call_arguments(item)) == expected


def test_free_text_becomes_an_input_object() -> None:
    patch = "*** Begin Patch\n*** Update File: src/a.py\n@@\n-x\n+y\n*** End Patch\n"
    line = json.dumps({"type": "custom_tool_call", "name": "apply_patch", "input": patch}).encode()
    item = records.decode_record(line).entry.item
    assert json.loads(call_arguments(item)) == {"input": patch}
    assert read_call_subject(item).summary == "src/a.py"


@pytest.mark.parametrize(
    ("command", "line"),
    [
        (["bash", "-lc", "ls | wc"], "ls | wc"),
        (["powershell.exe", "-Command", "dir"], "dir"),
        (["git", "log", "--grep=a b"], "git log '--grep=a b'"),
        ("make test", "make test"),
        ([1, 2], None),
        (None, None),
    ],
)
def test_command_reads_as_typed_in_a_shell(command: object, line: str | None) -> None:
    assert format_command(command) == line


def test_mcp_tools_have_their_full_name() -> None:
    assert item_tool_name(RolloutItem(type="function_call", namespace="mcp__files", name="read")) == (
        "mcp__files__read"
    )
    assert item_tool_name(RolloutItem(type="function_call", namespace="agents", name="spawn_agent")) == ("spawn_agent")
    assert item_tool_name(RolloutItem(type="web_search_call")) == "web_search"


def test_old_message_contains_its_calls() -> None:
    line = b"""{"role":"assistant","content":"","tool_calls":[{"id":"c1","type":"function",
        "function":{"name":"shell","arguments":"{}"}},{"id":"c2"}]}"""
    calls = extract_calls(records.decode_record(line).entry.item)
    assert [(call.call_id, call.name) for call in calls] == [("c1", "shell"), ("c2", None)]


def test_document_is_split_into_items_with_locations() -> None:
    data = '{\n "session": {"id": "é"},\n "items": [ {"role":"user"}, {"a":["]"]} ]\n}\n'.encode()
    result = split_document(data, "items")
    assert result.fields["session"] == '{"id": "é"}'.encode()
    assert result.is_complete
    for line in result.lines:
        assert data[line.offset : line.offset + line.length] == line.data
    assert [json.loads(line.data) for line in result.lines] == [{"role": "user"}, {"a": ["]"]}]


def parsed_output(output: object) -> CommandOutput:
    return parse_output(Raw(json.dumps(output).encode()))


@pytest.mark.parametrize("form", [codex_builder.command_output, codex_builder.headed_output, codex_builder.json_output])
@pytest.mark.parametrize("code", [0, 1, 137, -1])
def test_every_header_has_exit_code_and_duration(form: object, code: int) -> None:
    assert callable(form)
    result = parsed_output(form("some words\n", code=code, seconds=1.5))
    assert (result.exit_code, result.wall_ms, result.has_header) == (code, 1500.0, True)
    assert result.running is None
    assert code == 0 or result.text == "some words\n"


@given(st.text())
def test_text_below_a_header_is_the_output(text: str) -> None:
    for form in (codex_builder.command_output, codex_builder.headed_output, codex_builder.json_output):
        result = parsed_output(form(text, code=3))
        assert (result.exit_code, result.text) == (3, text)


def test_running_process_is_named() -> None:
    assert parsed_output(codex_builder.running_output(17, "so far")).running == "17"
    text = "Script running with cell ID 4\nWall time 0.5 seconds\nOutput:\n"
    assert parsed_output([{"type": "input_text", "text": text}]).running == "4"


def test_array_is_read_as_its_texts() -> None:
    result = parsed_output(codex_builder.mcp_output("one", "two"))
    assert result.text == "one\ntwo"
    assert result.has_header
    assert parsed_output([{"type": "input_image", "image_url": "data:,"}]).text == "[input_image]"


def test_object_may_have_an_error_flag() -> None:
    result = parsed_output({"content": "no", "success": False})
    assert (result.text, result.flag) == ("no", False)


def test_patch_inside_a_command_has_a_nested_header() -> None:
    inner = codex_builder.headed_output("Success. Updated the following files:\nA x\n", code=0)
    result = parsed_output(f"Wall time: 0.1000 seconds\nOutput:\n{inner}")
    assert result.exit_code == 0
    assert result.text.startswith("Success.")


@pytest.mark.parametrize(
    "text",
    [
        "Warning: truncated output (original token count: 27224)\nTotal output lines: 20000\n\nx",
        "head\n[... omitted 20 of 90 lines ...]\ntail",
        "head…1234 tokens truncated…tail",
        "head\n\n[Output truncated after 256 lines: too many lines or bytes.]",
    ],
)
def test_truncation_markers_are_recognised(text: str) -> None:
    for form in (codex_builder.command_output, codex_builder.json_output):
        assert parsed_output(form(text)).truncated
    assert not parsed_output(codex_builder.command_output("all of it")).truncated
    quoted = "[Output truncated after 256 lines: too many lines or bytes.] is how it ends"
    assert not parsed_output(codex_builder.json_output(quoted)).truncated


def test_text_without_a_header_is_unchanged() -> None:
    for text in ("Plan updated", "Exit codes: many", '{"output": 7}', '{"results": []}', ""):
        result = parsed_output(text)
        assert (result.text, result.exit_code, result.has_header) == (text, None, False)


def test_output_without_a_call_id_is_context_for_the_model_and_not_a_result() -> None:
    rollout = RolloutBuilder().prompt("go")
    rollout.output(rollout.call("exec_command", {"cmd": "ls"}), codex_builder.command_output("x", code=0))
    context = {"type": "function_call_output", "id": "fco_1", "name": "goal_objective", "output": "do it"}
    line = {"timestamp": "2026-03-02T10:20:40.000Z", "type": "response_item", "payload": context}
    transcript = read(BytesSource(rollout.data() + json.dumps(line).encode() + b"\n", "rollout-x.jsonl"))

    assert [span.state for span in transcript.spans] == ["succeeded"]
    assert not transcript.findings
    assert [(message.voice, message.text) for message in transcript.messages()][-1] == ("injected", "do it")
