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
from toolspan.export.records import CallRecord
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
            {
                "attributes": _encode_attributes(
                    {
                        "service.name": header.dialect,
                        names.CONVERSATION: header.id,
                        "toolspan.redacted": session.redaction_notice,
                    }
                )
            }
        )
        yield b',"scopeSpans":[{"scope":' + encode_json({"name": names.SCOPE}) + b',"spans":['
        comma = b""
        for span in _OtlpTrace(session).spans():
            yield comma + encode_json(span)
            comma = b","
        yield b"]}]}]}\n"


class _OtlpTrace:
    def __init__(self, session: SessionExport) -> None:
        self._session = session
        self._trace_id = _hash_id(16, "session", session.header.id)
        self._root_span_id = _hash_id(8, "session", session.header.id)
        self._used_span_ids: set[str] = set()

    def spans(self) -> Iterator[Json]:
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
        parent = _hash_id(8, "call", self._session.header.id, call.parent or "")
        start = next((time for time in (call.start, call.end) if time is not None), fallback)
        end = max(start, call.end if call.end is not None else start)
        tool = one_line(call.tool, names.MAX_NAME_LENGTH)
        status: Json = {}
        if call.state != "succeeded":
            message = one_line(call.message or call.state, _MAX_ATTRIBUTE_CHARS)
            status = {"code": _STATUS_CODE_ERROR, "message": message}
        yield {
            **self._span_fields(span_id, names.CALL_SPAN.format(tool=tool), (start, end)),
            "parentSpanId": parent if parent in self._used_span_ids and parent != span_id else self._root_span_id,
            "attributes": _encode_attributes(_call_attributes(call)),
            "status": status,
        }
        for n, phase in enumerate(call.phases):
            if name := _PHASE_SPAN_NAMES.get(phase.phase):
                span = self._span_fields(_hash_id(8, "phase", span_id, str(n)), name, (phase.start, phase.end))
                yield {**span, "parentSpanId": span_id, "attributes": [], "status": {}}

    def _new_span_id(self, call_id: str, batch: str | None) -> str:
        """Return the span id for a call. Repeated call ids get different span ids."""
        span_id = _hash_id(8, "call", self._session.header.id, call_id)
        n = 0
        while span_id in self._used_span_ids:
            n += 1
            span_id = _hash_id(8, "call", self._session.header.id, call_id, batch or "", str(n))
        self._used_span_ids.add(span_id)
        return span_id

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
    data = "\0".join(parts).encode("utf-8", "replace")
    return hashlib.blake2b(data, digest_size=size).hexdigest()


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
        names.ARGUMENTS: None if call.input is None else encode_json({"": call.input})[4:-1].decode("utf-8", "replace"),
        names.RESULT: call.result,
    }


def _encode_attributes(attributes: Json) -> list[Json]:
    encoded: list[Json] = []
    for key, value in attributes.items():
        match value:
            case None:
                continue
            case bool():
                encoded.append({"key": key, "value": {"boolValue": value}})
            case int() if abs(value) < 1 << 63:
                encoded.append({"key": key, "value": {"intValue": str(value)}})
            case _:
                text = escape_control_chars(str(value))
                if len(text) > _MAX_ATTRIBUTE_CHARS:
                    text = text[: _MAX_ATTRIBUTE_CHARS - 1] + "…"
                encoded.append({"key": key, "value": {"stringValue": text}})
    return encoded
