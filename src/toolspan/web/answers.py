"""Send questions to the workers, and cache their answers until a transcript changes.

A watcher counts the changes below the served folders. An answer is cached with the count at which the question was
asked, so that an idle server neither polls nor reads files again.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import msgspec

from toolspan.errors import SourceError
from toolspan.formats.claude.paths import config_dir
from toolspan.formats.registry import format_of_path, parse_file_name
from toolspan.formats.source import is_remote, to_path
from toolspan.reading.cache import compute_file_stamp
from toolspan.reading.discovery import default_roots, iter_transcripts
from toolspan.web.kept_workers import KeptWorkers
from toolspan.web.questions import Answer, Question
from toolspan.web.worker import WorkerRequest, ask_worker

_MAX_KEPT_BYTES = 32 << 20
_LARGE_BYTES = 1 << 20
_OBJECT_POLL_SECONDS = 60.0
_MAX_GROWING = 4
_MAX_CHANGES = 64
_REST = 2.0
_MAX_REST_SECONDS = 15.0
_MAX_PARALLEL = 2
"""The maximum number of commands that run at the same time. Each of them uses all cores."""
_NEVER_REPEATED = frozenset({"timeline", "copies", "call_records"})
"""Questions whose last answer is never asked for."""
Version = tuple[int, int]
"""The number of changes to transcripts, and of status changes. An answer is valid as long as both are the same."""


class Position(NamedTuple):
    """The changes of which a page has been notified: the values of `Answers.change` and `Answers.file_changes`."""

    change: int
    file_changes: int

    def __str__(self) -> str:
        return f"{self.change}-{self.file_changes}"

    @classmethod
    def parse(cls, text: str) -> Position | None:
        """Parse a position that a page sent, or return None if the text is not one."""
        numbers = re.fullmatch("([0-9]{1,15})-([0-9]{1,15})", text)
        return cls(*map(int, numbers.groups())) if numbers else None


class Answers:
    """The answers to the API's questions, for one set of transcripts."""

    def __init__(self, roots: Sequence[str], address: str) -> None:
        """Serve these files and folders, or all of the user's transcripts if `roots` is empty.

        `address` is the socket of `start_workers`.
        """
        self.roots = tuple(roots)
        self.change = 0
        """The number of changes so far. An answer is valid as long as this number is the same."""
        self.file_changes = 0
        """The number of file changes so far. `change` is increased later if answers take long."""
        self._counted_file_changes = 0
        """The value of `file_changes` when `change` was last increased."""
        self._is_outdated = False
        self._status_changes = 0
        self._address = address
        self.scratch = Path(address).parent
        """A private folder for files that commands write."""
        self._kept: OrderedDict[Question, tuple[Version, Answer]] = OrderedDict()
        self._asked: dict[tuple[Version, Question], asyncio.Task[Answer]] = {}
        self._limit = asyncio.Semaphore(_MAX_PARALLEL)
        self._changed = asyncio.Condition()
        self._closed = asyncio.Event()
        self._busy_seconds = 0.0
        self._growing: OrderedDict[str, None] = OrderedDict()
        self._waking: set[asyncio.Task[None]] = set()
        self.kept_workers = KeptWorkers(address)
        self._changed_sessions: deque[tuple[int, frozenset[str]]] = deque(maxlen=_MAX_CHANGES)

    @property
    def live_version(self) -> Version:
        """The current version of answers that also depend on the status of sessions."""
        return (self.change, self._status_changes)

    @property
    def position(self) -> Position:
        """The position of a page whose data comes from the current answers."""
        return Position(self.change, self._counted_file_changes)

    async def ask(self, question: Question, *, live: bool = False) -> Answer:
        """Return the answer to a question. If an equal question is pending, wait for its answer.

        Set `live` if the answer also depends on the status of processes.
        """
        version = self.live_version if live else (self.change, 0)
        kept = self._kept.get(question)
        if kept is not None and kept[0] == version:
            self._kept.move_to_end(question)
            return kept[1]
        key = (version, question)
        task = self._asked.get(key)
        if task is None:
            task = self._asked[key] = asyncio.create_task(self._ask_worker(key))
        return await asyncio.shield(task)

    async def ask_changes(self, question: Question, version: str) -> Answer:
        """Return the changes since a version of an answer, from a worker that keeps running for the next request."""
        key = (
            (self.file_changes, self._status_changes),
            msgspec.structs.replace(question, params=(*question.params, ("after", version))),
        )
        task = self._asked.get(key)
        if task is None:
            task = self._asked[key] = asyncio.create_task(self._ask_kept_worker(key, question, version))
        return await asyncio.shield(task)

    async def _ask_kept_worker(self, key: tuple[Version, Question], question: Question, version: str) -> Answer:
        try:
            if self.kept_workers.holds(question):  # fast, so the limit does not apply
                return await self.kept_workers.ask(question, version)
            async with self._limit:
                return await self.kept_workers.ask(question, version)
        finally:
            self._asked.pop(key, None)

    def last_answer(self, question: Question) -> Answer | None:
        """Return the last cached answer to a question, which may be out of date, or None."""
        kept = self._kept.get(question)
        return None if kept is None else kept[1]

    async def run(self, question: Question, *, changes: bool = True) -> Answer:
        """Ask a question and return its answer, which is not cached.

        Unless `changes` is False, answering it may change something, so all cached answers become invalid.
        """
        try:
            return await self._ask_worker(((self.change, 0), question), keep=False)
        finally:
            if changes:
                await self._forget_answers()

    async def _forget_answers(self) -> None:
        self.change += 1
        self._counted_file_changes = self.file_changes
        for question in [question for question in self._kept if question.name in _NEVER_REPEATED]:
            del self._kept[question]  # `last_answer` is not used for these
        await self._notify()

    async def _ask_worker(self, key: tuple[Version, Question], *, keep: bool = True) -> Answer:
        version, question = key
        try:
            async with self._limit:
                started = time.monotonic()
                try:
                    answer = await self.kept_workers.answer_other(question) or await self._ask_new_worker(question)
                except asyncio.IncompleteReadError:
                    return Answer(error="the worker ended without an answer", status=500)
                finally:
                    self._busy_seconds += time.monotonic() - started
            if keep and answer.status != 500:
                self._keep(question, version, answer)
            return answer
        finally:
            self._asked.pop(key, None)

    async def _ask_new_worker(self, question: Question) -> Answer:
        # perf: a growing file is kept in memory only for repeated questions, and only in one process
        is_repeated = question in self._kept and not self.kept_workers.covers(question)
        return await ask_worker(self._address, WorkerRequest(question, tuple(self._growing) if is_repeated else ()))

    def _keep(self, question: Question, version: Version, answer: Answer) -> None:
        self._kept[question] = (version, answer)
        self._kept.move_to_end(question)
        size = sum(_size(kept) for _, kept in self._kept.values())
        while size > _MAX_KEPT_BYTES and len(self._kept) > 1:
            _, (_, oldest) = self._kept.popitem(last=False)
            size -= _size(oldest)

    async def watch(self) -> None:
        """Count the changes to transcripts until cancelled."""
        folders = [Path(root) for root in self.roots if not is_remote(root)]
        if len(folders) < len(self.roots):
            await asyncio.gather(self._watch_objects(), self._watch_files(folders) if folders else asyncio.sleep(0))
            return
        try:
            folders = folders or default_roots()
        except SourceError:  # no client has been used on this machine
            return
        await self._watch_files(folders)

    async def _watch_objects(self) -> None:
        """List the served objects once a minute, and invalidate the answers if the listing has changed."""
        roots = [to_path(root) for root in self.roots if is_remote(root)]
        before = await asyncio.to_thread(_listing_digest, roots)
        while True:
            await asyncio.sleep(_OBJECT_POLL_SECONDS)
            if (digest := await asyncio.to_thread(_listing_digest, roots)) != before:
                before = digest
                await self._forget_answers()

    async def _watch_files(self, folders: list[Path]) -> None:
        from watchfiles import awatch

        statuses = config_dir() / "sessions"  # where Claude Code writes the status of its processes
        if statuses.is_dir():
            folders.append(statuses)
        counting: asyncio.Task[None] | None = None
        try:
            async for changes in awatch(*folders, step=200, debounce=400, rust_timeout=0, yield_on_timeout=False):
                if all(Path(path).parent == statuses for _, path in changes):
                    self.count_status_change()
                    continue
                self._note_growing(path for _, path in changes)
                self.file_changes += 1
                sessions = frozenset(chain.from_iterable(_sessions_of(path) for _, path in changes))
                self._changed_sessions.append((self.file_changes, sessions))
                self._is_outdated = True
                await self._notify()
                if counting is None or counting.done():
                    counting = asyncio.create_task(self._count_change())
        finally:
            if counting is not None:
                counting.cancel()

    async def _count_change(self) -> None:
        """Invalidate the answers, and do so again after a pause if files have changed in the meantime."""
        while self._is_outdated:
            self._is_outdated = False
            self._busy_seconds = 0.0
            await self._forget_answers()
            await asyncio.sleep(0)  # the pages that wait for changes send their requests now
            await self._rest()

    async def _rest(self) -> None:
        """Wait for all pending answers, and then for a multiple of the time that they took."""
        while self._asked:
            await asyncio.wait(list(self._asked.values()))
        await asyncio.sleep(min(self._busy_seconds * _REST, _MAX_REST_SECONDS))

    def sessions_changed_since(self, change: int) -> list[str] | None:
        """Return the ids of the sessions that changed after file change number `change`.

        Return None if there are more changes than are remembered.
        """
        if not 0 <= self.file_changes - change <= len(self._changed_sessions):
            return None
        return sorted({name for number, names in self._changed_sessions if number > change for name in names})

    def _note_growing(self, paths: Iterable[str]) -> None:
        """Record the large files among these paths. Only the last few are kept."""
        for path in paths:
            with contextlib.suppress(OSError):
                if path.endswith(".jsonl") and Path(path).stat().st_size >= _LARGE_BYTES:
                    self._growing[path] = None
                    self._growing.move_to_end(path)
        while len(self._growing) > _MAX_GROWING:
            self._growing.popitem(last=False)

    async def wait_for(self, is_reached: Callable[[], bool]) -> bool:
        """Wait for a condition, which is checked after each change. Return False when the server stops."""
        async with self._changed:
            await self._changed.wait_for(lambda: is_reached() or self._closed.is_set())
        return not self._closed.is_set()

    def count_status_change(self) -> None:
        """Count a change to a process or to the status that a client publishes."""
        self._status_changes += 1
        self.wake()

    def wake(self) -> None:
        """Make waiting tasks check their conditions."""
        task = asyncio.create_task(self._notify())
        self._waking.add(task)
        task.add_done_callback(self._waking.discard)

    def close(self) -> None:
        """End the workers, and all tasks that wait for changes."""
        self.kept_workers.close()
        self._closed.set()
        self.wake()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


def _sessions_of(path: str) -> Iterator[str]:
    """Yield the ids of the sessions that a file belongs to: its own, and the one that started it as a subagent."""
    name = parse_file_name(path)
    if name.role == "session":
        yield name.stem
    if name.role != "other":
        owner = name.session_id
        with contextlib.suppress(SourceError, OSError):  # it may have been removed
            owner = format_of_path(path).owning_session(Path(path), name)
        if owner is not None:
            yield owner


def _listing_digest(roots: Sequence[Path]) -> str:
    """Return a value that changes when an object is added, changed or removed; empty if a store cannot be listed."""
    digest = hashlib.sha256()
    try:
        for root in roots:
            for file in iter_transcripts(root):
                digest.update(f"{file.path}\0{compute_file_stamp(file.path)}\n".encode("utf-8", "surrogateescape"))
    except SourceError:
        return ""
    return digest.hexdigest()


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
