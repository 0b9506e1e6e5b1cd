"""Analyse transcripts: errors, statistics, time, flows, file history, search and live sessions.

Most modules are pure functions on rows and spans. Only `search` starts a process (ripgrep), and only the bodies
that an analysis needs are read again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolspan.lazy import lazy_exports

if TYPE_CHECKING:
    from toolspan.analysis.errors import group_errors
    from toolspan.analysis.file_history.archive import FileArchive, diff_of_change
    from toolspan.analysis.flows import count_tool_sequences, find_batches, find_flows, find_missed_batches
    from toolspan.analysis.prices import load_prices
    from toolspan.analysis.recovery import find_chains
    from toolspan.analysis.stats import server_stats, tool_stats
    from toolspan.analysis.timesheet import Timesheet, slowest_calls, time_by_tool
    from toolspan.analysis.timing import split_transcript
    from toolspan.analysis.usage import file_usage, group_usage, join_requests


__all__ = [
    "FileArchive",
    "Timesheet",
    "count_tool_sequences",
    "diff_of_change",
    "file_usage",
    "find_batches",
    "find_chains",
    "find_flows",
    "find_missed_batches",
    "group_errors",
    "group_usage",
    "join_requests",
    "load_prices",
    "server_stats",
    "slowest_calls",
    "split_transcript",
    "time_by_tool",
    "tool_stats",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "FileArchive": "file_history.archive",
        "Timesheet": "timesheet",
        "count_tool_sequences": "flows",
        "diff_of_change": "file_history.archive",
        "file_usage": "usage",
        "find_batches": "flows",
        "find_chains": "recovery",
        "find_flows": "flows",
        "find_missed_batches": "flows",
        "group_errors": "errors",
        "group_usage": "usage",
        "join_requests": "usage",
        "load_prices": "prices",
        "server_stats": "stats",
        "slowest_calls": "timesheet",
        "split_transcript": "timing",
        "time_by_tool": "timesheet",
        "tool_stats": "stats",
    },
)
