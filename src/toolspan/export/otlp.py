"""`--format otlp`: sessions as OTLP/JSON for any OpenTelemetry backend.

Each line is the `ExportTraceServiceRequest` for one session, as collectors read it from files. A session is a trace
whose root span is the conversation. Its children are the model requests, with their tokens and cost, and the calls;
those of a subagent are below the call that started it. The phases of a call are its children. Ids are hashes of the
names in the transcript, so the same session always produces the same trace.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence

from toolspan.analysis.timing import Phase
from toolspan.export.json import encode_json, escape_control_chars, one_line
from toolspan.export.records import CallRecord
from toolspan.export.session_export import SessionExport
from toolspan.export.steps import AgentSteps, SessionStep, read_steps
from toolspan.prices import load_prices
from toolspan.types import telemetry_names as names
from toolspan.types.span import parse_timestamp

_MAX_ATTRIBUTE_CHARS = 4_096
"""The maximum attribute length. Backends truncate or reject longer attributes."""
_MAX_PART_CHARS = 2_000
"""The maximum length of each text in a message."""
_SPAN_KIND_INTERNAL, _SPAN_KIND_CLIENT = 1, 3
_STATUS_CODE_ERROR = 2
_PHASE_SPAN_NAMES: dict[Phase, str] = {
    "run": names.EXECUTION_SPAN,
    "hooks": names.HOOK_SPAN,
    "permission": names.PERMISSION_SPAN,
}

Json = dict[str, object]
Period = tuple[int, int]
"""Start and end in milliseconds since the epoch."""


def write(sessions: Iterable[SessionExport]) -> Iterator[bytes]:
    """Yield one request per session, each on its own line. Spans are written as they are created."""
    for session in sessions:
        header = session.header
        yield b'{"resourceSpans":[{"resource":'
        yield encode_json(
            {
                "attributes": _encode_attributes(
                    {
                        "service.name": header.client,
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
        self._prices = load_prices()

    def spans(self) -> Iterator[Json]:
        header = self._session.header
        start = header.start or 0
        attributes = {
            names.OPERATION: "invoke_agent", names.CONVERSATION: header.id, names.AGENT_NAME: header.client
        }  # fmt: skip
        models = {"gen_ai.request.model": header.models[0]} if header.models else {}
        root = self._span_fields(self._root_span_id, "invoke_agent", (start, header.end or start))
        yield {**root, "attributes": _encode_attributes({**attributes, **models}), "status": {}}
        for agent in read_steps(self._session).iter_agents():
            before, prompts = start, list[str]()
            for step in agent.steps:
                calls = list(agent.call_records(step))
                at = step.start if step.start is not None else before
                if step.source == "agent" and step.requests:
                    ends = [call.start for call in calls if call.start is not None]
                    yield from self._chat_spans(agent, step, calls, prompts, (min(before, at), max([at, *ends])))
                    prompts = []
                elif step.voice == "prompt":
                    prompts.append(step.text)
                before = max([before, at, *(call.end for call in calls if call.end is not None)])
                for call in calls:
                    yield from self._call_spans(call, start)

    def _chat_spans(
        self, agent: AgentSteps, step: SessionStep, calls: Sequence[CallRecord], prompts: Sequence[str], period: Period
    ) -> Iterator[Json]:
        """Yield the requests that produced a reply. They began at the latest when everything before had ended."""
        for n, request in enumerate(step.requests):
            cost = request.cost_usd
            if cost is None and request.model:
                cost = self._prices.cost(request.model, parse_timestamp(request.at), request.tokens)
            model = request.model or ""
            attributes: Json = dict(
                names.request_attributes(
                    model, reply_model=model, reply_id=request.id, tokens=request.tokens, cost=cost
                )
            )
            attributes |= {names.CONVERSATION: self._session.header.id, names.AGENT: agent.agent}
            if n == 0:
                attributes |= _content_attributes(step, calls, prompts)
            name = names.CHAT_SPAN.format(model=one_line(model, names.MAX_NAME_LENGTH)).strip()
            span = self._span_fields(self._new_span_id(request.id, None, "request"), name, period)
            yield {
                **span,
                "kind": _SPAN_KIND_CLIENT,
                "parentSpanId": self._parent_of(agent.parent_call),
                "attributes": _encode_attributes(attributes),
                "status": {},
            }

    def _call_spans(self, call: CallRecord, fallback: int) -> Iterator[Json]:
        parent = self._parent_of(call.parent_call)
        span_id = self._new_span_id(call.id, call.batch)
        start = next((time for time in (call.start, call.end) if time is not None), fallback)
        end = max(start, call.end if call.end is not None else start)
        tool = one_line(call.tool or "", names.MAX_NAME_LENGTH)
        status: Json = {}
        if call.state != "succeeded":
            message = one_line(call.message or call.state, _MAX_ATTRIBUTE_CHARS)
            status = {"code": _STATUS_CODE_ERROR, "message": message}
        yield {
            **self._span_fields(span_id, names.CALL_SPAN.format(tool=tool), (start, end)),
            "parentSpanId": parent,
            "attributes": _encode_attributes(_call_attributes(call)),
            "status": status,
        }
        for n, phase in enumerate(call.phases):
            if name := _PHASE_SPAN_NAMES.get(phase.phase):
                span = self._span_fields(_hash_id(8, "phase", span_id, str(n)), name, (phase.start, phase.end))
                yield {**span, "parentSpanId": span_id, "attributes": [], "status": {}}

    def _parent_of(self, starter: str | None) -> str:
        """Return the span of the call that started a subagent, or the root."""
        span_id = _hash_id(8, "call", self._session.header.id, starter or "")
        return span_id if span_id in self._used_span_ids else self._root_span_id

    def _new_span_id(self, name: str, batch: str | None, kind: str = "call") -> str:
        """Return the span id for a call or a request. Repeated ids get different span ids."""
        span_id = _hash_id(8, kind, self._session.header.id, name)
        n = 0
        while span_id in self._used_span_ids:
            n += 1
            span_id = _hash_id(8, kind, self._session.header.id, name, batch or "", str(n))
        self._used_span_ids.add(span_id)
        return span_id

    def _span_fields(self, span_id: str, name: str, period: Period) -> Json:
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


def _content_attributes(step: SessionStep, calls: Sequence[CallRecord], prompts: Sequence[str]) -> Json:
    """Return the prompts before a reply and the reply, as messages that stay valid JSON when long texts are cut."""
    parts: list[Json] = [{"type": "reasoning", "content": text[:_MAX_PART_CHARS]} for text in step.thinking]
    parts += [{"type": "text", "content": text[:_MAX_PART_CHARS]} for text in step.texts]
    parts += [{"type": "tool_call", "id": call.id, "name": call.tool or ""} for call in calls]
    asked = [{"role": "user", "parts": [{"type": "text", "content": text[:_MAX_PART_CHARS]}]} for text in prompts]
    reason = "tool_call" if calls else "stop"
    replied = [{"role": "assistant", "parts": parts, "finish_reason": reason}] if parts else []
    pairs = ((names.INPUT_MESSAGES, asked), (names.OUTPUT_MESSAGES, replied))
    return {name: _Messages(encode_json(value).decode("utf-8", "replace")) for name, value in pairs if value}


class _Messages(str):
    """JSON that must not be cut."""

    __slots__ = ()


def _call_attributes(call: CallRecord) -> Json:
    return {
        names.OPERATION: names.OPERATION_VALUE,
        names.TOOL: one_line(call.tool or "", names.MAX_NAME_LENGTH),
        names.CALL_ID: call.id,
        names.TOOL_TYPE: "extension" if call.kind == "mcp" else "function",
        names.CONVERSATION: call.session,
        names.AGENT: call.agent,
        names.MESSAGE: call.batch,
        names.PARENT_CALL: call.parent_call,
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
            case float():
                encoded.append({"key": key, "value": {"doubleValue": value}})
            case _Messages():
                encoded.append({"key": key, "value": {"stringValue": escape_control_chars(value)}})
            case int() if abs(value) < 1 << 63:
                encoded.append({"key": key, "value": {"intValue": str(value)}})
            case _:
                text = escape_control_chars(str(value))
                if len(text) > _MAX_ATTRIBUTE_CHARS:
                    text = text[: _MAX_ATTRIBUTE_CHARS - 1] + "…"
                encoded.append({"key": key, "value": {"stringValue": text}})
    return encoded
