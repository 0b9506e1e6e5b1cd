"""Ask the workers, and keep answers until a transcript changes.

A watcher counts the changes below the served folders. An answer is kept with the count at which it was asked, so an
idle server neither polls nor reads anything again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec

from toolspan.errors import SourceError
from toolspan.reading.discovery import default_roots
from toolspan.web.worker import FRAME_HEAD, Answer, Question, decode_answer, encode_frame, frame_length

_MAX_KEPT_BYTES = 32 << 20
_MAX_PARALLEL = 2
"""Commands read on all cores themselves."""


class Answers:
    """The answers to the API's questions, for one set of transcripts."""

    def __init__(self, roots: Sequence[str], address: str) -> None:
        """Serve these files and folders, or all of the user's transcripts if there are none."""
        self.roots = tuple(roots)
        self.change = 0
        """The number of changes seen; an answer is valid for one value."""
        self._address = address
        self._kept: OrderedDict[Question, tuple[int, Answer]] = OrderedDict()
        self._asked: dict[tuple[int, Question], asyncio.Task[Answer]] = {}
        self._limit = asyncio.Semaphore(_MAX_PARALLEL)
        self._changed = asyncio.Condition()
        self._closed = asyncio.Event()

    async def ask(self, question: Question) -> Answer:
        """Return the answer to a question. Equal questions at the same time are asked once."""
        kept = self._kept.get(question)
        if kept is not None and kept[0] == self.change:
            self._kept.move_to_end(question)
            return kept[1]
        key = (self.change, question)
        task = self._asked.get(key)
        if task is None:
            task = self._asked[key] = asyncio.create_task(self._ask_worker(key))
        return await asyncio.shield(task)

    async def run(self, question: Question) -> Answer:
        """Run a command that changes something, and forget all answers."""
        try:
            return await self._ask_worker((self.change, question), keep=False)
        finally:
            self.change += 1
            await self._notify()

    async def _ask_worker(self, key: tuple[int, Question], *, keep: bool = True) -> Answer:
        change, question = key
        try:
            async with self._limit:
                reader, writer = await asyncio.open_unix_connection(self._address)
                try:
                    writer.write(encode_frame(msgspec.msgpack.encode(question)))
                    length = frame_length(await reader.readexactly(FRAME_HEAD))
                    answer = decode_answer(await reader.readexactly(length))
                except asyncio.IncompleteReadError:
                    return Answer(error="the command ended without an answer", status=500)
                finally:
                    writer.close()
            if keep and answer.status != 500:
                self._keep(question, change, answer)
            return answer
        finally:
            self._asked.pop(key, None)

    def _keep(self, question: Question, change: int, answer: Answer) -> None:
        self._kept[question] = (change, answer)
        self._kept.move_to_end(question)
        size = sum(_size(kept) for _, kept in self._kept.values())
        while size > _MAX_KEPT_BYTES and len(self._kept) > 1:
            _, (_, oldest) = self._kept.popitem(last=False)
            size -= _size(oldest)

    async def watch(self) -> None:
        """Count changes of transcripts until cancelled."""
        from watchfiles import awatch

        folders = [Path(root) for root in self.roots]
        try:
            folders = folders or default_roots()
        except SourceError:  # no client has been used on this machine
            return
        async for _ in awatch(*folders, step=50, debounce=400, rust_timeout=0, yield_on_timeout=False):
            self.change += 1
            await self._notify()

    async def next_change(self, seen: int) -> int | None:
        """Wait until the number of changes exceeds `seen` and return it, or None when the server stops."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.change > seen or self._closed.is_set())
        return None if self._closed.is_set() else self.change

    def close(self) -> None:
        """End all waiting for changes."""
        self._closed.set()
        self._closing = asyncio.create_task(self._notify())

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


def _size(answer: Answer) -> int:
    return sum(memoryview(row).nbytes for row in answer.rows)


@contextlib.asynccontextmanager
async def watching(answers: Answers) -> AsyncIterator[None]:
    """Watch the transcripts while the context is open."""
    task = asyncio.create_task(answers.watch())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
