"""What hooks noted while a client ran makes waits known."""

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
from toolspan.analysis.phases import HookTimings, parse_hook_timings
from toolspan.analysis.timing import TIME_PARTS, TimeSlice, TimeSplit, file_time, split_transcript
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


def made(folder: Path, after_ms: int = 0) -> tuple[Path, str]:
    """A session whose call came after a while and took twenty seconds, and the call's id."""
    story = TranscriptBuilder().prompt("go")
    call = story.call("Bash", {"command": "make"}, after_ms=after_ms)
    story.result(call, replace(claude_results.ran("ok"), **UNSAID), after_ms=20_000)
    return story.write(folder / "s.jsonl"), call


def noted(path: Path, *lines: bytes) -> None:
    hook_log_path(path).parent.mkdir(parents=True, exist_ok=True)
    hook_log_path(path).write_bytes(b"\n".join(lines) + b"\n")


@requirement("hook.waits")
def test_a_noted_question_is_a_wait_that_is_known_to_the_millisecond(tmp_path: Path) -> None:
    path, call = made(tmp_path, after_ms=1_000)
    (before,) = file_time(str(path)).agents[0].calls
    assert (before.certainty, before.wait_ms) == ("unknown", None)
    noted(path, *asked_about(call))

    (found,) = file_time(str(path)).agents[0].calls

    assert (found.certainty, found.wait_ms) == ("known", 15_700)
    parts = split_transcript(toolspan.read(path))
    assert {part: parts.part_ms(part) for part in TIME_PARTS if parts.part_ms(part)} == {
        "model": 1_000,
        "permission": 15_700,
        "tools": 4_300,
    }


@requirement("hook.waits")
def test_an_export_tells_the_same_times_as_the_report(tmp_path: Path) -> None:
    path, call = made(tmp_path, after_ms=1_000)
    noted(path, *asked_about(call))
    told = SessionExport([toolspan.read(path)])
    (record,) = told.calls()
    (reported,) = file_time(str(path)).agents

    assert record.wait_certainty == reported.calls[0].certainty == "known"
    assert {one.phase: one.end - one.start for one in record.phases} == {
        "queued": 200,
        "permission": 15_700,
        "run": 4_100,
    }
    parts = TimeSplit.from_slices(TimeSlice(one.start, one.end, one.part) for one in told.header.slices)
    assert parts == TimeSplit.from_slices(reported.slices)


@requirement("hook.waits")
def test_a_call_without_a_question_is_known_to_have_waited_for_nobody(tmp_path: Path) -> None:
    path, call = made(tmp_path)
    noted(path, note(0.1, "PreToolUse", call), note(20, "PostToolUse", call, duration_ms=19_000))
    (found,) = file_time(str(path)).agents[0].calls
    assert (found.certainty, found.wait_ms, found.run_ms) == ("known", 0, 20_000)


@requirement("hook.waits")
def test_a_pause_without_a_noted_question_is_no_known_wait(tmp_path: Path) -> None:
    path, call = made(tmp_path)
    noted(path, note(1, "PreToolUse", call), note(20, "PostToolUse", call, duration_ms=4_000))
    (found,) = file_time(str(path)).agents[0].calls
    assert (found.certainty, found.wait_ms) == ("inferred", 15_000)


@requirement("hook.waits")
def test_a_client_that_does_not_tell_how_long_a_tool_ran_leaves_the_wait_unknown(tmp_path: Path) -> None:
    path, call = made(tmp_path)
    noted(path, note(0.1, "PreToolUse", call), note(20, "PostToolUse", call))
    (found,) = file_time(str(path)).agents[0].calls
    assert found.certainty == "unknown"


@requirement("hook.waits")
def test_questions_find_their_calls_by_tool_and_input() -> None:
    found = parse_hook_timings(
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
    assert found == {
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
def test_nothing_in_the_notes_raises(lines: list[bytes]) -> None:
    parse_hook_timings(lines)


@requirement("hook.waits")
def test_notes_are_no_transcript_and_new_ones_are_seen(tmp_path: Path) -> None:
    story = TranscriptBuilder().prompt("go").text("yes")
    path = story.write(tmp_path / "projects" / "p" / "s.jsonl")
    before = compute_file_stamp(path)
    noted(path, note(1, "Stop"))
    assert [one.file for one in toolspan.transcripts(tmp_path)] == [str(path)]
    assert compute_file_stamp(path) != before
    agent = path.with_suffix("") / "subagents" / "agent-1.jsonl"
    assert hook_log_path(agent) == hook_log_path(path)
