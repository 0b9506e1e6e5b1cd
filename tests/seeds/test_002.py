"""Structured results of each tool in document 002: recorded and read."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.integrations.mcp_client.connect import talk
from tests.seeds.conversation import LATEST, Object, Played, call, play
from tests.seeds.test_samples import SAMPLES, assistant_record, result_of, sample, span_of, transcript, user_record
from tests.tools.toolbox import Box, background, opened
from toolspan import coding_tools, diffs
from toolspan.formats import json_repair
from toolspan.formats.claude.narrow import narrow_result
from toolspan.formats.claude.results import (
    BashResult,
    EditResult,
    ErrorText,
    GlobResult,
    GrepResult,
    McpResult,
    ReadImage,
    ReadText,
    TaskOutputResult,
    WriteResult,
)
from toolspan.formats.claude.work_results import AgentResult, TodoResult
from toolspan.runtime.profiles import profile
from toolspan.types.hunk import Hunk

pytestmark = pytest.mark.anyio


def record(played: Played, id: str = "toolu_1") -> object:
    (result,) = (line["toolUseResult"] for line in played.records if line["message"]["content"][0]["tool_use_id"] == id)
    return result


def has_shape(result: object, name: str) -> bool:
    return _fits(result, json.loads((SAMPLES / f"{name}.json").read_bytes()))


def _fits(result: object, shape: object) -> bool:
    if isinstance(shape, Mapping):
        return isinstance(result, Mapping) and all(
            key in result and _fits(result[key], value) for key, value in shape.items()
        )
    if isinstance(shape, list):
        return isinstance(result, list)
    if isinstance(shape, bool) or shape is None:
        return type(result) is type(shape)
    return isinstance(result, int | float) if isinstance(shape, int | float) else isinstance(result, str)


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


@pytest.mark.parametrize("version", ["seed", LATEST])
async def test_successful_command_is_recorded_as_not_an_error(version: str, tmp_path: Path) -> None:
    new = str(tmp_path / "new.txt")
    played = await play(
        tmp_path,
        [call("Bash", command="echo hi")],
        [call("Write", "toolu_2", file_path=new, content="x")],
        version=version,
    )

    first, second = played.results
    assert first["is_error"] is False
    assert "is_error" not in second  # the others leave it out
    assert [span.state for span in played.transcript.spans] == ["succeeded", "succeeded"]


def test_results_have_the_name_of_their_tool() -> None:
    ids = {"toolu_a": "Read", "toolu_b": "Bash"}
    results = [{"type": "tool_result", "tool_use_id": id, "content": id} for id in ids]
    recorded = transcript(
        assistant_record(*(call(name, id) for id, name in ids.items())), user_record(*reversed(results))
    )

    assert {span.id: span.tool for span in recorded.spans if span.result} == ids


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


# Bash


async def test_command_is_recorded_with_its_streams(tmp_path: Path) -> None:
    played = await play(tmp_path, [call("Bash", command="echo out; echo err >&2")])

    assert has_shape(record(played), "S2-17")
    beside = result_of(played.read_span()).structured
    assert isinstance(beside, BashResult)
    assert "out" in beside.stdout
    assert (beside.interrupted, beside.is_image) == (False, False)


async def test_meaningful_exit_code_is_explained(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x\n", encoding="utf-8")
    played = await play(tmp_path, [call("Bash", command="grep y a.txt")])

    beside = result_of(played.read_span()).structured
    assert isinstance(beside, BashResult)
    assert beside.return_code_interpretation == "No matches found"


async def test_background_command_names_its_task(tmp_path: Path) -> None:
    start = call("Bash", command="echo done", run_in_background=True)
    played = await play(tmp_path, [start])

    beside = result_of(played.read_span()).structured
    assert isinstance(beside, BashResult)
    assert beside.background_task_id
    assert beside.background_task_id == result_of(played.span()).background_task


async def test_failed_command_is_an_error_with_its_exit_code(tmp_path: Path) -> None:
    played = await play(tmp_path, [call("Bash", command="echo no; exit 1")])

    (result,) = played.results
    assert (result["is_error"], result["content"]) == (True, "Exit code 1\nno")
    assert record(played) == "Error: Exit code 1\nno"
    assert result_of(played.read_span()).exit_code == 1


# Files


async def test_read_is_recorded_with_its_range(prices: Path, tmp_path: Path) -> None:
    read = call("Read", file_path=str(prices), offset=2, limit=1)
    played = await play(tmp_path, [read])

    assert has_shape(record(played), "S2-22")
    beside = result_of(played.read_span()).structured
    assert isinstance(beside, ReadText)
    assert (beside.file.start_line, beside.file.num_lines, beside.file.content) == (2, 1, "cake,4")
    assert beside.file.total_lines == 4


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = b"".join(b"\0" + b"\x40\x80\xc0" * width for _ in range(height))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


async def test_image_is_recorded_with_its_size(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(png(8, 6))
    played = await play(tmp_path, [call("Read", file_path=str(path))])

    assert has_shape(record(played), "S2-23")
    beside = result_of(played.read_span()).structured
    assert isinstance(beside, ReadImage)
    assert (beside.file.type, beside.file.original_size) == ("image/png", path.stat().st_size)
    assert beside.file.dimensions is not None
    assert (beside.file.dimensions.width, beside.file.dimensions.height) == (8, 6)


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


async def test_new_file_is_recorded_as_created(tmp_path: Path) -> None:
    path = str(tmp_path / "new.csv")
    played = await play(tmp_path, [call("Write", file_path=path, content="tea,3\n")])

    assert has_shape(record(played), "S2-25")
    beside = result_of(played.read_span()).structured
    assert isinstance(beside, WriteResult)
    assert (beside.type, beside.file_path, beside.content) == ("create", path, "tea,3\n")
    assert beside.original_file is None


async def test_overwritten_file_is_recorded_with_its_old_content(prices: Path, tmp_path: Path) -> None:
    before = prices.read_text(encoding="utf-8")
    played = await play(
        tmp_path,
        [call("Read", "toolu_0", file_path=str(prices))],
        [call("Write", file_path=str(prices), content=before.replace("cake,4", "cake,5"))],
    )

    assert has_shape(record(played), "S2-26")
    beside = result_of(played.read_span()).structured
    assert isinstance(beside, WriteResult)
    assert (beside.type, beside.original_file) == ("update", before)
    assert beside.structured_patch == (
        Hunk(old_start=1, old_lines=3, new_start=1, new_lines=3, lines=(" tea,3", "-cake,4", "+cake,5", " soup,6")),
    )


async def test_edit_is_recorded_with_its_texts_and_hunks(prices: Path, tmp_path: Path) -> None:
    before = prices.read_text(encoding="utf-8")
    played = await play(
        tmp_path,
        [call("Read", "toolu_0", file_path=str(prices))],
        [call("Edit", file_path=str(prices), old_string="cake,4", new_string="cake,5\npie,7")],
    )

    assert has_shape(record(played), "S2-29")
    beside = result_of(played.read_span()).structured
    assert isinstance(beside, EditResult)
    assert (beside.replace_all, beside.user_modified) == (False, False)
    (hunk,) = beside.structured_patch
    assert (hunk.old_start, hunk.old_lines, hunk.new_start, hunk.new_lines) == (1, 3, 1, 4)
    assert [line[0] for line in hunk.lines] == [" ", "-", "+", "+", " "]
    after = diffs.apply(beside.structured_patch, before)
    assert after == prices.read_text(encoding="utf-8")
    assert diffs.revert(beside.structured_patch, after) == before


async def test_all_matches_or_a_single_one_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("x x\n", encoding="utf-8")
    look = call("Read", "toolu_0", file_path=str(path))
    both = {"file_path": str(path), "old_string": "x", "new_string": "y"}
    played = await play(
        tmp_path, [look], [call("Edit", "toolu_1", **both)],
        [call("Edit", "toolu_2", **both, replace_all=True)],
    )  # fmt: skip

    assert (played.span("toolu_1").state, played.span("toolu_1").error_kind) == ("failed", "ambiguous_match")
    assert played.span("toolu_2").state == "succeeded"
    assert path.read_text(encoding="utf-8") == "y y\n"


# Lists, tasks, searches


async def test_todo_list_is_recorded_before_and_after(tmp_path: Path) -> None:
    items = sample("S2-33.json")
    played = await play(
        tmp_path, [call("TodoWrite", "toolu_1", todos=items[:1])], [call("TodoWrite", "toolu_2", todos=items)]
    )

    assert record(played, "toolu_2") == {"oldTodos": items[:1], "newTodos": items}
    beside = result_of(played.read_span("toolu_2")).structured
    assert isinstance(beside, TodoResult)
    assert [item.status for item in beside.new_todos] == ["pending", "in_progress", "completed"]


async def test_item_with_an_unknown_status_is_refused(tmp_path: Path) -> None:
    item = {"content": "Bake", "status": "someday", "activeForm": "Baking"}
    played = await play(tmp_path, [call("TodoWrite", todos=[item])])

    assert (played.span().state, played.span().error_kind) == ("failed", "invalid_input")


def test_totals_of_a_subagent_are_read() -> None:
    usage = {"input_tokens": 10, "output_tokens": 20}
    totals = {"totalDurationMs": 1_500, "totalTokens": 30, "totalToolUseCount": 4, "usage": usage}
    result = both("Task", {}, "", toolUseResult={"status": "completed", **totals})

    assert isinstance(result, AgentResult)
    assert (result.total_duration_ms, result.total_tokens, result.total_tool_use_count) == (1_500, 30, 4)
    assert result.usage is not None
    assert (result.usage.input_tokens, result.usage.output_tokens) == (10, 20)


async def test_output_of_a_task_is_recorded(tmp_path: Path) -> None:
    box = Box(tmp_path, coding_tools(profile("seed")), version="seed")
    async with opened(box):
        started = await box.call("Bash", command="echo done; exit 0", run_in_background=True)
        ended = await box.call("TaskOutput", task_id=background(started))

    assert isinstance(ended.structured, dict)
    assert ended.structured.keys() == {"retrieval_status", "task"}
    result = narrow_result("TaskOutput", json_repair.encode_document(ended.structured))
    assert isinstance(result, TaskOutputResult)
    assert result.task is not None
    assert (result.retrieval_status, result.task.status, result.task.exit_code) == ("success", "completed", 0)
    assert result.task.output is not None
    assert "done" in result.task.output


async def test_searches_are_recorded_by_their_mode(prices: Path, tmp_path: Path) -> None:
    only = {"pattern": "cake", "path": str(prices)}
    played = await play(
        tmp_path,
        [call("Glob", "toolu_g", pattern="*.csv")],
        [call("Grep", "toolu_f", **only)],
        [call("Grep", "toolu_l", **only, output_mode="content")],
        [call("Grep", "toolu_c", **only, output_mode="count")],
        [call("Grep", "toolu_n", **{**only, "pattern": ","}, output_mode="content", head_limit=1)],
    )

    assert has_shape(record(played, "toolu_g"), "S2-41")
    names = result_of(played.read_span("toolu_g")).structured
    assert isinstance(names, GlobResult)
    assert (names.num_files, names.truncated) == (1, False)
    items = [result_of(played.read_span(f"toolu_{id}")).structured for id in "flcn"]
    assert [item.mode for item in items if isinstance(item, GrepResult)] == [
        "files_with_matches",
        "content",
        "count",
        "content",
    ]
    files, lines, counts, cut = items
    assert isinstance(files, GrepResult)
    assert isinstance(lines, GrepResult)
    assert isinstance(counts, GrepResult)
    assert isinstance(cut, GrepResult)
    assert (files.num_files, files.content) == (1, None)
    assert lines.content is not None
    assert "cake,4" in lines.content
    assert counts.num_files == 1
    assert (cut.num_lines, cut.applied_limit) == (1, 1)


# MCP


async def test_mcp_server_answers_with_a_list_or_an_error_text(tmp_path: Path) -> None:
    async with talk(tmp_path, version="seed") as conversation:
        good, bad = await conversation.call("echo", n=1), await conversation.call("fail")

    assert (good.span.tool, good.structured) == ("mcp__chaos__echo", [{"type": "text", "text": '{"n": 1}'}])
    assert str(bad.structured).startswith("Error: ")


def test_any_mcp_answer_is_read() -> None:
    blocks = [{"type": "text", "text": "one"}, {"type": "resource", "uri": "mem://x"}]
    listed = both("mcp__db__query", {}, "", toolUseResult=blocks)
    failed = both("mcp__db__query", {}, "", toolUseResult="Error: no such table")

    assert isinstance(listed, McpResult)
    assert len(listed.blocks) == 2
    assert isinstance(failed, ErrorText)


# Hunks


def test_hunks_become_a_unified_diff() -> None:
    hunk = sample("S2-51.json") | {"oldLines": 2, "newLines": 2}
    edited = {"filePath": "f", "oldString": "", "newString": "", "structuredPatch": [hunk]}
    result = both("Edit", {}, "", toolUseResult=edited)

    assert isinstance(result, EditResult)
    assert diffs.unified(result.structured_patch, "f").splitlines()[-4:] == [
        "@@ -6,2 +6,2 @@",
        " unchanged line",
        "-removed line",
        "+added line",
    ]
