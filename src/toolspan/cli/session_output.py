"""The output of sessions that run in a pipe: the results and events of `toolspan exec`, and the answers of `run -p`."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import structs

from toolspan.cli.output import warn
from toolspan.cli.process import FaultReporter, JsonRow, StandardOutput
from toolspan.session import Session, TurnResult
from toolspan.session.models.base import ModelEvent, Retrying
from toolspan.session.models.history import valid_call_id
from toolspan.types.events import Duplicate, Finished, LiveEvent, Relayed, Requested
from toolspan.types.span import Span

_RESULT_SUBTYPES = {"completed": "success"} | {
    reason: f"error_{reason}"
    for reason in (
        "max_turns",
        "max_budget_usd",
        "max_budget_tokens",
        "max_seconds",
        "max_calls",
        "max_structured_output_retries",
    )
}


class EventPrinter(StandardOutput):
    """Printer for a session's results and events as JSON lines."""

    def __init__(self, *, events: bool) -> None:
        super().__init__("toolspan exec")
        self._include_events = events
        self._fault_reporter = FaultReporter("toolspan exec")
        self._sent_ids: dict[object, str] = {}

    def remember_ids(self, message: Mapping[str, object]) -> None:
        """Remember the ids that the session replaces because the API does not accept them; rows keep those sent."""
        inner = message.get("message")
        content = (inner if isinstance(inner, Mapping) else message).get("content")
        for block in content if isinstance(content, list) else [message]:
            if isinstance(block, Mapping) and isinstance(sent_id := block.get("id"), str):
                self._sent_ids[valid_call_id(sent_id)] = sent_id

    def write_row(self, row: JsonRow) -> None:
        """Print a row, with the call id as it was sent."""
        if row.get("tool_use_id") in self._sent_ids:
            row["tool_use_id"] = self._sent_ids[row["tool_use_id"]]
        super().write_row(row)

    def on_session_start(self, session: Session) -> None:
        """Print the results that interrupted calls got; with `--events`, first the session and its tools."""
        if self._include_events:
            self.write_row({
                "type": "system",
                "subtype": "init",
                "session_id": session.session_id,
                "cwd": str(session.cwd),
                "profile": session.profile.name,
                "transcript": None if session.transcript is None else str(session.transcript),
                "tools": [str(schema["name"]) for schema in session.schemas()],
                **session.describe_sandbox(),
            })  # fmt: skip
        for call_id, content in session.recovered_results.items():
            row: JsonRow = {"type": "result", "tool_use_id": call_id, "is_error": True, "content": content}
            self.write_row({**row, "state": "interrupted"})

    def close(self) -> None:
        """Report faults that were counted but not printed."""
        self._fault_reporter.close()

    def on_event(self, event: LiveEvent) -> None:
        """Print results, and other events with `--events`. Faults go to standard error."""
        if self._include_events:
            self.write_row(_event_row(event))
        match event:
            case Finished():
                self.write_row(_call_row(event))
            case Duplicate():
                message = f"call {event.call_id} is a duplicate and is not run again"
                self.write_row({"type": "error", "tool_use_id": event.call_id, "message": message})
            case _:
                self._fault_reporter.on_event(event)


def describe_retry(event: Retrying) -> str:
    """Return a text about a request that failed and is made again."""
    wait = f"retrying in {event.wait_s:.1f} s ({event.attempt} of {event.max_retries})"
    return f"{event.failure.describe()}; {wait}"


class TextOutput:
    """Output that prints the model's final text."""

    def __init__(self, out: StandardOutput) -> None:
        self.out = out
        self._fault_reporter = FaultReporter()
        self._session: Session | None = None

    def on_session_start(self, session: Session, *, model: str, mode: str) -> None:  # noqa: ARG002 - the same for all displays
        """Store the session."""
        self._session = session

    def on_model_event(self, event: ModelEvent) -> None:
        """Warn about retries."""
        if isinstance(event, Retrying):
            warn(describe_retry(event))

    def on_event(self, event: LiveEvent) -> None:
        """Report faults."""
        self._fault_reporter.on_event(event)

    def on_turn_end(self, ended: TurnResult) -> None:
        """Print the final text. Errors go to standard error."""
        if ended.output is not None:
            self.out.write(msgspec.json.encode(ended.output) + b"\n")
        elif ended.text:
            self.out.write(ended.text.encode("utf-8", "replace") + b"\n")
        if ended.error is not None:
            warn(ended.error)

    def close(self) -> None:
        """Report faults that were counted but not printed."""
        self._fault_reporter.close()


class JsonOutput(TextOutput):
    """Output that prints one JSON object at the end."""

    def __init__(self, out: StandardOutput) -> None:
        super().__init__(out)
        self._denied_spans: list[Span] = []

    def on_event(self, event: LiveEvent) -> None:
        """Collect denied calls, because compaction may remove them from the session."""
        super().on_event(event)
        if isinstance(event, Finished) and event.span.state == "denied":
            self._denied_spans.append(event.span)

    def on_turn_end(self, ended: TurnResult) -> None:
        """Print the reply, tokens and denied calls of the turn as one JSON object."""
        if self._session is not None:
            self.out.write_row(_end_row(self._session, ended, self._denied_spans))


class StreamJsonOutput(JsonOutput):
    """Output that prints JSON lines in the same shape as `claude --output-format stream-json`."""

    def on_session_start(self, session: Session, *, model: str, mode: str) -> None:
        """Print the init line."""
        self._session = session
        session.conversation.on_block = self._write_block
        self.out.write_row({
            "type": "system",
            "subtype": "init",
            "cwd": str(session.cwd),
            "session_id": session.session_id,
            "tools": [str(schema["name"]) for schema in session.schemas()],
            "mcp_servers": [{"name": name, "status": state} for name, state in server_states(session).items()],
            "model": model,
            "permissionMode": mode,
            "claude_code_version": session.profile.shape.version,
            "uuid": str(uuid.uuid4()),
            "transcript": None if session.transcript is None else str(session.transcript),
            **session.describe_sandbox(),
        })  # fmt: skip

    def on_model_event(self, event: ModelEvent) -> None:
        """Print retries."""
        if isinstance(event, Retrying) and self._session is not None:
            self.out.write_row({
                "type": "system",
                "subtype": "api_retry",
                "attempt": event.attempt,
                "max_retries": event.max_retries,
                "retry_delay_ms": round(event.wait_s * 1000),
                "error_status": event.failure.status,
                "error": event.failure.kind,
                "session_id": self._session.session_id,
                "uuid": str(uuid.uuid4()),
            })  # fmt: skip

    def on_event(self, event: LiveEvent) -> None:
        """Print the results of calls, including subagents' calls."""
        super().on_event(event)
        if isinstance(event, Finished) and self._session is not None and not event.span.deferred:
            self.out.write_row(_result_row(self._session, event))
        elif isinstance(event, Relayed) and isinstance(event.event, Finished) and self._session:
            below = {"parent_tool_use_id": event.call_id, "agent_id": event.agent_id}
            self.out.write_row({**_result_row(self._session, event.event), **below})

    def _write_block(self, head: Mapping[str, object], block: Mapping[str, object]) -> None:
        if self._session is not None:
            message = {
                "id": head.get("id"), "type": "message", "role": "assistant", "model": head.get("model"),
                "content": [block], "stop_reason": None, "stop_sequence": None, "usage": head.get("usage") or {},
            }  # fmt: skip
            self.out.write_row({"type": "assistant", "message": message, **_session_keys(self._session)})


def _call_row(finished: Finished) -> JsonRow:
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


def _event_row(event: LiveEvent) -> JsonRow:
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
            return {**_event_row(event.event), **below}
        case _:
            fields = structs.asdict(event)
            named = {"tool_use_id" if k == "call_id" else k: v for k, v in fields.items()}
            return {"type": kind, **{k: _to_plain_dict(v) for k, v in named.items() if v is not None}}


def _to_plain_dict(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else value


def _result_row(session: Session, finished: Finished) -> JsonRow:
    result = finished.span.result
    block: JsonRow = {"tool_use_id": finished.call_id, "type": "tool_result", "content": finished.content}
    if result is not None and result.is_error is not None:
        block["is_error"] = result.is_error
    row: JsonRow = {"type": "user", "message": {"role": "user", "content": [block]}, **_session_keys(session)}
    if finished.structured is not None:
        row["tool_use_result"] = finished.structured
    return row


def _end_row(session: Session, ended: TurnResult, denied: Sequence[Span]) -> JsonRow:
    row: JsonRow = {
        "type": "result",
        "subtype": _RESULT_SUBTYPES.get(ended.reason, "error_during_execution"),
        "is_error": ended.is_error,
        "duration_ms": round(ended.duration_ms),
        "duration_api_ms": round(ended.api_ms),
        "num_turns": ended.turns,
        "result": ended.text,
        "stop_reason": ended.stop_reason,
        "session_id": session.session_id,
        "usage": dict(ended.tokens),
        "permission_denials": [
            {"tool_name": span.tool, "tool_use_id": span.id, "tool_input": dict(span.call.arguments)} for span in denied
        ],
        "terminal_reason": ended.reason,
        "uuid": str(uuid.uuid4()),
    }
    if ended.output is not None:
        row["structured_output"] = ended.output
    if ended.cost is not None:
        row["total_cost_usd"] = ended.cost
    if ended.error is not None:
        row["errors"] = [ended.error]
    if session.deferred_call is not None:
        call = session.deferred_call
        row["deferred_tool_use"] = {"id": call.id, "name": call.tool, "input": dict(call.arguments)}
    return row


def server_states(session: Session) -> Mapping[str, str]:
    """Return the state of each MCP server of a session."""
    return {} if session.settings is None else session.settings.server_states


def _session_keys(session: Session) -> JsonRow:
    return {"parent_tool_use_id": None, "session_id": session.session_id, "uuid": str(uuid.uuid4())}
