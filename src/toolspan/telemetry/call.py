"""The spans of one call: its own, and those of what is around it while it lives.

In: the events of one call, in order. Out: spans with the times that the events carry. Knows nothing
of other calls; `sink.py` keeps one of these per call. Read `CallSpans.take` first.
"""

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.util.types import AttributeValue

from toolspan.model import telemetry as names
from toolspan.model.live import (
    Asked,
    Decided,
    Duplicate,
    Finished,
    HookRan,
    Progressed,
    Requested,
    Slow,
    Started,
)
from toolspan.model.span import Call
from toolspan.telemetry.words import Words, size_of

Attributes = dict[str, AttributeValue]
DuringCall = HookRan | Asked | Decided | Started | Progressed | Slow | Duplicate


def nanoseconds(at: float) -> int:
    """A time as OpenTelemetry counts it."""
    return round(at * 1e6) * 1_000


class CallSpans:
    """The open spans of one call."""

    def __init__(self, tracer: Tracer, outer: Context, asked: Requested, words: Words) -> None:
        self._tracer = tracer
        self._words = words
        told = _about(asked.call) | words.told({names.ARGUMENTS: dict(asked.call.arguments)})
        if asked.recovers is not None:
            told[names.RECOVERS] = asked.recovers
        self._call = tracer.start_span(
            names.CALL_SPAN.format(tool=asked.call.tool[: names.LONGEST_NAME]),
            context=outer,
            kind=SpanKind.INTERNAL,
            attributes=told,
            start_time=nanoseconds(asked.at),
        )
        self._inside = set_span_in_context(self._call, outer)
        self._waiting: Span | None = None
        self._running: Span | None = None

    @property
    def context(self) -> Context:
        """The innermost span, for whoever wants to hang something below it."""
        return set_span_in_context(self._running or self._call, self._inside)

    def take(self, event: DuringCall) -> None:
        """Something happened while the call lived."""
        match event:
            case HookRan():
                self._hook(event)
            case Asked():
                told = self._words.told({names.REASON: event.reason})
                self._waiting = self._child(names.PERMISSION_SPAN, told, event.at)
            case Decided():
                self._decide(event)
            case Started():
                self._running = self._child(names.EXECUTION_SPAN, {}, event.at)
            case Progressed():
                told = self._words.told({names.PROGRESS_DATA: event.data})
                self._note(names.PROGRESS, {names.PROGRESS_KIND: event.kind, **told}, event.at)
            case Slow():
                self._note(names.SLOW, {names.EXPECTED: event.expected_s}, event.at)
            case Duplicate():
                self._note(names.DUPLICATE, {}, event.at)

    def finish(self, finished: Finished) -> Context:
        """The call has its result: end its spans; gives the context it lived in."""
        life = finished.span
        kind = names.error_type(life.state, life.error_kind)
        if kind is not None:
            description = self._words.piece(life.message)
            self._call.set_status(Status(StatusCode.ERROR, description))
            self._call.set_attribute(names.ERROR_TYPE, kind)
        self._call.set_attributes(_outcome(finished))
        self._call.set_attributes(self._words.told({names.RESULT: finished.content}))
        self._end(finished.at)
        return self._inside

    def abandon(self, at: float) -> None:
        """Nothing more will be heard of the call."""
        self._call.set_status(Status(StatusCode.ERROR))
        self._call.set_attributes({names.ERROR_TYPE: "unfinished", names.STATE: "never_answered"})
        self._end(at)

    def note(self, name: str, told: Attributes, at: float) -> None:
        """Something that stands beside the call."""
        self._call.add_event(name, told, nanoseconds(at))

    def _hook(self, ran: HookRan) -> None:
        if ran.outcome == "started":
            return
        began = ran.at - (ran.duration_ms or 0.0) / 1e3
        if ran.point.startswith("Post"):
            self._stop_running(began)
        told: Attributes = {names.HOOK_POINT: ran.point, names.HOOK_OUTCOME: ran.outcome}
        if ran.command is None:  # else the name may be the command, which is content
            told[names.HOOK_NAME] = ran.name
        if ran.exit_code is not None:
            told[names.EXIT_CODE] = ran.exit_code
        words = self._words.told(
            {
                names.HOOK_COMMAND: ran.command,
                names.HOOK_TEXT: ran.text,
                names.HOOK_STDOUT: ran.stdout,
                names.HOOK_STDERR: ran.stderr,
            }
        )
        hook = self._child(names.HOOK_SPAN, told | words, began)
        if ran.outcome == "error":
            hook.set_status(Status(StatusCode.ERROR))
            hook.set_attribute(names.ERROR_TYPE, "hook_error")
        hook.end(nanoseconds(ran.at))

    def _decide(self, decided: Decided) -> None:
        told: Attributes = {
            names.DECISION: "accept" if decided.allowed else "reject",
            names.DECISION_SOURCE: decided.source,
        }
        self._call.set_attributes(told)
        if self._waiting is not None:
            self._waiting.set_attributes(told | self._words.told({names.REASON: decided.reason}))
            self._waiting.end(nanoseconds(decided.at))
            self._waiting = None

    def _child(self, name: str, told: Attributes | dict[str, str], at: float) -> Span:
        start = nanoseconds(at)
        return self._tracer.start_span(name, self._inside, attributes=told, start_time=start)

    def _note(self, name: str, told: Attributes, at: float) -> None:
        (self._running or self._call).add_event(name, told, nanoseconds(at))

    def _stop_running(self, at: float) -> None:
        if self._running is not None:
            self._running.end(nanoseconds(at))
            self._running = None

    def _end(self, at: float) -> None:
        if self._waiting is not None:
            self._waiting.end(nanoseconds(at))
        self._stop_running(at)
        self._call.end(nanoseconds(at))


def _about(call: Call) -> Attributes:
    told: dict[str, AttributeValue | None] = {
        names.OPERATION: names.OPERATION_VALUE,
        names.TOOL: call.tool[: names.LONGEST_NAME],
        names.CALL_ID: call.id,
        names.TOOL_TYPE: "extension" if call.tool.startswith("mcp__") else "function",
        names.CONVERSATION: call.session_id,
        names.AGENT: call.agent_id,
        names.MESSAGE: call.message_id,
        names.PARENT_CALL: call.parent_call,
        names.INPUT_SIZE: size_of(dict(call.arguments)),
    }
    return {name: value for name, value in told.items() if value is not None}


def _outcome(finished: Finished) -> Attributes:
    life, result = finished.span, finished.span.result
    told: dict[str, AttributeValue | None] = {
        names.STATE: life.state,
        names.ERROR_KIND: life.error_kind,
        names.RESULT_SIZE: size_of(finished.content),
        names.BACKGROUND: life.background or None,
        names.STOPS_TURN: finished.stop is not None or None,
    }
    if result is not None:
        told[names.EXIT_CODE] = result.exit_code
        told[names.DENIAL] = result.denial_kind
        told[names.TRUNCATED] = result.truncated or None
    return {name: value for name, value in told.items() if value is not None}
