"""Follow transcripts while they grow.

`GrowingFile` reads the new lines. Only here can calls without a result be `requested`, `awaiting_permission` or
`running`. A poll never blocks, `wait_for_changes` blocks until a file changes, and `follow` combines both.
Start at `Follower.poll`.
"""

from __future__ import annotations

import errno
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from threading import Event

from msgspec import Struct

from toolspan.errors import SourceError
from toolspan.formats.registry import format_of_path, parse_file_name
from toolspan.reading.discovery import find_transcripts, last_record_time
from toolspan.reading.growing import GrowingFile, ResetReason
from toolspan.types.ids import CallId
from toolspan.types.session import Finding
from toolspan.types.span import Span
from toolspan.types.state import OPEN_STATES

_TICK_MS, _STEP_MS, _GATHER_MS = 200, 50, 200
_POLL_SECONDS = 1.0
"""The polling interval if the system cannot watch the files."""


class CallAppeared(Struct, frozen=True):
    """A new call."""

    span: Span
    file: str


class CallChanged(Struct, frozen=True):
    """A call whose state, result or events have changed."""

    span: Span
    before: Span
    file: str


class FileReset(Struct, frozen=True):
    """The file was replaced: the calls reported so far are invalid, and the current ones are reported again."""

    file: str
    reason: ResetReason


FollowUpdate = CallAppeared | CallChanged | FileReset


class Follower:
    """A follower for one uncompressed file, which may not exist yet.

    The calls of a deleted file are kept. A file that replaces it is read from the beginning.
    """

    def __init__(self, path: Path | str) -> None:
        self._growing = GrowingFile(path)
        self.path = self._growing.path
        self.file = self._growing.file
        self._reported_spans: dict[CallId, Span] = {}
        self._finished = False

    @property
    def findings(self) -> list[Finding]:
        """Problems found so far."""
        return self._growing.reader.findings if self._growing.reader else []

    def poll(self) -> list[FollowUpdate]:
        """Return the changes since the last poll.

        Raises:
            SourceError: the file exists, but cannot be read.
        """
        return [*self._read_new_lines(), *self._collect_updates()]

    def catch_up(self, size: int | None = None) -> list[FollowUpdate]:
        """Read the file, or its first `size` bytes, and return only the open calls."""
        self._read_new_lines(size)
        return [update for update in self._collect_updates() if update.span.state in OPEN_STATES]

    def mark_started(self, call_id: str) -> None:
        """Mark a call as started, based on evidence outside the file."""
        if self._growing.calls is not None:
            self._growing.calls.mark_started(CallId(call_id))

    def finish(self) -> list[FollowUpdate]:
        """Treat the file as complete and return the last changes. Afterwards the calls equal those from `read`.

        An incomplete last line is read too, and open calls become `never_answered`.
        """
        resets = self._read_new_lines(last=True)
        self._finished = True
        if self._growing.reader is not None and self._growing.calls is not None:
            self._growing.calls.finish(self._growing.reader.branches())
        return [*resets, *self._collect_updates()]

    def _read_new_lines(self, size: int | None = None, *, last: bool = False) -> list[FileReset]:
        reason = None if self._finished else self._growing.read_new_lines(size, last=last)
        if reason is None:
            return []
        self._reported_spans.clear()
        return [FileReset(self.file, reason)]

    def _collect_updates(self) -> list[CallAppeared | CallChanged]:
        updates: list[CallAppeared | CallChanged] = []
        for span in self._growing.calls.changed_spans() if self._growing.calls else ():
            before = self._reported_spans.get(span.id)
            if before is None:
                updates.append(CallAppeared(span, self.file))
            elif before != span:
                updates.append(CallChanged(span, before, self.file))
            self._reported_spans[span.id] = span
        return updates

    @property
    def agent_starters(self) -> dict[str, str]:
        """Ids of the calls that started subagents, by agent id."""
        return self._growing.calls.agent_starters if self._growing.calls else {}


class _FileSetFollower(ABC):
    """A follower for a set of related files, including those that appear later."""

    recursive = False

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._followers: dict[Path, Follower] = {}
        self.problems: dict[Path, str] = {}
        """Error messages for files that cannot be read. The other files are still followed."""

    def poll(self, changed: Iterable[Path] | None = None) -> list[FollowUpdate]:
        """Return the changes since the last poll. If `changed` is given, only these files are examined."""
        return self._poll_each(self._files_to_poll(changed), Follower.poll)

    def catch_up(self) -> list[FollowUpdate]:
        """Read the existing files and return only the open calls."""
        return self._poll_each(self._files_to_poll(None), Follower.catch_up)

    def finish(self) -> list[FollowUpdate]:
        """Treat all files as complete: see `Follower.finish`."""
        return self._poll_each(list(self._followers), Follower.finish)

    def watched_folders(self) -> list[Path]:
        """Return the folders in which files may change."""
        return [self.path]

    @abstractmethod
    def _files_to_poll(self, changed: Iterable[Path] | None) -> Iterable[Path]:
        """Return the files to examine now."""

    def _poll_each(
        self, paths: Iterable[Path], poll_file: Callable[[Follower], list[FollowUpdate]]
    ) -> list[FollowUpdate]:
        updates: list[FollowUpdate] = []
        for path in paths:
            try:
                updates += poll_file(self._followers.get(path) or self._add_follower(path))
            except SourceError as error:
                if path == self.path:
                    raise
                self.problems[path] = str(error)
        return updates

    def _add_follower(self, path: Path) -> Follower:
        self._followers[path] = follower = Follower(path)
        return follower


class SessionFollower(_FileSetFollower):
    """A follower for a session's own file and the files of its subagents as they appear."""

    def __init__(self, path: Path | str) -> None:
        super().__init__(path)
        self._main_follower = self._add_follower(self.path)
        self._format = format_of_path(self.path)
        self._linked_paths: set[Path] = set()

    def watched_folders(self) -> list[Path]:
        """Return the session's existing folders, or the nearest existing ancestor if there are none yet."""
        home = self.path.parent
        while not home.is_dir():
            home = home.parent
        folders = [home, self.path.resolve().parent]
        agents_folder = self._format.agents_folder(self.path)
        if agents_folder is not None:
            folders += [agents_folder.parent, *(Path(folder) for folder, _, _ in os.walk(agents_folder))]
        return list(dict.fromkeys(folder for folder in folders if folder.is_dir()))

    def _files_to_poll(self, changed: Iterable[Path] | None) -> Iterable[Path]:
        started_agents = [agent for follower in self._followers.values() for agent in follower.agent_starters]
        is_agent_news = changed is None or any(parse_file_name(path).role == "agent" for path in changed)
        if parse_file_name(self.path).role != "session" or not (is_agent_news or started_agents):
            return [self.path]
        agent_paths = self._format.agent_paths(self.path, started_agents)
        for path in agent_paths:  # a subagent's side file may identify the call that started it
            starter = None if path in self._linked_paths else self._format.agent_origin(path).starter_call
            if starter:
                self._linked_paths.add(path)
                self._main_follower.mark_started(starter)
        return [self.path, *agent_paths]


class FolderFollower(_FileSetFollower):
    """A follower for every transcript below one or more folders.

    Files whose last record is older than `asleep_before` are not read until they change.
    """

    recursive = True

    def __init__(self, *roots: Path | str, asleep_before: float = 0.0) -> None:
        super().__init__(roots[0])
        self._roots = {Path(root): Path(root).resolve() for root in roots}
        files = (file for root in self._roots for file in find_transcripts(root))
        self._dormant_sizes = {file.path: file.size for file in files if last_record_time(file) < asleep_before}

    def watched_folders(self) -> list[Path]:
        """Return the followed folders."""
        return list(self._roots)

    def _files_to_poll(self, changed: Iterable[Path] | None) -> Iterable[Path]:
        if changed is None:
            files = (file for root in self._roots if root.is_dir() for file in find_transcripts(root))
            awake = [file for file in files if file.size != self._dormant_sizes.get(file.path)]
            return [file.path for file in awake if file.path.suffix == ".jsonl"]
        changed_paths = list(changed)
        for folder in [path for path in changed_paths if path.suffix != ".jsonl" and path.is_dir()]:
            with suppress(SourceError):  # files in new folders may have been written before the watch began
                changed_paths += [file.path for file in find_transcripts(folder)]
        paths: set[Path] = set()
        for path in changed_paths:  # resolved, but the caller's folders may contain links
            roots = [(root, real) for root, real in self._roots.items() if path.is_relative_to(real)]
            paths.add(roots[0][0] / path.relative_to(roots[0][1]) if roots else path)
        named = {path for path in paths if path.suffix == ".jsonl" and parse_file_name(path).role != "other"}
        return sorted(path for path in named if path in self._followers or path.is_file())

    def _add_follower(self, path: Path) -> Follower:
        follower = super()._add_follower(path)
        size = self._dormant_sizes.pop(path, None)
        if size is not None:
            follower.catch_up(size)
        return follower


def wait_for_changes(
    follower: SessionFollower | FolderFollower, *, stop: Event | None = None
) -> Iterator[set[Path] | None]:
    """Wait for changes and yield the paths to examine, or None if all files must be examined.

    Yield an empty set at regular intervals, so that the caller can do other work. If the system has no watches left,
    all files are examined once a second, and the follower's `problems` contain a note about it.
    """
    while stop is None or not stop.is_set():
        folders = _folder_inodes(follower.watched_folders())
        if not folders:
            raise SourceError(f"{follower.path}: the folder is gone")
        try:
            yield from _watch_folders(follower, folders, stop)
        except FileNotFoundError:  # a folder may be removed before it is watched
            continue
        except PermissionError:  # not the default, because it also hides that no watches are left
            yield from _watch_folders(follower, folders, stop, forbidden=True)
        except OSError as error:
            limited = "limit" in str(error).lower() or error.errno in (errno.EMFILE, errno.ENOSPC)
            more = " (see fs.inotify.max_user_watches and max_user_instances)" if limited else ""
            problem = "has no watches left" if limited else f"cannot watch: {error.strerror or error}"
            follower.problems[follower.path] = (
                f"the system {problem}{more}: all files are examined once a second instead"
            )
            waiting = stop or Event()
            while not waiting.wait(_POLL_SECONDS):
                yield None


def _watch_folders(
    follower: SessionFollower | FolderFollower, folders: dict[Path, int], stop: Event | None, *, forbidden: bool = False
) -> Iterator[set[Path] | None]:
    """Yield changed paths until the set of folders to watch changes.

    With `forbidden`, folders that cannot be listed are left out.
    """
    from watchfiles import watch

    watcher = watch(
        *folders, recursive=follower.recursive, stop_event=stop, watch_filter=None,
        rust_timeout=_TICK_MS, yield_on_timeout=True, step=_STEP_MS, debounce=_GATHER_MS,
        ignore_permission_denied=forbidden,
    )  # fmt: skip
    with closing(watcher):
        for n, events in enumerate(watcher):  # changes before the first event may have been missed
            yield {Path(path) for _, path in events} if n else None
            if (events or not n) and _folder_inodes(follower.watched_folders()) != folders:
                return


def _folder_inodes(folders: Iterable[Path]) -> dict[Path, int]:
    return {folder: folder.stat().st_ino for folder in folders if folder.is_dir()}


def follow(path: Path | str, *, stop: Event | None = None) -> Iterator[FollowUpdate]:
    """Yield the calls of a file, its subagents or a folder, and their changes, until `stop` is set.

    Raises:
        SourceError: the file or folder cannot be read, or is compressed.
    """
    follower = FolderFollower(path) if Path(path).is_dir() else SessionFollower(path)
    yield from follower.poll()
    for changed in wait_for_changes(follower, stop=stop):
        if changed is None or changed:
            yield from follower.poll(changed)
