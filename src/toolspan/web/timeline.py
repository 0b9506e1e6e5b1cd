"""`/api/session/ID/timeline`: the tables of `export/timeline_tables.py`, small enough for 50,000 calls.

Bodies are not included: `/api/call/ID` returns them. With `after=VERSION`, the answer has only the changes since that
version: all `agents`, and the changed rows of `calls`, `messages` and `requests` with their indexes in `rows`. `order`
and `slices` have the number of unchanged items at the beginning (`keep`) and at the end (`tail`), and the items between
them (`add`). If the version is unknown, the answer has the whole timeline.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from toolspan.analysis.live_sessions import list_processes, running_evidence
from toolspan.analysis.timing import HookTimings, read_all_hook_timings
from toolspan.archive.reporter import SILENT, Reporter
from toolspan.archive.session import resolve_names, session_facts, session_paths
from toolspan.errors import NotFound, SourceError
from toolspan.export.json import encode_json, escape_control_chars
from toolspan.export.timeline_tables import FileRequests, TimelineTables
from toolspan.formats.registry import format_of_path, get_format
from toolspan.formats.remote import RemotePath
from toolspan.formats.side_files import hook_log_path
from toolspan.reading.cache import Cache, cached_answer, default_folder
from toolspan.reading.discovery import TranscriptFile
from toolspan.reading.growing import FileGrowth, GrowingFile, WholeFile, open_file
from toolspan.reading.timeline import TimelineBuilder, display_text
from toolspan.reading.transcript import read
from toolspan.types.session import SessionInfo, Tokens
from toolspan.types.state import OPEN_STATES

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
    """The timeline of a session whose files may grow. Only new bytes are read, and only changed rows are built."""

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
        self._builder = TimelineBuilder()
        self._tables: TimelineTables | None = None
        self._message_tokens: dict[str, Tokens] = {}
        self._tokens = Tokens()
        self._facts: dict[Path, FileFacts] = {}
        self._timings: tuple[object, Mapping[str, HookTimings]] = (None, {})

    @property
    def is_running(self) -> bool:
        """True if a call is open and its client is running."""
        return self._tables is not None and any(state in OPEN_STATES for state in self._tables.states)

    def growing_file(self, path: Path) -> GrowingFile | None:
        """Return a file of the session that is read incrementally, for other questions about it."""
        file = self._readers.get(path)
        return file if isinstance(file, GrowingFile) else None

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
        assert self._tables is not None
        tables, files = self._tables, [self._facts[path] for path in self._paths if path in self._facts]
        session = {
            **session_facts(
                [file.info for file in files],
                [file.name for file in files],
                calls=tables.states,
                agents=tables.agent_count,
                concurrency=tables.concurrency,
                tokens=self._tokens,
            ),
            "findings": sum(file.finding_count for file in files),
        }
        changes = tables.changes_since(version)
        if changes is not None:
            return encode_json({"version": tables.version, "after": version, "session": session, **changes})
        return encode_json({"version": tables.version, "session": session, **tables.whole()})

    def _read_growth(self) -> bool:
        """Read the new content of the files, or return False if the session must be read from the start."""
        if self._has_copies and self._readers and session_paths(_find_files(self._names, self._session)) != self._paths:
            return False
        growths: dict[Path, FileGrowth] = {}
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
            growths[path] = growth
            self._facts[path] = FileFacts(growth.content.file, growth.info, growth.finding_count)
        earlier_timings, timings = self._timings[1], self._read_timings()
        has_news = any(
            growth.content.spans or growth.content.messages or growth.requests or growth.moved_line
            for growth in growths.values()
        )  # fmt: skip
        if has_news or timings is not earlier_timings or self._tables is None:
            self._update_tables(growths, timings)
        return True

    def _update_tables(self, growths: Mapping[Path, FileGrowth], timings: Mapping[str, HookTimings]) -> None:
        requests = []
        for path, growth in growths.items():
            self._builder.add(self._paths.index(path), growth.content, has_moved=growth.moved_line is not None)
            includes_cache = get_format(growth.info.client).input_includes_cache
            requests.append(FileRequests(growth.content.file, growth.requests, includes_cache))
            for name, usage in growth.requests.items():
                # Each message counts once, with the largest value of each field. Messages without an id are distinct.
                key = f"{path} {name}" if name.startswith("#") else name
                before = self._message_tokens.get(key, Tokens())
                self._message_tokens[key] = after = before.max_with(usage.tokens)
                fields = {field: getattr(after, field) - getattr(before, field) for field in Tokens.__struct_fields__}
                self._tokens += Tokens(**fields)
        self._tables = self._tables or TimelineTables()
        self._tables.cwd = self._tables.cwd or self._facts[self._paths[0]].info.cwd
        self._tables.update(self._builder.build(), timings, requests)

    def _find_paths(self) -> Iterable[Path]:
        """Return the session's files, including those of subagents that were started since the last call."""
        main = self._paths[0]
        if not isinstance(main, RemotePath) and self._readers:
            paths = format_of_path(main).agent_paths(main, self._builder.started_agents)
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

    return running_evidence(file, info, list_processes(), time.time())
