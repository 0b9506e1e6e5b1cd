"""One flat row per call, for JSON lines, tables, the cache and other processes.

A row holds facts and locations, never bodies. Times are kept as the client wrote them.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from toolspan.types.error_kinds import ErrorKind, Retry
from toolspan.types.ids import SourceLocation
from toolspan.types.session import Dialect
from toolspan.types.span import Branch, Hook, HookOutcome, Notification, Permission, Span
from toolspan.types.state import State
from toolspan.types.tool_kinds import ToolKind


class HookRow(Struct, frozen=True, kw_only=True, gc=False):
    """A hook that ran for a call."""

    point: str
    name: str
    outcome: HookOutcome
    command: str | None
    exit_code: int | None
    duration_ms: int | float | None


class CallRow(Struct, frozen=True, kw_only=True, gc=False):
    """One call as a flat row. `toolspan calls --json` prints exactly these fields."""

    file: str
    """Path of the transcript."""
    id: str
    """The call's id. In JSON, it is empty if the client did not assign one."""
    tool: str | None
    """Name of the tool; null for an orphan result."""
    kind: ToolKind
    """The kind of tool: `shell`, `read`, `edit`, `mcp`, …"""
    state: State
    """The final state."""
    error_kind: ErrorKind | None
    """The reason for the failure; null if the call succeeded."""
    error_group: str | None
    """The id of the group of failures with the same cause; null if nothing failed."""
    error_program: str | None
    """The program that failed, for commands."""
    error_text: str | None
    """The line of the output that best explains the cause."""
    is_error: bool | None
    """The error flag as recorded. Most successful calls have none."""
    paired: bool
    """True if the file contains both the request and the result."""
    background: bool
    """True if the call returned while its work continued."""
    request_line: int | None
    """Line number of the request, starting at 1."""
    result_line: int | None
    """Line number of the result, starting at 1."""
    requested: str | None
    """Time of the request, as recorded."""
    finished: str | None
    """Time at which the client wrote the result, as recorded."""
    duration_ms: int | None
    """Time from request to result, including any wait for permission."""
    target: str | None
    """The subject of the call: a path, command, pattern or address."""
    message: str | None
    """The beginning of the error text, without tags."""
    exit_code: int | None
    """The exit code found in the result text."""
    retry: Retry | None
    """The recommended reaction to the failure."""
    session: str | None
    """The session that the call belongs to."""
    agent: str | None
    """The subagent that made the request; null for the main agent."""
    parent_call: str | None
    """The call that started that subagent."""
    batch: str | None
    """The id of the assistant message. Calls with the same id form a batch."""
    prompt: str | None
    """The prompt that began the turn."""
    started_agent: str | None
    """The subagent that the call started."""
    background_task: str | None
    """The background task that the call started."""
    background_outcome: str | None
    """The outcome of that task, if reported."""
    branch: Branch
    """`active`, `compacted` (before a compaction) or `abandoned` (by a rewind)."""
    ambiguous: bool
    """True if the transcript allows another interpretation."""
    synthetic: bool
    """True if the client fabricated the result to repair the conversation."""
    deferred: bool
    """True if a hook deferred the call."""
    truncated: bool
    """True if the model saw only part of the output."""
    copies: int
    """Number of times the request or result is repeated in the file."""
    hooks: tuple[HookRow, ...]
    """Hooks that ran for the call."""
    permission: str | None
    """The recorded permission decision."""
    evidence: tuple[tuple[str, str | None], ...]
    """The evidence for the state: each rule with the text it matched."""
    request_bytes: tuple[int, int] | None
    """Offset and length of the line that contains the request."""
    result_bytes: tuple[int, int] | None
    """Offset and length of the line that contains the result."""
    dialect: Dialect = "claude"
    """The transcript format."""


def make_call_row(span: Span, file: str) -> CallRow:
    """Return the row for a span."""
    call, result = span.call, span.result
    request_place = call.place
    result_place = result.place if result else None
    advice = span.advice
    cause = None
    if span.state != "succeeded" or span.events:
        from toolspan.reading.causes import find_cause  # perf: its patterns take long to compile

        cause = find_cause(span)
    return CallRow(
        file=file,
        id=call.id,
        tool=call.tool or None,
        kind=call.kind,
        state=span.state,
        error_kind=span.error_kind,
        error_group=cause.group if cause else None,
        error_program=cause.program if cause else None,
        error_text=cause.text if cause else None,
        is_error=result.is_error if result else None,
        paired=request_place is not None and result_place is not None,
        background=span.background,
        request_line=request_place.line if request_place else None,
        result_line=result_place.line if result_place else None,
        requested=call.requested_at,
        finished=result.finished_at if result else None,
        duration_ms=span.duration_ms,
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
            HookRow(
                point=event.point,
                name=event.name,
                outcome=event.outcome,
                command=event.command,
                exit_code=event.exit_code,
                duration_ms=event.duration_ms,
            )
            for event in span.events
            if isinstance(event, Hook)
        ),
        background_outcome=next((e.status for e in reversed(span.events) if isinstance(e, Notification)), None),
        permission=next((event.decision for event in span.events if isinstance(event, Permission)), None),
        evidence=tuple((evidence.rule, evidence.text) for evidence in span.evidence),
        request_bytes=_byte_range(request_place),
        result_bytes=_byte_range(result_place),
        dialect=call.dialect,
    )


def has_client_id(row: CallRow) -> bool:
    """Return whether the client assigned the call's id. Some Codex calls have none."""
    return not row.id.startswith("#")


def _byte_range(place: SourceLocation | None) -> tuple[int, int] | None:
    return (place.offset, place.length) if place else None


def encode_json_line(row: Struct | dict[str, object]) -> bytes:
    """Encode a row as one line of JSON, escaping lone surrogates."""
    try:
        return msgspec.json.encode(row)
    except UnicodeEncodeError:
        import json

        return json.dumps(msgspec.to_builtins(row)).encode("ascii")
