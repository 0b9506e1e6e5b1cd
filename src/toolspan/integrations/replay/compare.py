"""Compare the results and files of a replayed call with the recorded ones.

Paths of the copy are mapped back first. Times, durations, ids and addresses in the output of commands are ignored; the
results of file tools must be identical.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import unified_diff
from typing import Literal

from msgspec import Struct

from toolspan.analysis.file_history.content import Absent, FileContent
from toolspan.formats.codex.results import CommandResult
from toolspan.formats.registry import get_format
from toolspan.integrations.replay.plan import PATCH_TOOL, SEARCH_TOOLS, SHELL_TOOL
from toolspan.integrations.replay.scratch import PathMapping
from toolspan.types.events import Finished
from toolspan.types.span import Result, Span

ReplayVerdict = Literal["same", "differs", "skipped"]
DifferenceAspect = Literal["state", "error flag", "content", "file"]


class ReplayDifference(Struct, frozen=True, kw_only=True):
    """One difference between recording and replay."""

    what: DifferenceAspect
    path: str | None = None
    """The recorded path of a file."""
    recorded: str = ""
    now: str = ""
    """Summaries; `diff` contains the differing lines."""
    diff: tuple[str, ...] = ()


class ReplayOutcome(Struct, frozen=True, kw_only=True):
    """The result of replaying one call."""

    call: str
    tool: str
    target: str | None
    agent: str | None
    verdict: ReplayVerdict
    reason: str | None = None
    """The reason why the call was skipped, if it was."""
    recorded_state: str
    state: str | None = None
    differences: tuple[ReplayDifference, ...] = ()
    notes: tuple[str, ...] = ()
    """Notes on files that were restored before the call."""


MAX_DIFF_LINES = 20
_MAX_DIFF_CHARS = 200_000
"""The length above which texts are not compared line by line, because that would take minutes."""
_REMINDER = re.compile(r"\s*<system-reminder>.*?</system-reminder>", re.DOTALL)
_LINE_NUMBER = re.compile(r"^ *(\d+)(?:→|\t)", re.MULTILINE)
_VOLATILE_PATTERNS = (
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "<id>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d([.,]\d+)?)?(Z|[+-]\d\d:?\d\d)?"), "<time>"),
    (re.compile(r"\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun)\w*,? \w+ +\d+ \d\d:\d\d:\d\d[^\n]*"), "<time>"),
    (re.compile(r"\b([A-Z][a-z]{2}) +\d{1,2} +(\d\d:\d\d|\d{4})\b"), "<time>"),
    (re.compile(r"\b\d+(\.\d+)? ?(ns|µs|us|ms|s|secs?|seconds?|minutes?)\b"), "<duration>"),
    (re.compile(r"\b0x[0-9a-f]{6,}\b"), "<address>"),
    (re.compile(r"(?<=/tmp/)[\w.-]+"), "<temporary>"),
)


def result_differences(recorded: Span, finished: Finished, mapping: PathMapping) -> Iterator[ReplayDifference]:
    """Yield the differences between two results."""
    span = finished.span
    if span.state != recorded.state:
        yield ReplayDifference(what="state", recorded=recorded.state, now=span.state)
    if recorded.result is None or span.result is None:
        return
    has_flag = get_format(recorded.call.dialect).records_error_flag
    if has_flag and bool(recorded.result.is_error) != bool(span.result.is_error):
        flags = ("no error", "error")
        yield ReplayDifference(
            what="error flag", recorded=flags[bool(recorded.result.is_error)], now=flags[bool(span.result.is_error)]
        )
    if span.tool == PATCH_TOOL:
        return  # the replayed tool returns another text than Codex
    old = normalize_result(_comparable_text(recorded.result), span.tool, mapping)
    new = normalize_result(_comparable_text(span.result), span.tool, mapping)
    if old != new:
        yield ReplayDifference(
            what="content", recorded=_summarize_text(old), now=_summarize_text(new), diff=short_diff(old, new)
        )


def file_difference(path: str, recorded: FileContent, now: FileContent | None) -> ReplayDifference:
    """Describe a file whose content differs."""
    old, new = (content if isinstance(content, str) else "" for content in (recorded, now))
    return ReplayDifference(
        what="file",
        path=path,
        recorded=_describe_content(recorded),
        now=_describe_content(now),
        diff=short_diff(old, new),
    )


def normalize_result(text: str, tool: str, mapping: PathMapping) -> str:
    """Return a result without the details that vary between runs."""
    text = _REMINDER.sub("", mapping.as_recorded(text)).rstrip()
    if tool == "Read":  # client versions write an arrow or a tab after line numbers
        return _LINE_NUMBER.sub(r"\1\t", text)
    if tool in SEARCH_TOOLS:  # results are ordered by file times, which differ in a copy
        return "\n".join(sorted(text.splitlines()))
    if tool == SHELL_TOOL:
        for pattern, name in _VOLATILE_PATTERNS:
            text = pattern.sub(name, text)
    return text


def short_diff(old: str, new: str) -> tuple[str, ...]:
    """Return the first lines of a diff."""
    if len(old) + len(new) > _MAX_DIFF_CHARS:
        return (f"{len(old):,} characters then, {len(new):,} now: too many to compare",)
    lines = list(unified_diff(old.splitlines(), new.splitlines(), "recorded", "now", lineterm="", n=1))
    more = len(lines) - MAX_DIFF_LINES
    first_lines = lines[: MAX_DIFF_LINES + (more == 1)]
    return (*first_lines, f"… {more:,} more lines") if more > 1 else tuple(first_lines)


def _comparable_text(result: Result) -> str:
    """Return the text that the model received; for commands of Codex, only their output."""
    structured = result.structured
    return structured.output if isinstance(structured, CommandResult) else result.text


def _summarize_text(text: str) -> str:
    lines = text.splitlines()
    return f"{len(lines):,} lines" if len(lines) != 1 else lines[0][:200]


def _describe_content(content: FileContent | None) -> str:
    if isinstance(content, Absent):
        return "no file"
    return "not a plain file" if content is None else f"{len(content):,} characters"
