"""What a stream printed, bounded in memory.

In: bytes as they come. Out: the first and the last of them, how many there were, and, when asked
for, all of them in a file that is made only when memory would not do.
Knows nothing of pipes, processes or text. A file that cannot be written never stops a command:
the error is kept in `spill_error`.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Spill:
    """Where everything goes that does not fit into memory."""

    make_path: Callable[[], Path]
    """Called once per stream, when the file is needed; the file must not exist yet."""
    early: bool = False
    """Make the file from the start, not only when the memory limit is passed."""
    limit: int = 4 << 30
    """The file stops growing here."""


class Capture:
    """One stream's bytes: the first, the last, the count."""

    def __init__(self, memory_limit: int, spill: Spill | None = None) -> None:
        self.total = 0
        """All bytes that came, kept or not."""
        self.path: Path | None = None
        """The spill file, once there is one."""
        self.spilled = 0
        """Bytes in the spill file; less than `total` when it reached its limit or failed."""
        self.spill_error: OSError | None = None
        self._head_limit = memory_limit // 2
        self._tail_limit = memory_limit - self._head_limit
        self._head = bytearray()
        self._tail = bytearray()
        self._spill = spill
        self._file: int | None = None
        self._final = False
        if spill is not None and spill.early:
            self.spill()

    @property
    def head(self) -> bytes:
        """The first bytes; everything unless bytes were `dropped`."""
        return bytes(self._head) if self.dropped else self.data

    @property
    def tail(self) -> bytes:
        """The last bytes, when some between them and the head were dropped; else nothing."""
        return bytes(self._tail[-self._tail_limit :]) if self.dropped else b""

    @property
    def dropped(self) -> int:
        """How many bytes between head and tail are not in memory."""
        return max(0, self.total - self._head_limit - self._tail_limit)

    @property
    def data(self) -> bytes:
        """Everything that is in memory, head and tail put together."""
        return bytes(self._head) + bytes(
            self._tail[-self._tail_limit :] if self.dropped else self._tail
        )

    def add(self, data: bytes) -> None:
        """Take in what was printed next."""
        if self._final:
            return
        if self._file is None and self.total + len(data) > self._head_limit + self._tail_limit:
            self.spill()
        self.total += len(data)
        self._write(data)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if len(data) >= self._tail_limit:  # nothing of before is left; large pieces are not moved
            self._tail[:] = data[-self._tail_limit :]
            return
        self._tail += data
        if len(self._tail) > 2 * self._tail_limit:  # not at every byte: moving them costs
            del self._tail[: len(self._tail) - self._tail_limit]

    def spill(self) -> Path | None:
        """Have everything in a file from now on; its path, or None when that cannot be done."""
        if self._spill is None or self._final or self.path or self.spill_error:
            return self.path
        try:
            path = self._spill.make_path()
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._file = os.open(path, flags, 0o600)
        except OSError as problem:
            self.spill_error = problem
            return None
        self.path = path
        self._write(self.data)
        return self.path

    def finish(self) -> None:
        """Nothing that comes from now on belongs to it."""
        self._final = True
        self._close()

    def discard(self) -> None:
        """Take back the file; it was made for nothing."""
        self.finish()
        if self.path is not None:
            self.path.unlink(missing_ok=True)
            self.path = None

    def _write(self, data: bytes) -> None:
        if self._file is None or self._spill is None:
            return
        left = memoryview(data)[: max(0, self._spill.limit - self.spilled)]
        try:
            while left:
                written = os.write(self._file, left)
                self.spilled += written
                left = left[written:]
        except OSError as problem:
            self.spill_error = problem
            self._close()

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
