"""The conversation as a tree: which lines the model still saw, which lie before a compaction,
which were left behind by a rewind.

In: each line's uuid and parent, in file order. Out: a branch per line. Keeps 64-bit hashes instead
of uuids, so that a million lines cost a few megabytes. Pure; read `Tree.branches` first.
"""

from array import array
from bisect import bisect_left

from toolspan.model.span import Branch
from toolspan.wire.claude import Entry

SPEAKS = 1
"""A user or assistant line of the main conversation that a person or the model wrote."""
ASIDE = 2
"""A line of a subagent or a team."""
BRANCHES: tuple[Branch, ...] = ("active", "compacted", "abandoned")
_SPEAKERS = frozenset({"user", "assistant"})


class Branches:
    """The branch of each line, a byte apiece."""

    def __init__(self, lines: "array[int]", marks: bytearray) -> None:
        self._lines = lines
        self._marks = marks

    def __bool__(self) -> bool:
        """Whether any line is not on the active branch."""
        return any(self._marks)

    def of(self, line: int) -> Branch:
        """The branch of a line, by its number; lines outside the tree are active."""
        return BRANCHES[self.mark(line)]

    def mark(self, line: int) -> int:
        """The same as a position in BRANCHES: the smaller, the nearer to the active branch."""
        at = bisect_left(self._lines, line)
        if at == len(self._lines) or self._lines[at] != line:
            return 0
        return self._marks[at]


class Tree:
    """The parent links of one transcript."""

    def __init__(self) -> None:
        self._keys = array("q")
        self._lines = array("L")
        self._flags = bytearray()
        self._elsewhere: dict[int, int | None] = {}
        """Positions whose parent is not the line before: the parent's key, None for a root."""
        self._logical: dict[int, int] = {}
        self._last = 0

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, entry: Entry, line: int) -> None:
        """One line of the conversation that has a uuid, in file order."""
        key = hash(entry.uuid)
        parent = entry.parent_uuid
        if parent is None or hash(parent) != self._last:
            self._elsewhere[len(self._lines)] = None if parent is None else hash(parent)
        self._last = key
        self._keys.append(key)
        self._lines.append(line)
        flags = SPEAKS if entry.type in _SPEAKERS and not entry.is_meta else 0
        if entry.is_sidechain or entry.team_name:
            flags |= ASIDE
        self._flags.append(flags)
        if entry.logical_parent_uuid is not None:
            self._logical[len(self._keys) - 1] = hash(entry.logical_parent_uuid)

    def branches(self) -> "Branches":
        """The branch of every line."""
        marks = bytearray(len(self._lines))
        if len(self._elsewhere) > 1:  # not one unbroken chain
            parents = self._resolve()
            leaf = self._leaf(parents)
            active = self._walk(leaf, parents, logical=False)
            reached = self._walk(leaf, parents, logical=True)
            for n, flags in enumerate(self._flags):
                if not (flags & ASIDE or active[n]):
                    marks[n] = 1 if reached[n] else 2
        return Branches(self._lines, marks)

    def missing_parents(self) -> list[int]:
        """Lines whose parent is not in the file."""
        parents = self._resolve()
        return [
            self._lines[n]
            for n, above in self._elsewhere.items()
            if above is not None and parents[n] < 0
        ]

    def duplicates(self) -> list[int]:
        """Lines whose uuid an earlier line has."""
        seen: set[int] = set()
        found = []
        for key, line in zip(self._keys, self._lines, strict=True):
            if key in seen:
                found.append(line)
            seen.add(key)
        return found

    def cycles(self) -> list[int]:
        """Lines from which the way up never ends, one for each circle."""
        parents = self._resolve()
        done = bytearray(len(parents))
        found = []
        for start in range(len(parents)):
            path = []
            n = start
            while n >= 0 and not done[n]:
                done[n] = 1
                path.append(n)
                n = parents[n]
            if n in path:
                found.append(self._lines[n])
        return found

    def _resolve(self) -> "array[int]":
        """Positions of parents, -1 for none. A parent usually is the line before."""
        found = array("q", range(-1, len(self._keys) - 1))
        wanted = {above for above in self._elsewhere.values() if above is not None}
        where: dict[int, int] = {}
        if wanted:
            for n, key in enumerate(self._keys):
                if key in wanted and key not in where:
                    where[key] = n
        for n, above in self._elsewhere.items():
            found[n] = -1 if above is None else where.get(above, -1)
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
            if n < 0 or self._flags[n] & ASIDE:
                return -1
            if self._flags[n] & SPEAKS:
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
        if parents[n] >= 0 and parents[n] != n:
            return parents[n]
        if self._elsewhere.get(n) is not None:
            return n - 1  # the parent is not in the file: the client went on from the line before
        if logical and n in self._logical:
            return self._find(self._logical[n], n - 1)
        return -1

    def _find(self, key: int, otherwise: int) -> int:
        """Where a key stands first; the line before, when what was compacted is not in the file."""
        try:
            return self._keys.index(key)
        except ValueError:
            return otherwise
