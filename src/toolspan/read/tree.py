"""The conversation as a tree: which lines the model still saw, which lie before a compaction,
which were left behind by a rewind.

In: each line's uuid and parent, in file order. Out: a branch per line. Keeps 64-bit hashes instead
of uuids, so that a million lines cost a few megabytes. Pure; read `Tree.branches` first.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable

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
        self._last = ""
        """The uuid of the last line; no line's parent in the beginning."""

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, entries: Iterable[Entry], line: int) -> None:
        """Entries in file order, the first on this line, the others on those that follow."""
        keys, lines, flags, last = self._keys, self._lines, self._flags, self._last
        for number, entry in enumerate(entries, line):
            uuid, parent = entry.uuid, entry.parent_uuid
            if uuid is None or entry.session_id_snake is not None:  # a stream has no links
                continue
            if parent != last:
                self._elsewhere[len(keys)] = None if parent is None else hash(parent)
            last = uuid
            flag = SPEAKS if entry.type in _SPEAKERS and not entry.is_meta else 0
            if entry.is_sidechain or entry.team_name:
                flag |= ASIDE
            keys.append(hash(uuid))
            lines.append(number)
            flags.append(flag)
            if entry.logical_parent_uuid is not None:
                self._logical[len(keys) - 1] = hash(entry.logical_parent_uuid)
        self._last = last

    def branches(self) -> "Branches":
        """The branch of every line."""
        asides = self._flags.count(ASIDE) + self._flags.count(ASIDE | SPEAKS)
        if len(self._elsewhere) <= 1 or asides == len(self):  # one unbroken chain, or a subagent's
            return Branches(self._lines, bytearray(len(self)))
        parents = self._resolve()
        leaf = self._leaf(parents)
        marks = bytearray(b"\2") * len(self)
        for mark, logical in ((b"\1", True), (b"\0", False)):
            for run in self._walk(leaf, parents, logical=logical):
                marks[run.start : run.stop] = mark * len(run)
        for n, flags in enumerate(self._flags if asides else ()):
            if flags & ASIDE:
                marks[n] = 0
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
        done = bytearray(len(self))
        found = []
        for start in range(len(self)):
            path = []
            n = start
            while n >= 0 and not done[n]:
                done[n] = 1
                path.append(n)
                n = parents.get(n, n - 1)
            if n in path:
                found.append(self._lines[n])
        return found

    def _resolve(self) -> dict[int, int]:
        """Positions of parents, -1 for none, of those whose parent is not the line before."""
        wanted = {above for above in self._elsewhere.values() if above is not None}
        found = [(key, n) for n, key in enumerate(self._keys) if key in wanted] if wanted else []
        where = dict(reversed(found))  # of several with one key the first counts
        return {
            n: -1 if above is None else where.get(above, -1) for n, above in self._elsewhere.items()
        }

    def _leaf(self, parents: dict[int, int]) -> int:
        """The end of the active branch: the last line that speaks and that nobody built on."""
        built_on = set(parents.values())
        ends = (n - 1 for n in (*self._elsewhere, len(self)))  # the next line's parent is elsewhere
        return max((self._speaker(n, parents) for n in ends if n not in built_on), default=-1)

    def _speaker(self, n: int, parents: dict[int, int]) -> int:
        """The nearest line at or above `n` that speaks in the main conversation, or -1."""
        for _ in range(len(self)):
            if n < 0 or self._flags[n] & ASIDE:
                return -1
            if self._flags[n] & SPEAKS:
                return n
            n = parents.get(n, n - 1)
        return -1

    def _walk(self, leaf: int, parents: dict[int, int], *, logical: bool) -> list[range]:
        """Which lines lie on the way from a leaf to its root, in runs of line following on line."""
        starts = [0, *self._elsewhere]
        seen: set[int] = set()
        runs = []
        n = leaf
        while n >= 0:
            start = starts[bisect_right(starts, n) - 1]
            runs.append(range(start, n + 1))
            if start in seen:  # the links run in a circle
                break
            seen.add(start)
            n = self._above(start, parents, logical=logical)
        return runs

    def _above(self, n: int, parents: dict[int, int], *, logical: bool) -> int:
        parent = parents.get(n, n - 1)
        if parent >= 0 and parent != n:
            return parent
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
