"""Sessions in progress: running, waiting for the user, idle, or terminated during a call.

Start at `live_sessions`. A session is listed if it has a process, or if it ended recently with unanswered calls. The
age of a file alone proves nothing, so every status comes with its evidence.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, structs

from toolspan.errors import SourceError
from toolspan.formats.base import RunningProcess
from toolspan.formats.processes import is_running
from toolspan.formats.registry import FORMAT_NAMES, all_formats, get_format, parse_file_name
from toolspan.formats.source import is_remote, to_path
from toolspan.reading.discovery import Listing, find_all_transcripts, recent_files
from toolspan.reading.facts import FileSummary
from toolspan.reading.parallel import scan_files
from toolspan.reading.transcript import Transcript, read
from toolspan.types.session import SessionInfo
from toolspan.types.span import Evidence, parse_timestamp
from toolspan.types.state import State

if TYPE_CHECKING:
    from toolspan.stores.mirror import StoreCopy

SessionStatus = Literal["running", "waiting", "idle", "dead"]

RECENT_SECONDS = 24 * 3600.0
"""The time for which a session that terminated during a call is listed."""
_ACTIVE_SECONDS = 300.0
"""The time after the last record for which open calls are assumed to run, if no process of the session is listed."""
_RECENT_CALLS = 3
_REPORTED_STATUS: dict[str, SessionStatus] = {"busy": "running", "waiting": "waiting", "idle": "idle"}


class OpenCall(Struct, frozen=True, kw_only=True):
    """A call without a result."""

    id: str
    tool: str
    target: str | None
    requested: str | None


class RecentCall(Struct, frozen=True, kw_only=True):
    """A call that has ended."""

    id: str
    tool: str
    target: str | None
    state: State
    duration_ms: int | None


class LiveSession(Struct, frozen=True, kw_only=True):
    """A session in progress, or one that ended unexpectedly."""

    id: str
    status: SessionStatus
    evidence: tuple[str, ...]
    pid: int | None
    client: str = "claude"
    file: str | None = None
    cwd: str | None = None
    title: str | None = None
    version: str | None = None
    since: str | None = None
    calls: tuple[OpenCall, ...] = ()
    recent: tuple[RecentCall, ...] = ()
    """The calls that ended last, the newest first."""
    host: str | None = None
    """The host that runs a session of a store."""
    owner: str | None = None
    """The id of the owner of its lease."""


def live_sessions(
    roots: Sequence[Path] | None = None,
    *,
    config: Path | None = None,
    now: float | None = None,
    scan: Callable[[Sequence[Path]], Iterable[FileSummary]] = scan_files,
) -> list[LiveSession]:
    """Return the sessions in progress and those that ended recently, waiting ones first.

    Sessions in object storage are copies and never in progress. `scan` returns the summaries of files.

    Raises:
        SourceError: one of the folders does not exist.
    """
    from toolspan.stores.mirror import StoreCopy  # perf: imports asyncio, which the questions do not need

    at = time.time() if now is None else now
    if roots is not None:
        copies = {root: copy for root in roots if not is_remote(root) if (copy := StoreCopy.load(root)) is not None}
        if copies:
            sessions = [session for root, copy in copies.items() for session in _stored_sessions(root, copy, scan)]
            if rest := [root for root in roots if root not in copies]:
                sessions += live_sessions(rest, config=config, now=now, scan=scan)
            return _sort_sessions(sessions)
        roots = [root for root in roots if not is_remote(root)]
    try:
        files = find_all_transcripts(roots)
    except SourceError:
        if roots is not None:
            raise
        files = Listing()
    processes = list_processes(config)
    names = {entry.session_id for entry, _ in processes}
    mains = {file.name.stem: file for file in files if file.name.stem in names and file.name.role == "session"}
    processes = [(entry, runs) for entry, runs in processes if roots is None or entry.session_id in mains]
    listed_files = [mains[entry.session_id].path for entry, _ in processes if entry.session_id in mains]
    summaries = _summarize(listed_files, scan)
    sessions = []
    for entry, runs in processes:
        file = mains.get(entry.session_id)
        session = _listed_session(entry, summaries.get(str(file.path)) if file else None, runs=runs)
        if session.file or session.status != "dead":
            sessions.append(session)
    session_ids = {session.id for session in sessions}
    # A recent file may hold only old records, and a copied file may seem old.
    by_name = {
        file.name.stem: (file, at - latest)
        for file, latest in recent_files(files, lambda _: at - RECENT_SECONDS)
        if file.name.role == "session" and file.name.stem not in session_ids
    }
    recent = [(file, age) for file, age in by_name.values() if min(at - file.modified, age) < RECENT_SECONDS]
    holders = _find_file_holders(str(file.path) for file, _ in recent)
    # perf: the files of a new copy of an archive are not read
    unlisted = [file for file, age in recent if age < RECENT_SECONDS or str(file.path) in holders]
    summaries = _summarize([file.path for file in unlisted], scan)
    unlisted_sessions = (
        _unlisted_session(file.name.stem, summaries[str(file.path)], holders.get(str(file.path)), at)
        for file in unlisted
        if str(file.path) in summaries
    )
    sessions += [session for session in unlisted_sessions if session is not None]
    return _sort_sessions(sessions)


def _sort_sessions(sessions: Iterable[LiveSession]) -> list[LiveSession]:
    order: list[SessionStatus] = ["waiting", "running", "idle", "dead"]
    return sorted(sessions, key=lambda session: (order.index(session.status), session.since or "", session.id))


def _stored_sessions(
    root: Path, copy: StoreCopy, scan: Callable[[Sequence[Path]], Iterable[FileSummary]]
) -> Iterator[LiveSession]:
    """Yield the sessions of a store that have an owner: a live lease, or one that expired because its host died."""
    paths = {lease: root / "projects" / lease.project / f"{lease.session}.jsonl" for lease in copy.leases}
    summaries = _summarize([path for path in paths.values() if path.is_file()], scan)
    for lease, path in paths.items():
        summary = summaries.get(str(path))
        place = f"process {lease.pid} on {lease.host}"
        if lease.is_live:
            status = _status_from_transcript(summary)
            evidence = f"{place} has its lease for {lease.expires_in:.0f} s (number {lease.fence})"
        else:
            status = "dead"
            evidence = f"the lease of {place} expired {-lease.expires_in:.0f} s ago (number {lease.fence})"
        session = LiveSession(
            id=lease.session, status=status, evidence=(evidence,), pid=lease.pid, host=lease.host, owner=lease.owner
        )
        yield session if summary is None else _with_transcript_info(session, summary)


def _summarize(
    paths: Sequence[Path], scan: Callable[[Sequence[Path]], Iterable[FileSummary]]
) -> dict[str, FileSummary]:
    """Return the summaries of the files that can be read. Others may have been removed since they were found."""
    return {summary.file: summary for summary in scan(paths) if summary.problem is None}


def list_processes(config: Path | None = None) -> list[tuple[RunningProcess, bool]]:
    """Return the processes that clients list, and whether each is running.

    A process that ended is left out if another one has resumed its session.
    """
    entries = [entry for item in all_formats() for entry in item.running_processes(config)]
    processes = [(entry, is_running(entry.pid, entry.process_start)) for entry in entries]
    resumed = {entry.session_id for entry, runs in processes if runs}
    return [(entry, runs) for entry, runs in processes if runs or entry.session_id not in resumed]


def _listed_session(entry: RunningProcess, summary: FileSummary | None, *, runs: bool) -> LiveSession:
    status: SessionStatus = "dead"
    evidence = f"its process {entry.pid} ended without notice"
    if runs and entry.status in _REPORTED_STATUS:
        status, evidence = (_REPORTED_STATUS[entry.status], f"process {entry.pid} reports {entry.status}")
    elif runs:
        status = _status_from_transcript(summary)
        evidence = f"process {entry.pid} is running; the status comes from the transcript"
    waits = f"it waits for: {entry.waiting_for}" if entry.waiting_for and status == "waiting" else None
    session = LiveSession(
        id=entry.session_id,
        status=status,
        evidence=tuple(text for text in (evidence, waits) if text),
        pid=entry.pid,
        cwd=entry.cwd,
        version=entry.version,
        since=_format_timestamp(entry.status_ms or entry.started_ms) if runs else None,
    )
    return session if summary is None else _with_transcript_info(session, summary)


def _unlisted_session(name: str, summary: FileSummary, pid: int | None, now: float) -> LiveSession | None:
    """Return a session that no client lists, or None unless a process has its file open or it has open calls."""
    status: SessionStatus = "dead"
    evidence = "calls have no result, and no process has the file open"
    if pid is not None:
        status, evidence = _status_from_transcript(summary), f"process {pid} has the file open"
    else:
        age = _record_age(summary.info, now)
        if age >= RECENT_SECONDS or not _open_calls(summary):
            return None
        call_ids = [call.id for call in _open_calls(summary)]
        if _find_ended_writer(summary.file, summary.info, call_ids):
            evidence = "calls have no result, and the process that recorded them has ended"
        elif abs(age) < _ACTIVE_SECONDS:
            status, evidence = "running", _describe_age(age)
    session = LiveSession(id=name, status=status, evidence=(evidence,), pid=pid)
    return _with_transcript_info(session, summary)


def mark_running_calls(
    transcripts: Iterable[Transcript], *, config: Path | None = None, now: float | None = None
) -> None:
    """Change the state of calls that are still running from `never_answered` to `running` in `Transcript.spans`.

    A call of the last message is running if the client's process is running, if a process has the file open, or if the
    timestamp of the last record is at most a few minutes old.
    """
    at = time.time() if now is None else now
    processes: list[tuple[RunningProcess, bool]] | None = None
    for transcript in transcripts:
        last = next((span.call.message_id for span in reversed(transcript.spans) if span.branch == "active"), None)
        open_ids = {
            span.id
            for span in transcript.spans
            if span.state == "never_answered" and span.result is None
            if span.branch == "active" and span.call.message_id == last
        }
        if not open_ids:
            continue
        processes = list_processes(config) if processes is None else processes
        evidence = running_evidence(transcript.file, transcript.info, processes, at, open_ids)
        if evidence is None:
            continue
        for index, span in enumerate(transcript.spans):
            if span.id in open_ids:
                transcript.spans[index] = structs.replace(span, state="running", evidence=(Evidence(evidence),))


def mark_running(files: Iterable[FileSummary]) -> list[FileSummary]:
    """Return the files with the state `running` in the rows of calls that still run; see `mark_running_calls`."""
    marked, now = list(files), time.time()
    processes: list[tuple[RunningProcess, bool]] | None = None
    for n, file in enumerate(marked):
        open_ids = {call.id for call in _open_calls(file)}
        if not open_ids:
            continue
        processes = list_processes() if processes is None else processes
        evidence = running_evidence(file.file, file.info, processes, now, open_ids)
        if evidence is not None:
            changes = {"state": "running", "error_group": None, "error_text": None, "evidence": ((evidence, None),)}
            rows = [structs.replace(row, **changes) if row.id in open_ids else row for row in file.calls]
            marked[n] = structs.replace(file, calls=rows)
    return marked


def running_evidence(
    file: str,
    info: SessionInfo,
    processes: Iterable[tuple[RunningProcess, bool]],
    now: float,
    call_ids: Collection[str] = (),
) -> str | None:
    """Return the evidence that a session with these open calls is running, or None if there is none.

    `processes` are those of `list_processes`.
    """
    for entry, runs in processes:
        if entry.session_id == info.session_id:
            return f"process {entry.pid} is running" if runs else None
    age = _record_age(info, now)
    if abs(age) >= RECENT_SECONDS or _find_ended_writer(file, info, call_ids):
        return None
    if abs(age) < _ACTIVE_SECONDS:
        return _describe_age(age)
    pid = _find_file_holders([file]).get(file)
    return f"process {pid} has the file open" if pid is not None else None


def _find_ended_writer(file: str, info: SessionInfo, call_ids: Collection[str]) -> bool:
    """Return whether the process that recorded these open calls is known to have ended."""
    path = to_path(file)
    if info.client not in FORMAT_NAMES or is_remote(path):
        return False
    name = parse_file_name(path)
    if name.role == "agent":  # the side files of the main session cover its subagents
        session_id = name.session_id or info.session_id
        folder = next((parent for parent in path.parents if parent.name == session_id), path)
        path = folder.with_name(f"{session_id}{path.suffix}")
    return get_format(info.client).ended_writer(path, call_ids) is not None


def _record_age(info: SessionInfo, now: float) -> float:
    """Return the age of the last record in seconds. The modification time of a copied file would be misleading."""
    last = parse_timestamp(info.ended_at)
    return now - last.timestamp() if last is not None else RECENT_SECONDS


def _describe_age(age: float) -> str:
    return f"the last record is {age:.0f} s old"


def _with_transcript_info(session: LiveSession, summary: FileSummary) -> LiveSession:
    info = summary.info
    return structs.replace(
        session,
        client=info.client,
        file=summary.file,
        cwd=session.cwd or info.cwd,
        title=info.title or info.first_prompt,
        version=session.version or (info.versions[-1] if info.versions else None),
        since=session.since or info.ended_at,
        calls=_open_calls(summary),
        recent=_recent_calls(summary),
    )


def _open_calls(summary: FileSummary) -> tuple[OpenCall, ...]:
    """Return the unanswered calls in the last message. Older ones will never be answered."""
    return tuple(
        OpenCall(id=row.id, tool=row.tool or "", target=row.target, requested=row.requested)
        for row in summary.calls
        if row.state == "never_answered" and row.result_line is None
        if row.branch == "active" and row.batch == summary.last_batch
    )


def _recent_calls(summary: FileSummary) -> tuple[RecentCall, ...]:
    ended = [row for row in summary.calls if row.finished and row.branch == "active"]
    return tuple(
        RecentCall(id=row.id, tool=row.tool or "", target=row.target, state=row.state, duration_ms=row.duration_ms)
        for row in reversed(ended[-_RECENT_CALLS:])
    )


def _status_from_transcript(summary: FileSummary | None) -> SessionStatus:
    """Return `idle` if the transcript is missing or the last turn is over, otherwise `running`."""
    if summary is None:
        return "idle"
    if _open_calls(summary):
        return "running"
    last_result = max((row.finished for row in summary.calls if row.finished), default="")
    try:
        messages = [message for message in read(to_path(summary.file)).messages() if message.agent_id is None]
    except SourceError:  # removed
        messages = []
    if not messages:
        return "idle"
    over = messages[-1].voice in ("text", "interrupt", "error", "summary", "command")
    return "idle" if over and (messages[-1].at or "") >= last_result else "running"


def _format_timestamp(ms: float | None) -> str | None:
    try:
        return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC).isoformat()
    except (OSError, OverflowError, ValueError):
        return None


# --- Processes


def _find_file_holders(paths: Iterable[str]) -> dict[str, int]:
    """Return the id of the process that has each file open for writing, if any. This process is ignored."""
    original_paths = {os.path.realpath(path): path for path in paths}
    pid_by_path: dict[str, int] = {}
    if not original_paths:
        return pid_by_path
    import psutil  # perf: rarely needed, and takes 20 ms

    for process in psutil.process_iter():
        try:
            # The mode is known only on Linux. On other systems, a program that only reads the file is included.
            open_paths = [file.path for file in process.open_files() if getattr(file, "mode", "a") != "r"]
        except (psutil.Error, OSError):
            continue
        for path in open_paths:
            if path in original_paths and process.pid != os.getpid():
                pid_by_path.setdefault(original_paths[path], process.pid)
    return pid_by_path
