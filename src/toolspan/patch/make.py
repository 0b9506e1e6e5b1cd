"""The hunks that lead from one text to another, as editing clients write them.

In: two texts. Out: hunks with three lines of context; a missing newline at the end is not noted.
The way is Myers' shortest edit, and between equally short ones the one that removes first, which
is what clients' diffs show. Where the texts differ in very many lines the shortest way would take
minutes; then it is searched only between lines that both texts have exactly once.

Read `make`, then `_changes`.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from toolspan.model.hunk import Hunk
from toolspan.patch.hunks import ADDED, KEPT, REMOVED

CONTEXT = 3
_BUDGET = 100_000
"""Steps of the exact search, under a second."""


class Change(NamedTuple):
    """Old lines that became new ones, each side as start and end."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int


def make(old: str, new: str) -> list[Hunk]:
    """The hunks; none when the texts are equal."""
    if old == new:
        return []
    before, after = _lines(old), _lines(new)
    return [_hunk(group, before, after) for group in _groups(_changes(before, after))]


def _lines(text: str) -> list[str]:
    """Lines with their ends: a last line without one differs from the same line with one."""
    lines = text.split("\n")
    last = lines.pop()
    return [f"{line}\n" for line in lines] + ([last] if last else [])


def _groups(changes: Sequence[Change]) -> Iterator[list[Change]]:
    """Changes whose context touches are one hunk."""
    group: list[Change] = []
    for change in changes:
        if group and change.old_start - group[-1].old_end > 2 * CONTEXT:
            yield group
            group = []
        group.append(change)
    yield group


def _hunk(group: Sequence[Change], before: Sequence[str], after: Sequence[str]) -> Hunk:
    first, last = group[0], group[-1]
    above = min(CONTEXT, first.old_start)
    below = min(CONTEXT, len(before) - last.old_end)
    at = first.old_start - above
    lines: list[str] = []
    for change in group:
        lines += _marked(KEPT, before[at : change.old_start])
        lines += _marked(REMOVED, before[change.old_start : change.old_end])
        lines += _marked(ADDED, after[change.new_start : change.new_end])
        at = change.old_end
    lines += _marked(KEPT, before[at : at + below])
    return Hunk(
        old_start=first.old_start - above + 1,
        old_lines=last.old_end + below - first.old_start + above,
        new_start=first.new_start - above + 1,
        new_lines=last.new_end + below - first.new_start + above,
        lines=tuple(lines),
    )


def _marked(mark: str, lines: Sequence[str]) -> Iterator[str]:
    return (mark + line.removesuffix("\n") for line in lines)


def _changes(before: Sequence[str], after: Sequence[str]) -> list[Change]:
    numbers: dict[str, int] = {}
    old = [numbers.setdefault(line, len(numbers)) for line in before]
    new = [numbers.setdefault(line, len(numbers)) for line in after]
    skip = common_start(old, new)
    old, new = old[skip:], new[skip:]
    exact = _shortest(old, new, _BUDGET)
    found = _anchored(old, new) if exact is None else exact
    return [Change(*(place + skip for place in change)) for change in found]


def common_start(old: Sequence[object], new: Sequence[object]) -> int:
    """The length of the common beginning."""
    shorter = min(len(old), len(new))
    return next((at for at in range(shorter) if old[at] != new[at]), shorter)


class _Step(NamedTuple):
    """One removed (or added) line on a way through both texts, and the step before it."""

    mark: str
    old: int
    new: int
    before: "_Step | None"


class _Way(NamedTuple):
    """How far a way has come, and its last step."""

    old: int
    step: _Step | None


def _shortest(old: Sequence[int], new: Sequence[int], budget: int) -> list[Change] | None:
    """The shortest way by Myers' greedy search; None when the budget does not suffice."""
    if not set(old) & set(new):
        return [Change(0, len(old), 0, len(new))] if old or new else []
    search = _Search(old, new)
    while not search.arrived:
        budget -= search.length
        if budget < 0:
            return None
        search.widen()
    return _joined(search.arrived[0].step)


class _Search:
    """Ways through both texts, all with the same number of steps.

    A diagonal holds the places with the same `old - new`; `ways` has the furthest one on each.
    """

    def __init__(self, old: Sequence[int], new: Sequence[int]) -> None:
        self.old = old
        self.new = new
        self.length = 1
        self.ways: dict[int, _Way] = {}
        self.arrived: list[_Way] = []
        self.lowest, self.highest = -len(new), len(old)
        self._reach(0, _Way(_slide(old, new, 0, 0), None))

    def widen(self) -> None:
        """One step more on every diagonal that can still lead to the end."""
        first = max(-self.length, self.lowest + (self.lowest + self.length) % 2)
        for diagonal in range(first, self.length + 1, 2):
            if diagonal > self.highest:
                break
            way = self._longer(diagonal)
            if way is None:
                self.ways.pop(diagonal, None)
            else:
                self._reach(diagonal, way)
        self.length += 1

    def _reach(self, diagonal: int, way: _Way) -> None:
        at_old_end, at_new_end = way.old == len(self.old), way.old - diagonal == len(self.new)
        if at_old_end and at_new_end:
            self.arrived.append(way)
        self.ways[diagonal] = way
        if at_old_end:
            self.highest = min(self.highest, diagonal - 1)
        if at_new_end:
            self.lowest = max(self.lowest, diagonal + 1)

    def _longer(self, diagonal: int) -> _Way | None:
        """The furthest place on a diagonal with one step more; of two as far, by removing."""
        removing, adding = self.ways.get(diagonal - 1), self.ways.get(diagonal + 1)
        if removing is not None and removing.old >= len(self.old):
            removing = None
        if adding is not None and adding.old - diagonal > len(self.new):
            adding = None
        if adding is not None and (removing is None or removing.old < adding.old):
            at = adding.old
            step = _Step(ADDED, at, at - diagonal - 1, adding.step)
        elif removing is not None:
            at = removing.old + 1
            step = _Step(REMOVED, at - 1, at - diagonal, removing.step)
        else:
            return None
        return _Way(_slide(self.old, self.new, at, at - diagonal), step)


def _slide(old: Sequence[int], new: Sequence[int], at: int, other: int) -> int:
    """Past all lines that are equal from here on."""
    while at < len(old) and other < len(new) and old[at] == new[other]:
        at += 1
        other += 1
    return at


def _joined(step: _Step | None) -> list[Change]:
    """The steps as changes: those that follow each other without a kept line are one."""
    changes: list[Change] = []
    while step is not None:
        old_end, new_end = step.old + (step.mark == REMOVED), step.new + (step.mark == ADDED)
        if changes and changes[-1][0] == old_end and changes[-1][2] == new_end:
            old_end, new_end = changes[-1].old_end, changes[-1].new_end
            changes.pop()
        changes.append(Change(step.old, old_end, step.new, new_end))
        step = step.before
    return changes[::-1]


def _anchored(old: Sequence[int], new: Sequence[int]) -> list[Change]:
    """Changes between the lines that both sides have once, taken in an order both have."""
    changes: list[Change] = []
    old_at = new_at = 0
    for anchor_old, anchor_new in (*_anchors(old, new), (len(old), len(new))):
        gap_old, gap_new = old[old_at:anchor_old], new[new_at:anchor_new]
        changes += (
            Change(
                one.old_start + old_at, one.old_end + old_at,
                one.new_start + new_at, one.new_end + new_at,
            )
            for one in _gap(gap_old, gap_new)
        )  # fmt: skip
        old_at, new_at = anchor_old + 1, anchor_new + 1
    return changes


def _gap(old: Sequence[int], new: Sequence[int]) -> list[Change]:
    head = common_start(old, new)
    tail = common_start(old[head:][::-1], new[head:][::-1])
    inner_old, inner_new = old[head : len(old) - tail], new[head : len(new) - tail]
    found = _shortest(inner_old, inner_new, _BUDGET // 100)
    if found is None:
        found = [Change(0, len(inner_old), 0, len(inner_new))]
    return [Change(*(place + head for place in change)) for change in found]


def _anchors(old: Sequence[int], new: Sequence[int]) -> list[tuple[int, int]]:
    """The longest rising chain of lines that are unique on both sides."""
    old_counts, new_counts = Counter(old), Counter(new)
    places = {line: at for at, line in enumerate(new) if new_counts[line] == 1}
    pairs = [
        (at, places[line])
        for at, line in enumerate(old)
        if old_counts[line] == 1 and line in places
    ]
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
