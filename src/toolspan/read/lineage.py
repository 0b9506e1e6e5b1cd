"""Which files tell the same story, and how their copies of a call become one.

Resumed and forked sessions copy history into new files, so one call may stand in several. Files
belong together when they share a session or their first line; two records of one id are copies
when their files belong together or when they come from the same message. Pure functions on rows.
Read `merge` first.
"""

from collections.abc import Hashable, Iterable, Sequence

from toolspan.model.session import SessionInfo
from toolspan.model.tokens import Tokens
from toolspan.read.facts import CallFacts
from toolspan.wire.paths import parse_name

_WEAK = {"never_answered": 0, "orphan_result": 0, "interrupted": 1, "cancelled": 1}


class Lineages:
    """Groups of files that share sessions or lines."""

    def __init__(self) -> None:
        self._above: dict[Hashable, Hashable] = {}

    def add(self, file: str, info: SessionInfo) -> None:
        """A file and what it says about itself."""
        name = parse_name(file)
        marks: list[Hashable] = [("session", session) for session in info.session_ids]
        if name.session_id:
            marks.append(("session", name.session_id))
        if info.root:
            marks.append(("root", info.root))
        if info.forked_from:
            marks.append(("session", info.forked_from))
        for mark in marks:
            self._join(("file", file), mark)

    def of(self, file: str) -> Hashable:
        """The group a file belongs to."""
        return self._top(("file", file))

    def _join(self, first: Hashable, second: Hashable) -> None:
        self._above[self._top(first)] = self._top(second)

    def _top(self, mark: Hashable) -> Hashable:
        top = mark
        while self._above.get(top, top) != top:
            top = self._above[top]
        while self._above.get(mark, mark) != top:  # shorten the way for the next one
            self._above[mark], mark = top, self._above.get(mark, top)
        return top


def merge(rows: Iterable[CallFacts], lineages: Lineages) -> list[CallFacts]:
    """Every call once, at its first place, told by its strongest record."""
    groups: dict[str, list[list[CallFacts]]] = {}
    order: list[list[CallFacts]] = []
    for row in rows:
        family = groups.setdefault(row.id, [])
        for copies in family:
            if _same(copies[0], row, lineages):
                copies.append(row)
                break
        else:
            family.append([row])
            order.append(family[-1])
    return [_strongest(copies) for copies in order]


def _same(first: CallFacts, second: CallFacts, lineages: Lineages) -> bool:
    if first.batch and first.batch == second.batch:
        return True
    return lineages.of(first.file) == lineages.of(second.file)


def _strongest(copies: Sequence[CallFacts]) -> CallFacts:
    if len(copies) == 1:
        return copies[0]
    return min(copies, key=_rank)


def _rank(row: CallFacts) -> tuple[int, bool, str]:
    """The best first; old clients stamp copies anew, so that only their times are later."""
    return -_WEAK.get(row.state, 2), not _at_home(row), row.requested or "~"


def _at_home(row: CallFacts) -> bool:
    """The row stands in the file of its own session, not in a copy."""
    return row.session is not None and parse_name(row.file).session_id == row.session


def sum_tokens(files: Iterable[dict[str, Tokens]]) -> Tokens:
    """Tokens over many files: each message once, the largest value of each field."""
    messages: dict[str, Tokens] = {}
    nameless = Tokens()
    for found in files:
        for name, tokens in found.items():
            if name.startswith("#"):
                nameless += tokens
            else:
                before = messages.get(name)
                messages[name] = tokens if before is None else before.most(tokens)
    return sum(messages.values(), nameless)
