"""What a Grep call keeps of ripgrep's output.

In: pieces, through `take`. Out: what is given, and totals. Each class is for one mode; none holds
more than its search asked for, and none all of a huge tree.
"""

import heapq
import os

from toolspan.builtin.search.asked import Asked
from toolspan.builtin.search.records import Record, Records
from toolspan.builtin.search.where import Names, text
from toolspan.run.context import ToolContext

MOST_KEPT = 16 << 20
"""Characters that are kept for one call that asked for everything."""
MOST_FILES = 100_000
"""The same for files."""


class Lines:
    """Matching lines, with those around them."""

    def __init__(self, wanted: Asked, ctx: ToolContext, *, named: bool) -> None:
        self.lines: list[str] = []
        self.total = 0
        self.full = False
        """There is more than may be kept."""
        self._wanted = wanted
        self._named = named
        self._whole = os.fsencode(ctx.cwd).rstrip(b"/") + b"/"
        self._short = Names(ctx.cwd).short
        self._values = ctx.profile.search
        self._records = Records()
        self._kept = 0

    def take(self, data: bytes) -> bool:
        """Take what was printed; True when no more is needed."""
        if self._enough():
            self.total += data.count(b"\0")
            return not self._values.tells_totals
        for record in self._records.cut(data):
            if self.total >= self._wanted.skip and not self._enough():
                self._keep(record)
            self.total += 1
        return self._enough() and self._more() and not self._values.tells_totals

    def _keep(self, record: Record) -> None:
        line = self._line(record)
        self._kept += len(line)
        self.full = self._kept > MOST_KEPT
        self.lines.append(line)

    def _line(self, record: Record) -> str:
        if not record.name:
            return text(record.line.replace(self._whole, b"", 1))
        number, joint, rest = _numbered(record.line)
        shown = number + joint + rest if self._wanted.numbers else rest
        if not self._named:
            return text(shown)
        line = joint + shown
        if joint == b"-" and not self._values.relative_context and b":" not in record.name + line:
            return text(record.name + line)
        return self._short(record.name) + text(line)

    def _enough(self) -> bool:
        reach = self._wanted.reach
        return self.full or (reach is not None and self.total >= reach)

    def _more(self) -> bool:
        """Something was left out behind what is given."""
        return self.full or (self._wanted.reach is not None and self.total > self._wanted.reach)


def _numbered(line: bytes) -> tuple[bytes, bytes, bytes]:
    """The number, the sign behind it (`:` for a match, `-` for a line around one), the line."""
    rest = line.lstrip(b"0123456789")
    return line[: len(line) - len(rest)], rest[:1], rest[1:]


class Counts:
    """How many lines match in each file."""

    def __init__(self, wanted: Asked, ctx: ToolContext) -> None:
        self.lines: list[str] = []
        self.files = 0
        self.matches = 0
        """Of all files where the client tells totals, else of those given."""
        self.total = 0
        self._wanted = wanted
        self._short = Names(ctx.cwd).short
        self._all = ctx.profile.search.tells_totals
        self._records = Records()

    def take(self, data: bytes) -> bool:
        """Take what was printed; True when no more is needed."""
        reach = _reach(self._wanted)
        for record in self._records.cut(data):
            given = self._wanted.skip <= self.total < reach
            if given:
                self.lines.append(f"{self._short(record.name)}:{text(record.line)}")
            if given or self._all:
                self.files += 1
                self.matches += int(record.line) if record.line.isdigit() else 0
            self.total += 1
        return not self._all and self.total > reach


class Files:
    """The files that match, the newest first."""

    def __init__(self, wanted: Asked, ctx: ToolContext) -> None:
        self.total = 0
        self._wanted = wanted
        self._short = Names(ctx.cwd).short
        self._best: list[tuple[int, bytes]] = []
        """When each was changed, negative, so that the newest come first; and its name."""
        self._rest = b""

    def take(self, data: bytes) -> bool:
        """Take names that end in null bytes; all are needed, the newest may be the last."""
        *names, self._rest = (self._rest + data).split(b"\0")
        self.total += len(names)
        self._best += _dated(names)
        reach = _reach(self._wanted)
        if len(self._best) > 2 * reach + 1_000:
            self._best = heapq.nsmallest(reach, self._best)
        return False

    def names(self) -> list[str]:
        """The files to give, named from the current folder."""
        ordered = sorted(self._best)[self._wanted.skip : _reach(self._wanted)]
        return [self._short(name) for _, name in ordered]


def _reach(wanted: Asked) -> int:
    """How many files have to be known."""
    return wanted.skip + MOST_FILES if wanted.reach is None else wanted.reach


def _dated(names: list[bytes]) -> list[tuple[int, bytes]]:
    try:
        return [(-os.stat(name).st_mtime_ns, name) for name in names]  # noqa: PTH116 - bytes
    except OSError:  # one was there a moment ago
        return [(-_changed(name), name) for name in names]


def _changed(name: bytes) -> int:
    try:
        return os.stat(name).st_mtime_ns  # noqa: PTH116 - bytes
    except OSError:
        return 0
