"""Waits are known from the hook log."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import toolspan
from tests.requirement import requirement
from toolspan.analysis.timing import (
    TIME_PARTS,
    HookTimings,
    TimeSlice,
    TimeSplit,
    file_time,
    parse_hook_timings,
    split_transcript,
)
from toolspan.export.session_export import SessionExport
from toolspan.formats.claude.paths import hook_log_path
from toolspan.reading.cache import compute_file_stamp
from toolspan.testing import TranscriptBuilder, claude_results

UNSAID: dict[str, Any] = {"decision": {}}
BEGIN = datetime.fromisoformat("2026-11-02T09:00:00Z").timestamp()


def note(after_s: float, event: str, call: str | None = None, **more: object) -> bytes:
    row = {"v": 1, "at": BEGIN + after_s, "event": event, "tool": "Bash", "input": "a", **more}
    return json.dumps(row if call is None else {**row, "call": call}).encode()


def asked_about(call: str) -> list[bytes]:
    """Somebody was asked about a call, and it ran for four seconds."""
    return [
        note(1.1, "PreToolUse", call),
        note(1.2, "PermissionRequest"),
        note(20.9, "PostToolUse", call, duration_ms=4_000),
    ]


def write_session(folder: Path, after_ms: int = 0) -> tuple[Path, str]:
    """A session whose call came after a while and took twenty seconds, and the call's id."""
    builder = TranscriptBuilder().prompt("go")
    call = builder.call("Bash", {"command": "make"}, after_ms=after_ms)
    builder.result(call, replace(claude_results.ran("ok"), **UNSAID), after_ms=20_000)
    return builder.write(folder / "s.jsonl"), call


def noted(path: Path, *lines: bytes) -> None:
    hook_log_path(path).parent.mkdir(parents=True, exist_ok=True)
    hook_log_path(path).write_bytes(b"\n".join(lines) + b"\n")


@requirement("hook.waits")
def test_a_recorded_prompt_gives_the_exact_wait(tmp_path: Path) -> None:
    path, call = write_session(tmp_path, after_ms=1_000)
    (before,) = file_time(str(path)).agents[0].calls
    assert (before.certainty, before.wait_ms) == ("unknown", None)
    noted(path, *asked_about(call))

    (timings,) = file_time(str(path)).agents[0].calls

    assert (timings.certainty, timings.wait_ms) == ("known", 15_700)
    parts = split_transcript(toolspan.read(path))
    assert {part: parts.part_ms(part) for part in TIME_PARTS if parts.part_ms(part)} == {
        "model": 1_000,
        "permission": 15_700,
        "tools": 4_300,
    }


@requirement("hook.waits")
def test_an_export_has_the_same_times_as_the_report(tmp_path: Path) -> None:
    path, call = write_session(tmp_path, after_ms=1_000)
    noted(path, *asked_about(call))
    rows = SessionExport([toolspan.read(path)])
    (record,) = rows.calls()
    (reported,) = file_time(str(path)).agents

    assert record.wait_certainty == reported.calls[0].certainty == "known"
    assert {item.phase: item.end - item.start for item in record.phases} == {
        "queued": 200,
        "permission": 15_700,
        "run": 4_100,
    }
    parts = TimeSplit.from_slices(TimeSlice(item.start, item.end, item.part) for item in rows.header.slices)
    assert parts == TimeSplit.from_slices(reported.slices)


@requirement("hook.waits")
def test_a_call_without_a_prompt_has_no_wait(tmp_path: Path) -> None:
    path, call = write_session(tmp_path)
    noted(path, note(0.1, "PreToolUse", call), note(20, "PostToolUse", call, duration_ms=19_000))
    (timings,) = file_time(str(path)).agents[0].calls
    assert (timings.certainty, timings.wait_ms, timings.run_ms) == ("known", 0, 20_000)


@requirement("hook.waits")
def test_a_pause_without_a_recorded_prompt_is_not_a_known_wait(tmp_path: Path) -> None:
    path, call = write_session(tmp_path)
    noted(path, note(1, "PreToolUse", call), note(20, "PostToolUse", call, duration_ms=4_000))
    (timings,) = file_time(str(path)).agents[0].calls
    assert (timings.certainty, timings.wait_ms) == ("inferred", 15_000)


@requirement("hook.waits")
def test_the_wait_is_unknown_without_the_duration_of_the_tool(tmp_path: Path) -> None:
    path, call = write_session(tmp_path)
    noted(path, note(0.1, "PreToolUse", call), note(20, "PostToolUse", call))
    (timings,) = file_time(str(path)).agents[0].calls
    assert timings.certainty == "unknown"


@requirement("hook.waits")
def test_prompts_are_assigned_to_calls_by_tool_and_input() -> None:
    timings = parse_hook_timings(
        [
            note(1, "PreToolUse", "a", input="x"),
            note(2, "PreToolUse", "b", input="y"),
            note(3, "PreToolUse", "c", tool="Edit"),
            note(4, "PermissionRequest", input="x"),
            note(5, "PermissionRequest", input="changed by a hook"),
            note(6, "PermissionRequest", tool="Write"),
            note(7, "PostToolUse", "b", duration_ms=500),
            note(8, "PermissionRequest", input="y"),
        ]
    )
    start = round(BEGIN * 1000)
    assert timings == {
        "a": HookTimings(announced=start + 1_000, prompted=start + 4_000),
        "b": HookTimings(announced=start + 2_000, prompted=start + 5_000, ended=start + 7_000, ran_ms=500),
        "c": HookTimings(announced=start + 3_000),
    }


@requirement("hook.waits")
@given(st.lists(st.binary(max_size=40) | st.builds(
    note,
    st.floats(allow_nan=True, allow_infinity=True) | st.floats(0, 100),
    st.sampled_from(["PreToolUse", "PermissionRequest", "PostToolUse", "Stop", ""]),
    st.sampled_from(["a", "b", None]),
    duration_ms=st.floats() | st.none() | st.text(max_size=3),
)))  # fmt: skip
def test_no_content_of_the_hook_log_raises(lines: list[bytes]) -> None:
    parse_hook_timings(lines)


@requirement("hook.waits")
def test_the_hook_log_is_not_a_transcript_and_is_read_again_when_it_grows(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("go").text("yes")
    path = builder.write(tmp_path / "projects" / "p" / "s.jsonl")
    before = compute_file_stamp(path)
    noted(path, note(1, "Stop"))
    assert [item.file for item in toolspan.transcripts(tmp_path)] == [str(path)]
    assert compute_file_stamp(path) != before
    agent = path.with_suffix("") / "subagents" / "agent-1.jsonl"
    assert hook_log_path(agent) == hook_log_path(path)
