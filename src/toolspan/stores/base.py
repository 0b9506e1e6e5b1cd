"""The interface of session stores, and the methods that all of toolspan's stores share.

A store keeps *streams* of JSON lines: the transcript of a session, those of its subagents, and under `toolspan/` the
intents and files that belong to it. `SessionStore` is the interface of the Claude Agent SDK. `LeasedStore` is that of
the stores in this package: one transaction for several streams, and a lease that only one host has. Its own methods
block; those of the interface run them in threads. Start at `LeasedStore`.
"""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NotRequired, Protocol, TypedDict

import msgspec

from toolspan.errors import InUse, ToolspanError
from toolspan.formats.processes import host_name

DEFAULT_TTL = 30.0
"""The seconds after which a session whose owner has died can be resumed elsewhere."""
Entry = Mapping[str, object]
OWN_STREAMS = "toolspan/"
"""The beginning of the subpaths of streams that are no transcripts. `list_subkeys` leaves them out."""
INTENTS = OWN_STREAMS + "intents"
FILES = OWN_STREAMS + "files"


class SessionKey(TypedDict):
    """The key of a stream, as the Agent SDK names it."""

    project_key: str
    session_id: str
    subpath: NotRequired[str]


class SessionStore(Protocol):
    """A store as the Agent SDK defines it. All other methods of the interface are optional."""

    async def append(self, key: Any, entries: list[Any]) -> None:
        """Append entries to a stream."""
        ...

    async def load(self, key: Any) -> list[Any] | None:
        """Return the entries of a stream, or None if there is none."""
        ...


class StreamKey(NamedTuple):
    """A stream of a session."""

    project: str
    session: str
    subpath: str = ""

    @classmethod
    def parse(cls, key: Mapping[str, Any]) -> StreamKey:
        """Convert a key of the Agent SDK."""
        return cls(str(key["project_key"]), str(key["session_id"]), str(key.get("subpath") or ""))

    def to_json(self) -> SessionKey:
        """Convert the key to that of the Agent SDK."""
        key: SessionKey = {"project_key": self.project, "session_id": self.session}
        if self.subpath:
            key["subpath"] = self.subpath
        return key

    def with_subpath(self, subpath: str) -> StreamKey:
        """Return the key of another stream of the same session."""
        return self._replace(subpath=subpath)


class Append(NamedTuple):
    """Lines to append to a stream."""

    key: StreamKey
    lines: Sequence[bytes]
    start: int | None = None
    """The number of lines before them. Lines that the stream already has are not appended again. None if the writer
    does not know it: then entries are recognised by their `uuid`."""


class StreamInfo(NamedTuple):
    """A stream in a listing."""

    key: StreamKey
    entries: int
    mtime_ms: int


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The right of one owner to append to a session, until it expires or another owner takes it over."""

    project: str
    session: str
    owner: str
    """The id of the owner: one opened session."""
    host: str
    pid: int
    fence: int
    """A number that increases with every owner. The store refuses appends with an older one."""
    ttl: float
    expires_in: float
    """The seconds until the lease ends, when it was read. Negative if it has ended."""
    previous_fence: int = 0

    @property
    def key(self) -> StreamKey:
        """The main stream of the session."""
        return StreamKey(self.project, self.session)

    @property
    def is_live(self) -> bool:
        """True if the lease had not ended when it was read."""
        return self.expires_in > 0


class StoreUnavailable(ToolspanError):  # noqa: N818 - reads as a noun where it is caught
    """Raised if a store cannot be reached or does not work. The same request may succeed later."""


class LeaseLost(InUse):
    """Raised if a session is not, or no longer, this owner's."""


class LeaseRequest(NamedTuple):
    """An owner that wants a lease."""

    key: StreamKey
    owner: str
    host: str
    pid: int
    ttl: float

    @classmethod
    def make(cls, key: StreamKey, ttl: float = DEFAULT_TTL, owner: str | None = None) -> LeaseRequest:
        """Return the request of this process for the lease of a session."""
        return cls(key.with_subpath(""), owner or uuid.uuid4().hex, host_name(), os.getpid(), ttl)

    def grant(self, fence: int, previous_fence: int) -> Lease:
        """Return the lease with a fencing number."""
        key = self.key
        return Lease(
            project=key.project, session=key.session, owner=self.owner, host=self.host, pid=self.pid, fence=fence,
            ttl=self.ttl, expires_in=self.ttl, previous_fence=previous_fence,
        )  # fmt: skip


def held_error(lease: Lease) -> InUse:
    """Return the error for a session that another owner has."""
    return InUse(
        f"{lease.session}: process {lease.pid} on {lease.host or 'another host'} is running this session;"
        f" its lease ends in {max(lease.expires_in, 0):.0f} s unless it is renewed"
    )


def lost_error(session: str) -> LeaseLost:
    """Return the error for an owner whose lease another one has taken over."""
    return LeaseLost(f"{session}: another host has taken over this session; nothing more can be recorded here")


class LeasedStore(ABC):
    """A store with leases. Its methods may be called from any thread."""

    url: str
    """The address, without a password."""

    @abstractmethod
    def commit(self, appends: Sequence[Append], lease: Lease | None = None) -> None:
        """Append to streams of one session in one transaction. The lines are durable when this returns.

        A lease is extended by its `ttl`. Without one, the session must not have a live lease, and that of an owner
        that let it expire is ended.

        Raises:
            LeaseLost: another owner has, or had, the session since.
            InUse: there is no lease, and another owner has one.
            StoreUnavailable: the store does not work, or it is not known whether the lines were appended.
        """

    @abstractmethod
    def read_lines(self, key: StreamKey, start: int = 0) -> list[bytes] | None:
        """Return the lines of a stream without the first `start` ones; None if there is no such stream."""

    @abstractmethod
    def list_streams(self, project: str | None = None, session: str | None = None) -> list[StreamInfo]:
        """Return the streams of a session, of a project or of all projects."""

    @abstractmethod
    def remove_stream(self, key: StreamKey) -> None:
        """Remove a stream; for the main stream of a session, all its streams.

        Raises:
            InUse: the session has a live lease.
        """

    @abstractmethod
    def acquire_lease(self, request: LeaseRequest) -> Lease:
        """Return a lease with a new fencing number.

        Raises:
            InUse: another owner has the session.
        """

    @abstractmethod
    def renew_lease(self, lease: Lease) -> None:
        """Extend a lease by its `ttl`.

        Raises:
            LeaseLost: another owner has taken over the session.
        """

    @abstractmethod
    def release_lease(self, lease: Lease) -> None:
        """End a lease, unless another owner has taken over the session."""

    @abstractmethod
    def list_leases(self, project: str | None = None) -> list[Lease]:
        """Return the latest lease of each session that has an owner, live or expired."""

    def close(self) -> None:  # noqa: B027 - most stores have nothing to close
        """Close the connections. Later calls open them again."""

    # The interface of the Agent SDK

    async def append(self, key: Mapping[str, Any], entries: Sequence[Entry], lease: Lease | None = None) -> None:
        """Append entries to a stream. Entries with a `uuid` that the stream has are left out."""
        if entries:
            lines = [encode_entry(entry) for entry in entries]
            await asyncio.to_thread(self.commit, [Append(StreamKey.parse(key), lines)], lease)

    async def load(self, key: Mapping[str, Any]) -> list[Any] | None:
        """Return the entries of a stream, or None if there is none."""
        lines = await asyncio.to_thread(self.read_lines, StreamKey.parse(key))
        return None if lines is None else [json.loads(line) for line in lines]

    async def list_sessions(self, project_key: str) -> list[Any]:
        """Return the ids of a project's sessions and the times of their last change, in milliseconds."""
        streams = await asyncio.to_thread(self.list_streams, project_key)
        return [{"session_id": s.key.session, "mtime": s.mtime_ms} for s in streams if not s.key.subpath]

    async def list_session_summaries(self, project_key: str) -> list[Any]:
        """Return the Agent SDK's summary of each session. Entries are read once, and later only new ones.

        Only the Agent SDK, which calls this, knows how to make a summary.
        """
        from claude_agent_sdk import fold_session_summary

        def summarize() -> list[Any]:
            summaries = []
            for stream in self.list_streams(project_key):
                if stream.key.subpath:
                    continue
                summary: Any
                count, summary = self._summaries.get(stream.key, (0, None))
                if count > stream.entries:  # deleted and written again
                    count, summary = 0, None
                if lines := self.read_lines(stream.key, count):
                    entries: list[Any] = [json.loads(line) for line in lines]
                    summary = dict(fold_session_summary(summary, stream.key.to_json(), entries))
                    count += len(lines)
                if summary is not None:
                    summary = {**summary, "mtime": stream.mtime_ms}
                    self._summaries[stream.key] = count, summary
                    summaries.append(summary)
            return summaries

        return await asyncio.to_thread(summarize)

    async def delete(self, key: Mapping[str, Any]) -> None:
        """Delete a session with all its streams, or the stream that `subpath` names."""
        self._summaries.pop(StreamKey.parse(key), None)
        await asyncio.to_thread(self.remove_stream, StreamKey.parse(key))

    async def list_subkeys(self, key: Mapping[str, Any]) -> list[str]:
        """Return the subpaths of a session's transcripts: those of its subagents."""
        streams = await asyncio.to_thread(self.list_streams, str(key["project_key"]), str(key["session_id"]))
        names = [stream.key.subpath for stream in streams]
        return [name for name in names if name and not name.startswith(OWN_STREAMS)]

    # Leases, for programs of their own

    async def acquire(self, key: Mapping[str, Any], owner: str, ttl: float) -> Lease:
        """Return a lease of a session. Only its owner can append until it ends. See `acquire_lease`."""
        return await asyncio.to_thread(self.acquire_lease, LeaseRequest.make(StreamKey.parse(key), ttl, owner))

    async def renew(self, lease: Lease) -> None:
        """Extend a lease. See `renew_lease`."""
        await asyncio.to_thread(self.renew_lease, lease)

    async def release(self, lease: Lease) -> None:
        """End a lease."""
        await asyncio.to_thread(self.release_lease, lease)

    def __init__(self) -> None:
        self._summaries: dict[StreamKey, tuple[int, dict[str, Any] | None]] = {}


class _EntryId(msgspec.Struct):
    uuid: str | None = None


_ID_DECODER = msgspec.json.Decoder(_EntryId)


def entry_uuid(line: bytes) -> str | None:
    """Return the id of an entry, by which it is recognised if it is appended again."""
    try:
        return _ID_DECODER.decode(line).uuid
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def encode_entry(entry: Entry) -> bytes:
    """Encode an entry as a line without its newline. `json.loads` returns an equal one."""
    return json.dumps(entry, separators=(",", ":")).encode()
