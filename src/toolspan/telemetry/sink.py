"""A sink that tells OpenTelemetry of calls: one span per call, and how long calls took.

In: the events of a runner. Out: spans and a histogram through the providers of the program around
us, which also own exporting. Spans hang below the span that was current when the sink was made, or
when the call was asked for, if the sink is called there (`direct`). Read `OtelSink.__call__` first.
"""

import threading
from typing import Self

from opentelemetry import context, metrics, trace
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from toolspan.ids import CallId
from toolspan.model import telemetry as names
from toolspan.model.live import (
    Asked,
    BatchFinished,
    Decided,
    Duplicate,
    Faulted,
    Finished,
    HookRan,
    LiveEvent,
    Progressed,
    Recovered,
    Relayed,
    Requested,
    Slow,
    Started,
    WriteFailed,
)
from toolspan.telemetry.call import Attributes, CallSpans, DuringCall, nanoseconds
from toolspan.telemetry.words import Words

Beside = BatchFinished | Faulted | WriteFailed | Recovered


class OtelSink:
    """Makes spans and metrics of events. Can be shared by threads and by runners."""

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        *,
        content: bool = False,
    ) -> None:
        """Use these providers, or the program's own.

        `content` lets pieces of inputs, results, commands, reasons and paths leave, cut and with
        secrets blacked out; without it none of them does.
        """
        self._tracer = trace.get_tracer(names.SCOPE, tracer_provider=tracer_provider)
        meter = metrics.get_meter(names.SCOPE, meter_provider=meter_provider)
        self._durations = meter.create_histogram(
            names.DURATION,
            unit=names.DURATION_UNIT,
            description=names.DURATION_ABOUT,
            explicit_bucket_boundaries_advisory=names.DURATION_BUCKETS,
        )
        self._content = content
        self._outer = context.get_current()
        self._open: dict[CallId, CallSpans] = {}
        self._latest = 0.0
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __call__(self, event: LiveEvent) -> None:
        """Take an event."""
        with self._lock:
            self._latest = max(self._latest, event.at)
            own = event.event if isinstance(event, Relayed) else event
            match own:
                case Requested():
                    self._begin(own)
                case Finished():
                    self._finish(own)
                case BatchFinished() | Faulted() | WriteFailed() | Recovered():
                    self._beside(own)
                case (
                    HookRan() | Asked() | Decided() | Started() | Progressed() | Slow()
                    | Duplicate()
                ):  # fmt: skip
                    self._during(own)

    def close(self) -> None:
        """End the spans of calls that have no result: nothing more will be heard of them.

        The providers stay as they are; shutting them down is for who made them.
        """
        with self._lock:
            left, self._open = self._open, {}
            for spans in left.values():
                spans.abandon(self._latest)

    def environment(self, call_id: CallId | str | None = None) -> dict[str, str]:
        """What a child process needs to hang its spans below ours: `TRACEPARENT`, `TRACESTATE`.

        With a call that runs, below its span; a call is known here at once only if the sink is a
        `direct` one. Empty when nothing is traced.
        """
        with self._lock:
            spans = self._open.get(CallId(call_id)) if call_id else None
        carrier: dict[str, str] = {}
        inside = spans.context if spans else self._around()
        TraceContextTextMapPropagator().inject(carrier, inside)
        return {name.upper(): value for name, value in carrier.items()}

    def _begin(self, asked: Requested) -> None:
        earlier = self._open.pop(asked.call.id, None)
        if earlier is not None:
            earlier.abandon(asked.at)
        words = Words(allowed=self._content)
        self._open[asked.call.id] = CallSpans(self._tracer, self._around(), asked, words)

    def _during(self, event: DuringCall) -> None:
        spans = self._open.get(event.call_id)
        if spans is not None:
            spans.take(event)

    def _finish(self, finished: Finished) -> None:
        if finished.call_id not in self._open:  # we were too slow to be told of its beginning
            began = finished.at - finished.duration_ms / 1e3
            self._begin(Requested(call=finished.span.call, at=began))
        inside = self._open.pop(finished.call_id).finish(finished)
        self._durations.record(finished.duration_ms / 1e3, _measured(finished), inside)

    def _beside(self, event: Beside) -> None:
        """On the span of the call if it lives, else on the one around all calls."""
        name, told = _told(event, Words(allowed=self._content))
        call_id = event.call_id if isinstance(event, Faulted | Recovered) else None
        spans = None if call_id is None else self._open.get(call_id)
        if spans is not None:
            spans.note(name, told, event.at)
            return
        around = trace.get_current_span(self._around())
        if around.is_recording():
            around.add_event(name, told, nanoseconds(event.at))

    def _around(self) -> Context:
        """The program's own span, where calls hang."""
        now = context.get_current()
        return now if trace.get_current_span(now).get_span_context().is_valid else self._outer


def _measured(finished: Finished) -> Attributes:
    invented = finished.span.error_kind == "unknown_tool"
    told: Attributes = {
        names.OPERATION: names.OPERATION_VALUE,
        names.TOOL: names.OTHER_TOOL if invented else finished.span.tool[: names.LONGEST_NAME],
        names.STATE: finished.span.state,
    }
    kind = names.error_type(finished.span.state, finished.span.error_kind)
    return told if kind is None else {**told, names.ERROR_TYPE: kind}


def _told(event: Beside, words: Words) -> tuple[str, Attributes]:
    match event:
        case BatchFinished():
            told: Attributes = {
                names.BATCH_CALLS: len(event.call_ids),
                names.STOPS_TURN: event.stop is not None,
            }
            return names.BATCH, told | words.told({names.REASON: event.stop})
        case Faulted():
            told = {names.FAULT_WHERE: event.where}
            return names.FAULT, told | words.told({names.REASON: event.reason})
        case WriteFailed():
            told = {}
            told |= words.told({names.PATH: event.path, names.REASON: event.reason})
            return names.WRITE_FAILED, told
        case Recovered():
            return names.RECOVERY, {
                names.CALL_ID: event.call_id,
                names.RECOVERY_POLICY: event.policy,
                names.RECOVERY_STEPS: len(event.steps),
                names.RECOVERY_SUCCEEDED: event.succeeded,
            }
