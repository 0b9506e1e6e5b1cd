"""Content blocks in an agent loop: builders, calls of a reply, parsed results."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolspan.formats import json_repair
from toolspan.formats.blocks import (
    ExtractedCall,
    Handling,
    ParsedResult,
    SeedType,
    ToolUse,
    edit,
    extract,
    multi_edit,
    parse_result,
    tool_use,
    write,
)
from toolspan.formats.source import BytesSource
from toolspan.reading.transcript import read

READ_FIRST = "File has not been read yet. Read it first before writing to it."
PERMISSION_TIMEOUT = (
    "Error calling tool (MultiEdit): MCP error -32603: failed to evaluate permission: request timed out after 2m0s"
)
NO_RESPONSE = "Error calling tool (Edit): MCP error -32603: failed to evaluate permission: no response received"


def tagged(text: str) -> str:
    return f"<tool_use_error>{text}</tool_use_error>"


def result(content: object, *, is_error: object = True, id: str = "toolu_1") -> dict[str, object]:
    return {"type": "tool_result", "tool_use_id": id, "content": content, "is_error": is_error}


def parsed(result: object, tool: str = "") -> ParsedResult:
    (only,) = parse_result(result, tool=tool)
    return only


@pytest.mark.parametrize(
    ("content", "text", "seed_type", "handling"),
    [
        (tagged(READ_FIRST), READ_FIRST, "READ_REQUIRED", "read_first"),
        # The reference's code looks for "timeout" and misses "timed out", its main example.
        (tagged(PERMISSION_TIMEOUT), PERMISSION_TIMEOUT, "TIMEOUT", "retry_with_fallback"),
        (tagged("permission timeout"), "permission timeout", "TIMEOUT", "retry_with_fallback"),
        ("permission timeout", "permission timeout", "TIMEOUT", "fail"),
        (tagged("timeout: no response received"), "timeout: no response received", "TIMEOUT", "retry_with_fallback"),
        (tagged(NO_RESPONSE), NO_RESPONSE, "MCP_NO_RESPONSE", "fail"),
        (
            tagged("Error calling tool (Edit): fetch failed"),
            "Error calling tool (Edit): fetch failed",
            "NETWORK_ERROR",
            "fail",
        ),
        (tagged("old_string not found in file"), "old_string not found in file", "VALIDATION_ERROR", "fail"),
        # Its pattern for the tags does not go beyond one line.
        (tagged("first line\ntimeout"), "first line\ntimeout", "TIMEOUT", "retry_with_fallback"),
        (tagged("No such tool available"), "No such tool available", None, "fail"),
        ("Exit code 1", "Exit code 1", None, "fail"),
    ],
)
def test_error_has_the_type_and_handling_of_the_reference(
    content: str, text: str, seed_type: SeedType | None, handling: Handling
) -> None:
    actual = parsed(result(content))

    assert (actual.is_error, actual.text) == (True, text)
    assert (actual.seed_type, actual.retry) == (seed_type, handling)


@pytest.mark.parametrize("text", ["Todos have been modified successfully...", "connect timeout is 5", tagged("seen")])
def test_success_is_not_an_error_whatever_its_text(text: str) -> None:
    # The reference's code calls the second one a TIMEOUT; we differ on purpose.
    assert parsed(result(text, is_error=False)) == ParsedResult(
        call_id=parsed(result("")).call_id, is_error=False, text=text, retry="success"
    )


@pytest.mark.parametrize(
    ("tool", "content", "kind"),
    [
        ("", tagged(READ_FIRST), "read_required"),
        ("Write", tagged(READ_FIRST), "read_required"),
        ("", tagged(PERMISSION_TIMEOUT), "permission_timeout"),
        ("", tagged(NO_RESPONSE), "mcp_no_response"),
        ("", tagged("Error calling tool (Edit): fetch failed"), "network"),
        ("", tagged("old_string not found in file"), "no_match"),
        ("", tagged("Error calling tool (Edit): No changes to make"), "no_change"),
        ("", tagged("No such tool available"), "unknown_tool"),
        ("", "Exit code 1\ncat: a: No such file or directory", "command_failed"),
        ("Bash", "Exit code 143\nCommand timed out after 2m 0s", "command_timeout"),
        ("Read", tagged("File does not exist."), "not_found"),
        ("", "none of the above", "unknown"),
    ],
)
def test_error_has_an_error_kind(tool: str, content: str, kind: str) -> None:
    assert parsed(result(content), tool).error_kind == kind


@pytest.mark.parametrize(
    ("tool", "content", "seed_type"),
    [
        ("Bash", "Exit code 1\nE   socket timeout, fetch failed", None),
        ("Read", tagged("File does not exist: /w/timeout.py"), None),
        ("Edit", tagged("String to replace not found in file.\nString: timeout = 5"),
         "VALIDATION_ERROR"),
        ("Bash", tagged("InputValidationError: `timeout` should be a number"), None),
    ],
)  # fmt: skip
def test_unrelated_error_that_mentions_a_timeout_is_not_one(
    tool: str, content: str, seed_type: SeedType | None
) -> None:
    actual = parsed(result(content), tool)

    assert (actual.seed_type, actual.retry) == (seed_type, "fail")


@pytest.mark.parametrize(
    ("is_error", "content", "code"),
    [
        (True, "Exit code 2\nno rule", 2),
        (True, "Error: Exit code -1", -1),
        (False, "PASS\n\n[Exit code: 0]", 0),
        (False, "PASS\n[Exit code: 3]\n\n<system-reminder>\nbe brief\n</system-reminder>", 3),
        (False, "the word [Exit code: 0] in the middle", None),
        (True, "Exit code " + "9" * 5_000, None),
    ],
)
def test_exit_code_is_read_from_the_first_or_the_last_line(is_error: bool, content: str, code: int | None) -> None:
    assert parsed(result(content, is_error=is_error)).exit_code == code


def test_file_text_is_kept_and_has_no_exit_code() -> None:
    parsed_result = parsed(result("     1→[Exit code: 3]", is_error=False), "Read")

    assert (parsed_result.text, parsed_result.exit_code) == ("     1→[Exit code: 3]", None)


def test_result_without_flag_is_an_error_only_if_fully_tagged() -> None:
    flagless = {"type": "tool_result", "tool_use_id": "toolu_1"}

    assert parsed({**flagless, "content": tagged(READ_FIRST)}).retry == "read_first"
    assert parsed({**flagless, "content": f"1\t{tagged(READ_FIRST)}"}).retry == "success"
    assert parsed({**flagless, "content": "Error: none"}).retry == "success"
    assert parsed(result(tagged(READ_FIRST), is_error=None)).is_error
    assert not parsed(result(tagged(READ_FIRST), is_error="true")).is_error


BLOCKS = [
    {"type": "text", "text": "between"},
    result("fine", is_error=False, id="a"),
    result([{"type": "text", "text": tagged("one\ntimeout")}, {"type": "image"}], id="b"),
    result(None, id="c"),
    {"type": "web_search_tool_result", "tool_use_id": "d", "content": []},
]


@pytest.mark.parametrize(
    "result",
    [
        BLOCKS,
        {"role": "user", "content": BLOCKS},
        {"type": "user", "message": {"role": "user", "content": BLOCKS}, "uuid": "u"},
        {"type": "user", "message": {"content": BLOCKS}, "session_id": "s"},
    ],
)
def test_results_are_read_from_messages_records_and_lists(result: object) -> None:
    assert [(each.call_id, each.text, each.retry) for each in parse_result(result)] == [
        ("a", "fine", "success"),
        ("b", "one\ntimeout\n[image]", "retry_with_fallback"),
        ("c", "", "fail"),
    ]


def test_documented_result_needs_neither_type_nor_id() -> None:
    actual = parsed({"content": tagged(READ_FIRST), "is_error": True})

    assert (actual.call_id, actual.error_kind) == (None, "read_required")


def test_tools_may_be_given_by_call_id() -> None:
    reply = [tool_use("Bash", {}, id="a"), tool_use("Read", {}, id="b")]
    results = [result("x\n[Exit code: 1]", is_error=False, id=each) for each in ("b", "a", "c")]
    tools = {str(call.id): call.tool for call in extract(reply)}

    assert [each.exit_code for each in parse_result(results, tool=tools)] == [None, 1, 1]


@pytest.mark.parametrize(
    "result",
    [None, "", "timeout", 7, [], {}, [[]], {"content": "hi"}, {"role": "user", "content": "hi"},
     {"type": "user", "message": None}, {"type": "user", "message": {"content": None}},
     {"type": "assistant", "message": {"content": [{"type": "text", "text": "hi"}]}},
     {"toolUseResult": {}}, {"type": ["tool_result"]}],
)  # fmt: skip
def test_values_without_results_or_calls_give_none(result: object) -> None:
    assert parse_result(result) == ()
    assert extract(result) == ()


def test_reader_and_parser_agree_on_errors() -> None:
    request = {"type": "assistant", "message": {"content": [edit("f", "a", "b")]}}
    (call,) = extract(request)
    answer = {"type": "user", "message": {"content": [result(tagged(READ_FIRST), id=call.id or "")]}}
    lines = b"".join(json_repair.encode_document(line) + b"\n" for line in (request, answer))
    (span,) = read(BytesSource(lines)).spans
    (actual,) = parse_result(answer, tool=call.tool)

    assert (span.id, span.tool) == (call.id, call.tool)
    assert (span.error_kind, span.message) == (actual.error_kind, actual.text)


def input_of(block: ToolUse, name: str) -> dict[str, Any]:
    assert list(block) == ["type", "id", "name", "input"]
    assert (block["type"], block["name"]) == ("tool_use", name)
    assert re.fullmatch(r"toolu_[0-9A-Za-z]{24}", block["id"])
    return block["input"]


def test_block_is_built_for_any_tool() -> None:
    assert input_of(tool_use("LS", {"path": "p"}), "LS") == {"path": "p"}
    assert tool_use("LS", {"path": "p"}, id="toolu_1") == {
        "type": "tool_use", "id": "toolu_1", "name": "LS", "input": {"path": "p"},
    }  # fmt: skip


def test_edit_is_built_with_explicit_defaults() -> None:
    once = {"file_path": "f", "old_string": "a", "new_string": "b", "replace_all": False}

    assert input_of(edit("f", "a", "b"), "Edit") == once
    assert input_of(edit("f", "a", "b", replace_all=True), "Edit") == {**once, "replace_all": True}
    assert input_of(edit(Path("f"), "a", "b"), "Edit") == once


@pytest.mark.parametrize(
    "edits",
    [
        [{"old": "a", "new": "b"}, {"old": "c", "new": "d", "replaceAll": True}],
        [("a", "b"), {"old_string": "c", "new_string": "d", "replace_all": True}],
        [["a", "b"], {"new_string": "d", "replace_all": True, "old": "c"}],
        [{"old": "a", "new": "b", "replaceAll": None}, {"old": "c", "new": "d", "replaceAll": True}],
    ],
)
def test_several_edits_are_built_from_pairs_and_either_spelling(edits: list[Any]) -> None:
    expected = {
        "file_path": "f",
        "edits": [
            {"old_string": "a", "new_string": "b", "replace_all": False},
            {"old_string": "c", "new_string": "d", "replace_all": True},
        ],
    }

    assert input_of(multi_edit("f", edits), "MultiEdit") == expected
    assert input_of(multi_edit("f", iter(edits)), "MultiEdit") == expected


def test_empty_write_is_built() -> None:
    assert input_of(write("f", ""), "Write") == {"file_path": "f", "content": ""}


def test_block_does_not_share_its_arguments() -> None:
    todos = [{"content": "a"}]
    block = tool_use("TodoWrite", {"todos": todos})
    todos.append({"content": "b"})

    assert block["input"] == {"todos": [{"content": "a"}]}


def circle() -> dict[str, Any]:
    actual: dict[str, Any] = {}
    actual["self"] = actual
    return actual


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("", {}), ValueError, "name: expected some text, got ''"),
        ((" ", {}), ValueError, "name: expected some text, got ' '"),
        (("LS", {"n": math.nan}), ValueError, "input of LS: expected JSON values: Out of range float"),
        (("LS", circle()), ValueError, "input of LS: expected JSON values: Circular reference"),
        ((None, {}), TypeError, "name: expected a string, got NoneType None"),
        (("LS", None), TypeError, "input of LS: expected a mapping, got NoneType None"),
        (("LS", [("path", "p")]), TypeError, "input of LS: expected a mapping, got list"),
        (("LS", {1: "p"}), TypeError, "input of LS: expected strings as keys, got int 1"),
        (("LS", {"path": Path("p")}), TypeError, "input of LS: expected JSON values: Object of type"),
        (("LS", {"path": b"p"}), TypeError, "input of LS: expected JSON values: Object of type bytes"),
    ],
)
def test_invalid_arguments_are_refused_at_once(arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        tool_use(*arguments)
    with pytest.raises(ValueError, match="id: expected some text"):
        tool_use("LS", {}, id="")


@pytest.mark.parametrize(
    ("edits", "error", "message"),
    [
        ([], ValueError, "edits: expected at least one edit"),
        (None, TypeError, "edits: expected a list of edits, got NoneType"),
        ("ab", TypeError, "edits: expected a list of edits, got str"),
        ({"old": "a", "new": "b"}, TypeError, "edits: expected a list of edits, got dict"),
        (["ab"], TypeError, "edits[0]: expected a pair (old, new) or a mapping, got str 'ab'"),
        ([("a", "b", "c")], TypeError, "edits[0]: expected a pair"),
        ([("a", "b"), ("a", 1)], TypeError, "edits[1].new_string: expected a string, got int 1"),
        ([{"old": "a"}], ValueError, "edits[0]: new_string is missing"),
        ([{"old": "a", "new": "b", "all": True}], ValueError, "got 'all'"),
        ([{"old": "a", "old_string": "a", "new": "b"}], ValueError, "old_string is given twice"),
        ([{"old": "a", "new": "b", "replaceAll": 1}], TypeError, "edits[0].replace_all: expected"),
    ],
)
def test_invalid_edits_are_refused_at_once(edits: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        multi_edit("f", edits)


def test_file_needs_a_name_and_a_text() -> None:
    with pytest.raises(ValueError, match="file_path: expected some text"):
        edit("", "a", "b")
    with pytest.raises(TypeError, match="file_path: expected a string, got bytes"):
        write(b"f", "")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="content: expected a string, got NoneType"):
        write("f", None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="replace_all: expected true or false, got str"):
        edit("f", "a", "b", replace_all="no")  # type: ignore[arg-type]


def test_ten_thousand_ids_are_unique() -> None:
    assert len({tool_use("LS", {})["id"] for _ in range(10_000)}) == 10_000


REPLY = [
    {"type": "text", "text": "x"},
    {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"file_path": "f"}},
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
]


@pytest.mark.parametrize(
    "result",
    [
        {"content": REPLY},
        {"type": "message", "role": "assistant", "content": REPLY},
        {"type": "assistant", "message": {"role": "assistant", "content": REPLY}},
        REPLY,
        REPLY[1],
    ],
)
def test_calls_of_a_reply_are_those_to_run(result: object) -> None:
    (call,) = extract(result)

    assert (call.id, call.tool, call.params) == ("toolu_1", "Read", {"file_path": "f"})


@pytest.mark.parametrize("input", [None, [], "{", 0])
def test_call_may_lack_any_field(input: object) -> None:
    nothing = ExtractedCall(id=None, tool="", params={})

    assert extract([{"type": "tool_use"}]) == (nothing,)
    assert extract([{"type": "tool_use", "id": 7, "name": None, "input": input}]) == (nothing,)


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=12
)
TYPES = st.sampled_from(["tool_use", "tool_result", "text", "user"]) | JSON
KEYS = ("content", "id", "input", "is_error", "message", "name", "role", "tool_use_id", "type")
BLOCKLIKE = st.fixed_dictionaries(
    {"type": TYPES, "is_error": st.booleans() | JSON, "content": st.text() | JSON},
    optional=dict.fromkeys(("id", "input", "name", "tool_use_id"), JSON),
)
MESSAGELIKE = st.fixed_dictionaries(
    {"content": st.lists(BLOCKLIKE | JSON, max_size=4)}, optional={"role": JSON, "type": TYPES}
)
ANYTHING = (
    JSON
    | st.dictionaries(st.sampled_from(KEYS), JSON)
    | BLOCKLIKE
    | MESSAGELIKE
    | st.fixed_dictionaries({"type": TYPES, "message": MESSAGELIKE})
)


@given(ANYTHING, st.text())
def test_foreign_values_never_raise(result: object, tool: str) -> None:
    for each in parse_result(result, tool=tool):
        assert each.is_error == (each.error_kind is not None) == (each.retry != "success")
    extract(result)


@given(st.text(min_size=1).filter(str.strip), st.dictionaries(st.text(), JSON, max_size=4))
def test_built_blocks_can_be_extracted(name: str, params: dict[str, Any]) -> None:
    block = tool_use(name, params)
    (call,) = extract({"role": "assistant", "content": [block]})

    assert (call.id, call.tool, call.params) == (block["id"], name, params)
