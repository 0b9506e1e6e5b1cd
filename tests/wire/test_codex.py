"""Codex's lines: typed views of every age, and back to equal JSON."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.requirement import requirement
from toolspan.testing.rollouts import Age, RolloutBuilder
from toolspan.wire import codex, codex_document, document
from toolspan.wire.codex import Item, calls_of, tool_of
from toolspan.wire.codex_calls import about, arguments_of, command_line


def story(age: Age) -> RolloutBuilder:
    made = RolloutBuilder(age=age).prompt("Show me the notes")
    call = made.thinking("They are in a file").call("exec_command", {"cmd": "cat notes.txt"})
    made.completed("CommandExecution", call, status="completed", exit_code=0)
    return made.output(call, "Exit code: 0\nOutput:\nmilk").text("Milk").tokens(900, 20, cached=800)


@requirement("codex.roundtrip")
@pytest.mark.parametrize("age", ["bare", "enveloped", "paginated"])
def test_every_line_of_every_age_is_written_again_as_equal_json(age: Age) -> None:
    for line in story(age).lines:
        record = codex.decode(line).entry
        assert record.known, line
        assert document.equal(codex.encode(record, line), line)


KEYS = st.sampled_from(["type", "payload", "call_id", "output", "info", "item", "x", "timestamp"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@requirement("codex.roundtrip")
@given(st.dictionaries(KEYS, JSON, max_size=5))
def test_any_object_at_all_is_written_again_as_equal_json(found: dict[str, object]) -> None:
    line = document.encode(found)
    record, _ = codex.decode(line)
    assert document.equal(codex.encode(record, line), line)


@requirement("codex.unknown")
def test_an_unknown_kind_is_kept_and_known_as_such() -> None:
    for line in (
        b'{"type":"event_msg","payload":{"type":"from_the_future"}}',
        b'{"type":"response_item","payload":{"type":"telepathy_call"}}',
        b'{"type":"weather","payload":{"sun":true}}',
    ):
        record = codex.decode(line).entry
        assert not record.known
        assert record.kind


def test_a_value_of_another_type_is_named_and_the_rest_is_taken() -> None:
    line = b'{"type":"response_item","payload":{"type":"function_call","name":7,"call_id":"c"}}'
    record, odd = codex.decode(line)
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
@requirement("codex.arguments")
def test_arguments_are_json_in_a_string_and_stay_as_written_when_broken(
    arguments: str, expected: object
) -> None:
    line = json.dumps({"type": "function_call", "arguments": arguments, "call_id": "c"}).encode()
    item = codex.decode(line).entry.item
    assert json.loads(arguments_of(item)) == expected


def test_free_text_becomes_the_input_of_an_object() -> None:
    patch = "*** Begin Patch\n*** Update File: src/a.py\n@@\n-x\n+y\n*** End Patch\n"
    line = json.dumps({"type": "custom_tool_call", "name": "apply_patch", "input": patch}).encode()
    item = codex.decode(line).entry.item
    assert json.loads(arguments_of(item)) == {"input": patch}
    assert about(item).words() == "src/a.py"


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
def test_a_command_reads_as_a_person_would_type_it(command: object, line: str | None) -> None:
    assert command_line(command) == line


def test_tools_of_servers_have_their_full_name() -> None:
    assert tool_of(Item(type="function_call", namespace="mcp__files", name="read")) == (
        "mcp__files__read"
    )
    assert tool_of(Item(type="function_call", namespace="agents", name="spawn_agent")) == (
        "spawn_agent"
    )
    assert tool_of(Item(type="web_search_call")) == "web_search"


def test_an_old_message_carries_its_calls() -> None:
    line = b"""{"role":"assistant","content":"","tool_calls":[{"id":"c1","type":"function",
        "function":{"name":"shell","arguments":"{}"}},{"id":"c2"}]}"""
    calls = calls_of(codex.decode(line).entry.item)
    assert [(call.call_id, call.name) for call in calls] == [("c1", "shell"), ("c2", None)]


@requirement("codex.document")
def test_a_document_is_taken_apart_into_items_with_their_places() -> None:
    data = '{\n "session": {"id": "é"},\n "items": [ {"role":"user"}, {"a":["]"]} ]\n}\n'.encode()
    found = codex_document.items(data)
    assert found.session == '{"id": "é"}'.encode()
    assert found.whole
    for line in found.lines:
        assert data[line.offset : line.offset + line.length] == line.data
    assert [json.loads(line.data) for line in found.lines] == [{"role": "user"}, {"a": ["]"]}]


@requirement("codex.document")
def test_of_a_document_that_was_cut_short_the_items_before_the_cut_are_left() -> None:
    found = codex_document.items(b'{"items":[{"role":"user"},{"role":"assi')
    assert not found.whole
    assert len(found.lines) == 1
