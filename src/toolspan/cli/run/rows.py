"""What `toolspan run` prints for programs: the lines of stream-json, and the result alone.

In: what happens in a session. Out: rows in the shape that clients print, so that what reads theirs
reads ours; keys of our own are few and stand last. Pure but for new ids.
"""

import uuid
from collections.abc import Mapping, Sequence

from toolspan.cli.host.rows import Row
from toolspan.llm.model import Retrying
from toolspan.mcp import McpServers
from toolspan.model.live import Finished
from toolspan.model.span import Span
from toolspan.session import Ended, Session

_SUBTYPES = {"completed": "success", "max_turns": "error_max_turns"}


def init_line(session: Session, servers: McpServers, *, model: str, mode: str) -> Row:
    """What a session is, and which tools it has."""
    return {
        "type": "system",
        "subtype": "init",
        "cwd": str(session.cwd),
        "session_id": session.session_id,
        "tools": [str(schema["name"]) for schema in session.schemas()],
        "mcp_servers": [
            {"name": name, "status": health.state} for name, health in servers.health.items()
        ],
        "model": model,
        "permissionMode": mode,
        "claude_code_version": session.profile.shape.version,
        "uuid": _uuid(),
        "transcript": None if session.transcript is None else str(session.transcript),
    }


def reply_line(session: Session, head: Mapping[str, object], block: Mapping[str, object]) -> Row:
    """A block of a reply; why the reply ended is not known yet."""
    message: Row = {
        "id": head.get("id"),
        "type": "message",
        "role": "assistant",
        "model": head.get("model"),
        "content": [block],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": head.get("usage") or {},
    }
    return {"type": "assistant", "message": message, **_about(session)}


def result_line(session: Session, finished: Finished) -> Row:
    """The result of a call."""
    result = finished.span.result
    block: Row = {"tool_use_id": finished.call_id, "type": "tool_result"}
    block["content"] = finished.content
    if result is not None and result.is_error is not None:
        block["is_error"] = result.is_error
    row: Row = {"type": "user", "message": {"role": "user", "content": [block]}}
    row |= _about(session)
    if finished.structured is not None:
        row["tool_use_result"] = finished.structured
    return row


def retry_line(session: Session, retry: Retrying) -> Row:
    """A request failed and is made again."""
    return {
        "type": "system",
        "subtype": "api_retry",
        "attempt": retry.attempt,
        "max_retries": retry.of,
        "retry_delay_ms": round(retry.wait_s * 1000),
        "error_status": retry.failure.status,
        "error": retry.failure.kind,
        "session_id": session.session_id,
        "uuid": _uuid(),
    }


def end_line(session: Session, ended: Ended, denied: Sequence[Span]) -> Row:
    """How the turn went, and which calls of the session were refused."""
    subtype = _SUBTYPES.get(ended.reason, "error_during_execution")
    row: Row = {
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
        "permission_denials": [_denial(span) for span in denied],
        "terminal_reason": ended.reason,
        "uuid": _uuid(),
    }
    if ended.error is not None:
        row["errors"] = [ended.error]
    if session.deferred is not None:
        call = session.deferred
        told: Row = {"id": call.id, "name": call.tool, "input": dict(call.arguments)}
        row["deferred_tool_use"] = told
    return row


def _denial(span: Span) -> Row:
    arguments = dict(span.call.arguments)
    return {"tool_name": span.tool, "tool_use_id": span.id, "tool_input": arguments}


def _about(session: Session) -> Row:
    return {"parent_tool_use_id": None, "session_id": session.session_id, "uuid": _uuid()}


def _uuid() -> str:
    return str(uuid.uuid4())
