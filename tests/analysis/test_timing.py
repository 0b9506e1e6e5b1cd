"""Every instant of a conversation belongs to exactly one part. Waits are known from the hook log."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import toolspan
from tests.requirement import requirement
from toolspan.analysis.file_time import TIME_JOB, TIMES, WAITS, FileWaits
from toolspan.analysis.timesheet import Timesheet, slowest_calls, time_by_tool
from toolspan.analysis.timing import (
    TIME_PARTS,
    CallTime,
    HookTimings,
    TimeSlice,
    TimeSplit,
    measure_agent,
    parse_hook_timings,
    split_transcript,
)
from toolspan.export.session_export import SessionExport
from toolspan.formats.side_files import hook_log_path
from toolspan.formats.source import BytesSource
from toolspan.reading.cache import compute_file_stamp
from toolspan.reading.facts import FileReading
from toolspan.reading.timeline import build_timeline
from toolspan.reading.transcript import read_content
from toolspan.testing import TranscriptBuilder, claude_results

UNSAID: dict[str, Any] = {"decision": {}}
"""The client recorded nothing about consent."""


def parts(split: TimeSplit) -> dict[str, int]:
    return {part: split.part_ms(part) for part in TIME_PARTS if split.part_ms(part)}


def times(builder: TranscriptBuilder, tmp_path: Path) -> list[CallTime]:
    return list(TIME_JOB.run(str(builder.write(tmp_path / "s.jsonl"))).agents[0].calls)


def sheet(*paths: Path) -> Timesheet:
    return Timesheet.from_files(TIME_JOB.run(str(path)) for path in paths)


def test_time_is_split_into_model_tools_and_user(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("go")
    call = builder.call("Bash", {"command": "make"}, after_ms=3_000)
    builder.result(call, claude_results.ran("ok"), after_ms=10_000).text("done", after_ms=2_000)
    builder.prompt("more", after_ms=60_000).text("yes", after_ms=1_000)

    split = split_transcript(toolspan.read(builder.write(tmp_path / "s.jsonl")))

    assert parts(split) == {"model": 6_000, "tools": 10_000, "idle": 60_000}
    assert split.wall_ms == 76_000
    assert split.ended == datetime(2026, 11, 2, 9, 1, 16, tzinfo=UTC)


def test_calls_that_overlap_are_counted_once_on_the_clock_and_each_in_full(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("go")
    first = builder.call("Bash", {"command": "a"})
    second = builder.call("Bash", {"command": "b"})
    builder.result(first, claude_results.ran("1"), after_ms=4_000)
    builder.result(second, claude_results.ran("2"), after_ms=1_000)

    (session,) = sheet(builder.write(tmp_path / "s.jsonl")).sessions

    assert parts(session.main.split) == {"tools": 5_000}
    assert session.main.calls_ms == 9_000


def test_the_whole_time_of_a_denied_call_is_a_known_wait(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("go")
    call = builder.call("Bash", {"command": "rm x"})
    builder.result(call, claude_results.rejected("no"), after_ms=30_000)

    (split,) = times(builder, tmp_path)

    assert (split.wait_ms, split.certainty, split.run_ms) == (30_000, "known", None)
    assert parts(split_transcript(toolspan.read(tmp_path / "s.jsonl"))) == {"permission": 30_000}


def test_a_tool_that_only_asks_the_user_is_a_wait(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("go")
    call = builder.call("AskUserQuestion", {"questions": []})
    builder.result(call, "blue", after_ms=45_000)

    assert parts(split_transcript(toolspan.read(builder.write(tmp_path / "s.jsonl")))) == {"permission": 45_000}


def test_a_wait_is_only_inferred_if_the_tool_reports_its_duration(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("go")
    silent = builder.call("Bash", {"command": "make"})
    builder.result(silent, replace(claude_results.ran("ok"), **UNSAID), after_ms=20_000)
    rows = builder.call("Glob", {"pattern": "*"})
    split = replace(claude_results.matched_paths(["a"], took_ms=500), **UNSAID)
    builder.result(rows, split, after_ms=20_000)

    unknown, inferred = times(builder, tmp_path)

    assert (unknown.wait_ms, unknown.certainty, unknown.run_ms) == (None, "unknown", 20_000)
    assert (inferred.wait_ms, inferred.certainty, inferred.run_ms) == (19_500, "inferred", 500)
    assert parts(split_transcript(toolspan.read(tmp_path / "s.jsonl"))) == {"tools": 20_500, "permission": 19_500}


def test_there_is_no_wait_if_the_client_recorded_that_a_rule_decided(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("go")
    call = builder.call("Glob", {"pattern": "*"})
    builder.result(call, claude_results.matched_paths(["a"], took_ms=500), after_ms=20_000)

    (split,) = times(builder, tmp_path)

    assert (split.wait_ms, split.certainty, split.run_ms) == (0, "known", 20_000)


def test_waiting_for_a_sibling_or_the_model_is_not_a_wait_for_permission(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("go")
    glob = builder.call("Glob", {"pattern": "*"})
    bash = builder.call("Bash", {"command": "make"}, after_ms=5_000)  # the model still writes
    builder.result(bash, replace(claude_results.ran("ok"), **UNSAID), after_ms=10_000)
    split = replace(claude_results.matched_paths(["a"], took_ms=100), **UNSAID)
    builder.result(glob, split, after_ms=100)

    calls = {time.call.tool: time for time in times(builder, tmp_path)}

    assert (calls["Glob"].wait_ms, calls["Glob"].certainty) == (0, "inferred")


def test_hooks_are_a_phase_before_the_run_of_the_tool(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("go")
    call = builder.call("Bash", {"command": "make"})
    builder.wait(2_000).hook(call, "PreToolUse", command="check", took_ms=2_000)
    builder.result(call, claude_results.ran("ok"), after_ms=8_000)
    builder.wait(1_000).hook(call, "PostToolUse", command="format", took_ms=1_000)
    builder.text("done", after_ms=3_000)

    split = split_transcript(toolspan.read(builder.write(tmp_path / "s.jsonl")))

    assert parts(split) == {"model": 3_000, "tools": 8_000, "hooks": 3_000}


def test_a_call_that_a_hook_blocked_spent_its_time_there(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("go")
    call = builder.call("Bash", {"command": "rm"})
    builder.result(call, claude_results.blocked_by_hook("Bash", "check", "no"), after_ms=700)

    assert parts(split_transcript(toolspan.read(builder.write(tmp_path / "s.jsonl")))) == {"hooks": 700}


def test_a_result_made_up_on_resume_gives_no_duration(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("go")
    builder.call("Bash", {"command": "make"}, after_ms=1_000)
    builder.resume(after_ms=3_600_000).prompt("go on")

    split = split_transcript(toolspan.read(builder.write(tmp_path / "s.jsonl")))

    assert split.tools_ms == 0


def test_a_subagent_has_its_own_split_and_is_a_running_tool_of_its_parent(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("go")
    call = builder.call("Task", {"description": "look", "prompt": "look around"})
    agent = builder.agent(call).prompt("look around")
    inner = agent.call("Read", {"file_path": "/a"}, after_ms=4_000)
    agent.result(inner, claude_results.read("/a", "a"), after_ms=1_000).text("seen", after_ms=5_000)
    report = claude_results.reported(agent.agent_id, "seen", prompt="look around", calls=1, took_ms=10_000)
    builder.until(agent).result(call, report)
    path = builder.write(tmp_path / "s.jsonl")

    (session,) = sheet(*sorted(tmp_path.rglob("*.jsonl"))).sessions

    assert path.exists()
    assert parts(session.main.split) == {"tools": 10_000}
    assert [parts(item.split) for item in session.agents] == [{"model": 9_000, "tools": 1_000}]


def test_calls_copied_by_a_fork_count_once(tmp_path: Path) -> None:
    builder = TranscriptBuilder(session_id="one").prompt("go").text("yes", after_ms=5_000)
    call = builder.call("Bash", {"command": "make"})
    builder.result(call, claude_results.ran("ok"), after_ms=10_000)
    fork = builder.fork("two").prompt("another way", after_ms=60_000).text("well", after_ms=2_000)
    paths = [builder.write(tmp_path / "one.jsonl"), fork.write(tmp_path / "two.jsonl")]

    report = sheet(*paths)

    assert parts(report.split) == {"model": 7_000, "tools": 10_000, "idle": 60_000}
    assert len(report.calls) == 1


def test_only_the_time_inside_a_window_counts(tmp_path: Path) -> None:
    builder = TranscriptBuilder(start=datetime(2026, 11, 2, 9, tzinfo=UTC)).prompt("go")
    call = builder.call("Bash", {"command": "make"})
    builder.result(call, claude_results.ran("ok"), after_ms=60_000).text("done", after_ms=60_000)
    file = TIME_JOB.run(str(builder.write(tmp_path / "s.jsonl")))

    split = Timesheet.from_files(
        [file], since=datetime(2026, 11, 2, 9, 0, 30, tzinfo=UTC), until=datetime(2026, 11, 2, 9, 1, 10, tzinfo=UTC)
    )

    assert parts(split.split) == {"tools": 30_000, "model": 10_000}


def test_tools_are_ranked_by_their_time_and_calls_by_theirs(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("go")
    for seconds in (1, 3):
        call = builder.call("Bash", {"command": f"sleep {seconds}"})
        builder.result(call, claude_results.ran("ok"), after_ms=seconds * 1_000)
    call = builder.call("Read", {"file_path": "/a"})
    builder.result(call, claude_results.read("/a", "a"), after_ms=10)
    calls = times(builder, tmp_path)

    assert [(row.tool, row.calls, row.total_ms, row.max_ms) for row in time_by_tool(calls)] == [
        ("Bash", 2, 4_000, 3_000),
        ("Read", 1, 10, 10),
    ]
    assert [call.call.target for call in slowest_calls(calls, 2)] == ["sleep 3", "sleep 1"]


START = datetime(2026, 11, 2, 9, tzinfo=UTC)
ZONES = st.sampled_from([UTC, timezone(timedelta(hours=14)), timezone(timedelta(hours=-11)), None])


@st.composite
def stamps(draw: st.DrawFn) -> str | None:
    """Draw a timestamp in any zone, a missing one or an invalid one."""
    odd = draw(st.sampled_from(["time"] * 8 + ["none", "noise"]))
    if odd != "time":
        return None if odd == "none" else "yesterday"
    moment = START + timedelta(milliseconds=draw(st.integers(-40_000, 40_000)))
    zone = draw(ZONES)
    return (moment.astimezone(zone) if zone else moment.replace(tzinfo=None)).isoformat()


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["prompt", "text", "call", "result", "denied", "pre", "post"]),
        st.integers(0, 4),
        stamps(),
        st.integers(0, 90_000),
    ),
    max_size=24,
)


def line(kind: str, n: int, at: str | None, duration_ms: int) -> bytes:
    name = f"toolu_{n}"
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": name, "content": "ok"}
    match kind:
        case "prompt":
            record: dict[str, Any] = {"type": "user", "message": {"content": "go"}}
        case "text":
            content: list[dict[str, Any]] = [{"type": "text", "text": "well"}]
            record = {"type": "assistant", "message": {"content": content}}
        case "call":
            content = [{"type": "tool_use", "id": name, "name": "Glob", "input": {}}]
            record = {"type": "assistant", "message": {"id": f"m{n // 2}", "content": content}}
        case "result":
            structured = {"durationMs": duration_ms, "filenames": []}
            record = {"type": "user", "message": {"content": [block]}, "toolUseResult": structured}
        case "denied":
            record = {"type": "user", "message": {"content": [{**block, "is_error": True}]}}
            record["toolDenialKind"] = "user-rejected"
        case _:
            point = "PreToolUse" if kind == "pre" else "PostToolUse"
            hook = {"type": "hook_success", "toolUseID": name, "hookEvent": point}
            record = {"type": "attachment", "attachment": {**hook, "durationMs": duration_ms}}
    return json.dumps({**record, "timestamp": at}).encode() + b"\n"


def waits_and_times(lines: list[bytes]) -> tuple[FileWaits, FileWaits]:
    reading = FileReading("s.jsonl", transcript=toolspan.read(BytesSource(b"".join(lines))))
    return WAITS.measure(reading), FileWaits.from_times(TIMES.measure(reading))


@given(events=EVENTS)
def test_the_waits_of_calls_are_those_in_the_times(events: list[tuple[str, int, str | None, int]]) -> None:
    waits, in_times = waits_and_times([line(*event) for event in events])

    assert waits == in_times


def test_a_call_of_a_subagent_in_the_same_file_does_not_shorten_a_wait() -> None:
    begin = datetime(2026, 11, 2, 9, tzinfo=UTC)
    at = [(begin + timedelta(seconds=seconds)).isoformat() for seconds in (0, 10, 40, 60)]
    subagent = [line("call", 2, at[1], 0), line("result", 2, at[2], 30_000)]
    marked = [
        text.replace(b"{", b'{"isSidechain": true, "uuid": "u%d", ' % number, 1) for number, text in enumerate(subagent)
    ]
    waits, in_times = waits_and_times([line("call", 0, at[0], 0), *marked, line("result", 0, at[3], 2_000)])

    assert waits == in_times
    assert waits.waits["toolu_0"].wait_ms == 58_000


@given(events=EVENTS)
def test_parts_are_never_negative_and_sum_to_the_wall_time(events: list[tuple[str, int, str | None, int]]) -> None:
    data = b"".join(line(*event) for event in events)

    transcript = toolspan.read(BytesSource(data))
    split = split_transcript(transcript)
    calls = measure_agent(build_timeline([read_content(transcript)])).calls

    assert all(split.part_ms(part) >= 0 for part in TIME_PARTS)
    assert sum(split.part_ms(part) for part in TIME_PARTS) == split.wall_ms
    assert all(min(item.wait_ms or 0, item.run_ms or 0, item.hooks_ms) >= 0 for item in calls)
    if split.began is not None and split.ended is not None:
        assert split.wall_ms == (split.ended - split.began) // timedelta(milliseconds=1)


BEGIN = datetime.fromisoformat("2026-11-02T09:00:00Z").timestamp()


def hook_record(after_s: float, event: str, call: str | None = None, **more: object) -> bytes:
    row = {"v": 1, "at": BEGIN + after_s, "event": event, "tool": "Bash", "input": "a", **more}
    return json.dumps(row if call is None else {**row, "call": call}).encode()


def call_with_prompt(call: str) -> list[bytes]:
    """Return the hook records of a call that waited for permission and ran for four seconds."""
    return [
        hook_record(1.1, "PreToolUse", call),
        hook_record(1.2, "PermissionRequest"),
        hook_record(20.9, "PostToolUse", call, duration_ms=4_000),
    ]


def write_session(folder: Path, after_ms: int = 0) -> tuple[Path, str]:
    """Write a session with a call of twenty seconds; return its path and the call's id."""
    builder = TranscriptBuilder().prompt("go")
    call = builder.call("Bash", {"command": "make"}, after_ms=after_ms)
    builder.result(call, replace(claude_results.ran("ok"), **UNSAID), after_ms=20_000)
    return builder.write(folder / "s.jsonl"), call


def write_hook_log(path: Path, *lines: bytes) -> None:
    hook_log_path(path).parent.mkdir(parents=True, exist_ok=True)
    hook_log_path(path).write_bytes(b"\n".join(lines) + b"\n")


@requirement("hook.waits")
def test_a_recorded_prompt_gives_the_exact_wait(tmp_path: Path) -> None:
    path, call = write_session(tmp_path, after_ms=1_000)
    (before,) = TIME_JOB.run(str(path)).agents[0].calls
    assert (before.certainty, before.wait_ms) == ("unknown", None)
    write_hook_log(path, *call_with_prompt(call))

    (timings,) = TIME_JOB.run(str(path)).agents[0].calls

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
    write_hook_log(path, *call_with_prompt(call))
    rows = SessionExport([toolspan.read(path)])
    (record,) = rows.calls()
    (reported,) = TIME_JOB.run(str(path)).agents

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
    write_hook_log(path, hook_record(0.1, "PreToolUse", call), hook_record(20, "PostToolUse", call, duration_ms=19_000))
    (timings,) = TIME_JOB.run(str(path)).agents[0].calls
    assert (timings.certainty, timings.wait_ms, timings.run_ms) == ("known", 0, 20_000)


@requirement("hook.waits")
def test_a_pause_without_a_recorded_prompt_is_not_a_known_wait(tmp_path: Path) -> None:
    path, call = write_session(tmp_path)
    write_hook_log(path, hook_record(1, "PreToolUse", call), hook_record(20, "PostToolUse", call, duration_ms=4_000))
    (timings,) = TIME_JOB.run(str(path)).agents[0].calls
    assert (timings.certainty, timings.wait_ms) == ("inferred", 15_000)


@requirement("hook.waits")
def test_the_wait_is_unknown_without_the_duration_of_the_tool(tmp_path: Path) -> None:
    path, call = write_session(tmp_path)
    write_hook_log(path, hook_record(0.1, "PreToolUse", call), hook_record(20, "PostToolUse", call))
    (timings,) = TIME_JOB.run(str(path)).agents[0].calls
    assert timings.certainty == "unknown"


@requirement("hook.waits")
def test_prompts_are_assigned_to_calls_by_tool_and_input() -> None:
    timings = parse_hook_timings(
        [
            hook_record(1, "PreToolUse", "a", input="x"),
            hook_record(2, "PreToolUse", "b", input="y"),
            hook_record(3, "PreToolUse", "c", tool="Edit"),
            hook_record(4, "PermissionRequest", input="x"),
            hook_record(5, "PermissionRequest", input="changed by a hook"),
            hook_record(6, "PermissionRequest", tool="Write"),
            hook_record(7, "PostToolUse", "b", duration_ms=500),
            hook_record(8, "PermissionRequest", input="y"),
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
    hook_record,
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
    write_hook_log(path, hook_record(1, "Stop"))
    assert [item.file for item in toolspan.transcripts(tmp_path)] == [str(path)]
    assert compute_file_stamp(path) != before
    agent = path.with_suffix("") / "subagents" / "agent-1.jsonl"
    assert hook_log_path(agent) == hook_log_path(path)


@pytest.mark.parametrize("version", ["2.1.325", "2.0.65", "1.0.60"])
def test_a_long_gap_between_the_records_of_a_subagent_is_not_tool_time(version: str, tmp_path: Path) -> None:
    hour = 3_600_000
    builder = TranscriptBuilder(session_id="s", version=version).prompt("go")
    call = builder.call("Task", {"prompt": "look"}, id="starter", after_ms=1_000)
    agent = builder.agent(call).prompt("look")
    inner = agent.call("Bash", {"command": "ls"}, id="inner", after_ms=2_000)
    agent.result(inner, claude_results.ran("a"), after_ms=3_000).text("seen", after_ms=7 * hour)
    report = claude_results.reported(agent.agent_id, "seen", prompt="look", calls=1, took_ms=1, version=version)
    builder.until(agent).result(call, report, after_ms=1_000).text("done", after_ms=1_000)
    builder.write(tmp_path / "s.jsonl")

    result = sheet(*sorted(tmp_path.rglob("*.jsonl")))

    assert parts(result.split) == {"model": 2_000, "tools": 6_000, "nothing_recorded": 7 * hour}
    assert parts(result.agents[0].split) == {"model": 2_000, "tools": 3_000, "nothing_recorded": 7 * hour}


def test_a_call_that_stops_reporting_progress_is_not_tool_time(tmp_path: Path) -> None:
    minute = 60_000
    builder = TranscriptBuilder(session_id="s", version="2.1.80").prompt("go")
    task = builder.call("Task", {"prompt": "look"}, id="task", after_ms=1_000)
    for _ in range(3):  # the computer sleeps after the third record
        builder.wait(minute).progress(task, "agent_progress", agentId="a1")
    builder.wait(600 * minute).progress(task, "agent_progress", agentId="a1")
    builder.result(task, claude_results.ran("seen"), after_ms=minute)
    for name, pause in (("first", 0), ("silent", 60), ("last", 0)):
        call = builder.call("Bash", {"command": "make"}, id=name, after_ms=1_000)
        if not pause:
            builder.wait(1_000).progress(call, "bash_progress", output="")
        builder.result(call, claude_results.ran("a"), after_ms=pause * minute or 1_000)
    long = builder.call("Grep", {"pattern": "x"}, id="other", after_ms=1_000)  # this tool never reports progress
    builder.result(long, claude_results.ran("a"), after_ms=20 * minute)

    result = sheet(builder.write(tmp_path / "s.jsonl"))

    expected = {"model": 5_000, "tools": 24 * minute + 4_000, "nothing_recorded": 660 * minute}
    assert parts(result.split) == expected


def test_a_long_command_or_a_busy_subagent_is_tool_time(tmp_path: Path) -> None:
    minute = 60_000
    builder = TranscriptBuilder(session_id="s").prompt("go")
    long = builder.call("Bash", {"command": "make"}, id="long", after_ms=1_000)
    builder.result(long, claude_results.ran("a"), after_ms=60 * minute)
    call = builder.call("Task", {"prompt": "look"}, id="starter", after_ms=1_000)
    agent = builder.agent(call).prompt("look")
    for n in range(6):
        inner = agent.call("Bash", {"command": "ls"}, id=f"inner{n}", after_ms=4 * minute)
        agent.result(inner, claude_results.ran("a"), after_ms=9 * minute)
    report = claude_results.reported(agent.agent_id, "seen", prompt="look", calls=6, took_ms=1)
    builder.until(agent).result(call, report).text("done", after_ms=1_000)
    builder.write(tmp_path / "s.jsonl")

    result = sheet(*sorted(tmp_path.rglob("*.jsonl")))

    assert parts(result.split) == {"model": 3_000, "tools": (60 + 6 * 13) * minute}
