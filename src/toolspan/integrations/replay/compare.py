"""Is it the same as then? Results and files, without what differs every time.

In: a recorded span, and the one of now. Out: differences, each with a short diff. The copy bears
its recorded name first. Commands print times, durations, ids and addresses, which are taken for
equal; file tools do not, so that nothing is forgiven there. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
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
    """One thing that is not as it was."""

    what: DifferenceAspect
    path: str | None = None
    """Of a file: as it was recorded."""
    recorded: str = ""
    now: str = ""
    """Both in short; of texts and files the diff says more."""
    diff: tuple[str, ...] = ()


class ReplayOutcome(Struct, frozen=True, kw_only=True):
    """One recorded call, and what came of it this time."""

    call: str
    tool: str
    target: str | None
    agent: str | None
    verdict: ReplayVerdict
    reason: str | None = None
    """Why it was skipped."""
    recorded_state: str
    state: str | None = None
    differences: tuple[ReplayDifference, ...] = ()
    notes: tuple[str, ...] = ()
    """What was done to files so that it could be run as it was then."""


MAX_DIFF_LINES = 20
_MAX_DIFF_CHARS = 200_000
"""Characters of a text that are compared line by line; more would take minutes."""
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


def result_differences(was: Span, now: Finished, mapping: PathMapping) -> Iterator[ReplayDifference]:
    """What is different about the result."""
    span = now.span
    if span.state != was.state:
        yield ReplayDifference(what="state", recorded=was.state, now=span.state)
    if was.result is None or span.result is None:
        return
    recorded_error, current_error = bool(was.result.is_error), bool(span.result.is_error)
    if recorded_error != current_error and get_format(was.call.dialect).records_error_flag:
        yield ReplayDifference(
            what="error flag", recorded=_error_flag_text(recorded_error), now=_error_flag_text(current_error)
        )
    if span.tool == PATCH_TOOL:
        return  # its words are ours, not Codex's
    old = normalize_result(_comparable_text(was.result), span.tool, mapping)
    new = normalize_result(_comparable_text(span.result), span.tool, mapping)
    if old != new:
        yield ReplayDifference(
            what="content", recorded=_summarize_text(old), now=_summarize_text(new), diff=short_diff(old, new)
        )


def file_difference(path: str, was: FileContent, now: FileContent | None) -> ReplayDifference:
    """A file that holds something else."""
    old, new = _text_or_none(was), _text_or_none(now)
    diff = short_diff(old or "", new or "")
    return ReplayDifference(
        what="file", path=path, recorded=_describe_content(was), now=_describe_content(now), diff=diff
    )


def normalize_result(text: str, tool: str, mapping: PathMapping) -> str:
    """A result without what differs from run to run."""
    text = _REMINDER.sub("", mapping.as_recorded(text)).rstrip()
    if tool == "Read":  # client versions put an arrow or a tab behind the numbers of lines
        return _LINE_NUMBER.sub(r"\1\t", text)
    if tool in SEARCH_TOOLS:  # the order is that of file times, which a copy does not have
        return "\n".join(sorted(text.splitlines()))
    if tool == SHELL_TOOL:
        for pattern, name in _VOLATILE_PATTERNS:
            text = pattern.sub(name, text)
    return text


def short_diff(old: str, new: str) -> tuple[str, ...]:
    """The first lines of a diff."""
    if len(old) + len(new) > _MAX_DIFF_CHARS:
        return (f"{len(old):,} characters then, {len(new):,} now: too many to compare",)
    lines = list(unified_diff(old.splitlines(), new.splitlines(), "recorded", "now", lineterm="", n=1))
    more = len(lines) - MAX_DIFF_LINES
    first_lines = lines[: MAX_DIFF_LINES + (more == 1)]
    return (*first_lines, f"… {more:,} more lines") if more > 1 else tuple(first_lines)


def _comparable_text(result: Result) -> str:
    """What the model read; of Codex's commands, what they printed."""
    structured = result.structured
    return structured.output if isinstance(structured, CommandResult) else result.text


def _error_flag_text(is_error: bool) -> str:  # noqa: FBT001 - the value itself
    return "error" if is_error else "no error"


def _summarize_text(text: str) -> str:
    lines: Sequence[str] = text.splitlines()
    return f"{len(lines):,} lines" if len(lines) != 1 else lines[0][:200]


def _text_or_none(content: FileContent | None) -> str | None:
    return content if isinstance(content, str) else None


def _describe_content(content: FileContent | None) -> str:
    if isinstance(content, Absent):
        return "no file"
    return "not a plain file" if content is None else f"{len(content):,} characters"
