"""Which sessions are going on: running, waiting for a person, idle, or dead in the middle.

In: the files that could be live, the client's own list of its processes, and the process table.
Out: a `LiveSession` for each that has a process, or died lately with calls unanswered. A file's age
alone proves nothing: every status names what it rests on. Read `live_sessions` first.
"""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from msgspec import Struct, structs

from toolspan.errors import SourceError
from toolspan.model.span import moment
from toolspan.process.holders import holders, is_running
from toolspan.read.discover import FoundFile, discover_all
from toolspan.read.transcript import Transcript, read
from toolspan.wire.paths import config_dir
from toolspan.wire.registry import Registered, registered

Status = Literal["running", "waiting", "idle", "dead"]

_SAID: dict[str, Status] = {"busy": "running", "waiting": "waiting", "idle": "idle"}
LATELY = 24 * 3600.0
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
    status: Status
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
    mains = {file.name.stem: file for file in _mains(roots)}
    listed = [one for one in registered(config or config_dir()) if roots is None or _in(one, mains)]
    found = [_listed(one, mains.get(one.session_id)) for one in listed]
    found = [one for one in found if one.file or one.status != "dead"]
    known = {one.id for one in found}
    recent = [file for name, file in mains.items() if name not in known]
    recent = [file for file in recent if at - file.modified < LATELY]
    held = holders(str(file.path) for file in recent)
    rest = (_unlisted(file, held.get(str(file.path)), at) for file in recent)
    found += [one for one in rest if one is not None]
    order: list[Status] = ["waiting", "running", "idle", "dead"]
    return sorted(found, key=lambda one: (order.index(one.status), one.since or "", one.id))


def _mains(roots: Sequence[Path] | None) -> list[FoundFile]:
    try:
        everything = discover_all(roots)
    except SourceError:
        if roots is not None:
            raise
        return []
    return [file for file in everything if file.name.role == "session"]


def _in(one: Registered, mains: dict[str, FoundFile]) -> bool:
    return one.session_id in mains


def _listed(one: Registered, file: FoundFile | None) -> LiveSession:
    """A session that the client lists."""
    transcript = _transcript(file)
    runs = is_running(one.pid, one.process_start)
    status: Status = "dead"
    evidence = f"its process {one.pid} is gone, and did not sign off"
    if runs and one.status in _SAID:
        status, evidence = _SAID[one.status], f"process {one.pid} says {one.status}"
    elif runs:
        status = _by_its_words(transcript)
        evidence = f"process {one.pid} runs; the status is read off the transcript"
    waits = f"it waits for: {one.waiting_for}" if one.waiting_for and status == "waiting" else None
    found = LiveSession(
        id=one.session_id,
        status=status,
        evidence=tuple(word for word in (evidence, waits) if word),
        pid=one.pid,
        cwd=one.cwd,
        version=one.version,
        since=_iso(one.status_ms or one.started_ms) if runs else None,
    )
    return found if transcript is None else _with_words(found, transcript)


def _unlisted(file: FoundFile, pid: int | None, now: float) -> LiveSession | None:
    """A session that no client lists: a process has its file open, or it ended in the middle."""
    transcript = _transcript(file)
    if transcript is None:
        return None
    status: Status = "dead"
    evidence = "calls have no result, and no process has the file open"
    if pid is not None:
        status, evidence = _by_its_words(transcript), f"process {pid} has the file open"
    elif not _open_calls(transcript) or not _is_late(transcript, now):
        return None
    found = LiveSession(id=file.name.stem, status=status, evidence=(evidence,), pid=pid)
    return _with_words(found, transcript)


def _with_words(found: LiveSession, transcript: Transcript) -> LiveSession:
    """With what the transcript adds."""
    info = transcript.info
    return structs.replace(
        found,
        dialect=transcript.dialect,
        file=transcript.file,
        cwd=found.cwd or info.cwd,
        title=info.title or info.first_prompt,
        version=found.version or (info.versions[-1] if info.versions else None),
        since=found.since or info.ended_at,
        calls=_open_calls(transcript),
    )


def _transcript(file: FoundFile | None) -> Transcript | None:
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
        OpenCall(
            id=span.id,
            tool=span.tool,
            target=span.call.target,
            requested=span.call.requested_at,
        )
        for span in spans
        if span.state == "never_answered" and span.result is None
        if span.branch == "active" and span.call.message_id == last
    )


def _by_its_words(transcript: Transcript | None) -> Status:
    """Whose turn it is: the model's, until it has said something after the last call."""
    if transcript is None:
        return "idle"
    if _open_calls(transcript):
        return "running"
    ends = [span.result.finished_at for span in transcript.spans if span.result]
    last_result = max((at for at in ends if at), default="")
    words = [one for one in transcript.messages() if one.agent_id is None]
    if not words:
        return "idle"
    over = words[-1].voice in ("text", "interrupt", "error", "summary", "command")
    return "idle" if over and (words[-1].at or "") >= last_result else "running"


def _is_late(transcript: Transcript, now: float) -> bool:
    """Whether its last words are not long ago; those of a copied file stay what they were."""
    last = moment(transcript.info.ended_at)
    return last is not None and now - last.timestamp() < LATELY


def _iso(ms: float | None) -> str | None:
    """A time that a client noted; None where it is none."""
    try:
        return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC).isoformat()
    except (OSError, OverflowError, ValueError):
        return None
