"""Analyse transcripts: errors, statistics, time, flows, file history, search and live sessions.

Most modules are pure functions on rows and spans. Only `search` starts a process (ripgrep), and only the bodies
that an analysis needs are read again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolspan.lazy import lazy_exports

if TYPE_CHECKING:
    from toolspan.analysis.compare import compare_sides, find_parting, summarize_side
    from toolspan.analysis.context_size import context_by_tool, join_context
    from toolspan.analysis.errors import group_errors
    from toolspan.analysis.file_history.archive import FileArchive, diff_of_change
    from toolspan.analysis.flows import count_tool_sequences, find_batches, find_flows, find_missed_batches
    from toolspan.analysis.recovery import find_chains
    from toolspan.analysis.stats import server_stats, tool_stats
    from toolspan.analysis.timesheet import Timesheet, slowest_calls, time_by_tool
    from toolspan.analysis.timing import split_transcript
    from toolspan.analysis.usage import filter_requests, group_usage, join_requests


__all__ = [
    "FileArchive",
    "Timesheet",
    "compare_sides",
    "context_by_tool",
    "count_tool_sequences",
    "diff_of_change",
    "filter_requests",
    "find_batches",
    "find_chains",
    "find_flows",
    "find_missed_batches",
    "find_parting",
    "group_errors",
    "group_usage",
    "join_context",
    "join_requests",
    "server_stats",
    "slowest_calls",
    "split_transcript",
    "summarize_side",
    "time_by_tool",
    "tool_stats",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "FileArchive": "file_history.archive",
        "Timesheet": "timesheet",
        "compare_sides": "compare",
        "context_by_tool": "context_size",
        "count_tool_sequences": "flows",
        "diff_of_change": "file_history.archive",
        "filter_requests": "usage",
        "find_batches": "flows",
        "find_chains": "recovery",
        "find_flows": "flows",
        "find_missed_batches": "flows",
        "find_parting": "compare",
        "group_errors": "errors",
        "group_usage": "usage",
        "join_context": "context_size",
        "join_requests": "usage",
        "server_stats": "stats",
        "slowest_calls": "timesheet",
        "split_transcript": "timing",
        "summarize_side": "compare",
        "time_by_tool": "timesheet",
        "tool_stats": "stats",
    },
)
