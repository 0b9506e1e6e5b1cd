"""Compute the hunks between two versions of a file in the format of editing clients, with three context lines.

The edit is the shortest one by Myers' algorithm. Among equally short edits, the one that removes
lines first is chosen, as in the clients' diffs. If the versions differ in too many lines for an
exact search, the search is limited to the gaps between lines that occur exactly once in both. Start
at `make_hunks`, then `_find_changes`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from toolspan.diffs.hunks import ADDED, REMOVED, UNCHANGED
from toolspan.types.hunk import Hunk

CONTEXT_LINES = 3
_NO_NEWLINE_NOTE = "\\ No newline at end of file"
_SEARCH_BUDGET = 100_000
"""The maximum number of steps in the exact search, chosen so that it takes less than a second."""


class LineChange(NamedTuple):
    """A range of old lines and the range of new lines that replaces it."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int


def make_hunks(old: str, new: str, *, notes: bool = False) -> list[Hunk]:
    """Return the hunks that turn `old` into `new`, or an empty list if they are equal.

    With `notes`, a last line without a newline is followed by a note line.
    """
    if old == new:
        return []
    before, after = _split_lines(old), _split_lines(new)
    groups: list[list[LineChange]] = []
    for change in _find_changes(before, after):
        if groups and change.old_start - groups[-1][-1].old_end <= 2 * CONTEXT_LINES:
            groups[-1].append(change)  # the context lines overlap or touch
        else:
            groups.append([change])
    return [_build_hunk(group, before, after, notes=notes) for group in groups]


def _split_lines(text: str) -> list[str]:
    """Split text into lines, keeping line endings so that a last line with and without a newline differ."""
    lines = text.split("\n")
    last = lines.pop()
    return [f"{line}\n" for line in lines] + ([last] if last else [])


def _build_hunk(group: Sequence[LineChange], before: Sequence[str], after: Sequence[str], *, notes: bool) -> Hunk:
    first, last = group[0], group[-1]
    above = min(CONTEXT_LINES, first.old_start)
    below = min(CONTEXT_LINES, len(before) - last.old_end)
    at = first.old_start - above
    marked: list[str] = []
    for change in group:
        marked += (UNCHANGED + line for line in before[at : change.old_start])
        marked += (REMOVED + line for line in before[change.old_start : change.old_end])
        marked += (ADDED + line for line in after[change.new_start : change.new_end])
        at = change.old_end
    marked += (UNCHANGED + line for line in before[at : at + below])
    lines: list[str] = []
    for line in marked:
        lines.append(line.removesuffix("\n"))
        if notes and not line.endswith("\n"):
            lines.append(_NO_NEWLINE_NOTE)
    return Hunk(
        old_start=first.old_start - above + 1,
        old_lines=last.old_end + below - first.old_start + above,
        new_start=first.new_start - above + 1,
        new_lines=last.new_end + below - first.new_start + above,
        lines=tuple(lines),
    )


def _find_changes(before: Sequence[str], after: Sequence[str]) -> list[LineChange]:
    numbers: dict[str, int] = {}
    old = [numbers.setdefault(line, len(numbers)) for line in before]
    new = [numbers.setdefault(line, len(numbers)) for line in after]
    skip = common_prefix_length(old, new)
    old, new = old[skip:], new[skip:]
    exact = _shortest_edit(old, new, _SEARCH_BUDGET)
    changes = _changes_between_anchors(old, new) if exact is None else exact
    return [LineChange(*(index + skip for index in change)) for change in changes]


def common_prefix_length(old: Sequence[object], new: Sequence[object]) -> int:
    """Return the number of equal items at the start of both sequences."""
    shorter = min(len(old), len(new))
    return next((at for at in range(shorter) if old[at] != new[at]), shorter)


class _EditStep(NamedTuple):
    """A removed or added line on a path through both versions, and the step before it."""

    mark: str
    old: int
    new: int
    previous: _EditStep | None


class _EditPath(NamedTuple):
    """The furthest position that a path reaches, and its last step."""

    old: int
    step: _EditStep | None


def _shortest_edit(old: Sequence[int], new: Sequence[int], budget: int) -> list[LineChange] | None:
    """Find the shortest edit with Myers' greedy search, or return None if it takes more than `budget` steps."""
    if not set(old) & set(new):
        return [LineChange(0, len(old), 0, len(new))] if old or new else []
    search = _MyersSearch(old, new)
    while not search.finished:
        budget -= search.edit_count
        if budget < 0:
            return None
        search.extend_paths()
    changes: list[LineChange] = []
    step = search.finished[0].step
    while step is not None:
        old_end, new_end = step.old + (step.mark == REMOVED), step.new + (step.mark == ADDED)
        if changes and changes[-1].old_start == old_end and changes[-1].new_start == new_end:
            _, old_end, _, new_end = changes.pop()  # adjacent steps are one change
        changes.append(LineChange(step.old, old_end, step.new, new_end))
        step = step.previous
    return changes[::-1]


class _MyersSearch:
    """All paths through both versions with the same number of steps.

    A diagonal consists of the positions with the same `old - new`; `paths` contains the furthest path on each.
    """

    def __init__(self, old: Sequence[int], new: Sequence[int]) -> None:
        self.old = old
        self.new = new
        self.edit_count = 1
        self.paths: dict[int, _EditPath] = {}
        self.finished: list[_EditPath] = []
        self.lowest_diagonal, self.highest_diagonal = -len(new), len(old)
        self._record_path(0, _EditPath(_skip_equal(old, new, 0, 0), None))

    def extend_paths(self) -> None:
        """Extend the path by one step on every diagonal that can still lead to the end."""
        first = max(-self.edit_count, self.lowest_diagonal + (self.lowest_diagonal + self.edit_count) % 2)
        for diagonal in range(first, self.edit_count + 1, 2):
            if diagonal > self.highest_diagonal:
                break
            removing, adding = self.paths.get(diagonal - 1), self.paths.get(diagonal + 1)
            if removing is not None and removing.old >= len(self.old):
                removing = None
            if adding is not None and adding.old - diagonal > len(self.new):
                adding = None
            if adding is not None and (removing is None or removing.old < adding.old):
                at = adding.old
                step = _EditStep(ADDED, at, at - diagonal - 1, adding.step)
            elif removing is not None:  # a removal is preferred if both are equally far
                at = removing.old + 1
                step = _EditStep(REMOVED, at - 1, at - diagonal, removing.step)
            else:
                self.paths.pop(diagonal, None)
                continue
            self._record_path(diagonal, _EditPath(_skip_equal(self.old, self.new, at, at - diagonal), step))
        self.edit_count += 1

    def _record_path(self, diagonal: int, path: _EditPath) -> None:
        at_old_end, at_new_end = path.old == len(self.old), path.old - diagonal == len(self.new)
        if at_old_end and at_new_end:
            self.finished.append(path)
        self.paths[diagonal] = path
        if at_old_end:
            self.highest_diagonal = min(self.highest_diagonal, diagonal - 1)
        if at_new_end:
            self.lowest_diagonal = max(self.lowest_diagonal, diagonal + 1)


def _skip_equal(old: Sequence[int], new: Sequence[int], at: int, other: int) -> int:
    """Return the position in `old` after the equal lines that start at `at` and `other`."""
    while at < len(old) and other < len(new) and old[at] == new[other]:
        at += 1
        other += 1
    return at


def _changes_between_anchors(old: Sequence[int], new: Sequence[int]) -> list[LineChange]:
    """Find the changes between anchors, which are lines that occur once on both sides and in the same order."""
    changes: list[LineChange] = []
    old_at = new_at = 0
    for anchor_old, anchor_new in (*_find_anchors(old, new), (len(old), len(new))):
        head = common_prefix_length(old[old_at:anchor_old], new[new_at:anchor_new])
        gap_old, gap_new = old[old_at + head : anchor_old], new[new_at + head : anchor_new]
        tail = common_prefix_length(gap_old[::-1], gap_new[::-1])
        gap_old, gap_new = gap_old[: len(gap_old) - tail], gap_new[: len(gap_new) - tail]
        gap_changes = _shortest_edit(gap_old, gap_new, _SEARCH_BUDGET // 100)
        if gap_changes is None:
            gap_changes = [LineChange(0, len(gap_old), 0, len(gap_new))]
        old_shift, new_shift = old_at + head, new_at + head
        changes += (
            LineChange(old_start + old_shift, old_end + old_shift, new_start + new_shift, new_end + new_shift)
            for old_start, old_end, new_start, new_end in gap_changes
        )
        old_at, new_at = anchor_old + 1, anchor_new + 1
    return changes


def _find_anchors(old: Sequence[int], new: Sequence[int]) -> list[tuple[int, int]]:
    """Return the longest sequence of lines that are unique on both sides and in the same order."""
    old_counts, new_counts = Counter(old), Counter(new)
    places = {line: at for at, line in enumerate(new) if new_counts[line] == 1}
    pairs = [(at, places[line]) for at, line in enumerate(old) if old_counts[line] == 1 and line in places]
    tails: list[int] = []
    piles: list[int] = []
    before: list[int] = []
    for index, (_, place) in enumerate(pairs):
        pile = bisect_left(tails, place)
        before.append(piles[pile - 1] if pile else -1)
        tails[pile : pile + 1] = [place]
        piles[pile : pile + 1] = [index]
    chain: list[tuple[int, int]] = []
    at = piles[-1] if piles else -1
    while at >= 0:
        chain.append(pairs[at])
        at = before[at]
    return chain[::-1]
