"""A store in S3 or a compatible service, for which creating an object only if it does not exist is enough.

Each session is a log: objects with consecutive numbers, each written once and never changed. An object has the lines of
one commit, or says that an owner has taken the session over or ended its lease. Who wants to append creates the next
number; if it exists, it is read first. So an owner that has lost its lease meets the object of its successor before it
can append, whatever its clock says. A lease is extended by a separate object, whose age is measured with the
service's own clock; it only decides when a session may be taken over. Start at `S3Store.commit`.
"""

from __future__ import annotations

import base64
import threading
import uuid
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, unquote

import boto3
import msgspec
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from toolspan.stores.base import (
    Append,
    Lease,
    LeasedStore,
    LeaseRequest,
    StoreUnavailable,
    StreamInfo,
    StreamKey,
    entry_uuid,
    held_error,
    lost_error,
)

_READERS = 16
_DIGITS = 12
_CLOCK_RESOLUTION = 1.0
"""The service reports times in whole seconds."""
_EXISTS = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "412", "409"})
_ABSENT = frozenset({"NoSuchKey", "404", "NotFound"})


class _Segment(msgspec.Struct, omit_defaults=True):
    """One object of a session's log."""

    id: str
    """Recognises an object whose creation was not confirmed."""
    lines: list[tuple[str, list[str]]] = []
    """The subpath of each stream, and its new lines in base64."""
    lease: Lease | None = None
    """The owner from here on. Its fencing number is that of this object."""
    released: bool = False
    removed: list[str] | None = None
    """The streams that were removed, or an empty list for all."""


class _Stream(msgspec.Struct):
    lines: list[bytes] = []
    uuids: set[str] = set()
    mtime_ms: int = 0


class _Log:
    """The log of a session, as far as it has been read."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.next = 1
        self.streams: dict[str, _Stream] = {}
        self.lease: Lease | None = None
        self.fence = 0

    def apply(self, number: int, segment: _Segment, mtime_ms: int) -> None:
        """Add the next object."""
        self.next = number + 1
        if segment.lease is not None:
            self.lease, self.fence = segment.lease, number
        if segment.released:
            self.lease = None
        if segment.removed is not None:
            for subpath in segment.removed or list(self.streams):
                self.streams.pop(subpath, None)
        for subpath, lines in segment.lines:
            stream = self.streams.setdefault(subpath, _Stream())
            for line in map(base64.b64decode, lines):
                identity = entry_uuid(line)
                stream.lines.append(line)
                if identity is not None:
                    stream.uuids.add(identity)
            stream.mtime_ms = max(stream.mtime_ms + 1, mtime_ms)

    def select_new(self, append: Append) -> list[bytes]:
        """Return the lines that a stream does not have."""
        stream = self.streams.get(append.key.subpath) or _Stream()
        if append.start is not None:
            if len(stream.lines) < append.start:
                raise StoreUnavailable("earlier records are missing in the store")
            return list(append.lines[len(stream.lines) - append.start :])
        known, new = set(stream.uuids), []
        for line in append.lines:
            identity = entry_uuid(line)
            if identity is None or identity not in known:
                new.append(line)
            if identity is not None:
                known.add(identity)
        return new


class S3Store(LeasedStore):
    """A store in a folder of a bucket. The logs of the sessions that were used are kept in memory."""

    def __init__(self, place: str) -> None:
        super().__init__()
        self.url = f"s3://{place}"
        self._bucket, _, folder = place.partition("/")
        self._folder = f"{folder.strip('/')}/" if folder.strip("/") else ""
        self._lock = threading.Lock()
        self._logs: dict[StreamKey, _Log] = {}
        self._connection: Any = None

    def commit(self, appends: Sequence[Append], lease: Lease | None = None) -> None:
        """Append to streams of one session by creating its next object."""
        appends = [append for append in appends if append.lines]
        if not appends:
            return
        key = appends[0].key.with_subpath("")

        def make_segment(log: _Log) -> _Segment | None:
            self._check_lease(key, log, lease)
            lines = [(append.key.subpath, log.select_new(append)) for append in appends]
            if not any(new for _, new in lines):
                return None
            encoded = [(subpath, [base64.b64encode(line).decode() for line in new]) for subpath, new in lines if new]
            # Who appends without a lease ends an expired one, so that its owner cannot append afterwards.
            return _Segment(_new_id(), encoded, released=lease is None and log.lease is not None)

        self._write(key, make_segment)

    def read_lines(self, key: StreamKey, start: int = 0) -> list[bytes] | None:
        """Return the lines of a stream without the first `start` ones."""
        log = self._log(key)
        with self._translate_errors(), log.lock:
            self._read(key, log)
            stream = log.streams.get(key.subpath)
            return None if stream is None else stream.lines[start:]

    def list_streams(self, project: str | None = None, session: str | None = None) -> list[StreamInfo]:
        """Return the streams of a session, of a project or of all projects. New objects of each are read."""
        found = []
        with self._translate_errors():
            for key in self._list_sessions(project, session):
                log = self._log(key)
                with log.lock:
                    self._read(key, log)
                    for subpath, stream in log.streams.items():
                        found.append(StreamInfo(key.with_subpath(subpath), len(stream.lines), stream.mtime_ms))
        return found

    def remove_stream(self, key: StreamKey) -> None:
        """Record that a stream, or all of a session, is removed. The objects stay, as the numbers of the log."""

        def make_segment(log: _Log) -> _Segment | None:
            if not log.streams:
                return None
            self._check_lease(key, log, None)
            return _Segment(_new_id(), removed=[key.subpath] if key.subpath else [], released=log.lease is not None)

        self._write(key.with_subpath(""), make_segment, reads_first=True)

    # Leases

    def acquire_lease(self, request: LeaseRequest) -> Lease:
        """Take over a session by creating the next object of its log."""
        key, previous = request.key, 0

        def make_segment(log: _Log) -> _Segment:
            nonlocal previous
            current, previous = self._live_lease(key, log), log.fence
            if current is not None and current.is_live and current.owner != request.owner:
                raise held_error(current)
            return _Segment(_new_id(), lease=request.grant(log.next, log.fence))

        segment = self._write(key, make_segment)
        assert segment is not None
        assert segment.lease is not None
        return segment.lease

    def renew_lease(self, lease: Lease) -> None:
        """Extend a lease, after a look at the log."""
        log = self._log(lease.key)
        with self._translate_errors(), log.lock:
            self._read(lease.key, log)
            self._check_lease(lease.key, log, lease)
            self._client().put_object(Bucket=self._bucket, Key=self._renewal_name(lease), Body=b"")

    def release_lease(self, lease: Lease) -> None:
        """End a lease."""

        def make_segment(log: _Log) -> _Segment | None:
            is_own = log.lease is not None and (log.lease.owner, log.lease.fence) == (lease.owner, lease.fence)
            return _Segment(_new_id(), released=True) if is_own else None

        self._write(lease.key, make_segment)

    def list_leases(self, project: str | None = None) -> list[Lease]:
        """Return the latest lease of each session that has an owner."""
        leases = []
        with self._translate_errors():
            for key in self._list_sessions(project, None):
                log = self._log(key)
                with log.lock:
                    self._read(key, log)
                    lease = self._live_lease(key, log)
                if lease is not None:
                    leases.append(lease)
        return leases

    def close(self) -> None:
        """Close the connections, and forget what has been read."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None
            self._logs.clear()

    def _check_lease(self, key: StreamKey, log: _Log, lease: Lease | None) -> None:
        """Raise InUse if somebody else has the session. The log must be read to its end."""
        if lease is not None:
            if log.lease is None or (log.lease.owner, log.lease.fence) != (lease.owner, lease.fence):
                raise lost_error(lease.session)
            return
        current = self._live_lease(key, log)
        if current is not None and current.is_live:
            raise held_error(current)

    def _live_lease(self, key: StreamKey, log: _Log) -> Lease | None:
        """Return the lease with the seconds that it has left, by the clock of the service."""
        if log.lease is None:
            return None
        ages = []
        for name in (self._object_name(key, log.fence), self._renewal_name(log.lease)):
            try:
                answer = self._client().head_object(Bucket=self._bucket, Key=name)
            except ClientError as error:
                if _error_code(error) in _ABSENT:
                    continue
                raise
            ages.append(_answer_time(answer) - answer["LastModified"].timestamp())
        return msgspec.structs.replace(log.lease, expires_in=log.lease.ttl + _CLOCK_RESOLUTION - min(ages))

    # Objects

    def _write(self, key: StreamKey, make_segment: Any, *, reads_first: bool = False) -> _Segment | None:
        """Create the next object of a log, made from what the log says then. None makes none.

        The log is read first if nothing is known of it, or if making no object depends on its end.
        """
        log = self._log(key)
        with self._translate_errors(), log.lock:
            if reads_first or log.next == 1:
                self._read(key, log)
            while True:
                segment: _Segment | None = make_segment(log)
                if segment is None:
                    return None
                number = log.next
                answer = self._create(key, number, segment)
                if answer is not None:
                    log.apply(number, segment, int(_answer_time(answer) * 1000))
                    return segment
                if self._read(key, log).get(number) == segment.id:  # created by an attempt that was repeated
                    return segment

    def _create(self, key: StreamKey, number: int, segment: _Segment) -> Any:
        """Create an object unless its number is taken; return the answer or None."""
        try:
            return self._client().put_object(
                Bucket=self._bucket, Key=self._object_name(key, number), Body=msgspec.json.encode(segment),
                IfNoneMatch="*",
            )  # fmt: skip
        except ClientError as error:
            if _error_code(error) in _EXISTS:
                return None
            raise

    def _read(self, key: StreamKey, log: _Log) -> dict[int, str]:
        """Read the new objects of a log, and return their ids by number."""
        first = self._object_name(key, log.next - 1)
        prefix = self._object_name(key, None)
        names = [item["Key"] for item in self._list(Prefix=prefix, StartAfter=first)]
        ids = {}
        for name, (segment, mtime_ms) in zip(names, self._fetch(names), strict=True):
            number = int(name.rpartition("/")[2])
            if number != log.next:
                raise StoreUnavailable(f"{self.url}: object {log.next} of session {key.session} is missing")
            log.apply(number, segment, mtime_ms)
            ids[number] = segment.id
        return ids

    def _fetch(self, names: Sequence[str]) -> Iterable[tuple[_Segment, int]]:
        client = self._client()

        def fetch(name: str) -> tuple[_Segment, int]:
            answer = client.get_object(Bucket=self._bucket, Key=name)
            body = answer["Body"].read()
            return msgspec.json.decode(body, type=_Segment), int(answer["LastModified"].timestamp() * 1000)

        if len(names) < 2:
            return [fetch(name) for name in names]
        with ThreadPoolExecutor(_READERS) as executor:
            return list(executor.map(fetch, names))

    def _list_sessions(self, project: str | None, session: str | None) -> list[StreamKey]:
        if project is not None and session is not None:
            return [StreamKey(project, session)]
        base = f"{self._folder}log/"
        prefix = base if project is None else f"{base}{quote(project, safe='')}/"
        projects = [prefix] if project is not None else self._list_folders(prefix)
        folders = [folder for parent in projects for folder in self._list_folders(parent)]
        keys = [StreamKey(*map(unquote, folder.removeprefix(base).strip("/").split("/"))) for folder in folders]
        return [key for key in keys if session in (None, key.session)]

    def _list_folders(self, prefix: str) -> list[str]:
        return [item["Prefix"] for item in self._list("CommonPrefixes", Prefix=prefix, Delimiter="/")]

    def _list(self, kind: str = "Contents", **request: str) -> Iterator[Any]:
        pages = self._client().get_paginator("list_objects_v2").paginate(Bucket=self._bucket, **request)
        for page in pages:
            yield from page.get(kind, ())

    def _object_name(self, key: StreamKey, number: int | None) -> str:
        folder = f"{self._folder}log/{quote(key.project, safe='')}/{quote(key.session, safe='')}/"
        return folder if number is None else f"{folder}{number:0{_DIGITS}d}"

    def _renewal_name(self, lease: Lease) -> str:
        session = f"{quote(lease.project, safe='')}/{quote(lease.session, safe='')}"
        return f"{self._folder}lease/{session}/{lease.fence:0{_DIGITS}d}"

    def _log(self, key: StreamKey) -> _Log:
        with self._lock:
            return self._logs.setdefault(key.with_subpath(""), _Log())

    def _client(self) -> Any:
        with self._lock:
            if self._connection is None:
                settings = Config(
                    retries={"mode": "standard", "max_attempts": 4}, connect_timeout=10, read_timeout=30,
                    max_pool_connections=_READERS,
                )  # fmt: skip
                self._connection = boto3.client("s3", config=settings)
            return self._connection

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except (BotoCoreError, ClientError) as error:
            raise StoreUnavailable(f"{self.url}: {error}") from error


def _new_id() -> str:
    return uuid.uuid4().hex


def _error_code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _answer_time(answer: Any) -> float:
    """Return the time of the service when it answered."""
    from email.utils import parsedate_to_datetime

    return parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"]).timestamp()
