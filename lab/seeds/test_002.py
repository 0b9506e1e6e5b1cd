"""Structured results of each tool in document 002: recorded and read."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integrations.mcp_client.connect import talk

from lab.seeds.conversation import Object, Played, call, play
from lab.seeds.test_samples import assistant_record, result_of, sample, span_of, transcript, user_record
from toolspan import diffs
from toolspan.types.results import BashResult, EditResult, ErrorText, McpResult, ReadText

pytestmark = pytest.mark.anyio


def record(played: Played, id: str = "toolu_1") -> object:
    (result,) = (line["toolUseResult"] for line in played.records if line["message"]["content"][0]["tool_use_id"] == id)
    return result


def both(name: str, tool_input: Object, text: str, **fields: object) -> object:
    span = span_of(
        {"type": "tool_use", "name": name, "input": tool_input}, {"type": "tool_result", "content": text}, **fields
    )
    return result_of(span).structured


# In general


def test_result_is_distinguished_from_a_prompt() -> None:
    recorded = transcript(
        {"type": "user", "message": {"role": "user", "content": "Look around"}},
        sample("S2-01.json"),
        sample("S2-03.json"),
    )

    assert [(message.voice, message.text) for message in recorded.messages()] == [("prompt", "Look around")]
    assert [span.state for span in recorded.spans] == ["succeeded"]


def test_record_may_contain_one_call_or_several() -> None:
    first = transcript(assistant_record(call("Bash", "toolu_a")), assistant_record(call("Bash", "toolu_b"))).spans
    several = transcript(assistant_record(call("Bash", "toolu_a"), call("Bash", "toolu_b"))).spans

    assert [span.id for span in first] == [span.id for span in several] == ["toolu_a", "toolu_b"]


def test_results_in_any_order_belong_to_the_call_they_name() -> None:
    ids = {"toolu_a": "Read", "toolu_b": "Bash"}
    results = [{"type": "tool_result", "tool_use_id": id, "content": id} for id in ids]
    recorded = transcript(
        assistant_record(*(call(name, id) for id, name in ids.items())), user_record(*reversed(results))
    )

    assert {span.id: span.tool for span in recorded.spans} == ids
    assert [span.result.text for span in recorded.spans if span.result] == list(ids)


SHAPES: list[tuple[str, object, type | None]] = [
    ("Bash", {"stdout": "x", "stderr": "", "interrupted": False, "isImage": False}, BashResult),
    ("Read", {"type": "text", "file": {"filePath": "f", "content": "x"}}, ReadText),
    ("mcp__db__query", [{"type": "text", "text": "x"}], McpResult),
    ("Bash", "Error: Exit code 1", ErrorText),
    ("Bash", None, None),
]


@pytest.mark.parametrize(("tool", "beside", "kind"), SHAPES)
def test_structured_result_may_have_any_shape(tool: str, beside: object, kind: type | None) -> None:
    result = both(tool, {}, "", toolUseResult=beside)

    assert type(result) is (kind or type(both(tool, {}, "")))


def test_structured_result_may_be_missing() -> None:
    assert both("Bash", {"command": "x"}, "hello") == BashResult(stdout="hello")


# Files


async def test_file_error_is_recorded_as_text(prices: Path, tmp_path: Path) -> None:
    missing = str(tmp_path / "no.csv")
    played = await play(
        tmp_path,
        [call("Read", "toolu_r", file_path=missing)],
        [call("Write", "toolu_w", file_path=str(prices), content="x")],
    )

    assert record(played, "toolu_r") == f"Error: File not found: {missing}"
    assert str(record(played, "toolu_w")).startswith("Error: File has not been read yet.")
    for id in ("toolu_r", "toolu_w"):
        assert isinstance(result_of(played.read_span(id)).structured, ErrorText)


async def test_edit_is_recorded_with_its_texts_and_hunks(prices: Path, tmp_path: Path) -> None:
    before = prices.read_text(encoding="utf-8")
    played = await play(
        tmp_path,
        [call("Read", "toolu_0", file_path=str(prices))],
        [call("Edit", file_path=str(prices), old_string="cake,4", new_string="cake,5\npie,7")],
    )

    beside = result_of(played.read_span()).structured
    assert isinstance(beside, EditResult)
    assert (beside.replace_all, beside.user_modified) == (False, False)
    (hunk,) = beside.structured_patch
    assert (hunk.old_start, hunk.old_lines, hunk.new_start, hunk.new_lines) == (1, 3, 1, 4)
    assert [line[0] for line in hunk.lines] == [" ", "-", "+", "+", " "]
    after = diffs.apply(beside.structured_patch, before)
    assert after == prices.read_text(encoding="utf-8")
    assert diffs.revert(beside.structured_patch, after) == before


# MCP


async def test_mcp_server_answers_with_a_list_or_an_error_text(tmp_path: Path) -> None:
    async with talk(tmp_path, version="seed") as conversation:
        good, bad = await conversation.call("echo", n=1), await conversation.call("fail")

    assert (good.span.tool, good.structured) == ("mcp__chaos__echo", [{"type": "text", "text": '{"n": 1}'}])
    assert str(bad.structured).startswith("Error: ")
