"""Is it the same as then? Results and files, without what differs every time.

In: a recorded span, and the one of now. Out: differences, each with a short diff. The copy bears
its recorded name first. Commands print times, durations, ids and addresses, which are taken for
equal; file tools do not, so that nothing is forgiven there. Pure.
"""

import re
from collections.abc import Iterator, Sequence
from difflib import unified_diff

from toolspan.model.live import Finished
from toolspan.model.span import Result, Span
from toolspan.replay.ground import Ground
from toolspan.replay.outcome import Difference
from toolspan.replay.plan import PATCH, SEARCHES, SHELL
from toolspan.report.files.effect import Absent, Content
from toolspan.wire.codex_results import CommandResult

DIFF_LINES = 20
_LONGEST = 200_000
"""Characters of a text that are compared line by line; more would take minutes."""
_REMINDER = re.compile(r"\s*<system-reminder>.*?</system-reminder>", re.DOTALL)
_NUMBERED = re.compile(r"^ *(\d+)(?:→|\t)", re.MULTILINE)
_CHANGING = (
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "<id>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d([.,]\d+)?)?(Z|[+-]\d\d:?\d\d)?"), "<time>"),
    (re.compile(r"\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun)\w*,? \w+ +\d+ \d\d:\d\d:\d\d[^\n]*"), "<time>"),
    (re.compile(r"\b([A-Z][a-z]{2}) +\d{1,2} +(\d\d:\d\d|\d{4})\b"), "<time>"),
    (re.compile(r"\b\d+(\.\d+)? ?(ns|µs|us|ms|s|secs?|seconds?|minutes?)\b"), "<duration>"),
    (re.compile(r"\b0x[0-9a-f]{6,}\b"), "<address>"),
    (re.compile(r"(?<=/tmp/)[\w.-]+"), "<temporary>"),
)


def result_differences(was: Span, now: Finished, ground: Ground) -> Iterator[Difference]:
    """What is different about the result."""
    span = now.span
    if span.state != was.state:
        yield Difference(what="state", recorded=was.state, now=span.state)
    if was.result is None or span.result is None:
        return
    then, here = bool(was.result.is_error), bool(span.result.is_error)
    if then != here and was.call.dialect == "claude":
        yield Difference(what="error flag", recorded=_flag(then), now=_flag(here))
    if span.tool == PATCH:
        return  # its words are ours, not Codex's
    old = normal(_told(was.result), span.tool, ground)
    new = normal(_told(span.result), span.tool, ground)
    if old != new:
        yield Difference(
            what="content", recorded=_brief(old), now=_brief(new), diff=short_diff(old, new)
        )


def file_difference(path: str, was: Content, now: Content | None) -> Difference:
    """A file that holds something else."""
    old, new = _as_text(was), _as_text(now)
    diff = short_diff(old or "", new or "")
    return Difference(
        what="file", path=path, recorded=_presence(was), now=_presence(now), diff=diff
    )


def normal(text: str, tool: str, ground: Ground) -> str:
    """A result without what differs from run to run."""
    text = _REMINDER.sub("", ground.as_recorded(text)).rstrip()
    if tool == "Read":  # client versions put an arrow or a tab behind the numbers of lines
        return _NUMBERED.sub(r"\1\t", text)
    if tool in SEARCHES:  # the order is that of file times, which a copy does not have
        return "\n".join(sorted(text.splitlines()))
    if tool == SHELL:
        for pattern, name in _CHANGING:
            text = pattern.sub(name, text)
    return text


def short_diff(old: str, new: str) -> tuple[str, ...]:
    """The first lines of a diff."""
    if len(old) + len(new) > _LONGEST:
        return (f"{len(old):,} characters then, {len(new):,} now: too many to compare",)
    lines = list(
        unified_diff(old.splitlines(), new.splitlines(), "recorded", "now", lineterm="", n=1)
    )
    more = len(lines) - DIFF_LINES
    shown = lines[: DIFF_LINES + (more == 1)]
    return (*shown, f"… {more:,} more lines") if more > 1 else tuple(shown)


def _told(result: Result) -> str:
    """What the model read; of Codex's commands, what they printed."""
    structured = result.structured
    return structured.output if isinstance(structured, CommandResult) else result.text


def _flag(is_error: bool) -> str:  # noqa: FBT001 - the value itself
    return "error" if is_error else "no error"


def _brief(text: str) -> str:
    lines: Sequence[str] = text.splitlines()
    return f"{len(lines):,} lines" if len(lines) != 1 else lines[0][:200]


def _as_text(content: Content | None) -> str | None:
    return content if isinstance(content, str) else None


def _presence(content: Content | None) -> str:
    if isinstance(content, Absent):
        return "no file"
    return "not a plain file" if content is None else f"{len(content):,} characters"
