"""`--format otlp`: sessions as OTLP/JSON for any OpenTelemetry backend.

Each line is the `ExportTraceServiceRequest` for one session, as collectors read it from files. A session is a trace
whose root span is the conversation. The parent of a call is the root, or the call that started its subagent. The
phases of a call are its children. Ids are hashes of the names in the transcript, so the same session always produces
the same trace.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from toolspan.analysis.timing import Phase
from toolspan.export.json import encode_json, escape_control_chars, one_line
from toolspan.export.records import CallRecord, PhaseRecord
from toolspan.export.session_export import SessionExport
from toolspan.types import telemetry_names as names

_MAX_ATTRIBUTE_CHARS = 4_096
"""The maximum attribute length. Backends truncate or reject longer attributes."""
_SPAN_KIND_INTERNAL = 1
_STATUS_CODE_ERROR = 2
_PHASE_SPAN_NAMES: dict[Phase, str] = {
    "run": names.EXECUTION_SPAN,
    "hooks": names.HOOK_SPAN,
    "permission": names.PERMISSION_SPAN,
}

Json = dict[str, object]


def write(sessions: Iterable[SessionExport]) -> Iterator[bytes]:
    """Yield one request per session, each on its own line. Spans are written as they are created."""
    for session in sessions:
        header = session.header
        yield b'{"resourceSpans":[{"resource":'
        yield encode_json(
            {"attributes": _encode_attributes({"service.name": header.dialect, names.CONVERSATION: header.id})}
        )
        yield b',"scopeSpans":[{"scope":' + encode_json({"name": names.SCOPE}) + b',"spans":['
        comma = b""
        for span in _OtlpTrace(session).spans():
            yield comma + encode_json(span)
            comma = b","
        yield b"]}]}]}\n"


class _OtlpTrace:
    """The spans for one session."""

    def __init__(self, session: SessionExport) -> None:
        self._session = session
        self._trace_id = _hash_id(16, "session", session.header.id)
        self._root_span_id = _hash_id(8, "session", session.header.id)
        self._used_span_ids: set[str] = set()

    def spans(self) -> Iterator[Json]:
        """Yield the span for the conversation, then its calls and their phases."""
        header = self._session.header
        start = header.start or 0
        attributes = {names.OPERATION: "invoke_agent", names.CONVERSATION: header.id}
        models = {"gen_ai.request.model": header.models[0]} if header.models else {}
        root = self._span_fields(self._root_span_id, "invoke_agent", (start, header.end or start))
        yield {**root, "attributes": _encode_attributes({**attributes, **models}), "status": {}}
        for call in self._session.calls():
            yield from self._call_spans(call, start)

    def _call_spans(self, call: CallRecord, fallback: int) -> Iterator[Json]:
        span_id = self._new_span_id(call.id, call.batch)
        start = next((time for time in (call.start, call.end) if time is not None), fallback)
        end = max(start, call.end if call.end is not None else start)
        tool = one_line(call.tool, names.MAX_NAME_LENGTH)
        span = self._span_fields(span_id, names.CALL_SPAN.format(tool=tool), (start, end))
        yield {
            **span,
            "parentSpanId": self._parent_span_id(call, span_id),
            "attributes": _encode_attributes(_call_attributes(call)),
            "status": _span_status(call),
        }
        for n, phase in enumerate(call.phases):
            yield from self._phase_spans(span_id, n, phase)

    def _phase_spans(self, parent: str, n: int, phase: PhaseRecord) -> Iterator[Json]:
        name = _PHASE_SPAN_NAMES.get(phase.phase)
        if name is None:
            return
        span_id = _hash_id(8, "phase", parent, str(n))
        span = self._span_fields(span_id, name, (phase.start, phase.end))
        yield {**span, "parentSpanId": parent, "attributes": [], "status": {}}

    def _new_span_id(self, call_id: str, batch: str | None) -> str:
        """Return the span id for a call. Repeated call ids get different span ids."""
        span_id = _hash_id(8, "call", self._session.header.id, call_id)
        n = 0
        while span_id in self._used_span_ids:
            n += 1
            span_id = _hash_id(8, "call", self._session.header.id, call_id, batch or "", str(n))
        self._used_span_ids.add(span_id)
        return span_id

    def _parent_span_id(self, call: CallRecord, span_id: str) -> str:
        parent = _hash_id(8, "call", self._session.header.id, call.parent or "")
        return parent if parent in self._used_span_ids and parent != span_id else self._root_span_id

    def _span_fields(self, span_id: str, name: str, period: tuple[int, int]) -> Json:
        start, end = period
        return {
            "traceId": self._trace_id,
            "spanId": span_id,
            "name": name,
            "kind": _SPAN_KIND_INTERNAL,
            "startTimeUnixNano": str(max(start, 0) * 1_000_000),
            "endTimeUnixNano": str(max(end, start, 0) * 1_000_000),
        }


def _hash_id(size: int, *parts: str) -> str:
    """Hash `parts` and return an id of `size` bytes in hexadecimal."""
    data = "\0".join(parts).encode("utf-8", "replace")
    return hashlib.blake2b(data, digest_size=size).hexdigest()


def _span_status(call: CallRecord) -> Json:
    if call.state == "succeeded":
        return {}
    return {"code": _STATUS_CODE_ERROR, "message": one_line(call.message or call.state, _MAX_ATTRIBUTE_CHARS)}


def _call_attributes(call: CallRecord) -> Json:
    return {
        names.OPERATION: names.OPERATION_VALUE,
        names.TOOL: one_line(call.tool, names.MAX_NAME_LENGTH),
        names.CALL_ID: call.id,
        names.TOOL_TYPE: "extension" if call.kind == "mcp" else "function",
        names.CONVERSATION: call.session,
        names.AGENT: call.agent,
        names.MESSAGE: call.batch,
        names.PARENT_CALL: call.parent,
        names.STATE: call.state,
        names.ERROR_TYPE: names.error_type(call.state, call.error_kind),
        names.ERROR_KIND: call.error_kind,
        names.EXIT_CODE: call.exit_code,
        names.INPUT_SIZE: call.input_chars,
        names.RESULT_SIZE: call.result_chars,
        names.TRUNCATED: call.truncated or None,
        names.BACKGROUND: call.background or None,
        names.ARGUMENTS: None if call.input is None else _json_text(call.input),
        names.RESULT: call.result,
    }


def _json_text(value: object) -> str:
    return encode_json({"": value})[4:-1].decode("utf-8", "replace")


def _encode_attributes(attributes: Json) -> list[Json]:
    return [{"key": key, "value": _encode_value(value)} for key, value in attributes.items() if value is not None]


def _encode_value(value: object) -> Json:
    match value:
        case bool():
            return {"boolValue": value}
        case int() if abs(value) < 1 << 63:
            return {"intValue": str(value)}
        case _:
            text = escape_control_chars(str(value))
            return {
                "stringValue": text if len(text) <= _MAX_ATTRIBUTE_CHARS else text[: _MAX_ATTRIBUTE_CHARS - 1] + "…"
            }
