"""`--format otlp`: sessions as OTLP/JSON, for any OpenTelemetry backend.

In: stories. Out: one `ExportTraceServiceRequest` per session and line, which is also the form that
collectors read from files. A session is a trace; its root span is the conversation, a call hangs
below it or below the call that started its subagent; waits, hooks and the run hang below the call.
Ids come from the names in the transcript: the same session gives the same trace again. Read
`_Trace` first.
"""

import hashlib
from collections.abc import Iterable, Iterator

from toolspan.export.encode import encoded
from toolspan.export.record import CallRecord, PhaseRecord
from toolspan.export.story import Story
from toolspan.export.visible import one_line, visible
from toolspan.model import telemetry as names
from toolspan.report.time.phases import Phase

_LONGEST = 4_096
"""Characters of an attribute; backends cut or refuse longer ones."""
_INTERNAL = 1
_ERROR = 2
_PHASES: dict[Phase, str] = {
    "run": names.EXECUTION_SPAN,
    "hooks": names.HOOK_SPAN,
    "permission": names.PERMISSION_SPAN,
}

Json = dict[str, object]


def write(stories: Iterable[Story]) -> Iterator[bytes]:
    """A request per story, each on its line; spans are written as they are made."""
    for story in stories:
        head = story.head
        yield b'{"resourceSpans":[{"resource":'
        yield encoded(
            {"attributes": _attributes({"service.name": head.dialect, names.CONVERSATION: head.id})}
        )
        yield b',"scopeSpans":[{"scope":' + encoded({"name": names.SCOPE}) + b',"spans":['
        comma = b""
        for span in _Trace(story).spans():
            yield comma + encoded(span)
            comma = b","
        yield b"]}]}]}\n"


class _Trace:
    """The spans of one session."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self._trace = _digest(16, "session", story.head.id)
        self._root = _digest(8, "session", story.head.id)
        self._known: set[str] = set()

    def spans(self) -> Iterator[Json]:
        """The conversation, then its calls and what is inside them."""
        head = self._story.head
        start = head.start or 0
        about = {names.OPERATION: "invoke_agent", names.CONVERSATION: head.id}
        models = {"gen_ai.request.model": head.models[0]} if head.models else {}
        root = self._span(self._root, "invoke_agent", (start, head.end or start))
        yield {**root, "attributes": _attributes({**about, **models}), "status": {}}
        for call in self._story.calls():
            yield from self._call(call, start)

    def _call(self, call: CallRecord, fallback: int) -> Iterator[Json]:
        own = self._id(call.id, call.batch)
        start = next((time for time in (call.start, call.end) if time is not None), fallback)
        end = max(start, call.end if call.end is not None else start)
        tool = one_line(call.tool, names.LONGEST_NAME)
        span = self._span(own, names.CALL_SPAN.format(tool=tool), (start, end))
        yield {
            **span,
            "parentSpanId": self._parent(call, own),
            "attributes": _attributes(_about(call)),
            "status": _status(call),
        }
        for n, phase in enumerate(call.phases):
            yield from self._phase(own, n, phase)

    def _phase(self, parent: str, n: int, phase: PhaseRecord) -> Iterator[Json]:
        name = _PHASES.get(phase.phase)
        if name is None:
            return
        own = _digest(8, "phase", parent, str(n))
        span = self._span(own, name, (phase.start, phase.end))
        yield {**span, "parentSpanId": parent, "attributes": [], "status": {}}

    def _id(self, call_id: str, batch: str | None) -> str:
        """A span's id; an id that a client gave twice gets a second one, never the same."""
        own = _digest(8, "call", self._story.head.id, call_id)
        n = 0
        while own in self._known:
            n += 1
            own = _digest(8, "call", self._story.head.id, call_id, batch or "", str(n))
        self._known.add(own)
        return own

    def _parent(self, call: CallRecord, own: str) -> str:
        parent = _digest(8, "call", self._story.head.id, call.parent or "")
        return parent if parent in self._known and parent != own else self._root

    def _span(self, own: str, name: str, period: tuple[int, int]) -> Json:
        start, end = period
        return {
            "traceId": self._trace,
            "spanId": own,
            "name": name,
            "kind": _INTERNAL,
            "startTimeUnixNano": str(max(start, 0) * 1_000_000),
            "endTimeUnixNano": str(max(end, start, 0) * 1_000_000),
        }


def _digest(size: int, *parts: str) -> str:
    """An id of so many bytes, as hexadecimal digits."""
    told = "\0".join(parts).encode("utf-8", "replace")
    return hashlib.blake2b(told, digest_size=size).hexdigest()


def _status(call: CallRecord) -> Json:
    if call.state == "succeeded":
        return {}
    return {"code": _ERROR, "message": one_line(call.message or call.state, _LONGEST)}


def _about(call: CallRecord) -> Json:
    return {
        names.OPERATION: names.OPERATION_VALUE,
        names.TOOL: one_line(call.tool, names.LONGEST_NAME),
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
        names.ARGUMENTS: None if call.input is None else _json(call.input),
        names.RESULT: call.result,
    }


def _json(value: object) -> str:
    return encoded({"": value})[4:-1].decode("utf-8", "replace")


def _attributes(told: Json) -> list[Json]:
    return [
        {"key": key, "value": _value(value)} for key, value in told.items() if value is not None
    ]


def _value(value: object) -> Json:
    match value:
        case bool():
            return {"boolValue": value}
        case int() if abs(value) < 1 << 63:
            return {"intValue": str(value)}
        case _:
            text = visible(str(value))
            return {"stringValue": text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"}
