"""What a child prints, and what it is fed.

In: our ends of its pipes. Out: two captures. Knows the pipes' ends, not the child's.
"""

import anyio

from toolspan.process.capture import Capture
from toolspan.process.command import Command
from toolspan.process.spawn import Spawned
from toolspan.process.stream import Feeder, Reader

QUIET = 0.1
"""Seconds without output after which an orphan that holds a pipe open is not waited for."""
LONGEST_DRAIN = 1.0
"""The same for an orphan that never stops writing."""


class Output:
    """Both streams of a child."""

    def __init__(self, command: Command) -> None:
        self.stdout = Capture(command.memory_limit, command.spill)
        self.stderr = Capture(command.memory_limit, None if command.merge else command.spill)
        self._on_output = command.on_output
        self._feed = command.stdin
        self._bulk = command.bulk
        self._pipes: list[Reader] = []
        self._feeder: Feeder | None = None

    def listen(self, spawned: Spawned) -> None:
        """Take in what comes out of these pipes, and feed the child."""
        if spawned.stdout is not None:
            self._pipes.append(
                Reader(spawned.stdout, lambda data: self._take(self.stdout, data), bulk=self._bulk)
            )
        if spawned.stderr is not None:
            self._pipes.append(Reader(spawned.stderr, lambda data: self._take(self.stderr, data)))
        if spawned.stdin is not None and isinstance(self._feed, bytes):
            self._feeder = Feeder(spawned.stdin, self._feed)

    @property
    def open(self) -> bool:
        """Can anything still come?"""
        return any(not pipe.ended.is_set() for pipe in self._pipes)

    async def drain(self) -> None:
        """Wait for the end of both pipes, but not for somebody who just holds one open."""
        latest = anyio.current_time() + LONGEST_DRAIN
        while self.open:
            before = self._total()
            with anyio.move_on_after(QUIET):
                for pipe in self._pipes:
                    await pipe.ended.wait()
            if self._total() == before or anyio.current_time() > latest:
                break
        for pipe in self._pipes:
            pipe.read_waiting()  # a busy loop may not have come to it

    def finish(self) -> None:
        """What comes from now on is read and dropped: an orphan must not break on a closed pipe."""
        self._on_output = None
        self.stdout.finish()
        self.stderr.finish()

    def close(self) -> None:
        """Stop listening and feeding."""
        self.finish()
        for pipe in self._pipes:
            pipe.close()
        if self._feeder is not None:
            self._feeder.close()

    def discard(self) -> None:
        """The child was never started: take back what was made for it."""
        self.stdout.discard()
        self.stderr.discard()

    def _take(self, capture: Capture, data: bytes) -> None:
        capture.add(data)
        if self._on_output is not None:
            self._on_output(data)

    def _total(self) -> int:
        return self.stdout.total + self.stderr.total
