"""Export a runner's events as OpenTelemetry spans and metrics. Needs the extra `otel`.

    with OtelSink() as telemetry:
        async with Session(sinks=[telemetry]) as session: ...

Each call is one span with child spans for hooks, permission waits and the tool, and each request of an agent to its
model is one span. Content is exported only on request.
`types/telemetry_names.py` lists all attribute names.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Self

import msgspec

from toolspan.extras import missing_extra
from toolspan.prices import load_prices
from toolspan.redaction.secrets import find_secrets
from toolspan.types import telemetry_names as names
from toolspan.types.events import (
    BatchFinished,
    Decided,
    Duplicate,
    Faulted,
    Finished,
    HookRan,
    LimitReached,
    LiveEvent,
    ModelReplied,
    PermissionRequested,
    Progressed,
    RecoveryApplied,
    Relayed,
    Requested,
    SandboxDenied,
    Slow,
    Started,
    WriteFailed,
)
from toolspan.types.ids import CallId
from toolspan.types.session import Tokens

try:
    from opentelemetry import context, metrics, trace
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, TracerProvider, set_span_in_context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
    from opentelemetry.util.types import AttributeValue
except ModuleNotFoundError as error:
    raise missing_extra(error, __name__) or error from error


MAX_TEXT_CHARS = 512
MAX_CALL_CHARS = 4_096
REDACTED = "[redacted]"
_SCANNED_CHARS = 4 * MAX_TEXT_CHARS
"""The number of characters that are searched for secrets before text is truncated."""
_SECRET_NAME = (
    r"(?:api[_-]?key|secret|token(?!s)|passw(?:or)?d|passphrase|credential|private[_-]?key"
    r"|access[_-]?key|authorization|cookie|[_-]pwd|[_-]auth(?!or)|[_-]key|(?-i:KEY)(?=[A-Z0-9_]{0,64}\s{0,8}=))"
)
_NAMED_VALUE = re.compile(
    rf"(?i)(?:(?<![\w.-])[\w.-]{{0,64}}?{_SECRET_NAME}[\w.-]{{0,64}}(?:\\*[\"'])?\s{{0,8}}[:=]\s{{0,8}}"
    rf"|--?[\w-]{{0,64}}?{_SECRET_NAME}[\w-]{{0,64}}\s{{1,8}})"
    r"""(?:\\*["'])?(?P<it>(?<=\\")(?:[^"\\]|\\[^"])+|(?<=[^\\]")(?:[^"\\]|\\.)+|(?<=')[^']+|[^\s"'&;}\])]+)"""
)
"""Any value after a secret's name. `find_secrets` alone keeps weak values, such as `hunter2` in `token: hunter2`."""


def redact_text(text: str) -> str:
    """Replace secrets in text, and every value after a secret's name."""
    pieces: list[str] = []
    at = 0
    named = (match.span("it") for match in _NAMED_VALUE.finditer(text))
    for start, end in sorted([*(match[:2] for match in find_secrets(text)), *named]):
        if end > at and text[start:end].removesuffix("]") != REDACTED.removesuffix("]"):
            pieces += (text[at : max(at, start)], REDACTED if start >= at else "")
            at = end
    return "".join((*pieces, text[at:]))


class ContentBudget:
    """The amount of content that may still be exported for one call."""

    def __init__(self, *, allowed: bool) -> None:
        self._remaining = MAX_CALL_CHARS if allowed else 0

    def limited_values(self, values: Mapping[str, object]) -> dict[str, str]:
        """Return the values that may be exported, as short strings."""
        pieces = {name: self.limited_text(value) for name, value in values.items()}
        return {name: piece for name, piece in pieces.items() if piece is not None}

    def limited_text(self, value: object) -> str | None:
        """Return a value as short text, or None if it is empty or may not be exported."""
        if self._remaining <= 0 or value is None:
            return None
        text = value if isinstance(value, str) else _to_json(value)
        limit = min(MAX_TEXT_CHARS, self._remaining)
        text = redact_text(text[:_SCANNED_CHARS])
        if len(text) > limit:
            text = text[: limit - 1] + "…"
        self._remaining -= len(text)
        return text


def content_size(value: object) -> int:
    """Return the size in bytes of a string, or of any other value as JSON."""
    text = value if isinstance(value, str) else _to_json(value)
    return len(text.encode("utf-8", "replace"))


def _to_json(value: object) -> str:
    try:
        return msgspec.json.encode(value, enc_hook=str).decode()
    except (TypeError, ValueError, RecursionError):  # a tool may return any value
        return str(type(value).__name__)


Attributes = dict[str, AttributeValue]
DuringCall = HookRan | PermissionRequested | Decided | Started | Progressed | SandboxDenied | Slow | Duplicate


def to_nanoseconds(at: float) -> int:
    """Convert seconds to nanoseconds."""
    return round(at * 1e6) * 1_000


class CallSpans:
    """The open OpenTelemetry spans of one call."""

    def __init__(self, tracer: Tracer, parent: Context, requested: Requested, budget: ContentBudget) -> None:
        self._tracer = tracer
        self._budget = budget
        call = requested.call
        attributes: dict[str, AttributeValue | None] = {
            names.OPERATION: names.OPERATION_VALUE,
            names.TOOL: call.tool[: names.MAX_NAME_LENGTH],
            names.CALL_ID: call.id,
            names.TOOL_TYPE: "extension" if call.tool.startswith("mcp__") else "function",
            names.CONVERSATION: call.session_id,
            names.AGENT: call.agent_id,
            names.MESSAGE: call.message_id,
            names.PARENT_CALL: call.parent_call,
            names.INPUT_SIZE: content_size(dict(call.arguments)),
            **budget.limited_values({names.ARGUMENTS: dict(call.arguments)}),
            names.RECOVERS: requested.recovers,
        }
        self._call_span = tracer.start_span(
            names.CALL_SPAN.format(tool=call.tool[: names.MAX_NAME_LENGTH]),
            context=parent,
            kind=SpanKind.INTERNAL,
            attributes=_drop_none(attributes),
            start_time=to_nanoseconds(requested.at),
        )
        self._call_context = set_span_in_context(self._call_span, parent)
        self._permission_span: Span | None = None
        self._execution_span: Span | None = None

    @property
    def context(self) -> Context:
        """The context of the innermost open span."""
        return set_span_in_context(self._execution_span or self._call_span, self._call_context)

    def handle_event(self, event: DuringCall) -> None:
        """Update the spans for an event that occurred during the call."""
        match event:
            case HookRan() if event.outcome != "started":
                self._add_hook_span(event)
            case HookRan():
                pass
            case PermissionRequested():
                attributes = self._budget.limited_values({names.REASON: event.reason})
                self._permission_span = self._start_child(names.PERMISSION_SPAN, attributes, event.at)
            case Decided():
                decision: Attributes = {
                    names.DECISION: "accept" if event.allowed else "reject",
                    names.DECISION_SOURCE: event.source,
                }
                self._call_span.set_attributes(decision)
                if self._permission_span is not None:
                    reason = self._budget.limited_values({names.REASON: event.reason})
                    self._permission_span.set_attributes(decision | reason)
                    self._permission_span.end(to_nanoseconds(event.at))
                    self._permission_span = None
            case Started():
                self._execution_span = self._start_child(names.EXECUTION_SPAN, {}, event.at)
            case Progressed():
                attributes = self._budget.limited_values({names.PROGRESS_DATA: event.data})
                self._add_current_event(names.PROGRESS, {names.PROGRESS_KIND: event.kind, **attributes}, event.at)
            case SandboxDenied():
                self._add_current_event(names.SANDBOX_DENIED, _denied_targets(event, self._budget), event.at)
            case Slow():
                self._add_current_event(names.SLOW, {names.EXPECTED_SECONDS: event.expected_s}, event.at)
            case Duplicate():
                self._add_current_event(names.DUPLICATE, {}, event.at)

    def finish(self, finished: Finished) -> Context:
        """End the call's spans and return its context."""
        span = finished.span
        kind = names.error_type(span.state, span.error_kind)
        if kind is not None:
            description = self._budget.limited_text(span.message)
            self._call_span.set_status(Status(StatusCode.ERROR, description))
            self._call_span.set_attribute(names.ERROR_TYPE, kind)
        attributes: dict[str, AttributeValue | None] = {
            names.STATE: span.state,
            names.ERROR_KIND: span.error_kind,
            names.RESULT_SIZE: content_size(finished.content),
            names.BACKGROUND: span.background or None,
            names.STOPS_TURN: finished.stop is not None or None,
        }
        if span.result is not None:
            attributes[names.EXIT_CODE] = span.result.exit_code
            attributes[names.DENIAL] = span.result.denial_kind
            attributes[names.TRUNCATED] = span.result.truncated or None
        self._call_span.set_attributes(_drop_none(attributes))
        self._call_span.set_attributes(self._budget.limited_values({names.RESULT: finished.content}))
        self._end_spans(finished.at)
        return self._call_context

    def abandon(self, at: float) -> None:
        """End the spans of a call that will receive no further events."""
        self._call_span.set_status(Status(StatusCode.ERROR))
        self._call_span.set_attributes({names.ERROR_TYPE: "unfinished", names.STATE: "never_answered"})
        self._end_spans(at)

    def add_event(self, name: str, attributes: Attributes, at: float) -> None:
        """Add an event to the call's span."""
        self._call_span.add_event(name, attributes, to_nanoseconds(at))

    def _add_hook_span(self, ran: HookRan) -> None:
        began = ran.at - (ran.duration_ms or 0.0) / 1e3
        if ran.point.startswith("Post"):
            self._end_execution(began)
        attributes: Attributes = {names.HOOK_POINT: ran.point, names.HOOK_OUTCOME: ran.outcome}
        if ran.command is None:  # otherwise the name may be the command, which counts as content
            attributes[names.HOOK_NAME] = ran.name
        if ran.exit_code is not None:
            attributes[names.EXIT_CODE] = ran.exit_code
        content = self._budget.limited_values(
            {
                names.HOOK_COMMAND: ran.command,
                names.HOOK_TEXT: ran.text,
                names.HOOK_STDOUT: ran.stdout,
                names.HOOK_STDERR: ran.stderr,
            }
        )
        hook = self._start_child(names.HOOK_SPAN, attributes | content, began)
        if ran.outcome == "error":
            hook.set_status(Status(StatusCode.ERROR))
            hook.set_attribute(names.ERROR_TYPE, "hook_error")
        hook.end(to_nanoseconds(ran.at))

    def _start_child(self, name: str, attributes: Attributes | dict[str, str], at: float) -> Span:
        start = to_nanoseconds(at)
        return self._tracer.start_span(name, self._call_context, attributes=attributes, start_time=start)

    def _add_current_event(self, name: str, attributes: Attributes, at: float) -> None:
        (self._execution_span or self._call_span).add_event(name, attributes, to_nanoseconds(at))

    def _end_execution(self, at: float) -> None:
        if self._execution_span is not None:
            self._execution_span.end(to_nanoseconds(at))
            self._execution_span = None

    def _end_spans(self, at: float) -> None:
        if self._permission_span is not None:
            self._permission_span.end(to_nanoseconds(at))
        self._end_execution(at)
        self._call_span.end(to_nanoseconds(at))


def _drop_none(attributes: Mapping[str, AttributeValue | None]) -> Attributes:
    return {name: value for name, value in attributes.items() if value is not None}


OutsideEvent = BatchFinished | Faulted | WriteFailed | RecoveryApplied | SandboxDenied | LimitReached


class OtelSink:
    """A sink that exports spans and metrics. It can be shared by runners and threads."""

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        *,
        content: bool = False,
    ) -> None:
        """Use these providers, or the global ones by default.

        `content` exports inputs, results, commands, reasons and paths, truncated and with secrets
        redacted. By default none of them is exported.
        """
        self._tracer = trace.get_tracer(names.SCOPE, tracer_provider=tracer_provider)
        meter = metrics.get_meter(names.SCOPE, meter_provider=meter_provider)
        self._durations = meter.create_histogram(
            names.DURATION,
            unit=names.DURATION_UNIT,
            description=names.DURATION_DESCRIPTION,
            explicit_bucket_boundaries_advisory=names.DURATION_BUCKETS,
        )
        self._prices = load_prices()
        self._content = content
        self._initial_context = context.get_current()
        self._open: dict[CallId, CallSpans] = {}
        self._latest = 0.0
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __call__(self, event: LiveEvent) -> None:
        """Export an event."""
        with self._lock:
            self._latest = max(self._latest, event.at)
            inner = event.event if isinstance(event, Relayed) else event
            match inner:
                case Requested():
                    self._start_call(inner)
                case Finished():
                    self._finish_call(inner)
                case ModelReplied():
                    self._add_request(inner, event.call_id if isinstance(event, Relayed) else None)
                case BatchFinished() | Faulted() | WriteFailed() | RecoveryApplied() | LimitReached():
                    self._add_outside_event(inner)
                case (
                    HookRan() | PermissionRequested() | Decided() | Started() | Progressed() | SandboxDenied()
                    | Slow() | Duplicate()
                ):  # fmt: skip
                    spans = self._open.get(inner.call_id)
                    if spans is not None:
                        spans.handle_event(inner)
                    elif isinstance(inner, SandboxDenied):  # a command that ended in the background
                        self._add_outside_event(inner)

    def close(self) -> None:
        """End the spans of calls that have no result.

        The providers are not shut down, because their owner is responsible for that.
        """
        with self._lock:
            open_calls, self._open = self._open, {}
            for spans in open_calls.values():
                spans.abandon(self._latest)

    def environment(self, call_id: CallId | str | None = None) -> dict[str, str]:
        """Return the environment variables that make a child process's spans children of the current span.

        The variables are `TRACEPARENT` and `TRACESTATE`. If `call_id` is a running call, its span is the parent;
        only a `direct` sink has certainly received a call that has just started. The result is empty if nothing is
        traced.
        """
        with self._lock:
            spans = self._open.get(CallId(call_id)) if call_id else None
        carrier: dict[str, str] = {}
        parent = spans.context if spans else self._parent_context()
        TraceContextTextMapPropagator().inject(carrier, parent)
        return {name.upper(): value for name, value in carrier.items()}

    def _start_call(self, requested: Requested) -> None:
        earlier = self._open.pop(requested.call.id, None)
        if earlier is not None:
            earlier.abandon(requested.at)
        budget = ContentBudget(allowed=self._content)
        self._open[requested.call.id] = CallSpans(self._tracer, self._parent_context(), requested, budget)

    def _finish_call(self, finished: Finished) -> None:
        if finished.call_id not in self._open:  # the start was never received
            began = finished.at - finished.duration_ms / 1e3
            self._start_call(Requested(call=finished.span.call, at=began))
        call_context = self._open.pop(finished.call_id).finish(finished)
        span = finished.span
        is_unknown = span.error_kind == "unknown_tool"
        attributes = {
            names.OPERATION: names.OPERATION_VALUE,
            names.TOOL: names.OTHER_TOOL if is_unknown else span.tool[: names.MAX_NAME_LENGTH],
            names.STATE: span.state,
            names.ERROR_TYPE: names.error_type(span.state, span.error_kind),
        }
        self._durations.record(finished.duration_ms / 1e3, _drop_none(attributes), call_context)

    def _add_request(self, replied: ModelReplied, parent_call: CallId | None) -> None:
        """Export a request to a model. That of a subagent is inside the call that started it."""
        tokens = Tokens(**{name: replied.tokens.get(name, 0) for name in Tokens.__struct_fields__})
        cost = self._prices.cost(replied.model, datetime.fromtimestamp(replied.at, UTC), tokens)
        attributes = names.request_attributes(
            replied.model, reply_model=replied.reply_model, reply_id=replied.message_id, tokens=tokens, cost=cost
        )
        attributes |= {names.CONVERSATION: replied.session_id, names.AGENT: replied.agent_id}
        attributes[names.ERROR_TYPE] = replied.error
        reasons: Attributes = {names.FINISH_REASONS: [replied.stop_reason]} if replied.stop_reason else {}
        spans = None if parent_call is None else self._open.get(parent_call)
        span = self._tracer.start_span(
            names.CHAT_SPAN.format(model=replied.model[: names.MAX_NAME_LENGTH]).strip(),
            self._parent_context() if spans is None else spans.context,
            kind=SpanKind.CLIENT,
            attributes=_drop_none(attributes) | reasons,
            start_time=to_nanoseconds(replied.started),
        )
        if replied.error is not None:
            span.set_status(Status(StatusCode.ERROR))
        span.end(to_nanoseconds(replied.at))

    def _add_outside_event(self, event: OutsideEvent) -> None:
        """Add the event to the call's span if it is open, and otherwise to the surrounding span."""
        name, attributes = _event_attributes(event, ContentBudget(allowed=self._content))
        call_id = event.call_id if isinstance(event, Faulted | RecoveryApplied) else None
        spans = None if call_id is None else self._open.get(call_id)
        if spans is not None:
            spans.add_event(name, attributes, event.at)
            return
        parent_span = trace.get_current_span(self._parent_context())
        if parent_span.is_recording():
            parent_span.add_event(name, attributes, to_nanoseconds(event.at))

    def _parent_context(self) -> Context:
        """Return the context of the program's current span, which is the parent of all calls."""
        now = context.get_current()
        return now if trace.get_current_span(now).get_span_context().is_valid else self._initial_context


def _denied_targets(event: SandboxDenied, budget: ContentBudget) -> Attributes:
    targets = [f"{item.action} {item.target}" for item in event.violations]
    return {**budget.limited_values({names.SANDBOX_TARGETS: targets})}


def _event_attributes(event: OutsideEvent, budget: ContentBudget) -> tuple[str, Attributes]:
    match event:
        case SandboxDenied():
            return names.SANDBOX_DENIED, _denied_targets(event, budget)
        case BatchFinished():
            attributes: Attributes = {names.BATCH_CALLS: len(event.call_ids), names.STOPS_TURN: event.stop is not None}
            return names.BATCH_FINISHED, attributes | budget.limited_values({names.REASON: event.stop})
        case Faulted():
            attributes = {names.FAULT_WHERE: event.where}
            return names.FAULT, attributes | budget.limited_values({names.REASON: event.reason})
        case WriteFailed():
            attributes = {}
            attributes |= budget.limited_values({names.PATH: event.path, names.REASON: event.reason})
            return names.WRITE_FAILED, attributes
        case RecoveryApplied():
            return names.RECOVERY, {
                names.CALL_ID: event.call_id,
                names.RECOVERY_POLICY: event.policy,
                names.RECOVERY_STEPS: len(event.steps),
                names.RECOVERY_SUCCEEDED: event.succeeded,
            }
        case LimitReached():
            return names.LIMIT_REACHED, {
                names.LIMIT_NAME: f"{event.scope}.{event.name}",
                names.LIMIT_VALUE: event.limit,
                names.LIMIT_SPENT: event.spent,
            }
