"""Find the files that hold the same conversation, and merge their copies of a call.

Resumed and forked sessions copy history into new files, so one call may be in several. Files belong together if they
share a session or their first line; two rows with one id are copies if their files belong together or they come from
the same message. Start at `merge_copies`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from toolspan.formats.paths import parse_file_name
from toolspan.reading.rows import CallRow
from toolspan.types.session import SessionInfo
from toolspan.types.tokens import Tokens

_STATE_STRENGTH = {"never_answered": 0, "orphan_result": 0, "interrupted": 1, "cancelled": 1}


class Lineages:
    """Groups of files that share sessions or lines."""

    def __init__(self) -> None:
        self._parents: dict[Hashable, Hashable] = {}

    def add(self, file: str, info: SessionInfo) -> None:
        """Add a file and its facts."""
        name = parse_file_name(file)
        marks: list[Hashable] = [("session", session) for session in info.session_ids]
        if name.session_id:
            marks.append(("session", name.session_id))
        if info.root:
            marks.append(("root", info.root))
        if info.forked_from:
            marks.append(("session", info.forked_from))
        for mark in marks:
            self._join_groups(("file", file), mark)

    def group_of(self, file: str) -> Hashable:
        """Return the group of a file."""
        return self._find_root(("file", file))

    def _join_groups(self, first: Hashable, second: Hashable) -> None:
        self._parents[self._find_root(first)] = self._find_root(second)

    def _find_root(self, mark: Hashable) -> Hashable:
        top = mark
        while self._parents.get(top, top) != top:
            top = self._parents[top]
        while self._parents.get(mark, mark) != top:  # path compression: shorten the chain for the next lookup
            self._parents[mark], mark = top, self._parents.get(mark, top)
        return top


def merge_copies(rows: Iterable[CallRow], lineages: Lineages) -> list[CallRow]:
    """Return every call once, at its first place, as its strongest copy has it."""
    groups: dict[str, list[list[CallRow]]] = {}
    order: list[list[CallRow]] = []
    for row in rows:
        family = groups.setdefault(row.id, [])
        for copies in family:
            if _is_same_call(copies[0], row, lineages):
                copies.append(row)
                break
        else:
            family.append([row])
            order.append(family[-1])
    return [_strongest_copy(copies) for copies in order]


def _is_same_call(first: CallRow, second: CallRow, lineages: Lineages) -> bool:
    if first.batch and first.batch == second.batch:
        return True
    return lineages.group_of(first.file) == lineages.group_of(second.file)


def _strongest_copy(copies: Sequence[CallRow]) -> CallRow:
    if len(copies) == 1:
        return copies[0]
    return min(copies, key=_copy_rank)


def _copy_rank(row: CallRow) -> tuple[int, bool, str]:
    """Return a sort key, the best copy first; old clients give copies new, later times."""
    return -_STATE_STRENGTH.get(row.state, 2), not _is_original(row), row.requested or "~"


def _is_original(row: CallRow) -> bool:
    """Return whether a row is in the file of its own session, not in a copy."""
    return row.session is not None and parse_file_name(row.file).session_id == row.session


def sum_tokens(files: Iterable[dict[str, Tokens]]) -> Tokens:
    """Sum tokens over many files: each message once, with the largest value of each field."""
    messages: dict[str, Tokens] = {}
    nameless = Tokens()
    for file_tokens in files:
        for name, tokens in file_tokens.items():
            if name.startswith("#"):
                nameless += tokens
            else:
                before = messages.get(name)
                messages[name] = tokens if before is None else before.max_with(tokens)
    return sum(messages.values(), nameless)
