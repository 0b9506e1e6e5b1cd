"""Which call and prompt wrote each line of a file: `Archive.blame`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal

from msgspec import Struct

from toolspan.analysis.file_history.archive import FileArchive, archive_about
from toolspan.analysis.file_history.changes import FileChange
from toolspan.analysis.file_history.content import RecoveredContent
from toolspan.analysis.file_history.shell_writes import path_ends_with, printable_path
from toolspan.analysis.line_origins import Certainty, Origins, split_lines, trace_lines
from toolspan.analysis.prompts import PROMPTS
from toolspan.archive.answers import Rows
from toolspan.archive.engine import FileEngine, read_all
from toolspan.archive.files import find_archive, parse_point, resolve_point, select_files
from toolspan.archive.filters import Filter
from toolspan.errors import NotFound, SourceError
from toolspan.reading.discovery import TranscriptFile
from toolspan.reading.facts import CALLS, tuple_job
from toolspan.types.span import parse_timestamp

_PROMPT_JOB = tuple_job(CALLS, PROMPTS)


class BlamedLine(Struct, frozen=True, kw_only=True):
    """One line of a file, and the call that wrote it. Without a call, a person wrote it, or it is unknown who did."""

    line: int
    text: str
    call: str | None = None
    tool: str | None = None
    session: str | None = None
    agent: str | None = None
    client: str | None = None
    model: str | None = None
    """The model, if the session used only one."""
    at: str | None = None
    prompt: str | None = None
    """The prompt that the call served; None for calls of subagents."""
    certainty: Certainty | None = None
    commit: str | None = None
    """The commit that added the line, if the file is in a git repository."""
    author: str | None = None


class Blame(Rows[BlamedLine]):
    """The lines of a file, in order."""

    def __init__(self, path: str, rows: Sequence[BlamedLine], recorded_paths: Sequence[str]) -> None:
        super().__init__(rows)
        self.path = path
        self.recorded_paths = tuple(recorded_paths)
        """The paths under which calls changed the file."""

    @property
    def attributed(self) -> int:
        """The number of lines that a recorded call wrote."""
        return sum(row.call is not None for row in self)


def blame_lines(
    engine: FileEngine,
    call_filter: Filter,
    path: str,
    text: str,
    *,
    names: Sequence[str] = (),
    until: datetime | None = None,
) -> Blame:
    """Return who wrote each line of a text, which is the content of a file now or in a commit.

    `names` are earlier paths of the file, the latest first, or their ends. Changes after `until` do not count.
    """
    lines = split_lines(text)
    files = select_files(engine, call_filter) if engine.locate()[0] else []
    recorded: list[str] = []
    changes: list[tuple[FileArchive, FileChange]] = []
    for name in dict.fromkeys((path, *names)):
        archive = _archive_about(engine, files, name)
        for found in _find_paths(archive, name, lines):
            if found not in recorded:
                recorded.append(found)
                changes += [(archive, change) for change in archive.changes_to(found) if _is_until(change, until)]
    changes.sort(key=lambda pair: pair[1].at or pair[1].requested or "")
    origins = _trace(lines, changes)
    return Blame(path, _make_rows(engine, lines, origins), recorded)


def blame_point(engine: FileEngine, call_filter: Filter, name: str, point: str | None = None) -> Blame:
    """Return who wrote each line of a recorded file at a point, such as `CALL` or `before:CALL`; by default at last.

    Raises:
        NotFound: no call changed the file, or its content at that point is not known.
    """
    archive, path = find_archive(select_files(engine, call_filter), name, engine.reporter, call_filter)
    before, after = (None, None) if point is None else parse_point(point)
    call, side = resolve_point(archive, path, before, after)
    content = archive.content(path, call, side).content
    if not isinstance(content, str):
        raise NotFound(f"the content of {printable_path(path)} at this point is not known")
    changes = archive.changes_to(path)
    calls = [change.call for change in changes]
    count = len(calls)
    if call in calls:
        count = calls.index(call) if side == "before" else len(calls) - calls[::-1].index(call)
    lines = split_lines(content)
    origins = _trace(lines, [(archive, change) for change in changes[:count]])
    return Blame(path, _make_rows(engine, lines, origins), [path])


def _archive_about(engine: FileEngine, files: Sequence[TranscriptFile], name: str) -> FileArchive:
    last = Path(name.replace("\\", "/")).name
    return archive_about(
        files, last, lambda changed: path_ends_with(changed, last), lambda _: None, engine.reporter.warn
    )


def _find_paths(archive: FileArchive, name: str, lines: Sequence[str]) -> list[str]:
    """Return the recorded paths of a file: its own one, or else those with the longest common end.

    A repository may have been moved, or be checked out in several folders. A file of the same name in another project
    does not count: most of its last recorded lines must be in this one.
    """
    paths = list(dict.fromkeys(change.path for change in archive.changes))
    if name in paths:
        return [name]
    parts = Path(name).parts
    for length in range(len(parts) - 1, 1, -1):
        tail = "/".join(parts[-length:])
        if matches := [path for path in paths if path_ends_with(path, tail)]:
            return [path for path in matches if _is_similar(archive, path, lines)]
    return []


def _is_similar(archive: FileArchive, path: str, lines: Sequence[str]) -> bool:
    content = archive.content(path, archive.changes_to(path)[-1].call, "after").content
    recorded = {line.strip() for line in split_lines(content)} - {""} if isinstance(content, str) else set()
    return 2 * len(recorded.intersection(line.strip() for line in lines)) > len(recorded)


def _is_until(change: FileChange, until: datetime | None) -> bool:
    at = parse_timestamp(change.at or change.requested)
    return until is None or at is None or at <= until


def _trace(lines: Sequence[str], changes: Sequence[tuple[FileArchive, FileChange]]) -> Origins:
    owners = {change.call: (archive, change.path) for archive, change in changes}

    def content_at(call: str, side: Literal["before", "after"]) -> RecoveredContent:
        archive, path = owners[call]
        return archive.content(path, call, side)

    return trace_lines(lines, [change for _, change in changes], content_at)


def _make_rows(engine: FileEngine, lines: Sequence[str], origins: Origins) -> list[BlamedLine]:
    places = {origin.change.place.file for origin in origins if origin is not None}
    prompts: dict[str, str] = {}
    clients: dict[str, tuple[str, str | None]] = {}
    transcripts = [file for file in engine.locate()[0] if str(file.location) in places] if places else []
    for summary, recorded in read_all(engine.mapper, transcripts, _PROMPT_JOB):
        models = summary.info.models
        clients[summary.file] = summary.info.client, models[0] if len(models) == 1 else None
        for prompt in recorded.prompts:
            prompts.update(dict.fromkeys(prompt.calls, prompt.text))
    rows: list[BlamedLine] = []
    for number, (text, origin) in enumerate(zip(lines, origins, strict=True), 1):
        if origin is None:
            rows.append(BlamedLine(line=number, text=text))
            continue
        change = origin.change
        client, model = clients.get(change.place.file, (None, None))
        rows.append(
            BlamedLine(
                line=number,
                text=text,
                call=change.call,
                tool=change.tool,
                session=change.session,
                agent=change.agent,
                client=client,
                model=model,
                at=change.at,
                prompt=prompts.get(change.call),
                certainty=origin.certainty,
            )
        )
    return rows


def read_current(path: Path) -> str:
    """Return the text of a file.

    Raises:
        NotFound: there is no such file.
        SourceError: it cannot be read, or is not text.
    """
    try:
        return path.read_bytes().decode()
    except FileNotFoundError as error:
        raise NotFound(f"{path}: no such file; `toolspan files {path.name}` shows what calls did to it") from error
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise SourceError(f"{path}: the file is not UTF-8 text") from error
