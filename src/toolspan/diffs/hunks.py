"""Check and count the hunks of a patch without the text that they apply to. Start at `problems`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from toolspan.types.hunk import Hunk

UNCHANGED = " "
REMOVED = "-"
ADDED = "+"
NOTE = "\\"
"""The first character of the "No newline at end of file" line, whose wording depends on the locale."""


class ChangeCount(NamedTuple):
    """The number of lines that a patch adds and removes."""

    added: int
    removed: int


class LinePosition(NamedTuple):
    """A position in both versions of a file, as the number of lines before it."""

    old: int
    new: int


class MissingNewlines(NamedTuple):
    """Flags for the sides of a patch that are marked as ending without a newline."""

    old: bool
    new: bool


def problems(hunks: Sequence[Hunk]) -> tuple[str, ...]:
    """Return one sentence for each problem in the hunks."""
    sentences: list[str] = []
    before = LinePosition(0, 0)
    for number, (hunk, at) in enumerate(zip(hunks, hunk_positions(hunks), strict=True), 1):
        hunk_problems = [*_line_problems(hunk, is_last=number == len(hunks)), *_position_problems(hunk, at, before)]
        sentences += (f"Hunk {number} {problem}." for problem in hunk_problems)
        before = _end_position(hunk, at)
    return tuple(sentences)


def added_removed(hunks: Sequence[Hunk]) -> ChangeCount:
    """Count the lines that the hunks add and remove."""
    firsts = Counter(line[:1] for hunk in hunks for line in hunk.lines)
    return ChangeCount(added=firsts[ADDED], removed=firsts[REMOVED])


def hunk_positions(hunks: Sequence[Hunk]) -> Iterator[LinePosition]:
    """Yield the start of each hunk, in order.

    Clients record the start of an empty side in two ways (the line before or the line after), so it
    is computed from the other side and the end of the previous hunk.
    """
    before = LinePosition(0, 0)
    for hunk in hunks:
        old, new = hunk.old_start - 1, hunk.new_start - 1
        if not hunk.old_lines:
            old = before.old + new - before.new
        elif not hunk.new_lines:
            new = before.new + old - before.old
        yield LinePosition(old, new)
        before = _end_position(hunk, LinePosition(old, new))


def missing_newlines(hunks: Sequence[Hunk]) -> MissingNewlines:
    """Return which sides end without a newline, according to the note lines."""
    lines = hunks[-1].lines if hunks else ()
    last = last_index(lines, {UNCHANGED, ADDED, REMOVED})
    last_new = last_index(lines, {UNCHANGED, ADDED})
    old = new = False
    for index, (line, following) in enumerate(pairwise(lines)):
        if following[:1] != NOTE or line[:1] == NOTE:
            continue
        if line[:1] == UNCHANGED and index == last:
            old = new = True
        elif line[:1] == ADDED and index == last_new:
            new = True
        else:
            # Older versions of jsdiff miscount when lines were added further up, and put the note of
            # the old side above the last old lines.
            old = True
    return MissingNewlines(old, new)


def last_index(lines: Sequence[str], firsts: set[str]) -> int:
    """Return the index of the last line that starts with a character in `firsts`, or -1 if there is none."""
    backwards = range(len(lines) - 1, -1, -1)
    return next((index for index in backwards if lines[index][:1] in firsts), -1)


def _end_position(hunk: Hunk, at: LinePosition) -> LinePosition:
    return LinePosition(at.old + hunk.old_lines, at.new + hunk.new_lines)


def _line_problems(hunk: Hunk, *, is_last: bool) -> Iterator[str]:
    """Yield at most one sentence per kind of problem, because a malformed hunk may have thousands of bad lines."""
    unknown = [n for n, line in enumerate(hunk.lines, 1) if line[:1] not in {UNCHANGED, REMOVED, ADDED, NOTE}]
    if unknown:
        first = hunk.lines[unknown[0] - 1][:1]
        first_text = repr(first) if first else "nothing"
        yield (
            f"has an unknown kind of line {unknown[0]}: expected ' ', '-', '+' or '\\' first, "
            f"found {first_text}{_format_count(unknown)}"
        )
    broken = [n for n, line in enumerate(hunk.lines, 1) if "\n" in line]
    if broken:
        yield f"has a line break inside line {broken[0]}{_format_count(broken)}"
    firsts = Counter(line[:1] for line in hunk.lines)
    if firsts[NOTE] and not is_last:
        yield "notes the end of the file, but another hunk follows"
    if hunk.lines and hunk.lines[0][:1] == NOTE:
        yield "starts with a note, expected a line before it"
    if not hunk.lines:
        yield "has no lines"
    old, new = firsts[UNCHANGED] + firsts[REMOVED], firsts[UNCHANGED] + firsts[ADDED]
    if old != hunk.old_lines:
        yield f"promises {hunk.old_lines} old lines, but has {old}"
    if new != hunk.new_lines:
        yield f"promises {hunk.new_lines} new lines, but has {new}"


def _position_problems(hunk: Hunk, at: LinePosition, before: LinePosition) -> list[str]:
    sides = (("old", hunk.old_start, hunk.old_lines), ("new", hunk.new_start, hunk.new_lines))
    start_problems = [
        f"starts at {side} line {start}, expected at least {int(count > 0)}"
        for side, start, count in sides
        if start < int(count > 0)
    ]
    if start_problems:
        return start_problems
    place = f"starts at old line {hunk.old_start} and new line {hunk.new_start}"
    if at.old < before.old or at.new < before.new:
        end = f"{before.old} and {before.new}"
        return [f"{place}, but the hunk before it ends at {end}: it overlaps that hunk or is out of order"]
    if at.old - before.old != at.new - before.new:
        expected = at.old - before.old + before.new + 1
        return [f"starts at new line {hunk.new_start}, but its old start gives {expected}"]
    old_agrees = hunk.old_lines > 0 or hunk.old_start in {at.old, at.old + 1}
    new_agrees = hunk.new_lines > 0 or hunk.new_start in {at.new, at.new + 1}
    return [] if old_agrees and new_agrees else [f"{place}, which are not the same place"]


def _format_count(numbers: Sequence[int]) -> str:
    return f" (such lines: {len(numbers)})" if len(numbers) > 1 else ""
