"""What the runner emits, as JSON rows for programs."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

from msgspec import structs

from toolspan.integrations.mcp_client import McpServers
from toolspan.session import Session, TurnResult
from toolspan.session.models.base import Retrying
from toolspan.types.events import Finished, LiveEvent, Relayed, Requested
from toolspan.types.span import Span

JsonRow = dict[str, object]


def init_row(session: Session) -> JsonRow:
    """What a session is, and which tools it has."""
    return {
        "type": "system",
        "subtype": "init",
        "session_id": session.session_id,
        "cwd": str(session.cwd),
        "profile": session.profile.name,
        "transcript": None if session.transcript is None else str(session.transcript),
        "tools": [str(schema["name"]) for schema in session.schemas()],
    }


def result_row(finished: Finished) -> JsonRow:
    """A call's result: what the model is told, what is recorded, how it ended."""
    span = finished.span
    row: JsonRow = {"type": "result", "tool_use_id": span.id}
    if span.result is not None and span.result.is_error is not None:
        row["is_error"] = span.result.is_error
    row["content"] = finished.content
    if finished.structured is not None:
        row["toolUseResult"] = finished.structured
    row["state"] = span.state
    if span.error_kind is not None:
        row["error_kind"] = span.error_kind
    if finished.structured_output is not None:
        row["structured_output"] = finished.structured_output
    if finished.contexts:
        row["contexts"] = [context.text for context in finished.contexts]
    row["duration_ms"] = round(finished.duration_ms, 3)
    return row


def event_row(event: LiveEvent) -> JsonRow:
    """Any other event."""
    kind = str(type(event).__struct_config__.tag)
    match event:
        case Finished():
            return {"type": kind, "tool_use_id": event.call_id, "state": event.span.state}
        case Requested():
            call = event.call
            row: JsonRow = {"type": kind, "tool_use_id": call.id, "name": call.tool}
            row["input"] = _to_plain_dict(call.arguments)
            row["at"] = event.at
            if event.recovers is not None:
                row["recovered_from"] = event.recovers
            return row
        case Relayed():
            below = {"parent_tool_use_id": event.call_id, "agent_id": event.agent_id}
            return {**event_row(event.event), **below}
        case _:
            fields = structs.asdict(event)
            named = {"tool_use_id" if k == "call_id" else k: v for k, v in fields.items()}
            return {"type": kind, **{k: _to_plain_dict(v) for k, v in named.items() if v is not None}}


def _to_plain_dict(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else value


_RESULT_SUBTYPES = {"completed": "success", "max_turns": "error_max_turns"}


def init_line(session: Session, servers: McpServers, *, model: str, mode: str) -> JsonRow:
    """What a session is, and which tools it has."""
    return {
        "type": "system",
        "subtype": "init",
        "cwd": str(session.cwd),
        "session_id": session.session_id,
        "tools": [str(schema["name"]) for schema in session.schemas()],
        "mcp_servers": [{"name": name, "status": health.state} for name, health in servers.health.items()],
        "model": model,
        "permissionMode": mode,
        "claude_code_version": session.profile.shape.version,
        "uuid": _new_uuid(),
        "transcript": None if session.transcript is None else str(session.transcript),
    }


def reply_line(session: Session, head: Mapping[str, object], block: Mapping[str, object]) -> JsonRow:
    """A block of a reply; why the reply ended is not known yet."""
    message: JsonRow = {
        "id": head.get("id"),
        "type": "message",
        "role": "assistant",
        "model": head.get("model"),
        "content": [block],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": head.get("usage") or {},
    }
    return {"type": "assistant", "message": message, **_session_keys(session)}


def result_line(session: Session, finished: Finished) -> JsonRow:
    """The result of a call."""
    result = finished.span.result
    block: JsonRow = {"tool_use_id": finished.call_id, "type": "tool_result"}
    block["content"] = finished.content
    if result is not None and result.is_error is not None:
        block["is_error"] = result.is_error
    row: JsonRow = {"type": "user", "message": {"role": "user", "content": [block]}}
    row |= _session_keys(session)
    if finished.structured is not None:
        row["tool_use_result"] = finished.structured
    return row


def retry_line(session: Session, retry: Retrying) -> JsonRow:
    """A request failed and is made again."""
    return {
        "type": "system",
        "subtype": "api_retry",
        "attempt": retry.attempt,
        "max_retries": retry.max_retries,
        "retry_delay_ms": round(retry.wait_s * 1000),
        "error_status": retry.failure.status,
        "error": retry.failure.kind,
        "session_id": session.session_id,
        "uuid": _new_uuid(),
    }


def end_line(session: Session, ended: TurnResult, denied: Sequence[Span]) -> JsonRow:
    """How the turn went, and which calls of the session were refused."""
    subtype = _RESULT_SUBTYPES.get(ended.reason, "error_during_execution")
    row: JsonRow = {
        "type": "result",
        "subtype": subtype,
        "is_error": ended.is_error,
        "duration_ms": round(ended.duration_ms),
        "duration_api_ms": round(ended.api_ms),
        "num_turns": ended.turns,
        "result": ended.text,
        "stop_reason": ended.stop_reason,
        "session_id": session.session_id,
        "usage": dict(ended.tokens),
        "permission_denials": [_denial_row(span) for span in denied],
        "terminal_reason": ended.reason,
        "uuid": _new_uuid(),
    }
    if ended.error is not None:
        row["errors"] = [ended.error]
    if session.deferred_call is not None:
        call = session.deferred_call
        deferred_call: JsonRow = {"id": call.id, "name": call.tool, "input": dict(call.arguments)}
        row["deferred_tool_use"] = deferred_call
    return row


def _denial_row(span: Span) -> JsonRow:
    arguments = dict(span.call.arguments)
    return {"tool_name": span.tool, "tool_use_id": span.id, "tool_input": arguments}


def _session_keys(session: Session) -> JsonRow:
    return {"parent_tool_use_id": None, "session_id": session.session_id, "uuid": _new_uuid()}


def _new_uuid() -> str:
    return str(uuid.uuid4())
