"""The conversation as a tree: which lines the model still saw, which lie before a compaction,
which were left behind by a rewind.

In: each line's uuid and parent, in file order. Out: a branch per line. Keeps 64-bit hashes instead
of uuids, so that a million lines cost a few megabytes. Pure; read `Tree.branches` first.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable

from toolspan.model.span import Branch

_NONE = 0
_SPEAKS = 1
"""A user or assistant line of the main conversation that a person or the model wrote."""
_ASIDE = 2
"""A line of a subagent or a team."""


class Tree:
    """The parent links of one transcript."""

    def __init__(self) -> None:
        self._keys = array("q")
        self._parents = array("q")
        self._logical: dict[int, int] = {}
        self._flags = bytearray()
        self._lines = array("q")

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, line: int, uuid: str, parent: str | None, *, speaks: bool, aside: bool) -> None:
        """One line of the conversation, in file order."""
        self._keys.append(hash(uuid))
        self._parents.append(hash(parent) if parent else _NONE)
        self._lines.append(line)
        self._flags.append((_SPEAKS if speaks else 0) | (_ASIDE if aside else 0))

    def link(self, logical_parent: str) -> None:
        """The line just added continues, after a compaction, what ended with another line."""
        self._logical[len(self._keys) - 1] = hash(logical_parent)

    def branches(self) -> dict[int, Branch]:
        """The branch of every line that is not on the active one, by line number."""
        parents = self._resolve()
        active = self._walk(self._leaf(parents), parents, logical=False)
        reached = self._walk(self._leaf(parents), parents, logical=True)
        found: dict[int, Branch] = {}
        for n, line in enumerate(self._lines):
            if self._flags[n] & _ASIDE or active[n]:
                continue
            found[line] = "compacted" if reached[n] else "abandoned"
        return found

    def missing_parents(self) -> Iterable[int]:
        """Lines whose parent is not in the file."""
        parents = self._resolve()
        return [
            self._lines[n]
            for n, parent in enumerate(parents)
            if parent < 0 and self._parents[n] != _NONE
        ]

    def _resolve(self) -> "array[int]":
        """Positions of parents, -1 for none. A parent usually is the line before."""
        order: list[int] = []
        keys: list[int] = []
        found = array("q")
        for n, parent in enumerate(self._parents):
            if parent == _NONE:
                found.append(-1)
            elif n and self._keys[n - 1] == parent:
                found.append(n - 1)
            else:
                if not order:
                    order = sorted(range(len(self._keys)), key=self._keys.__getitem__)
                    keys = [self._keys[k] for k in order]
                found.append(_first(order, keys, parent, n))
        return found

    def _leaf(self, parents: "array[int]") -> int:
        """The end of the active branch: the last line that speaks and that nobody built on."""
        best = -1
        childless = bytearray(b"\1") * len(parents)
        for parent in parents:
            if parent >= 0:
                childless[parent] = 0
        for n in range(len(parents) - 1, -1, -1):
            if not childless[n]:
                continue
            speaker = self._speaker(n, parents)
            best = max(best, speaker)
        return best

    def _speaker(self, n: int, parents: "array[int]") -> int:
        """The nearest line at or above `n` that speaks in the main conversation, or -1."""
        for _ in range(len(parents)):
            if n < 0 or self._flags[n] & _ASIDE:
                return -1
            if self._flags[n] & _SPEAKS:
                return n
            n = parents[n]
        return -1

    def _walk(self, leaf: int, parents: "array[int]", *, logical: bool) -> bytearray:
        """Which lines lie on the way from a leaf to its root."""
        seen = bytearray(len(parents))
        n = leaf
        while n >= 0 and not seen[n]:
            seen[n] = 1
            n = self._above(n, parents, logical=logical)
        return seen

    def _above(self, n: int, parents: "array[int]", *, logical: bool) -> int:
        if parents[n] >= 0:
            return parents[n]
        if self._parents[n] != _NONE:
            return n - 1  # the parent is not in the file: the client went on from the line before
        if logical and n in self._logical:
            return self._find(self._logical[n])
        return -1

    def _find(self, key: int) -> int:
        try:
            return self._keys.index(key)
        except ValueError:
            return -1


def _first(order: list[int], keys: list[int], wanted: int, self_position: int) -> int:
    """The first line with a key, never the line itself."""
    at = bisect_left(keys, wanted)
    if at < len(keys) and keys[at] == wanted and order[at] != self_position:
        return order[at]
    return -1
