"""Copy a session from its local files to a store, while it is recorded.

The local files are the spool: the recorder writes them as always, and a thread appends their new lines to the store.
`StoredTranscript.wait_until_stored` is awaited before a call with side effects starts and before results are given to
the model. Start at `StoredTranscript.create` and `_push`.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import msgspec

from toolspan.errors import Ambiguous, NotFound, ToolspanError
from toolspan.formats.jsonl import make_folder
from toolspan.formats.side_files import intent_path, session_folder
from toolspan.session.recording.writer import check_session_id, is_transcript_claimed, is_transcript_locked
from toolspan.session.recording.writer import transcript_path as path_in
from toolspan.stores.adapter import to_leased_store
from toolspan.stores.base import (
    DEFAULT_TTL,
    FILES,
    INTENTS,
    Append,
    Lease,
    LeasedStore,
    LeaseLost,
    LeaseRequest,
    SessionStore,
    StoreUnavailable,
    StreamKey,
)
from toolspan.stores.files import (
    encode_file,
    encode_line,
    encode_metadata,
    find_files,
    find_transcripts,
    is_metadata,
    metadata_path,
    write_lines,
)
from toolspan.types.ids import SessionId

Durability = Literal["store", "local"]
"""`store`: a result is given to the model, and a call with side effects starts, only when the store has it.
`local`: the store follows, as long as the spool has room and the lease lasts.
"""
StoreTarget = LeasedStore | SessionStore | str
SPOOL_BYTES = 64 << 20
_COMMIT_BYTES = 4 << 20
_RETRY_DELAYS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
_CLOSE_SECONDS = 15.0
"""The seconds for which a session that is closed tries to store its last records."""
_IDLE_SECONDS = 5.0
"""The interval in which the thread looks for new lines that nothing has announced."""


class StoreOptions(NamedTuple):
    """How a session is kept in a store."""

    durability: Durability = "store"
    ttl: float = DEFAULT_TTL
    spool_bytes: int = SPOOL_BYTES
    folder: Path | None = None
    """The folder for the local files, by default `~/.local/state/toolspan/stores`."""

    @classmethod
    def from_session(cls, options: Mapping[str, Any]) -> Self:
        """Return the options among the keyword arguments of a session."""
        return cls(
            options.get("durability", "store"),
            options.get("lease_seconds", DEFAULT_TTL),
            options.get("spool_bytes", SPOOL_BYTES),
        )


class _Spool(msgspec.Struct):
    """The last owner of a session's local files."""

    fence: int


class StoredTranscript:
    """A session in a store, and its local files."""

    def __init__(
        self, store: LeasedStore, key: StreamKey, path: Path, options: StoreOptions, *, closes_store: bool = False
    ) -> None:
        self.store = store
        self.key = key
        self.path = path
        """The local transcript."""
        self.options = options
        self.lease: Lease | None = None
        self.on_problem: Callable[[str], None] = logging.getLogger("toolspan").warning
        """Called in the thread when the store begins to fail. It must not raise."""
        self.on_lost: Callable[[], None] = lambda: None
        """Called in the thread when another host has taken over the session. It must not raise."""
        self._closes_store = closes_store
        self._sent: dict[str, int] = {}
        """The local bytes of each stream and file that the store has."""
        self._positions: dict[str, int] = {}
        """The number of entries that each stream has in the store."""
        self._metadata: dict[str, bytes] = {}
        self._lost: LeaseLost | None = None
        self._is_failing = False
        self._valid_until = 0.0
        """The time of this machine's monotonic clock until which nobody else can have the lease."""
        self._condition = threading.Condition()
        self._waiting: list[Future[None]] = []
        self._is_awake = False
        self._is_closing = False
        self._thread: threading.Thread | None = None

    @classmethod
    def create(cls, store: StoreTarget, session_id: SessionId, cwd: Path, options: StoreOptions) -> Self:
        """Prepare a new session. Nothing is stored before it is opened."""
        leased = to_leased_store(store)
        root = _spool_folder(leased, options) / session_id
        path = path_in(session_id, cwd, root)
        if _is_busy(path):  # an earlier owner on this machine is still there
            path = path_in(session_id, cwd, root / f"process-{os.getpid()}")
        return cls(leased, StreamKey(path.parent.name, session_id), path, options, closes_store=isinstance(store, str))

    @classmethod
    def resume(cls, store: StoreTarget, prefix: str | None, cwd: Path, options: StoreOptions) -> Self:
        """Take over the session whose id begins with `prefix`, or the newest of the folder, and fetch its files.

        Raises:
            NotFound: the store has no such session.
            Ambiguous: several sessions have that prefix.
            InUse: another host is running it.
            StoreUnavailable: the store cannot be reached.
        """
        leased = to_leased_store(store)
        try:
            return cls._take_over(leased, prefix, cwd, options, closes_store=isinstance(store, str))
        except BaseException:
            if isinstance(store, str):
                leased.close()
            raise

    @classmethod
    def _take_over(
        cls, leased: LeasedStore, prefix: str | None, cwd: Path, options: StoreOptions, *, closes_store: bool
    ) -> Self:
        root = _spool_folder(leased, options)
        project = path_in(SessionId("any"), cwd, root).parent.name
        key = _find_session(leased, prefix, project)
        check_session_id(key.session)
        root /= key.session
        lease = leased.acquire_lease(LeaseRequest.make(key, options.ttl))
        try:
            path = root / "projects" / key.project / f"{key.session}.jsonl"
            if _is_busy(path):
                path = root / f"fence-{lease.fence}" / "projects" / key.project / path.name
            stored = cls(leased, key, path, options, closes_store=closes_store)
            stored._set_lease(lease)
            stored._fetch_files()
        except BaseException:
            with suppress(ToolspanError):
                leased.release_lease(lease)
            raise
        return stored

    @classmethod
    def copy_files(cls, store: LeasedStore, prefix: str | None, cwd: Path, folder: Path) -> Path:
        """Write the files of a session to a folder, without taking it over. Return its transcript.

        Raises:
            NotFound, Ambiguous: see `resume`.
            StoreUnavailable: the store cannot be reached.
        """
        key = _find_session(store, prefix, path_in(SessionId("any"), cwd, folder).parent.name)
        check_session_id(key.session)
        path = folder / f"{key.session}.jsonl"
        for stream in store.list_streams(key.project, key.session):
            write_lines(path, stream.key.subpath, store.read_lines(stream.key) or [])
        return path

    @property
    def session_id(self) -> SessionId:
        """The id of the session."""
        return SessionId(self.key.session)

    @property
    def is_reliable(self) -> bool:
        """True if no call with side effects starts before the store has its intent."""
        return self.options.durability == "store"

    def open(self) -> None:
        """Acquire or renew the lease, and start the thread.

        Raises:
            InUse: another host is running the session.
            StoreUnavailable: the store cannot be reached.
        """
        if self._thread is not None:
            return
        self._is_closing = False
        if self.lease is None:
            lease = self.store.acquire_lease(LeaseRequest.make(self.key, self.options.ttl))
            self._set_lease(lease)
            if self._count_entries():
                self.store.release_lease(lease)
                self.lease = None
                raise ToolspanError(f"{self.key.session}: the store has this session; resume it")
            self._write_fence(lease)
        else:
            self._renew(self.lease)
        self._thread = threading.Thread(target=self._run, name=f"toolspan-store-{self.key.session[:8]}", daemon=True)
        self._thread.start()

    def check_lease(self) -> None:
        """Raise LeaseLost if another host has taken over the session."""
        if self._lost is not None:
            raise LeaseLost(str(self._lost))

    def notify(self) -> None:
        """Tell the thread that there are new lines."""
        with self._condition:
            self._is_awake = True
            self._condition.notify()

    async def wait_until_stored(self, *, is_intent: bool = False) -> None:
        """Wait until the store has everything written so far. With `local` durability, an intent rarely waits.

        Raises:
            LeaseLost: another host has taken over the session.
        """
        self.check_lease()
        if not self.is_reliable and not (is_intent and self._must_wait()):
            self.notify()
            return
        future: Future[None] = Future()
        with self._condition:
            self._waiting.append(future)
            self._is_awake = True
            self._condition.notify()
        await asyncio.wrap_future(future)

    def close(self) -> None:
        """Store what is left, end the lease and remove the local files. They are kept if the store fails.

        Raises:
            StoreUnavailable: the store lacks the last records. Resuming the session on this machine stores them.
        """
        if self._thread is not None:
            with self._condition:
                self._is_closing = True
                self._condition.notify()
            self._thread.join()
            self._thread = None
        lease, self.lease = self.lease, None
        try:
            if lease is not None and self._lost is None:
                self._push_at_end(lease)
                self._remove_files()
        except LeaseLost as error:
            self._lost = error
        except ToolspanError as error:
            raise StoreUnavailable(
                f"{error}; the last records are in {self.path}, and resuming the session on this machine stores them"
            ) from error
        finally:
            if self._closes_store:
                self.store.close()

    def _push_at_end(self, lease: Lease) -> None:
        """Store what is left and end the lease, with a few attempts."""
        deadline = time.monotonic() + min(self.options.ttl, _CLOSE_SECONDS)
        while True:
            try:
                self._push(lease)
                self.store.release_lease(lease)
            except StoreUnavailable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_DELAYS[2])
            else:
                return

    # The thread

    def _run(self) -> None:
        failures = 0
        assert self.lease is not None
        lease = self.lease
        renew_after = self.options.ttl / 3
        while True:
            with self._condition:
                if not self._is_awake and not self._is_closing and not failures:
                    self._condition.wait(min(renew_after, _IDLE_SECONDS))
                elif failures and not self._is_closing:
                    self._condition.wait(_RETRY_DELAYS[min(failures, len(_RETRY_DELAYS)) - 1])
                if self._is_closing:
                    break
                waiting, self._is_awake = list(self._waiting), False
            try:
                self._push(lease)
                if time.monotonic() > self._valid_until - 2 * renew_after:
                    self._renew(lease)
            except LeaseLost as error:
                self._end_lease(error)
                return
            except Exception as error:  # noqa: BLE001 - whatever a store raises, the session continues
                failures += 1
                self._report_failure(error)
                continue
            failures, self._is_failing = 0, False
            self._finish_waiting(waiting)
        self._finish_waiting(self._waiting, ToolspanError("the session was closed"))

    def _finish_waiting(self, waiting: Sequence[Future[None]], error: ToolspanError | None = None) -> None:
        with self._condition:
            self._waiting = [future for future in self._waiting if future not in waiting]
        for future in waiting:
            if future.set_running_or_notify_cancel():
                future.set_result(None) if error is None else future.set_exception(error)

    def _end_lease(self, error: LeaseLost) -> None:
        with self._condition:
            self._lost = error
        self.on_problem(f"{error}; the records since are only in {self.path}")
        self.on_lost()
        self._finish_waiting(list(self._waiting), error)

    def _report_failure(self, error: Exception) -> None:
        if not self._is_failing:
            self._is_failing = True
            self.on_problem(f"{error}; results wait in {self.path}")

    def _must_wait(self) -> bool:
        """Return whether a call with side effects must wait for the store even with `local` durability."""
        return time.monotonic() > self._valid_until or self._count_waiting_bytes() > self.options.spool_bytes

    def _count_waiting_bytes(self) -> int:
        size = 0
        for subpath, path in self._streams():
            with suppress(OSError):
                size += path.stat().st_size - self._sent.get(subpath, 0)
        return size

    # Storing

    def _streams(self) -> list[tuple[str, Path]]:
        """Return the streams of lines, intents first: a result is not stored before its intent."""
        return [(INTENTS, intent_path(self.path)), *find_transcripts(self.path).items(), ("", self.path)]

    def _push(self, lease: Lease) -> None:
        """Append all new lines and pieces of files to the store."""
        while True:
            batch = _Batch(self.key, self._sent, self._positions)
            intents, *transcripts = self._streams()
            batch.add_lines(*intents)
            for name, path in find_files(self.path, {path for _, path in (intents, *transcripts)}):
                batch.add_file(name, path)
            for subpath, path in transcripts:
                self._add_metadata(batch, subpath, path)
                batch.add_lines(subpath, path)
            if not batch.sent and not batch.lines:
                return
            if batch.lines:
                started = time.monotonic()
                self.store.commit(batch.appends(), lease)
                self._valid_until = started + self.options.ttl
            self._sent |= batch.sent
            for subpath, lines in batch.lines.items():
                self._positions[subpath] = self._positions.get(subpath, 0) + len(lines)
            self._metadata |= batch.metadata

    def _add_metadata(self, batch: _Batch, subpath: str, path: Path) -> None:
        if not subpath:
            return
        with suppress(OSError):
            data = metadata_path(path).read_bytes()
            entry = encode_metadata(data)
            if self._metadata.get(subpath) != data and entry is not None:
                batch.add_entry(subpath, entry)
                batch.metadata[subpath] = data

    def _renew(self, lease: Lease) -> None:
        started = time.monotonic()
        self.store.renew_lease(lease)
        self._valid_until = started + self.options.ttl

    # Local files

    def _set_lease(self, lease: Lease) -> None:
        self.lease = lease
        self._valid_until = time.monotonic() + lease.ttl

    def _count_entries(self) -> int:
        streams = self.store.list_streams(self.key.project, self.key.session)
        return sum(bool(self.store.read_lines(stream.key)) for stream in streams if not stream.key.subpath)

    def _write_fence(self, lease: Lease) -> None:
        make_folder(self.path.parent)
        _fence_path(self.path).write_bytes(msgspec.json.encode(_Spool(lease.fence)))

    def _fetch_files(self) -> None:
        """Make the local files those of the store. What an earlier owner here could not store is stored now."""
        lease = self.lease
        assert lease is not None
        streams = [stream.key for stream in self.store.list_streams(self.key.project, self.key.session)]
        lines = {key.subpath: self.store.read_lines(key) or [] for key in streams}
        self._positions = {subpath: len(found) for subpath, found in lines.items()}
        if lease.fence and _read_fence(self.path) == lease.previous_fence:
            self._keep_files(lines)
            self._write_fence(lease)
            self._push(lease)
            return
        if self.path.exists() and not _has_lines(lines.get("", ()), self.path):
            aside = self.path.with_name(f"{self.path.stem}.unstored-{lease.fence}")
            make_folder(aside)
            for path in (self.path, session_folder(self.path)):
                with suppress(FileNotFoundError):
                    path.rename(aside / path.name)
            self.on_problem(f"another host has continued the session; records that were not stored are in {aside}")
        self._remove_files()
        try:
            for subpath, found in lines.items():
                write_lines(self.path, subpath, found)
        except OSError:
            self._remove_files()
            raise
        self._mark_sent()
        self._write_fence(lease)

    def _keep_files(self, lines: dict[str, list[bytes]]) -> None:
        """Keep local files that no other host has continued: the store has the beginning of each."""
        for subpath, path in self._streams():
            count = sum(not is_metadata(line) for line in lines.get(subpath, ()))
            self._sent[subpath] = _offset_after(path, subpath, count)

    def _mark_sent(self) -> None:
        streams = self._streams()
        for subpath, path in streams:
            with suppress(OSError):
                self._sent[subpath] = path.stat().st_size
                if subpath:
                    self._metadata[subpath] = metadata_path(path).read_bytes()
        for name, path in find_files(self.path, {path for _, path in streams}):
            self._sent[f"{FILES}/{name}"] = path.stat().st_size

    def _remove_files(self) -> None:
        for path in find_transcripts(self.path).values():
            if path.parent == self.path.parent:  # one of an old version, beside the session
                path.unlink(missing_ok=True)
        shutil.rmtree(session_folder(self.path), ignore_errors=True)
        for path in (self.path, _fence_path(self.path)):
            path.unlink(missing_ok=True)
        with suppress(OSError):  # its own folder, unless records that were not stored are in it
            for folder in self.path.parents:
                folder.rmdir()
                if folder.name == self.key.session:
                    break
        self._sent.clear()
        self._metadata.clear()


class _Batch:
    """The new lines of several streams, up to a size."""

    def __init__(self, key: StreamKey, sent: dict[str, int], positions: dict[str, int]) -> None:
        self._key = key
        self._before = sent
        self._positions = positions
        self.lines: dict[str, list[bytes]] = {}
        self.sent: dict[str, int] = {}
        self.metadata: dict[str, bytes] = {}
        self._size = 0

    def appends(self) -> list[Append]:
        """Return what to append."""
        return [
            Append(self._key.with_subpath(subpath), lines, self._positions.get(subpath, 0))
            for subpath, lines in self.lines.items()
        ]

    def add_entry(self, subpath: str, entry: bytes) -> None:
        """Add an entry."""
        self.lines.setdefault(subpath, []).append(entry)
        self._size += len(entry)

    def add_lines(self, subpath: str, path: Path) -> None:
        """Add the complete new lines of a file. A single line may exceed the size."""
        offset = self._before.get(subpath, 0)
        try:
            with path.open("rb") as file:
                file.seek(offset)
                for line in file:
                    if self._size >= _COMMIT_BYTES or not line.endswith(b"\n"):
                        break
                    entry = encode_line(subpath, line[:-1])
                    if entry is not None:
                        self.add_entry(subpath, entry)
                    offset += len(line)
                    self.sent[subpath] = offset
        except FileNotFoundError:
            return

    def add_file(self, name: str, path: Path) -> None:
        """Add the new bytes of a file in pieces. One that has become shorter is added again."""
        stream = f"{FILES}/{name}"
        start = self._before.get(stream, 0)
        with suppress(OSError):
            size = path.stat().st_size
            if size < start:
                start = 0
            for entry, end in encode_file(name, path, start) if size != start else ():
                if self._size >= _COMMIT_BYTES:
                    break
                self.add_entry(FILES, entry)
                self.sent[stream] = end


def _spool_folder(store: LeasedStore, options: StoreOptions) -> Path:
    """Return the folder for the local files of a store's sessions. Each has a folder there, which is quickly listed."""
    base = options.folder
    if base is None:
        named = os.environ.get("XDG_STATE_HOME", "")
        state = Path(named) if Path(named).is_absolute() else Path.home() / ".local" / "state"
        base = state / "toolspan" / "stores"
    return base / hashlib.sha256(store.url.encode()).hexdigest()[:16]


def _is_busy(path: Path) -> bool:
    """Return whether a session of this machine is writing to a transcript."""
    return is_transcript_claimed(path) or is_transcript_locked(path)


def _find_session(store: LeasedStore, prefix: str | None, project: str) -> StreamKey:
    """Return the session to resume, first from the project and then from all."""
    mains = [stream for stream in store.list_streams(project) if not stream.key.subpath]
    if prefix is None:
        if not mains:
            raise NotFound(f"{store.url}: no session was recorded for this folder")
        return max(mains, key=lambda stream: stream.mtime_ms).key
    for projects in (project, None):
        try:
            streams = mains if projects else store.list_streams()
        except ToolspanError:  # a store that lists one project only
            break
        found = [stream.key for stream in streams if not stream.key.subpath]
        found += [lease.key for lease in store.list_leases(projects)]  # nothing may have been stored yet
        keys = sorted({key for key in found if key.session.startswith(prefix)})
        exact = [key for key in keys if key.session == prefix]
        if len(exact or keys) == 1:
            return (exact or keys)[0]
        if keys:
            raise Ambiguous(f"{len(keys)} sessions begin with {prefix!r}: {', '.join(key.session for key in keys)}")
    key = StreamKey(project, prefix)
    if store.read_lines(key) is not None:  # a store that cannot list sessions
        return key
    raise NotFound(f"{store.url}: no session begins with {prefix!r}")


def _fence_path(path: Path) -> Path:
    return path.with_suffix(".lease")


def _read_fence(path: Path) -> int | None:
    try:
        return msgspec.json.decode(_fence_path(path).read_bytes(), type=_Spool).fence if path.exists() else None
    except (OSError, msgspec.MsgspecError):
        return None


def _offset_after(path: Path, subpath: str, count: int) -> int:
    """Return the offset after the first `count` lines that are not damaged."""
    offset = 0
    with suppress(FileNotFoundError), path.open("rb") as file:
        for line in file:
            if not count or not line.endswith(b"\n"):
                break
            count -= encode_line(subpath, line[:-1]) is not None
            offset += len(line)
    return offset


def _has_lines(lines: Sequence[bytes], path: Path) -> bool:
    """Return whether each line of a file is among others."""
    known = set(lines)
    return all(line in known for line in path.read_bytes().split(b"\n") if line)
