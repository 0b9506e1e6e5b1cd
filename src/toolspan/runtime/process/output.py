"""Capture the output of a process in bounded memory, and move bytes through pipes.

A `Capture` keeps the first and the last bytes of a stream and can write all of them to a spill
file. If the spill file cannot be written, the command continues and the error is stored in
`spill_error`.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.from_thread
import anyio.lowlevel
from anyio.streams.memory import MemoryObjectReceiveStream


@dataclass(frozen=True)
class Spill:
    """Settings for the file that receives output that is too large for memory."""

    make_path: Callable[[], Path]
    """A function that returns a path that does not exist yet. Called once per stream, when the file is needed."""
    from_start: bool = False  # create the file immediately instead of when the memory limit is exceeded
    limit: int = 4 << 30  # the maximum size of the file in bytes


class Capture:
    """The first and last bytes of one stream, and the total number of bytes."""

    def __init__(self, memory_limit: int, spill: Spill | None = None) -> None:
        self.total = 0
        """The number of bytes received, whether or not they were kept."""
        self.path: Path | None = None
        """The spill file; None if it was not created."""
        self.spilled = 0
        """The number of bytes in the spill file; less than `total` if it reached its limit or failed."""
        self.spill_error: OSError | None = None
        self._head_limit = memory_limit // 2
        self._tail_limit = memory_limit - self._head_limit
        self._head = bytearray()
        self._tail = bytearray()
        self._spill = spill
        self._file: int | None = None
        self._finished = False
        if spill is not None and spill.from_start:
            self.spill_to_file()

    @property
    def head(self) -> bytes:
        """The first bytes, or all bytes if none were `dropped`."""
        return bytes(self._head) if self.dropped else self.data

    @property
    def tail(self) -> bytes:
        """The last bytes if bytes before them were dropped; otherwise empty."""
        return bytes(self._tail[-self._tail_limit :]) if self.dropped else b""

    @property
    def dropped(self) -> int:
        """The number of bytes between `head` and `tail` that are not in memory."""
        return max(0, self.total - self._head_limit - self._tail_limit)

    @property
    def data(self) -> bytes:
        """All bytes in memory: `head` followed by `tail`."""
        return bytes(self._head) + bytes(self._tail[-self._tail_limit :])

    @property
    def text(self) -> str:
        """All bytes in memory as text. Bytes that are not UTF-8 are replaced."""
        return (self._head + self._tail[-self._tail_limit :]).decode("utf-8", "replace")

    def add(self, data: bytes) -> None:
        """Append data from the stream."""
        if self._finished:
            return
        if self._file is None and self.total + len(data) > self._head_limit + self._tail_limit:
            self.spill_to_file()
        self.total += len(data)
        if self._file is not None:
            self._write_spill(data)
        free = self._head_limit - len(self._head)
        if free > 0:
            self._head += data[:free]
            data = data[free:]
        if len(data) >= self._tail_limit:  # replaces the whole tail
            self._tail[:] = data[-self._tail_limit :]
            return
        self._tail += data
        if len(self._tail) > 2 * self._tail_limit:  # trim rarely, because moving the bytes is expensive
            del self._tail[: len(self._tail) - self._tail_limit]

    def spill_to_file(self) -> Path | None:
        """Write all output, past and future, to the spill file. Return its path, or None if it cannot be created."""
        if self._spill is None or self._finished or self.path or self.spill_error:
            return self.path
        try:
            path = self._spill.make_path()
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._file = os.open(path, flags, 0o600)
        except OSError as error:
            self.spill_error = error
            return None
        self.path = path
        self._write_spill(self.data)
        return self.path

    def append_to_file(self, data: bytes) -> None:
        """Append bytes that are not output to the spill file, if it is open, whatever its limit."""
        if self._file is not None:
            try:
                os.write(self._file, data)
            except OSError as error:
                self.spill_error = error

    def finish(self) -> None:
        """Ignore further output and close the file."""
        self._finished = True
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def discard(self) -> None:
        """Finish, and remove the file."""
        self.finish()
        if self.path is not None:
            self.path.unlink(missing_ok=True)
            self.path = None

    def _write_spill(self, data: bytes) -> None:
        if self._file is None or self._spill is None:
            return
        remaining = memoryview(data)[: max(0, self._spill.limit - self.spilled)]
        try:
            while remaining:
                written = os.write(self._file, remaining)
                self.spilled += written
                remaining = remaining[written:]
        except OSError as error:
            self.spill_error = error
            os.close(self._file)
            self._file = None


_CHUNK = 1 << 16
_BULK_CHUNK = 1 << 20
_BULK_PAUSE = 0.001
"""The pause in seconds in which bulk output accumulates, so that not every small write wakes the loop."""
_MAX_FINAL_READS = 16


class PipeReader:
    """Reader that passes the data in a pipe to a callback until the pipe is closed."""

    def __init__(self, descriptor: int, on_data: Callable[[bytes], None], *, bulk: bool = False) -> None:
        self.finished = anyio.Event()
        """Set when all writers have closed the pipe, or when the reader was closed."""
        self._descriptor = descriptor
        self._on_data = on_data
        self._loop = asyncio.get_running_loop()
        self._bulk = bulk
        self._resume_timer: asyncio.TimerHandle | None = None
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._read_bulk if bulk else self._read_chunk)

    def read_waiting(self) -> None:
        """Read the data that is in the pipe now. The amount is limited, because a process may still be
        filling the pipe.
        """
        for _ in range(_MAX_FINAL_READS):
            if not self._read_chunk():
                return

    def close(self) -> None:
        """Stop reading and close the pipe."""
        if not self.finished.is_set():
            if self._resume_timer is not None:
                self._resume_timer.cancel()
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self.finished.set()

    def _read_bulk(self) -> None:
        if self._read_chunk() and not self.finished.is_set():
            self._loop.remove_reader(self._descriptor)
            resume = partial(self._loop.add_reader, self._descriptor, self._read_bulk)
            self._resume_timer = self._loop.call_later(_BULK_PAUSE, resume)

    def _read_chunk(self) -> bool:
        if self.finished.is_set():
            return False
        try:
            data = os.read(self._descriptor, _BULK_CHUNK if self._bulk else _CHUNK)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:  # treat a broken pipe as its end
            data = b""
        if not data:
            self.close()
            return False
        self._on_data(data)
        return True


class PipeWriter:
    """Writer that feeds bytes to a pipe as fast as the process reads them, then closes it."""

    def __init__(self, descriptor: int, data: bytes) -> None:
        self._descriptor: int | None = descriptor
        self._remaining = memoryview(data)
        self._loop = asyncio.get_running_loop()
        os.set_blocking(descriptor, False)
        self._loop.add_writer(descriptor, self._write_chunk)
        self._write_chunk()

    def close(self) -> None:
        """Stop writing and close the pipe."""
        if self._descriptor is not None:
            self._loop.remove_writer(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None

    def _write_chunk(self) -> None:
        if self._descriptor is None:
            return
        try:
            self._remaining = self._remaining[os.write(self._descriptor, self._remaining) :]
        except (BlockingIOError, InterruptedError):
            return
        except OSError:  # the process closed its end
            self._remaining = self._remaining[:0]
        if not self._remaining:
            self.close()


T = TypeVar("T")


def stream_from_thread(source: Iterable[T]) -> MemoryObjectReceiveStream[T]:
    """Iterate over a blocking source in a thread, and return a stream of its items.

    Close the stream to stop.
    """
    send, receive = anyio.create_memory_object_stream[T]()
    token = anyio.lowlevel.current_token()

    def send_items() -> None:
        with suppress(anyio.BrokenResourceError, anyio.RunFinishedError, RuntimeError):  # the stream or loop is closed
            for item in source:
                anyio.from_thread.run(send.send, item, token=token)
            anyio.from_thread.run(send.aclose, token=token)

    # A daemon thread may block on input that never ends without delaying the exit of the program.
    threading.Thread(target=send_items, daemon=True).start()
    return receive
