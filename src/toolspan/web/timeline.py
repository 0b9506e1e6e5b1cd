"""`/api/session/ID/timeline`: a session as columns of equal length, small enough for 50,000 calls.

`order` lists the rows as `3 * index + kind`, where kind 0 is a call, 1 a message and 2 a subagent. Times are
milliseconds after `base`. Repeated names are indexes of `names`. The number of a model message links calls (`batch`)
and requests (`id`). Except for the first column of a table, a column whose values are all the same is only that value.
`slices` has three numbers for each part of the main agent's time: the time since the end of the previous part, the
length, and the name. Bodies are not included: `/api/call/ID` returns them.

With `after=VERSION`, the answer has only the changes since that version: new `names`, all `agents`, and the changed
rows of `calls`, `messages` and `requests` with their indexes in `rows`. `order` and `slices` have the number of
unchanged items at the beginning (`keep`) and at the end (`tail`), and the items between them (`add`). If the version is
unknown, the answer has the whole timeline.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from toolspan.analysis.live_sessions import running_evidence
from toolspan.analysis.timing import HookTimings, read_all_hook_timings
from toolspan.archive.reporter import SILENT, Reporter
from toolspan.archive.session import resolve_names, session_facts, session_paths
from toolspan.errors import NotFound, SourceError
from toolspan.export.json import encode_json, escape_control_chars
from toolspan.formats.claude.paths import hook_log_path
from toolspan.formats.registry import format_of_path
from toolspan.formats.remote import RemotePath
from toolspan.reading.cache import Cache, cached_answer, default_folder
from toolspan.reading.discovery import TranscriptFile
from toolspan.reading.growing import GrowingFile, GrownFile, WholeFile, open_file
from toolspan.reading.timeline import display_text
from toolspan.reading.transcript import Continuation, read
from toolspan.types.session import SessionInfo
from toolspan.types.state import OPEN_STATES, STATE_MEANINGS
from toolspan.web.timeline_rows import TimelineRows

_MIN_CACHED_BYTES = 1 << 20


def read_timeline(names: Sequence[str], params: Mapping[str, str], reporter: Reporter) -> list[bytes]:
    """Return the timeline of the session in the parameters. With `message=LINE`, return a whole message instead."""
    session = params.get("session")
    files = _find_files(names, session)
    if "message" in params:
        place = (int(params["message"]), int(params.get("part", "0")))
        return [encode_json({"text": _read_message(files, params.get("file"), place)})]
    folder = default_folder()
    if folder is None or sum(file.size for file in files) < _MIN_CACHED_BYTES:
        return [SessionTimeline(names, session, files, reporter).encode_changes("")]
    uncached: list[bytes] = []

    def compute() -> bytes | None:
        timeline = SessionTimeline(names, session, files, reporter)
        data = timeline.encode_changes("")
        uncached.append(data)
        return None if timeline.is_running else data

    # perf: a session with 50,000 calls takes 0.1 s from the cache instead of 8 s
    cached = cached_answer([file.path for file in files], "web.timeline", bytes, compute, Cache(folder))
    return [uncached[0] if cached is None else cached]


def _find_files(names: Sequence[str], session: str | None) -> list[TranscriptFile]:
    files = resolve_names(names, session=session)
    if not isinstance(files, list):
        raise NotFound("this is a call, not a session")
    return files


def _read_message(files: Iterable[TranscriptFile], name: str | None, place: tuple[int, int]) -> str:
    """Return a whole message. `name` is one of the session's files, and `place` the line and the number in the line."""
    line, part = place
    path = next((path for path in session_paths(list(files)) if name in (None, str(path))), None)
    if path is None:
        raise NotFound("the session does not have this file")
    messages = [message for message in read(path).messages() if message.place.line == line]
    if part >= len(messages):
        raise NotFound(f"there is no message {part} on line {line}")
    return escape_control_chars(display_text(messages[part]))


class FileFacts(NamedTuple):
    """Facts about one file of a session."""

    name: str
    info: SessionInfo
    finding_count: int


class SessionTimeline:
    """The timeline of a session whose files may grow. Only new bytes are read."""

    def __init__(
        self,
        names: Sequence[str],
        session: str | None,
        files: Sequence[TranscriptFile] | None = None,
        reporter: Reporter = SILENT,
    ) -> None:
        """Create a timeline that has read nothing yet. `files` are the files of the session, if they are known."""
        self.reporter = reporter
        self._names = names
        self._session = session
        self._start_over(files)

    def _start_over(self, files: Sequence[TranscriptFile] | None = None) -> None:
        files = files or _find_files(self._names, self._session)
        self._paths = session_paths(files)
        self._has_copies = sum(file.name.role != "agent" for file in files) > 1
        self._readers: dict[Path, GrowingFile | WholeFile] = {}
        self._unreadable: set[Path] = set()
        self._rows = TimelineRows()
        self._facts: dict[Path, FileFacts] = {}
        self._timings: tuple[object, Mapping[str, HookTimings]] = (None, {})

    @property
    def is_running(self) -> bool:
        """True if a call is open and its client is running."""
        return any(state in OPEN_STATES for state in self._rows.states)

    def grown_files(self) -> dict[str, Continuation]:
        """Return the partly read files for `partial_reads`, in a process that was forked to answer a command."""
        return {str(path): GrownFile(file) for path, file in self._readers.items() if isinstance(file, GrowingFile)}

    def encode_changes(self, version: str) -> bytes:
        """Read the new content of the files, and return the changes since a version as JSON.

        If the version is unknown, return the whole timeline.

        Raises:
            NotFound: the session no longer exists.
            SourceError: the main file of the session cannot be read.
        """
        if not self._read_growth():  # a file was replaced
            self._start_over()
            gc.unfreeze()
            gc.collect()  # frees the previous rows, which the worker has frozen
            self._read_growth()
        rows, files = self._rows, [self._facts[path] for path in self._paths if path in self._facts]
        session = {
            **session_facts(
                files[0].info,
                [file.name for file in files],
                calls=rows.states,
                agents=rows.agent_count,
                concurrency=rows.concurrency,
                tokens=rows.tokens,
            ),
            "findings": sum(file.finding_count for file in files),
        }
        changes = rows.changes_since(version)
        if changes is not None:
            return encode_json({"version": rows.version, "after": version, "session": session, **changes})
        return encode_json({"version": rows.version, "session": session, "meanings": STATE_MEANINGS, **rows.whole()})

    def _read_growth(self) -> bool:
        """Read the new content of the files, or return False if the session must be read from the start."""
        if self._has_copies and self._readers and session_paths(_find_files(self._names, self._session)) != self._paths:
            return False
        growths = []
        for path in self._find_paths():
            reader = self._readers.get(path)
            try:
                if reader is None:
                    self._readers[path], growth = open_file(path, _find_evidence)
                elif (changed := reader.poll_growth()) is not None:
                    growth = changed
                elif isinstance(reader, WholeFile) and reader.is_empty:  # its first line has been completed
                    self._readers[path], growth = open_file(path, _find_evidence)
                else:
                    return False
            except (SourceError, OSError) as error:
                if reader is not None:
                    return False
                if path == self._paths[0]:
                    raise
                self.reporter.warn(error)
                self._unreadable.add(path)
                continue
            growths.append(growth)
            self._facts[path] = FileFacts(growth.content.file, growth.info, growth.finding_count)
        earlier_timings, timings = self._timings[1], self._read_timings()
        has_news = any(
            growth.content.spans or growth.content.messages or growth.requests or growth.moved_line
            for growth in growths
        )  # fmt: skip
        if has_news or timings is not earlier_timings or not self._rows.is_built:
            self._rows.update(growths, timings, growths[0].info.cwd)
        return True

    def _find_paths(self) -> Iterable[Path]:
        """Return the session's files, including those of subagents that were started since the last call."""
        main = self._paths[0]
        if not isinstance(main, RemotePath) and self._readers:
            paths = format_of_path(main).agent_paths(main, self._rows.started_agents)
            self._paths += [path for path in paths if path not in self._paths]
        return [path for path in self._paths if path not in self._unreadable]

    def _read_timings(self) -> Mapping[str, HookTimings]:
        """Return the times in the hook logs, which are read again only if one of them has changed."""
        stamp = []
        for log in dict.fromkeys(map(hook_log_path, self._paths)):
            try:
                status = log.stat()
                stamp.append((log, status.st_size, status.st_mtime_ns))
            except (OSError, ValueError):
                stamp.append((log, 0, 0))
        if stamp != self._timings[0]:
            self._timings = (stamp, read_all_hook_timings(self._paths))
        return self._timings[1]


def _find_evidence(file: str, info: SessionInfo) -> str | None:
    import time

    return running_evidence(file, info, None, time.time())
