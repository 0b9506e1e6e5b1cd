"""Use any store of the Agent SDK's interface where toolspan needs one of its own."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Coroutine, Sequence
from functools import cache
from typing import Any, TypeVar

from toolspan.errors import ToolspanError
from toolspan.stores.base import (
    FILES,
    INTENTS,
    Append,
    Lease,
    LeasedStore,
    LeaseRequest,
    SessionStore,
    StoreUnavailable,
    StreamInfo,
    StreamKey,
    encode_entry,
)
from toolspan.stores.opening import open_store

T = TypeVar("T")


def to_leased_store(store: LeasedStore | SessionStore | str) -> LeasedStore:
    """Return a store of toolspan, one for a URL, or an adapter for a store of the Agent SDK's interface."""
    if isinstance(store, str):
        return open_store(store)
    if isinstance(store, LeasedStore):
        return store
    if not callable(getattr(store, "append", None)) or not callable(getattr(store, "load", None)):
        raise TypeError(f"a store needs the methods append and load, which {type(store).__name__} does not have")
    return StoreAdapter(store)


_lock = threading.Lock()


@cache
def _start_loop(_process: int) -> asyncio.AbstractEventLoop:
    """Start the event loop, in a thread, on which a process runs the coroutines of all stores.

    A store that opens connections in one session can use them in the next one.
    """
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="toolspan-store", daemon=True).start()
    return loop


class StoreAdapter(LeasedStore):
    """A store without leases, whose coroutines run on an event loop in another thread.

    It cannot prevent two hosts from running one session, and it recognises repeated entries only as far as the store
    does.
    """

    def __init__(self, store: SessionStore) -> None:
        super().__init__()
        self._store = store
        self.url = type(store).__name__

    def commit(self, appends: Sequence[Append], lease: Lease | None = None) -> None:  # noqa: ARG002 - without leases
        """Append to each stream."""
        for append in appends:
            if append.lines:
                entries = [json.loads(line) for line in append.lines]
                self._run(self._store.append(append.key.to_json(), entries))

    def read_lines(self, key: StreamKey, start: int = 0) -> list[bytes] | None:
        """Return the entries of a stream as lines."""
        entries = self._run(self._store.load(key.to_json()))
        return None if entries is None else [encode_entry(entry) for entry in entries[start:]]

    def list_streams(self, project: str | None = None, session: str | None = None) -> list[StreamInfo]:
        """Return the streams of a session, or of a project. Their lengths are not known."""
        if project is None:
            raise ToolspanError(f"{self.url} lists the sessions of one project only; name the project")
        mtimes = (
            {session: 0}
            if session is not None
            else {row["session_id"]: int(row["mtime"]) for row in self._list("list_sessions", project)}
        )
        streams = []
        for name, mtime in mtimes.items():
            key = StreamKey(project, name)
            subpaths = dict.fromkeys(["", *self._list("list_subkeys", key.to_json()), INTENTS, FILES])
            streams += [StreamInfo(key.with_subpath(subpath), -1, mtime) for subpath in subpaths]
        return streams

    def remove_stream(self, key: StreamKey) -> None:
        """Remove a stream."""
        self._run(self._store.delete(key.to_json()))  # type: ignore[attr-defined] # optional

    def acquire_lease(self, request: LeaseRequest) -> Lease:
        """Return a lease that guards nothing."""
        return request.grant(0, 0)

    def renew_lease(self, lease: Lease) -> None:
        """Do nothing."""

    def release_lease(self, lease: Lease) -> None:
        """Do nothing."""

    def list_leases(self, project: str | None = None) -> list[Lease]:  # noqa: ARG002
        """Return no lease."""
        return []

    def _list(self, method: str, key: object) -> list[Any]:
        """Return the result of an optional method, empty if the store does not have it."""
        try:
            found = getattr(self._store, method)(key)
        except AttributeError:
            return []
        try:
            rows: list[Any] = self._run(found)
        except StoreUnavailable as error:
            if isinstance(error.__cause__, NotImplementedError):
                return []
            raise
        return rows

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        with _lock:
            loop = _start_loop(os.getpid())
        try:
            return asyncio.run_coroutine_threadsafe(work, loop).result()
        except ToolspanError:
            raise
        except Exception as error:  # code of the store's author
            raise StoreUnavailable(f"{self.url}: {type(error).__name__}: {error}") from error
