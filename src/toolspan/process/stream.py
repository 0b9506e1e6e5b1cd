"""Pipes between the event loop and a child.

In: our end of a pipe. Out: bytes handed on as they come, or fed until they are taken.
Callbacks of the loop instead of tasks: a cancelled caller must not stop the reading, or the child
would hang in a full pipe and its last words would be lost. Knows nothing of processes.
"""

import asyncio
import os
from collections.abc import Callable

import anyio

_CHUNK = 1 << 16
_BULK_CHUNK = 1 << 20
_BULK_PAUSE = 0.001
"""Seconds in which bulk output may gather, so that not every small write wakes the loop."""
_LAST_READS = 16


class Reader:
    """Hands on what comes out of a pipe, until its end."""

    def __init__(
        self, descriptor: int, take: Callable[[bytes], None], *, bulk: bool = False
    ) -> None:
        self.ended = anyio.Event()
        """Nobody can write any more, or we stopped listening."""
        self._descriptor = descriptor
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._bulk = bulk
        self._later: asyncio.TimerHandle | None = None
        os.set_blocking(descriptor, False)
        self._listen()

    def read_waiting(self) -> None:
        """Take what is in the pipe now; bounded, because somebody may be filling it."""
        for _ in range(_LAST_READS):
            if not self._read():
                return

    def close(self) -> None:
        """Stop listening."""
        if not self.ended.is_set():
            if self._later is not None:
                self._later.cancel()
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self.ended.set()

    def _listen(self) -> None:
        self._loop.add_reader(self._descriptor, self._readable)

    def _readable(self) -> None:
        if self._read() and self._bulk and not self.ended.is_set():
            self._loop.remove_reader(self._descriptor)
            self._later = self._loop.call_later(_BULK_PAUSE, self._listen)

    def _read(self) -> bool:
        if self.ended.is_set():
            return False
        try:
            data = os.read(self._descriptor, _BULK_CHUNK if self._bulk else _CHUNK)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:  # a broken pipe has nothing more to say
            data = b""
        if not data:
            self.close()
            return False
        self._take(data)
        return True


class Feeder:
    """Puts bytes into a pipe as fast as they are taken, then closes it."""

    def __init__(self, descriptor: int, data: bytes) -> None:
        self._descriptor: int | None = descriptor
        self._left = memoryview(data)
        self._loop = asyncio.get_running_loop()
        os.set_blocking(descriptor, False)
        self._loop.add_writer(descriptor, self._write)
        self._write()

    def close(self) -> None:
        """Stop feeding."""
        if self._descriptor is not None:
            self._loop.remove_writer(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None

    def _write(self) -> None:
        if self._descriptor is None:
            return
        try:
            self._left = self._left[os.write(self._descriptor, self._left) :]
        except (BlockingIOError, InterruptedError):
            return
        except OSError:  # the child does not want more
            self._left = self._left[:0]
        if not self._left:
            self.close()
