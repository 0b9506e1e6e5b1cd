"""The conversation as a tree: which lines are active, compacted, or abandoned by a rewind.

Stores 64-bit hashes instead of uuids, so that a million lines take a few megabytes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable

from toolspan.formats.claude.records import Entry
from toolspan.formats.pairing import Branches

MESSAGE_FLAG = 1
"""Set for a user or assistant line that the client did not generate itself."""
SIDECHAIN_FLAG = 2
"""Set for a line written by a subagent or a team."""
_MESSAGE_TYPES = frozenset({"user", "assistant"})


class RecordTree:
    """The parent links in one transcript."""

    def __init__(self) -> None:
        self._keys = array("q")
        self._lines = array("L")
        self._flags = bytearray()
        self._explicit_parents: dict[int, int | None] = {}
        """Parent keys for positions whose parent is not the previous line; None for a root."""
        self._logical_parents: dict[int, int] = {}
        self._last_uuid = ""
        """The uuid of the last line; initially empty, which matches no parent."""

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, entries: Iterable[Entry], line: int) -> None:
        """Add entries in file order; `line` is the number of the first line."""
        keys, lines, flags, last = self._keys, self._lines, self._flags, self._last_uuid
        for number, entry in enumerate(entries, line):
            uuid, parent = entry.uuid, entry.parent_uuid
            if uuid is None or entry.session_id_snake is not None:  # streams have no parent links
                continue
            if parent != last:
                self._explicit_parents[len(keys)] = None if parent is None else hash(parent)
            last = uuid
            flag = MESSAGE_FLAG if entry.type in _MESSAGE_TYPES and not entry.is_meta else 0
            if entry.is_sidechain or entry.team_name:
                flag |= SIDECHAIN_FLAG
            keys.append(hash(uuid))
            lines.append(number)
            flags.append(flag)
            if entry.logical_parent_uuid is not None:
                self._logical_parents[len(keys) - 1] = hash(entry.logical_parent_uuid)
        self._last_uuid = last

    def branches(self) -> Branches:
        """Return the branch of every line."""
        asides = self._flags.count(SIDECHAIN_FLAG) + self._flags.count(SIDECHAIN_FLAG | MESSAGE_FLAG)
        if len(self._explicit_parents) <= 1 or asides == len(self):  # an unbroken chain, or a subagent's file
            return Branches(self._lines, bytearray(len(self)))
        parents = self._resolve_parents()
        built_on = set(parents.values())
        ends = (n - 1 for n in (*self._explicit_parents, len(self)))  # the next line has another parent
        # The active branch ends at the last message without children.
        leaf = max((self._nearest_message(n, parents) for n in ends if n not in built_on), default=-1)
        marks = bytearray(b"\2") * len(self)
        for mark, logical in ((b"\1", True), (b"\0", False)):
            for run in self._path_runs(leaf, parents, logical=logical):
                marks[run.start : run.stop] = mark * len(run)
        for n, flags in enumerate(self._flags if asides else ()):
            if flags & SIDECHAIN_FLAG:
                marks[n] = 0
        return Branches(self._lines, marks)

    def missing_parents(self) -> list[int]:
        """Return the lines whose parent is not in the file."""
        parents = self._resolve_parents()
        return [self._lines[n] for n, above in self._explicit_parents.items() if above is not None and parents[n] < 0]

    def duplicate_lines(self) -> list[int]:
        """Return the lines whose uuid already occurs on an earlier line."""
        seen: set[int] = set()
        repeated = []
        for key, line in zip(self._keys, self._lines, strict=True):
            if key in seen:
                repeated.append(line)
            seen.add(key)
        return repeated

    def cycle_lines(self) -> list[int]:
        """Return one line from each cycle of parent links."""
        parents = self._resolve_parents()
        done = bytearray(len(self))
        cycle_starts = []
        for start in range(len(self)):
            path = []
            n = start
            while n >= 0 and not done[n]:
                done[n] = 1
                path.append(n)
                n = parents.get(n, n - 1)
            if n in path:
                cycle_starts.append(self._lines[n])
        return cycle_starts

    def _resolve_parents(self) -> dict[int, int]:
        """Return the parent positions for lines whose parent is not the previous line; -1 for no parent."""
        parent_keys = {above for above in self._explicit_parents.values() if above is not None}
        keyed_positions = [(key, n) for n, key in enumerate(self._keys) if key in parent_keys] if parent_keys else []
        where = dict(reversed(keyed_positions))  # if several lines have the same key, the first counts
        return {n: -1 if above is None else where.get(above, -1) for n, above in self._explicit_parents.items()}

    def _nearest_message(self, n: int, parents: dict[int, int]) -> int:
        """Return the nearest main-conversation message at or above position `n`, or -1."""
        for _ in range(len(self)):
            if n < 0 or self._flags[n] & SIDECHAIN_FLAG:
                return -1
            if self._flags[n] & MESSAGE_FLAG:
                return n
            n = parents.get(n, n - 1)
        return -1

    def _path_runs(self, leaf: int, parents: dict[int, int], *, logical: bool) -> list[range]:
        """Return the path from `leaf` to its root, as ranges of consecutive lines."""
        starts = [0, *self._explicit_parents]
        seen: set[int] = set()
        runs = []
        n = leaf
        while n >= 0:
            start = starts[bisect_right(starts, n) - 1]
            runs.append(range(start, n + 1))
            if start in seen:  # the links form a cycle
                break
            seen.add(start)
            n = parents.get(start, start - 1)
            if n < 0 or n == start:
                n = -1
                if self._explicit_parents.get(start) is not None:
                    n = start - 1  # the parent is not in the file: clients continue with the previous line
                elif logical and start in self._logical_parents:
                    key = self._logical_parents[start]
                    n = self._keys.index(key) if key in self._keys else start - 1
        return runs
