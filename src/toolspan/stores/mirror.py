"""Read a store like a folder: a local copy of its sessions, which each command brings up to date.

Only new entries are fetched. The copy is in the client's layout, so that everything that reads folders reads it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from toolspan.formats.jsonl import make_folder
from toolspan.formats.side_files import session_folder
from toolspan.stores.adapter import to_leased_store
from toolspan.stores.base import Lease, LeasedStore, SessionStore, StreamInfo, StreamKey
from toolspan.stores.files import stream_path, write_lines

if sys.platform != "win32":
    import fcntl

_STATE_NAME = "toolspan-store.json"


class StoreCopy(msgspec.Struct):
    """The state of a local copy."""

    url: str
    streams: dict[str, tuple[int, int]] = {}
    """The number of entries and the time of the last change of each stream, by its key as JSON."""
    leases: list[Lease] = []

    @classmethod
    def load(cls, folder: Path) -> StoreCopy | None:
        """Return the state stored in a folder, or None if the folder is not a copy of a store."""
        try:
            return msgspec.json.decode((folder / _STATE_NAME).read_bytes(), type=cls)
        except (OSError, msgspec.MsgspecError):
            return None


def fetch_store(store: LeasedStore | SessionStore | str) -> Path:
    """Bring the local copy of a store up to date and return its folder.

    Raises:
        StoreUnavailable: the store cannot be reached.
        ToolspanError: the URL is not that of a store.
        OSError: the copy cannot be written.
    """
    leased = to_leased_store(store)
    named = os.environ.get("XDG_CACHE_HOME", "")
    cache = Path(named) if Path(named).is_absolute() else Path.home() / ".cache"
    folder = cache / "toolspan" / "stores" / hashlib.sha256(leased.url.encode()).hexdigest()[:16]
    make_folder(folder)
    with _lock(folder):
        copy = StoreCopy.load(folder) or StoreCopy(leased.url)
        leases = leased.list_leases()
        streams = {
            msgspec.json.encode(tuple(stream.key)).decode(): stream
            for stream in leased.list_streams()
            if _is_safe(stream.key)
        }
        for name in copy.streams.keys() - streams.keys():
            _remove_stream(folder, StreamKey(*msgspec.json.decode(name, type=tuple[str, str, str])))
            del copy.streams[name]
        for name, stream in streams.items():
            copy.streams[name] = _update_stream(leased, folder, stream, copy.streams.get(name, (0, 0)))
        copy.leases = leases
        temporary = folder / f"{_STATE_NAME}.new"
        temporary.write_bytes(msgspec.json.encode(copy))
        temporary.replace(folder / _STATE_NAME)
    if isinstance(store, str):
        leased.close()
    return folder


def _update_stream(store: LeasedStore, folder: Path, stream: StreamInfo, copied: tuple[int, int]) -> tuple[int, int]:
    entries = copied[0]
    if (stream.entries, stream.mtime_ms) == copied:
        return copied
    appends = 0 < entries <= stream.entries
    lines = store.read_lines(stream.key, entries if appends else 0) or []
    main = _main_path(folder, stream.key)
    write_lines(main, stream.key.subpath, lines, append=appends)
    changed = stream_path(main, stream.key.subpath)
    if changed is not None and changed.exists():
        os.utime(changed, (stream.mtime_ms / 1000, stream.mtime_ms / 1000))
    count = -1 if stream.entries < 0 else len(lines) + (entries if appends else 0)
    return count, stream.mtime_ms


def _remove_stream(folder: Path, key: StreamKey) -> None:
    main = _main_path(folder, key)
    path = stream_path(main, key.subpath)
    if not key.subpath:
        shutil.rmtree(session_folder(main), ignore_errors=True)
    if path is not None:
        path.unlink(missing_ok=True)


def _main_path(folder: Path, key: StreamKey) -> Path:
    return folder / "projects" / key.project / f"{key.session}.jsonl"


def _is_safe(key: StreamKey) -> bool:
    """Return whether the names of a project and a session can be those of files."""
    return all(name not in ("", ".", "..") and not {"/", "\\", "\0"} & set(name) for name in key[:2])


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Let one process at a time change a copy."""
    with (folder / "lock").open("a") as file:
        if sys.platform != "win32":
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
