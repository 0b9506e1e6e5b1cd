"""What the runner emits, as JSON rows for programs."""

from collections.abc import Mapping

from msgspec import structs

from toolspan.model.live import Finished, LiveEvent, Relayed, Requested
from toolspan.session import Session

Row = dict[str, object]


def init_row(session: Session) -> Row:
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


def result_row(finished: Finished) -> Row:
    """A call's result: what the model is told, what is recorded, how it ended."""
    span = finished.span
    row: Row = {"type": "result", "tool_use_id": span.id}
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


def event_row(event: LiveEvent) -> Row:
    """Any other event."""
    kind = str(type(event).__struct_config__.tag)
    match event:
        case Finished():
            return {"type": kind, "tool_use_id": event.call_id, "state": event.span.state}
        case Requested():
            call = event.call
            row: Row = {"type": kind, "tool_use_id": call.id, "name": call.tool}
            row["input"] = _plain(call.arguments)
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
            return {"type": kind, **{k: _plain(v) for k, v in named.items() if v is not None}}


def _plain(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else value
