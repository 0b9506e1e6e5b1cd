"""Sessions as they grow: the files that a name stands for, and what changes in them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from time import monotonic, time

from toolspan.archive.reporter import SILENT, Reporter
from toolspan.archive.sources import find_session_files, newest_session, path_exists
from toolspan.errors import NotFound, SourceError
from toolspan.formats.registry import is_collection
from toolspan.formats.source import COMPRESSED_SUFFIXES, is_remote
from toolspan.reading.discovery import TranscriptFile, default_roots, recency
from toolspan.reading.follow import (
    CallAppeared,
    FileReset,
    FolderFollower,
    FollowUpdate,
    SessionFollower,
    wait_for_changes,
)
from toolspan.types.state import OPEN_STATES

_RECENT_SECONDS = 3600.0
"""The age in seconds above which files in a folder are read only when they change."""


def find_follower(
    name: str | None, *, last: bool, since_start: bool, reporter: Reporter = SILENT
) -> SessionFollower | FolderFollower:
    """Return the follower of a file, folder or session, or of all of this user's sessions.

    `last` selects the most recently written session among them. With `since_start`, old files are read too.
    """
    asleep = 0.0 if since_start else time() - _RECENT_SECONDS
    if name is None:
        if last:
            return SessionFollower(_main_file(newest_session(reporter=reporter)))
        return FolderFollower(*default_roots(), asleep_before=asleep)
    if is_remote(name):
        raise NotFound(f"{name}: watch follows local files; `toolspan ui {name}` looks for new objects")
    path = Path(name)
    exists = path_exists(path)
    if exists and is_collection(path):
        if last:
            return SessionFollower(_main_file(newest_session([name], reporter)))
        return FolderFollower(path, asleep_before=asleep)
    if exists or len(path.parts) > 1 or path.suffix in (".jsonl", *COMPRESSED_SUFFIXES):
        if not path_exists(path.parent):
            raise NotFound(f"{path}: no such file or folder")
        if not os.access(path.parent, os.R_OK | os.X_OK):
            raise SourceError(f"{path.parent}: permission denied")
        return SessionFollower(path)
    return SessionFollower(_main_file(find_session_files(name)))


def _main_file(files: Iterable[TranscriptFile]) -> Path:
    """Return a session's main file, or else the file that was written to last."""
    all_files = list(files)
    mains = [file for file in all_files if file.name.role == "session"]
    return max(mains or all_files, key=recency).path


def watch_updates(
    follower: SessionFollower | FolderFollower, *, since_start: bool, idle_exit: float | None, reporter: Reporter
) -> Iterator[Sequence[FollowUpdate]]:
    """Yield the updates of each look at the files, often none, until nothing has changed for `idle_exit` seconds.

    They begin with the open calls, or with `since_start`, with all calls that are already recorded.
    """
    last_update = monotonic()
    reported: set[str] = set()
    updates = follower.poll() if since_start else follower.catch_up()
    change_batches = wait_for_changes(follower)
    while idle_exit is None or updates or monotonic() - last_update < idle_exit:
        if updates:
            last_update = monotonic()
        reset_files = {update.file for update in updates if isinstance(update, FileReset)}
        yield [
            update
            for update in updates
            if since_start
            or update.file not in reset_files
            or not (isinstance(update, CallAppeared) and update.span.state not in OPEN_STATES)  # seen before
        ]
        for problem in set(follower.problems.values()) - reported:
            reported.add(problem)
            reporter.warn(problem)
        changed = next(change_batches)
        updates = follower.poll(changed) if changed is None or changed else []
