"""Errors that happened before and the calls that fixed them: `Archive.known_errors`, for agents and hooks.

A text matches a group of unsuccessful calls if it contains the line that explains their cause, with paths, numbers and
names replaced, or if the group contains all its words.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Literal

from msgspec import Struct

from toolspan.analysis.errors import RECOVERY_JOB, ErrorGroup, group_errors, recovery_by_call
from toolspan.analysis.live_sessions import mark_running
from toolspan.analysis.recovery import CHAIN_WORDS, ChainLink, RecoveryChain
from toolspan.archive.answers import Rows
from toolspan.archive.engine import FileEngine
from toolspan.archive.filters import Filter
from toolspan.archive.selection import CallSelection
from toolspan.archive.session import find_call
from toolspan.errors import ToolspanError
from toolspan.reading.history import CallTable
from toolspan.reading.key_lines import normalize_line
from toolspan.reading.rows import CallRow

_MAX_LINES = 400
_MIN_LINE_CHARS = 8
"""Shorter lines, such as `Error`, do not identify a cause."""
_MAX_EXAMINED = 4
"""The number of recovered calls of a group whose sessions are read to describe the fix."""


class Fix(Struct, frozen=True, kw_only=True):
    """How a later call recovered a failed one."""

    call: str
    """The failed call."""
    session: str | None
    at: str | None
    how: str
    """The kind of recovery, such as `retried with changes`."""
    steps: tuple[ChainLink, ...]
    """The calls up to the one that succeeded, which is the last."""


class KnownError(Struct, frozen=True, kw_only=True):
    """A group of unsuccessful calls that matches a text, and the latest fix."""

    group: ErrorGroup
    match: Literal["same", "similar"]
    """`same` if the text contains the line that explains the cause."""
    fix: Fix | None


def find_known_errors(
    engine: FileEngine, call_filter: Filter, text: str = "", *, limit: int = 5, fixes: bool | Collection[str] = True
) -> Rows[KnownError]:
    """Return the errors that a text matches, the same ones before similar ones, each time the latest first.

    Without a text, all errors match. With `fixes`, the sessions of recovered calls are read to describe what fixed
    them; a collection of ids limits that to these groups.
    """
    results, joined = engine.read(RECOVERY_JOB)
    table = CallTable(mark_running(file.facts for file in results))
    rows = CallSelection(table, joined, engine.reporter).filter_calls(call_filter)
    failures = [row for row in rows if row.error_group is not None and row.error_kind != "nothing_found"]
    recoveries = recovery_by_call(ending for file in results for ending in file.endings)
    groups = group_errors(failures, recoveries, names=engine.names)
    matcher = _Matcher(text)
    matches = [(group, match) for group in groups if (match := matcher.match(group)) is not None]
    matches.sort(key=lambda pair: pair[0].last or "", reverse=True)
    matches.sort(key=lambda pair: pair[1] != "same")
    recovered: defaultdict[str | None, list[CallRow]] = defaultdict(list)
    for row in failures:
        ending = recoveries.get((row.id, row.batch))
        if ending is not None and ending.recovered:
            recovered[row.error_group].append(row)
    described = fixes if isinstance(fixes, Collection) else {group.id for group, _ in matches if fixes}
    known = [
        KnownError(
            group=group, match=match, fix=_find_fix(engine, recovered[group.id]) if group.id in described else None
        )
        for group, match in matches[: limit or None]
    ]
    return Rows(known, len(matches))


class _Matcher:
    """A test whether a text is about a group of errors."""

    def __init__(self, text: str) -> None:
        lines = [line.strip() for line in text.splitlines()[:_MAX_LINES] if len(line.strip()) >= _MIN_LINE_CHARS]
        self._lines = {normalize_line(line) for line in lines}
        self._words = text.casefold().split()

    def match(self, group: ErrorGroup) -> Literal["same", "similar"] | None:
        message = group.message or ""
        if self._lines and len(message) >= _MIN_LINE_CHARS and normalize_line(message) in self._lines:
            return "same"
        about = " ".join(filter(None, (group.signature, message, group.kind, group.tool, group.program, group.id)))
        folded = about.casefold()
        return "similar" if all(word in folded for word in self._words) else None


def _find_fix(engine: FileEngine, rows: Sequence[CallRow]) -> Fix | None:
    latest_first = sorted(rows, key=lambda row: row.requested or row.finished or "", reverse=True)
    for row in latest_first[:_MAX_EXAMINED]:
        try:
            chain = find_call(FileEngine([row.file], reporter=engine.reporter), row.id).detail.chain
        except ToolspanError:  # the file has been removed, or the id is not unique
            continue
        if chain is not None and chain.outcome == "recovered":
            steps = tuple(_steps_to_success(chain))
            how = CHAIN_WORDS.get(chain.name or "", "recovered")
            return Fix(call=row.id, session=row.session, at=row.requested or row.finished, how=how, steps=steps)
    return None


def _steps_to_success(chain: RecoveryChain) -> Iterator[ChainLink]:
    last = max((n for n, link in enumerate(chain.links) if link.role == "attempt"), default=-1)
    yield from chain.links[: last + 1]
