"""A span as one flat row: what goes over pipes, into JSON lines and into tables.

A row holds facts and places, never bodies. Times are as the client wrote them.
"""

import msgspec
from msgspec import Struct

from toolspan.model.event import Hook, Permission
from toolspan.model.kind import ErrorKind, Retry
from toolspan.model.place import Place
from toolspan.model.span import Branch, Span
from toolspan.model.state import State
from toolspan.model.toolkind import ToolKind


class CallFacts(Struct, frozen=True, kw_only=True, gc=False):
    """One call in one row; `toolspan calls --json` prints exactly these fields."""

    file: str
    id: str
    tool: str | None
    kind: ToolKind
    state: State
    error_kind: ErrorKind | None
    is_error: bool | None
    paired: bool
    background: bool
    request_line: int | None
    result_line: int | None
    requested: str | None
    finished: str | None
    duration_ms: int | None
    target: str | None
    message: str | None
    exit_code: int | None
    retry: Retry | None
    session: str | None
    agent: str | None
    parent_call: str | None
    batch: str | None
    prompt: str | None
    started_agent: str | None
    background_task: str | None
    branch: Branch
    ambiguous: bool
    synthetic: bool
    deferred: bool
    truncated: bool
    copies: int
    hooks: tuple[str, ...]
    permission: str | None
    evidence: tuple[tuple[str, str | None], ...]
    request_bytes: tuple[int, int] | None
    """Offset and length of the line with the request."""
    result_bytes: tuple[int, int] | None


def facts_of(span: Span, file: str) -> CallFacts:
    """The row of one span."""
    call, result = span.call, span.result
    asked = call.place
    answered = result.place if result else None
    duration = span.duration
    advice = span.advice
    return CallFacts(
        file=file,
        id=call.id,
        tool=call.tool or None,
        kind=call.kind,
        state=span.state,
        error_kind=span.error_kind,
        is_error=result.is_error if result else None,
        paired=asked is not None and answered is not None,
        background=span.background,
        request_line=asked.line if asked else None,
        result_line=answered.line if answered else None,
        requested=call.requested_at,
        finished=result.finished_at if result else None,
        duration_ms=round(duration.total_seconds() * 1000) if duration is not None else None,
        target=call.target,
        message=span.message,
        exit_code=result.exit_code if result else None,
        retry=advice.retry if advice else None,
        session=call.session_id,
        agent=call.agent_id,
        parent_call=call.parent_call,
        batch=call.message_id,
        prompt=call.prompt_id,
        started_agent=span.agent,
        background_task=result.background_task if result else None,
        branch=span.branch,
        ambiguous=span.ambiguous,
        synthetic=span.synthetic,
        deferred=span.deferred,
        truncated=bool(result and result.truncated),
        copies=len(span.copies),
        hooks=tuple(
            f"{event.name}: {event.outcome}" for event in span.events if isinstance(event, Hook)
        ),
        permission=next(
            (event.decision for event in span.events if isinstance(event, Permission)), None
        ),
        evidence=tuple((evidence.rule, evidence.text) for evidence in span.evidence),
        request_bytes=_bytes(asked),
        result_bytes=_bytes(answered),
    )


def _bytes(place: Place | None) -> tuple[int, int] | None:
    return (place.offset, place.length) if place else None


def json_line(row: Struct | dict[str, object]) -> bytes:
    """A row as one line of JSON; half a surrogate pair is escaped, never an error."""
    try:
        return msgspec.json.encode(row)
    except UnicodeEncodeError:
        import json

        return json.dumps(msgspec.to_builtins(row)).encode("ascii")
