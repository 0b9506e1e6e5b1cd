"""The parts of a growing timeline: tables of rows, the conversations of agents in blocks of entries, and time slices.

An entry is a message or the calls of one batch. Entries are only appended, so that a change affects few blocks.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import accumulate, chain
from typing import Any, NamedTuple

from msgspec import Struct

from toolspan.analysis.timing import PhaseInterval, TimeMark, call_marks, message_mark, slice_time
from toolspan.formats.base import TranscriptContent
from toolspan.formats.pairing import Branches
from toolspan.reading.timeline import EARLIEST_TIME
from toolspan.types.session import Message, MessageAuthor
from toolspan.types.span import Branch, Span, parse_timestamp

BLOCK_SIZE = 64
"""The number of entries in a block."""


class Table:
    """Rows as columns of equal length, and the rows that changed since the last `take_changed`."""

    def __init__(self, names: Sequence[str]) -> None:
        self.columns: dict[str, list[Any]] = {name: [] for name in names}
        self._lists = list(self.columns.values())
        self._changed: set[int] = set()

    def __len__(self) -> int:
        return len(self._lists[0])

    def put(self, index: int | None, values: Sequence[object]) -> int:
        """Set a row, or add one if there is no index yet, and return its index."""
        if index is None:
            index = len(self)
            for column, value in zip(self._lists, values, strict=True):
                column.append(value)
            self._changed.add(index)
            return index
        for column, value in zip(self._lists, values, strict=True):
            if column[index] != value:
                column[index] = value
                self._changed.add(index)
        return index

    def set_field(self, index: int, name: str, value: object) -> None:
        """Set one field of a row."""
        if self.columns[name][index] != value:
            self.columns[name][index] = value
            self._changed.add(index)

    def compact(self) -> dict[str, Any]:
        """Return the columns. Except for the first one, a column whose values are all the same is only that value.

        perf: this applies to most columns of a session, and the page takes long to parse the same value 50,000 times.
        """
        key, *others = self.columns.items()
        return dict([key]) | {name: values[0] if _is_uniform(values) else values for name, values in others}

    def take_changed(self) -> set[int]:
        """Return the indexes of the rows that changed since the last call of this method."""
        changed, self._changed = self._changed, set()
        return changed

    def select(self, rows: Iterable[int]) -> dict[str, list[Any]]:
        """Return some rows as columns, with their indexes in `rows`."""
        indexes = sorted(rows)
        return {"rows": indexes} | {name: [values[n] for n in indexes] for name, values in self.columns.items()}


def _is_uniform(values: list[Any]) -> bool:
    return len(values) > 1 and not isinstance(values[0], list | tuple) and values.count(values[0]) == len(values)


class Entry(Struct, gc=False):
    """A message, or the calls of one batch, with its offset in the file."""

    offset: int
    spans: list[Span] | None = None
    """The calls of the batch; None for a message."""
    number: int = -1
    row: int | None = None
    """The row of the message; None for a batch, or if the message has no text."""
    at: int | None = None
    voice: MessageAuthor = "text"
    line: int = 0

    @property
    def sort_key(self) -> tuple[int, bool]:
        """The sort key for the order in the file. In one line, messages precede calls."""
        return self.offset, self.spans is not None


class BlockState(NamedTuple):
    """The state before a block: the branch of the previous item, and the time from which each lane is free."""

    branch: Branch = "active"
    free_from: tuple[int, ...] = ()


class Block:
    """Consecutive entries, and the rows built from them."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.order: list[int] = []
        self.sizes: list[int] = []
        """The number of rows of each entry."""
        self.starts: list[int | None] = []
        """The start time of each entry."""
        self.end: int | None = None
        self.call_count = 0
        self.concurrency = 0
        self.intervals: list[PhaseInterval] = []
        """The phases of the calls in the block."""
        self.times: tuple[int, int] | None = None
        """The last result of `find_times`."""

    def find_times(self) -> tuple[int, int] | None:
        """Return the first and the last time in the block, or None if it has no times."""
        times = [at for at, _ in self.marks()]
        times += [time for part in self.intervals for time in (part.start, part.end)]
        return (min(times), max(times)) if times else None

    def marks(self) -> Iterator[TimeMark]:
        """Yield the marks for `slice_time` from the entries of the block."""
        for entry in self.entries:
            if entry.spans is None:
                if entry.at is not None:
                    yield message_mark(entry.at, entry.voice)
            else:
                for span in entry.spans:
                    yield from call_marks(span)


class Thread:
    """The conversation of one agent: blocks of entries in file order."""

    def __init__(self, number: int, content: TranscriptContent, key: str) -> None:
        self.number = number
        self.file = content.file
        self.is_inline = bool(key)
        self.agent_id = key or content.agent_id
        self.role = None if key else content.role
        self.stated_starter = None if key else content.starter_call
        self.starter_call: str | None = None
        self.first_prompt: str | None = None
        self.branches: Branches = content.branches
        self.blocks: list[Block] = []
        self.states: list[BlockState] = [BlockState()]
        """The state before each block, and after the last one."""
        self.dirty: set[int] = set()
        self.batches: dict[str, Entry] = {}
        self.added: list[Entry] = []
        self._message_count = 0
        self._first_times: dict[bool, str | None] = {}
        self.parent: int | None = None
        self.depth = 0
        self.is_linked = True

    @property
    def start_time(self) -> datetime:
        """The time of the first message or call."""
        times = (time for at in self._first_times.values() if (time := parse_timestamp(at)))
        return min(times, default=EARLIEST_TIME)

    def note_first(self, at: str | None, *, is_call: bool) -> None:
        """Store the time of a message or call, if it is the first of its kind."""
        self._first_times.setdefault(is_call, at)

    def add_prompt(self, message: Message) -> None:
        """Store the text of the first prompt, if it is one of the first four messages."""
        self._message_count += 1
        if self._message_count <= 4 and message.voice == "prompt" and self.first_prompt is None:
            self.first_prompt = message.text.strip()

    def touch(self, entry: Entry) -> None:
        """Mark the block of an entry as changed. New entries are not in a block yet."""
        if entry.number >= 0:
            self.dirty.add(entry.number // BLOCK_SIZE)

    def append_added(self) -> None:
        """Append the entries in `added` to the blocks, in file order."""
        self.added.sort(key=lambda entry: entry.sort_key)
        number = sum(len(block.entries) for block in self.blocks[-1:]) + BLOCK_SIZE * (max(len(self.blocks), 1) - 1)
        for entry in self.added:
            entry.number = number
            if number // BLOCK_SIZE == len(self.blocks):
                self.blocks.append(Block())
                self.states.append(BlockState())
            self.blocks[-1].entries.append(entry)
            self.dirty.add(number // BLOCK_SIZE)
            number += 1
        self.added = []

    @property
    def start(self) -> int | None:
        """The start time of the first entry that has one."""
        return next((at for block in self.blocks for at in block.starts if at is not None), None)

    @property
    def end(self) -> int | None:
        """The latest end time of any block."""
        return max((block.end for block in self.blocks if block.end is not None), default=None)


class TimeSlices:
    """The slices of the main agent's time. An update recomputes only those that may have changed."""

    def __init__(self, index_of: Callable[[str | None], int]) -> None:
        """Create an empty list. `index_of` returns the number that stands for the name of a part."""
        self._index_of = index_of
        self._cells = array("q")
        """Start, end and part of each slice, one after another. perf: tuples take five times the memory."""

    def __len__(self) -> int:
        return len(self._cells) // 3

    def encode(self, start: int = 0) -> list[int]:
        """Return the slices from index `start`, three numbers each: time since the previous end, length and part."""
        numbers: list[int] = []
        before = self._cells[3 * start - 2] if start else 0
        for begin, end, part in self._rows(start):
            numbers += (begin - before, end - begin, part)
            before = end
        return numbers

    def _rows(self, start: int) -> list[tuple[int, ...]]:
        """Return start, end and part of each slice from index `start`. Times are milliseconds after the base."""
        cells = iter(self._cells[3 * start :])
        return list(zip(cells, cells, cells, strict=True))

    def update(self, main: Thread, first: int, earliest: int | None, base: int) -> int:
        """Recompute the slices that may have changed, and return the number of unchanged slices at the beginning.

        `first` is the index of the first block that was rebuilt, and `earliest` the earliest time in rebuilt blocks.
        """
        cut, first_needed = (None, 0) if earliest is None else _find_cut(main, first, earliest)
        unchanged = 0 if cut is None else bisect_right(self._cells[1::3], cut - base)
        keep = max(unchanged - 1, 0)  # the last of these may become longer
        before = self._rows(keep)
        rows = before[: unchanged - keep]
        if cut is not None and unchanged < len(self) and before[unchanged - keep][0] < cut - base:
            rows.append((before[unchanged - keep][0], cut - base, before[unchanged - keep][2]))
        blocks = main.blocks[first_needed:]
        marks = sorted((mark for block in blocks for mark in block.marks()), key=lambda mark: mark[0])
        if cut is not None:
            marks = [(cut, None), *(mark for mark in marks if mark[0] >= cut)]
        for part in slice_time([part for block in blocks for part in block.intervals], marks):
            start, end, name = part.start - base, part.end - base, self._index_of(part.part)
            if rows and rows[-1][1:] == (start, name):
                start = rows.pop()[0]
            rows.append((start, end, name))
        self._cells[3 * keep :] = array("q", chain.from_iterable(rows))
        pairs = enumerate(zip(before, rows, strict=False))
        return keep + next((n for n, (old, new) in pairs if old != new), min(len(before), len(rows)))


def _find_cut(main: Thread, first: int, earliest: int) -> tuple[int | None, int]:
    """Return a time before which no slice has changed, and the first block that is needed to compute the others.

    The message or request at the end of a gap determines its part, so the time is that of a message or a request.
    """
    for n in range(first - 1, -1, -1):
        times = [at for at, part in main.blocks[n].marks() if part is not None and at <= earliest]
        if times:
            cut = max(times)
            ends = (block.times[1] if block.times else cut for block in main.blocks[:first])
            return cut, next((k for k, end in enumerate(accumulate(ends, max)) if end > cut), first)
    return None, 0
