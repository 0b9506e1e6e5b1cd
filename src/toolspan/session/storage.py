"""The store of a session: prepare it from a session's arguments, open it, and wait until it has all records."""

from __future__ import annotations

import asyncio
import tempfile
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import anyio
from msgspec import Struct

from toolspan.errors import NotFound, ToolspanError
from toolspan.session.environment import SessionOptions
from toolspan.session.recording import Recorder, StoredTranscript, StoreOptions, StoreTarget
from toolspan.session.resume import History, find_session_file, fork_transcript, latest_session_file, load_history
from toolspan.session.workspace_digest import WorkspaceDigest
from toolspan.stores.adapter import to_leased_store
from toolspan.types.ids import SessionId

_RETRY_SECONDS = 0.5


def prepare_store(
    store: StoreTarget | StoredTranscript | None,
    transcript: object,
    session_id: str | None,
    folder: Path,
    options: StoreOptions,
) -> StoredTranscript | None:
    """Return the store of a session and the place of its local files; None without a store.

    Raises:
        ToolspanError: the session is to be recorded in a file too.
    """
    if store is None or isinstance(store, StoredTranscript):
        return store
    if transcript != "home":
        raise ToolspanError("use either `store` or `transcript`: a session is recorded in one place")
    return StoredTranscript.create(store, SessionId(session_id or str(uuid.uuid4())), folder, options)


def resume_stored(
    store: StoreTarget, session: str | None, folder: Path, options: SessionOptions
) -> StoreTarget | StoredTranscript:
    """Take over a session of a store. If none is named and the folder has none, return the store for a new one."""
    try:
        return StoredTranscript.resume(store, session, folder, StoreOptions.from_session(options))
    except NotFound:
        if session is not None:
            raise
        return store


def fork_stored(
    store: StoreTarget,
    session: str | None,
    folder: Path,
    options: StoreOptions,
    *,
    session_id: SessionId,
    until: str | None = None,
) -> tuple[StoredTranscript, list[dict[str, object]]]:
    """Copy a session of a store, up to the record whose id begins with `until`. Return the copy and its messages.

    The copied session may be running: its lease is not needed. Nothing is stored before the new one is opened.

    Raises:
        NotFound: the store has no such session, or the session no such record.
        Ambiguous: several sessions, or records, have that prefix.
        StoreUnavailable: the store cannot be reached.
        ToolspanError: the conversation cannot be continued.
        OSError: the copy cannot be written.
    """
    leased = to_leased_store(store)
    with tempfile.TemporaryDirectory(prefix="toolspan-fork-") as temporary:
        path = StoredTranscript.copy_files(leased, session, folder, Path(temporary))
        history = load_history(path, until=until)
        stored = StoredTranscript.create(store, session_id, folder, options)
        fork_transcript(path, session_id, folder, config=stored.path.parents[2], until=until)
    if leased is not store:
        leased.close()
    return stored, history


class SessionSource(Struct, frozen=True, kw_only=True):
    """A new or resumed session: its id, the place where it is recorded, and its earlier messages."""

    session_id: str | None = None
    transcript: Path | str | None = "home"
    store: StoreTarget | StoredTranscript | None = None
    history: History = ()


def find_source(
    new: SessionSource, session: str | None, folder: Path, options: StoreOptions, *, fork: bool, until: str | None
) -> SessionSource:
    """Return the session whose id begins with `session`, or the newest of a folder, where `new` would be recorded.

    With `fork`, return a copy of it with the id of `new`, up to the record whose id begins with `until`.

    Raises:
        ToolspanError: there is no such session, its conversation cannot be continued, another host is running it, or
            the copy cannot be written.
    """
    new_id = SessionId(new.session_id or str(uuid.uuid4()))
    try:
        if new.store is None:
            path = latest_session_file(folder) if session is None else find_session_file(session, folder)
            history: History = load_history(path, until=until)
            if not fork:
                return SessionSource(session_id=path.stem, transcript=path if new.transcript else None, history=history)
            copy = fork_transcript(path, new_id, folder, until=until) if new.transcript else None
            return SessionSource(session_id=new_id, transcript=copy, history=history)
        assert not isinstance(new.store, StoredTranscript)  # that of a session that has begun
        if not fork:
            return SessionSource(store=StoredTranscript.resume(new.store, session, folder, options))
        stored, history = fork_stored(new.store, session, folder, options, session_id=new_id, until=until)
        return SessionSource(store=stored, history=history)
    except OSError as error:
        raise ToolspanError(f"{error.filename}: {error.strerror}") from error


async def open_stored(stored: StoredTranscript, on_problem: Callable[[str], None], on_lost: Callable[[], None]) -> None:
    """Acquire the lease and start the thread. It calls the functions in this event loop."""
    loop = asyncio.get_running_loop()

    def call_in_loop(function: Callable[..., None], *arguments: object) -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(function, *arguments)

    stored.on_problem = lambda reason: call_in_loop(on_problem, reason)
    stored.on_lost = lambda: call_in_loop(on_lost)
    await asyncio.to_thread(stored.open)


async def record_workspace(stored: StoredTranscript | None, recorder: Recorder | None, digest: WorkspaceDigest) -> None:
    """Record which files of the project the session saw last, for a host that resumes it."""
    intent_log = recorder.open_intent_log() if stored is not None and recorder is not None else None
    if intent_log is None:
        return
    found = await asyncio.to_thread(digest.compute)
    if found is not None:
        intent_log.record_workspace(found)


async def wait_until_stored(stored: StoredTranscript | None, recorder: Recorder | None) -> None:
    """Wait until the store has all records, so that a result that the model sees is never lost.

    Raises:
        LeaseLost: another host has taken over the session.
    """
    if stored is None:
        return
    stored.check_lease()
    while recorder is not None and not recorder.write_rest():
        await anyio.sleep(_RETRY_SECONDS)
    await stored.wait_until_stored()
