"""Calls grouped by error, tool and server."""

from __future__ import annotations

import pytest

from toolspan import read
from toolspan.analysis.errors import group_errors, recovery_by_call
from toolspan.analysis.recovery import ChainEnding
from toolspan.analysis.stats import percentile, server_stats, tool_stats
from toolspan.formats.source import BytesSource
from toolspan.reading.rows import CallRow, make_call_row
from toolspan.testing import TranscriptBuilder, claude_results
from toolspan.testing.claude_results import Body

MISSING = "File does not exist."


def rows_of(builder: TranscriptBuilder) -> list[CallRow]:
    return [make_call_row(span, "s.jsonl") for span in read(BytesSource(builder.data(), "s.jsonl")).spans]


def timed(tool: str, *took_ms: int, body: Body | None = None) -> list[CallRow]:
    builder = TranscriptBuilder().prompt("go")
    for ms in took_ms:
        builder.result(builder.call(tool, {"command": "x"}), body or claude_results.ran("ok"), after_ms=ms)
    return rows_of(builder)


def test_most_frequent_error_comes_first_and_successes_are_left_out() -> None:
    builder = TranscriptBuilder(session_id="s").prompt("go")
    builder.result(builder.call("Bash", {"command": "make"}), claude_results.exited(2, "no rule"))
    for path in ("/a", "/b"):
        builder.result(builder.call("Read", {"file_path": path}), claude_results.failed(MISSING), after_ms=10)
    builder.result(builder.call("Bash", {"command": "ls"}), claude_results.ran("ok"))

    first, second = group_errors(rows_of(builder))

    assert (first.kind, first.tool, first.count) == ("not_found", "Read", 2)
    assert (second.kind, second.tool, second.count) == ("command_failed", "Bash", 1)
    assert first.states == {"failed": 2}
    assert first.first is not None
    assert first.last is not None
    assert first.first < first.last
    assert first.example.target == "/b"  # the last one
    assert (first.recovered, first.recovered_by) == (None, {})  # its output was never read


def test_group_counts_its_recovered_calls() -> None:
    builder = TranscriptBuilder().prompt("go")
    for path in ("/a", "/b", "/c"):
        builder.result(builder.call("Read", {"file_path": path}), claude_results.failed(MISSING))
    rows = rows_of(builder)
    names = [(row.id, row.batch) for row in rows]
    recovered = ChainEnding(failures=names[:1], recovered=True, by="retry_same")
    failed = ChainEnding(failures=names[1:2], recovered=False, by=None)

    (group,) = group_errors(rows, recovery_by_call([recovered, failed]))

    assert (group.count, group.recovered, group.recovered_by) == (3, 1, {"retry_same": 1})


def test_orphan_results_and_open_calls_have_their_own_advice() -> None:
    builder = TranscriptBuilder().prompt("go").result("toolu_gone", "late")
    builder.call("Bash", {"command": "sleep"})
    builder.prompt("and now?")

    result = {group.kind: group for group in group_errors(rows_of(builder))}

    assert set(result) == {"orphan_result", "never_answered"}
    assert result["orphan_result"].tool == "?"
    assert "another file" in result["orphan_result"].cause
    assert result["never_answered"].signature == "never_answered Bash"
    assert "before the result" in result["never_answered"].cause


def test_tools_are_sorted_by_use_and_orphan_results_have_no_tool() -> None:
    builder = TranscriptBuilder().prompt("go").result("toolu_gone", "late")
    builder.result(builder.call("Read", {"file_path": "/a"}), claude_results.failed(MISSING), after_ms=7)
    for _ in range(2):
        builder.result(builder.call("Bash", {"command": "ls"}), claude_results.ran("ok"), after_ms=5)
    builder.call("Glob", {"pattern": "*"})

    stats = tool_stats(rows_of(builder))

    assert [(stat.tool, stat.calls, stat.unsuccessful, stat.timed) for stat in stats] == [
        ("Bash", 2, 0, 2),
        ("Glob", 1, 1, 0),
        ("Read", 1, 1, 1),
    ]
    assert (stats[0].max_ms, stats[0].total_ms) == (5, 10)
    assert (stats[1].p50_ms, stats[1].max_ms, stats[1].pace) == (None, None, "")


@pytest.mark.parametrize(
    ("took_ms", "pace"),
    [
        ((10, 250), "immediate"),
        ((10, 251), "fast"),
        ((10, 1_000), "fast"),
        ((1_000, 1_001), "variable"),
        ((2_000, 2_000, 20_000), "variable"),
        ((2_000, 2_000, 19_999), "slow"),
    ],
)
def test_speed_of_a_tool_is_one_word(took_ms: tuple[int, ...], pace: str) -> None:
    (stats,) = tool_stats(timed("Bash", *took_ms))

    assert stats.pace == pace


@pytest.mark.parametrize(("share", "value"), [(0, 1), (20, 1), (21, 2), (50, 3), (95, 5), (100, 5)])
def test_percentile_is_an_observed_value(share: int, value: int) -> None:
    assert percentile([1, 2, 3, 4, 5], share) == value
    assert percentile([], share) is None


def test_server_sums_up_all_its_tools() -> None:
    lost = claude_results.failed("MCP error -32000: Connection closed")
    rows = [
        *timed("mcp__db__query", 10, 30),
        *timed("mcp__db__list", 20, body=lost),
        *timed("mcp__web__get", 5),
        *timed("Bash", 1),
        *timed("mcp__odd", 1),
    ]

    db, web = server_stats(rows)

    assert (db.server, db.tools, db.calls, db.unsuccessful, db.lost) == ("db", 2, 3, 1, 1)
    assert db.error_kinds == {"mcp_no_response": 1}
    assert (db.p50_ms, db.p95_ms, db.max_ms) == (20, 30, 30)
    assert (web.server, web.calls, web.unsuccessful, web.lost) == ("web", 1, 0, 0)
