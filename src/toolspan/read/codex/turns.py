"""Which lines of a rollout the model still saw at its end.

In: records in file order. Out: a branch per line: lines before a compaction are `compacted`, lines
of turns that the user took back are `abandoned`. Keeps a number per line of the conversation. Read
`Turns.branches` first.
"""

from array import array

from toolspan.read.codex.voice import prompt_of
from toolspan.read.tree import BRANCHES, Branches
from toolspan.wire.codex import Record

_COMPACTED, _ABANDONED = BRANCHES.index("compacted"), BRANCHES.index("abandoned")


class Turns:
    """The turns of one rollout, as far as lines are concerned."""

    def __init__(self) -> None:
        self._lines = array("L")
        self._begun: list[int] = []
        """Positions at which turns of a person begin."""
        self._left: list[tuple[int, int, int]] = []
        """Runs of positions that the model no longer sees: from, to, how they were left."""

    def add(self, record: Record, line: int) -> None:
        """One record and the line it stands on."""
        kind = record.type
        if kind == "compacted":
            self._left.append((0, len(self._lines), _COMPACTED))
        elif kind == "event_msg":
            item = record.item
            if item.type == "thread_rolled_back":
                self._roll_back(item.num_turns or 0)
            self._lines.append(line)
        else:
            item = record.item
            if item.role == "user" and prompt_of(item) is not None:
                self._begun.append(len(self._lines))
            self._lines.append(line)

    def _roll_back(self, turns: int) -> None:
        if turns <= 0 or not self._begun:
            return
        start = self._begun[-min(turns, len(self._begun))]
        del self._begun[-turns:]
        self._left.append((start, len(self._lines), _ABANDONED))

    def branches(self) -> Branches:
        """The branch of every line."""
        marks = bytearray(len(self._lines))
        for start, end, mark in self._left:
            if mark == _ABANDONED:
                marks[start:end] = bytes([mark]) * (end - start)
            else:
                marks[start:end] = marks[start:end].replace(b"\0", bytes([mark]))
        return Branches(self._lines, marks)
