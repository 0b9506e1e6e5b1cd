"""Send questions to the workers, and cache their answers until a transcript changes.

A watcher counts the changes below the served folders. An answer is cached with the count at which the question was
asked, so that an idle server neither polls nor reads files again.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import secrets
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import msgspec

from toolspan.errors import SourceError
from toolspan.formats.registry import all_formats, format_of_path, parse_file_name
from toolspan.formats.source import is_remote, to_path
from toolspan.reading.cache import compute_file_stamp
from toolspan.reading.discovery import default_roots, iter_transcripts
from toolspan.web.pool import WorkerPool
from toolspan.web.questions import Answer, Question
from toolspan.web.requests import ApiError, read_zone

_MAX_KEPT_BYTES = 32 << 20
_LARGE_BYTES = 1 << 17
_OBJECT_POLL_SECONDS = 60.0
_MAX_GROWING = 4
_MAX_CHANGES = 64
_MAX_PARALLEL = 2
"""The maximum number of questions that are answered at the same time, besides those of open timelines."""
_NEVER_REPEATED = frozenset({"timeline", "copies", "call_records"})
"""Questions whose last answer is never asked for."""
_SLOW = frozenset({"doctor", "redaction", "export", "repair", "restore"})
"""Questions that read all of some transcripts."""
_SLOW_FACTOR = 10
_ZONED = frozenset({"errors", "stats", "time", "usage"})
"""Questions whose answers have days."""
_GROUP_SECONDS = 1.0
"""Answers are computed again at most this often."""
_LIST_REST, _LIVE_REST = 79, 149
"""The rest after lists and after live rows have been computed again, as a multiple of their CPU time: while files grow,
they use at most 0.8 and 0.4 seconds a minute, however many files there are and pages are open.
"""
_MAX_REST_SECONDS = 60.0
_FIRST_ROOTS_SECONDS = 2.0
_ROOTS_SECONDS = 60.0
"""The time between checks for folders of clients that did not exist before."""
Version = tuple[int, int]
"""The number of changes to transcripts, and of status changes. An answer is valid as long as both are the same."""


class Position(NamedTuple):
    """The changes of which a page has been notified: the values of `Answers.change` and `Answers.file_changes`."""

    run: str
    """The run of the server, which counts changes from 0."""
    change: int
    file_changes: int

    def __str__(self) -> str:
        return f"{self.run}-{self.change}-{self.file_changes}"

    @classmethod
    def parse(cls, text: str) -> Position | None:
        """Parse a position that a page sent, or return None if the text is not one."""
        match = re.fullmatch("([0-9a-f]{1,32})-([0-9]{1,15})-([0-9]{1,15})", text)
        return cls(match[1], int(match[2]), int(match[3])) if match else None


class _Pace:
    """The version of the answers of one kind, and the time of the next one while files grow."""

    def __init__(self, rest: float) -> None:
        self.version = 0
        """An answer is valid as long as this number is the same."""
        self.is_outdated = False
        self.pending: set[asyncio.Task[Answer]] = set()
        self.busy_seconds = 0.0
        """The CPU time that workers have needed for answers of this version."""
        self._rest = rest

    async def rest(self) -> None:
        """Wait for the answers of this version, and then for a multiple of the time that they took."""
        await asyncio.sleep(_GROUP_SECONDS)  # the pages that wait for changes send their requests now
        while self.pending:
            await asyncio.wait(self.pending)
        await asyncio.sleep(max(0.0, min(self.busy_seconds * self._rest, _MAX_REST_SECONDS) - _GROUP_SECONDS))


class Answers:
    """The answers to the API's questions, for one set of transcripts."""

    def __init__(self, roots: Sequence[str], pool: WorkerPool, scratch: Path, seconds: float = 60.0) -> None:
        """Serve these files and folders, or all of the user's transcripts if `roots` is empty.

        A question is stopped after `seconds`.
        """
        self._seconds = seconds
        self.roots = tuple(roots)
        self.run_id = secrets.token_hex(4)
        self._lists, self._live = _Pace(_LIST_REST), _Pace(_LIVE_REST)
        self.file_changes = 0
        """The number of file changes so far. `change` is increased later if answers take long."""
        self._counted_file_changes = 0
        """The value of `file_changes` when `change` was last increased."""
        self._status_changes = 0
        self._pool = pool
        self.scratch = scratch
        """A private folder for files that workers write."""
        self._kept: OrderedDict[Question, tuple[Version, Answer]] = OrderedDict()
        self._asked: dict[tuple[Version, Question], asyncio.Task[Answer]] = {}
        self._waiters: dict[asyncio.Task[Answer], int] = {}
        self._limit = asyncio.Semaphore(_MAX_PARALLEL)
        self._changed = asyncio.Condition()
        self._closed = asyncio.Event()
        self._growing: OrderedDict[str, None] = OrderedDict()
        self._waking: set[asyncio.Task[None]] = set()
        self._changed_sessions: deque[tuple[int, frozenset[str]]] = deque(maxlen=_MAX_CHANGES)

    @property
    def change(self) -> int:
        """The version of answers that do not depend on the status of sessions."""
        return self._lists.version

    @property
    def live_version(self) -> Version:
        """The current version of answers that also depend on the status of sessions."""
        return (self._live.version, self._status_changes)

    @property
    def position(self) -> Position:
        """The position of a page whose data comes from the current answers."""
        return Position(self.run_id, self.change, self._counted_file_changes)

    async def ask(self, question: Question, *, live: bool = False) -> Answer:
        """Return the answer to a question. If an equal question is pending, wait for its answer.

        Set `live` if the answer also depends on the status of processes.
        """
        if question.name in _ZONED:
            question = msgspec.structs.replace(question, zone=read_zone())
        version = self.live_version if live else (self.change, 0)
        kept = self._kept.get(question)
        if kept is not None and kept[0] == version:
            self._kept.move_to_end(question)
            return kept[1]
        key = (version, question)
        task = self._asked.get(key)
        if task is None:
            pace = self._live if live else self._lists
            task = self._asked[key] = asyncio.create_task(self._ask_worker(key, pace))
            pace.pending.add(task)
            task.add_done_callback(pace.pending.discard)
        return await self._wait_for_answer(key, task)

    async def _wait_for_answer(self, key: tuple[Version, Question], task: asyncio.Task[Answer]) -> Answer:
        """Wait for an answer. If this is cancelled and nothing else waits for the answer, it is not computed."""
        self._waiters[task] = self._waiters.get(task, 0) + 1
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if self._waiters[task] == 1 and self._asked.get(key) is task:
                del self._asked[key]
                task.cancel()
            raise
        finally:
            self._waiters[task] -= 1
            if not self._waiters[task]:
                del self._waiters[task]

    async def ask_changes(self, question: Question, version: str) -> Answer:
        """Return the changes of a timeline since a version. They are not cached."""
        key = (
            (self.file_changes, self._status_changes),
            msgspec.structs.replace(question, params=(*question.params, ("after", version))),
        )
        task = self._asked.get(key)
        if task is None:
            task = self._asked[key] = asyncio.create_task(self._ask_changes(key, question, version))
        return await asyncio.shield(task)

    async def _ask_changes(self, key: tuple[Version, Question], question: Question, version: str) -> Answer:
        try:
            return await self._pool.ask_changes(question, version)
        finally:
            self._asked.pop(key, None)

    def check_sources(self) -> None:
        """Raise ApiError if there is nothing to ask about, because no client has been used on this machine."""
        if not self.roots and not _user_folders():
            raise ApiError(404, "There are no transcripts yet.", "no_transcripts")

    def last_answer(self, question: Question) -> Answer | None:
        """Return the last cached answer to a question, which may be out of date, or None."""
        kept = self._kept.get(question)
        return None if kept is None else kept[1]

    async def run(self, question: Question, *, changes: bool = True) -> Answer:
        """Ask a question and return its answer, which is not cached.

        Unless `changes` is False, answering it may change something, so all cached answers become invalid.
        """
        try:
            return await self._ask_worker(((self.change, 0), question), self._lists, keep=False)
        finally:
            if changes:
                await self.forget_answers()

    async def refresh(self) -> None:
        """Make all answers invalid if files have changed since, even if it is not yet time for the next version."""
        if self._lists.is_outdated or self._live.is_outdated:
            await self.forget_answers()

    async def forget_answers(self) -> None:
        """Make all answers invalid."""
        for pace in (self._lists, self._live):
            await self._forget_answers(pace)

    async def _forget_answers(self, pace: _Pace) -> None:
        pace.version += 1
        pace.is_outdated, pace.busy_seconds = False, 0.0
        if pace is self._lists:
            self._counted_file_changes = self.file_changes
        for question in [question for question in self._kept if question.name in _NEVER_REPEATED]:
            del self._kept[question]  # `last_answer` is not used for these
        await self._notify()

    async def _ask_worker(self, key: tuple[Version, Question], pace: _Pace, *, keep: bool = True) -> Answer:
        version, question = key
        try:
            async with self._limit:
                # perf: a growing file is kept in memory only for repeated questions
                growing = tuple(self._growing) if question in self._kept else ()
                seconds = self._seconds * (_SLOW_FACTOR if question.name in _SLOW else 1)
                answer = await self._pool.ask(question, growing, seconds=seconds)
                pace.busy_seconds += answer.cpu_seconds
            if keep and answer.error is None:
                self._keep(question, version, answer)
            return answer
        finally:
            if self._asked.get(key) is asyncio.current_task():
                del self._asked[key]

    def _keep(self, question: Question, version: Version, answer: Answer) -> None:
        self._kept[question] = (version, answer)
        self._kept.move_to_end(question)
        size = sum(len(kept.body) for _, kept in self._kept.values())
        while size > _MAX_KEPT_BYTES and len(self._kept) > 1:
            _, (_, oldest) = self._kept.popitem(last=False)
            size -= len(oldest.body)

    async def watch(self) -> None:
        """Count the changes to transcripts until cancelled."""
        folders = [Path(root) for root in self.roots if not is_remote(root)]
        if len(folders) < len(self.roots):
            await asyncio.gather(self._watch_objects(), self._watch_files(folders) if folders else asyncio.sleep(0))
            return
        if folders:
            await self._watch_files(folders)
        while True:
            await self._watch_user_folders()

    async def _watch_user_folders(self) -> None:
        """Watch the folders of the user's clients until there is another one."""
        folders = _user_folders()
        task = asyncio.create_task(self._watch_files(list(folders)) if folders else asyncio.sleep(0))
        try:
            while _user_folders() == folders:
                await asyncio.sleep(_ROOTS_SECONDS if folders else _FIRST_ROOTS_SECONDS)
        finally:
            task.cancel()
        await self.forget_answers()

    async def _watch_objects(self) -> None:
        """List the served objects once a minute, and invalidate the answers if the listing has changed."""
        roots = [to_path(root) for root in self.roots if is_remote(root)]
        before = await asyncio.to_thread(_listing_digest, roots)
        while True:
            await asyncio.sleep(_OBJECT_POLL_SECONDS)
            if (digest := await asyncio.to_thread(_listing_digest, roots)) != before:
                before = digest
                await self.forget_answers()

    async def _watch_files(self, folders: list[Path]) -> None:
        from watchfiles import awatch

        statuses = [folder for item in all_formats() if (folder := item.process_folder()) and folder.is_dir()]
        folders += statuses
        counting: dict[_Pace, asyncio.Task[None]] = {}
        try:
            async for changes in awatch(*folders, step=200, debounce=400, rust_timeout=0, yield_on_timeout=False):
                if all(Path(path).parent in statuses for _, path in changes):
                    self.count_status_change()
                    continue
                self._note_growing(path for _, path in changes)
                self.file_changes += 1
                sessions = frozenset(chain.from_iterable(_sessions_of(path) for _, path in changes))
                self._changed_sessions.append((self.file_changes, sessions))
                await self._notify()
                for pace in (self._lists, self._live):
                    pace.is_outdated = True
                    if pace not in counting or counting[pace].done():
                        counting[pace] = asyncio.create_task(self._count_change(pace))
        finally:
            for task in counting.values():
                task.cancel()

    async def _count_change(self, pace: _Pace) -> None:
        """Invalidate the answers, and do so again after a pause if files have changed in the meantime."""
        while pace.is_outdated:
            await self._forget_answers(pace)
            await pace.rest()

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
        self._pool.close()
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


def _user_folders() -> list[Path]:
    try:
        return default_roots()
    except SourceError:  # no client has been used on this machine
        return []


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
