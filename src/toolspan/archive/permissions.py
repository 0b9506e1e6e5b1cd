"""Calls with their inputs and what is recorded about their permission: `Archive.permissions`.

Clients record only a part: newer ones write down who decided, all of them write down denials, and the time that a
question was open follows from the times of a call and its hooks. `toolspan.replay.suggest_rules` builds on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from msgspec import Struct

from toolspan.analysis.timing import CallPhases, Certainty, phases_among, read_hook_timings
from toolspan.archive.engine import FileEngine
from toolspan.archive.filters import Filter
from toolspan.archive.selection import check_project, check_session
from toolspan.archive.sources import read_transcripts
from toolspan.formats.source import to_path
from toolspan.reading.rows import has_client_id
from toolspan.types.session import ClientName, SessionInfo
from toolspan.types.span import Permission, Span


class RecordedPermission(Struct, frozen=True, kw_only=True):
    """A call, and what is recorded about its permission."""

    file: str
    client: ClientName
    session: str | None
    project: str | None
    """The folder in which the session began."""
    call: str
    tool: str
    input: Mapping[str, object]
    requested: datetime | None
    refused: bool
    """True if the call was denied, by a person, a rule or a hook."""
    asked: bool | None
    """True if a person was asked, False if rules, the mode or a hook decided; None if neither is recorded."""
    wait_ms: int | None
    """The time that a question was open; None if it is not known."""
    wait_certainty: Certainty


def iter_permissions(engine: FileEngine, call_filter: Filter) -> Iterator[RecordedPermission]:
    """Yield the calls that a filter accepts, each once, file by file. Orphan results are left out.

    Raises:
        NotFound: the project or session in the filter does not occur.
    """
    files, _ = engine.locate()
    since = call_filter.since.timestamp() if call_filter.since is not None else float("-inf")
    recent = [file for file in files if file.modified >= since]
    seen: set[str] = set()
    infos: list[tuple[str, SessionInfo]] = []
    for transcript in read_transcripts([file.path for file in recent], engine.reporter):
        infos.append((transcript.file, transcript.info))
        phases_of = phases_among(transcript.spans, read_hook_timings(to_path(transcript.file)))
        for span in transcript.spans:
            row = transcript.make_row(span)
            if not span.tool or row.id in seen or not call_filter.accepts_call(row, transcript.info):
                continue
            if has_client_id(row):  # resumed and forked sessions repeat the calls of another file
                seen.add(row.id)
            yield _record_permission(span, transcript.file, transcript.info, phases_of(span))
    check_session(call_filter.session, (info for _, info in infos))
    check_project(call_filter.project, infos)


def _record_permission(span: Span, file: str, info: SessionInfo, phases: CallPhases) -> RecordedPermission:
    waits = [interval.end - interval.start for interval in phases.intervals if interval.phase == "permission"]
    decision = next((event for event in span.events if isinstance(event, Permission)), None)
    refused = span.state in ("denied", "blocked_by_hook") or (decision is not None and decision.decision == "reject")
    asked: bool | None = None
    if decision is not None and decision.source is not None:
        asked = decision.source.startswith("user")
    elif span.error_kind == "user_denied":
        asked = True
    return RecordedPermission(
        file=file,
        client=span.call.client,
        session=span.call.session_id,
        project=info.cwd,
        call=span.id,
        tool=span.tool,
        input=span.call.arguments,
        requested=span.requested,
        refused=refused,
        asked=asked,
        wait_ms=sum(waits) if waits else None,
        wait_certainty=phases.certainty,
    )
