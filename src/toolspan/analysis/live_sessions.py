"""Which sessions are going on: running, waiting for a person, idle, or dead in the middle.

In: the files that could be live, the client's own list of its processes, and the process table.
Out: a `LiveSession` for each that has a process, or died lately with calls unanswered. A file's age
alone proves nothing: every status names what it rests on. Read `live_sessions` first.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import psutil
from msgspec import Struct, structs

from toolspan.errors import SourceError
from toolspan.formats.base import RunningProcess
from toolspan.formats.registry import all_formats
from toolspan.reading.discovery import TranscriptFile, find_all_transcripts
from toolspan.reading.transcript import Transcript, read
from toolspan.types.span import parse_timestamp


def find_file_holders(paths: Iterable[str]) -> dict[str, int]:
    """The processes that have some of these files open, by file; our own is none of them."""
    original_paths = {os.path.realpath(path): path for path in paths}
    pid_by_path: dict[str, int] = {}
    for pid, open_path in _open_files() if original_paths else ():
        path = original_paths.get(open_path)
        if path is not None and pid != os.getpid():
            pid_by_path.setdefault(path, pid)
    return pid_by_path


def _open_files() -> Iterator[tuple[int, str]]:
    if sys.platform != "linux":
        for process in psutil.process_iter():
            try:
                yield from ((process.pid, file.path) for file in process.open_files())
            except (psutil.Error, OSError):
                continue
        return
    for name in os.listdir("/proc"):  # noqa: PTH208 - quicker, as in procfs.py
        if name.isdigit():
            yield from ((int(name), open_path) for open_path in _read_links(f"/proc/{name}/fd"))


def _read_links(folder: str) -> Iterator[str]:
    try:
        names = os.listdir(folder)  # noqa: PTH208
    except OSError:
        return
    for name in names:
        try:
            yield os.readlink(f"{folder}/{name}")  # noqa: PTH115
        except OSError:
            continue


def is_running(pid: int, started: str | None = None) -> bool:
    """Whether this very process runs; `started` is what Linux tells of its beginning."""
    try:
        if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return False
    except (psutil.Error, OverflowError, ValueError):  # no process has such a number
        return False
    if started is None or sys.platform != "linux":
        return True
    from toolspan.runtime.process.tree import ProcFs

    info = ProcFs().get_process(pid)
    return info is not None and str(int(info.started)) == started


SessionStatus = Literal["running", "waiting", "idle", "dead"]

_REPORTED_STATUS: dict[str, SessionStatus] = {"busy": "running", "waiting": "waiting", "idle": "idle"}
RECENT_SECONDS = 24 * 3600.0
"""Seconds for which a session that died is still worth telling of."""


class OpenCall(Struct, frozen=True, kw_only=True):
    """A call that has no result yet."""

    id: str
    tool: str
    target: str | None
    requested: str | None


class LiveSession(Struct, frozen=True, kw_only=True):
    """A session that goes on, or should."""

    id: str
    status: SessionStatus
    evidence: tuple[str, ...]
    """What the status rests on."""
    pid: int | None
    dialect: str = "claude"
    file: str | None = None
    cwd: str | None = None
    title: str | None = None
    version: str | None = None
    since: str | None = None
    """Since when it has been so, as far as that is known."""
    calls: tuple[OpenCall, ...] = ()
    """The calls without result."""


def live_sessions(
    roots: Sequence[Path] | None = None, *, config: Path | None = None, now: float | None = None
) -> list[LiveSession]:
    """The sessions that go on, and those that died lately; what waits for a person comes first.

    Raises:
        SourceError: a folder that was named does not exist.
    """
    at = time.time() if now is None else now
    mains = {file.name.stem: file for file in _main_files(roots)}
    listed = [
        session
        for transcript_format in all_formats()
        for session in transcript_format.running_processes(config)
        if roots is None or _is_among(session, mains)
    ]
    sessions = [_listed_session(session, mains.get(session.session_id)) for session in listed]
    sessions = [session for session in sessions if session.file or session.status != "dead"]
    session_ids = {session.id for session in sessions}
    recent = [file for name, file in mains.items() if name not in session_ids]
    recent = [file for file in recent if at - file.modified < RECENT_SECONDS]
    held = find_file_holders(str(file.path) for file in recent)
    rest = (_unlisted_session(file, held.get(str(file.path)), at) for file in recent)
    sessions += [session for session in rest if session is not None]
    order: list[SessionStatus] = ["waiting", "running", "idle", "dead"]
    return sorted(sessions, key=lambda session: (order.index(session.status), session.since or "", session.id))


def _main_files(roots: Sequence[Path] | None) -> list[TranscriptFile]:
    try:
        everything = find_all_transcripts(roots)
    except SourceError:
        if roots is not None:
            raise
        return []
    return [file for file in everything if file.name.role == "session"]


def _is_among(entry: RunningProcess, mains: dict[str, TranscriptFile]) -> bool:
    return entry.session_id in mains


def _listed_session(entry: RunningProcess, file: TranscriptFile | None) -> LiveSession:
    """A session that the client lists."""
    transcript = _read_transcript(file)
    runs = is_running(entry.pid, entry.process_start)
    status: SessionStatus = "dead"
    evidence = f"its process {entry.pid} is gone, and did not sign off"
    if runs and entry.status in _REPORTED_STATUS:
        status, evidence = (_REPORTED_STATUS[entry.status], f"process {entry.pid} says {entry.status}")
    elif runs:
        status = _status_from_transcript(transcript)
        evidence = f"process {entry.pid} runs; the status is read off the transcript"
    waits = f"it waits for: {entry.waiting_for}" if entry.waiting_for and status == "waiting" else None
    session = LiveSession(
        id=entry.session_id,
        status=status,
        evidence=tuple(word for word in (evidence, waits) if word),
        pid=entry.pid,
        cwd=entry.cwd,
        version=entry.version,
        since=_format_timestamp(entry.status_ms or entry.started_ms) if runs else None,
    )
    return session if transcript is None else _with_transcript_info(session, transcript)


def _unlisted_session(file: TranscriptFile, pid: int | None, now: float) -> LiveSession | None:
    """A session that no client lists: a process has its file open, or it ended in the middle."""
    transcript = _read_transcript(file)
    if transcript is None:
        return None
    status: SessionStatus = "dead"
    evidence = "calls have no result, and no process has the file open"
    if pid is not None:
        status, evidence = _status_from_transcript(transcript), f"process {pid} has the file open"
    elif not _open_calls(transcript) or not _ended_recently(transcript, now):
        return None
    session = LiveSession(id=file.name.stem, status=status, evidence=(evidence,), pid=pid)
    return _with_transcript_info(session, transcript)


def _with_transcript_info(session: LiveSession, transcript: Transcript) -> LiveSession:
    """With what the transcript adds."""
    info = transcript.info
    return structs.replace(
        session,
        dialect=transcript.dialect,
        file=transcript.file,
        cwd=session.cwd or info.cwd,
        title=info.title or info.first_prompt,
        version=session.version or (info.versions[-1] if info.versions else None),
        since=session.since or info.ended_at,
        calls=_open_calls(transcript),
    )


def _read_transcript(file: TranscriptFile | None) -> Transcript | None:
    if file is None:
        return None
    try:
        return read(file.path)
    except SourceError:  # removed since it was found
        return None


def _open_calls(transcript: Transcript) -> tuple[OpenCall, ...]:
    """The calls of the last message that have no result: older ones nobody answers any more."""
    spans = transcript.spans
    last = next((span.call.message_id for span in reversed(spans) if span.branch == "active"), None)
    return tuple(
        OpenCall(id=span.id, tool=span.tool, target=span.call.target, requested=span.call.requested_at)
        for span in spans
        if span.state == "never_answered" and span.result is None
        if span.branch == "active" and span.call.message_id == last
    )


def _status_from_transcript(transcript: Transcript | None) -> SessionStatus:
    """Whose turn it is: the model's, until it has said something after the last call."""
    if transcript is None:
        return "idle"
    if _open_calls(transcript):
        return "running"
    ends = [span.result.finished_at for span in transcript.spans if span.result]
    last_result = max((at for at in ends if at), default="")
    messages = [message for message in transcript.messages() if message.agent_id is None]
    if not messages:
        return "idle"
    over = messages[-1].voice in ("text", "interrupt", "error", "summary", "command")
    return "idle" if over and (messages[-1].at or "") >= last_result else "running"


def _ended_recently(transcript: Transcript, now: float) -> bool:
    """Whether its last words are not long ago; those of a copied file stay what they were."""
    last = parse_timestamp(transcript.info.ended_at)
    return last is not None and now - last.timestamp() < RECENT_SECONDS


def _format_timestamp(ms: float | None) -> str | None:
    """A time that a client noted; None where it is none."""
    try:
        return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC).isoformat()
    except (OSError, OverflowError, ValueError):
        return None
