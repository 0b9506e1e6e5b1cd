"""In-memory exporters of the OpenTelemetry SDK."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from toolspan.integrations.opentelemetry import OtelSink
from toolspan.runtime.runner import Runner
from toolspan.runtime.tool import Tool

START = 1_700_000_000
SECOND = 1_000_000_000


class Watch:
    def __init__(self, *, content: bool = False) -> None:
        self._spans = InMemorySpanExporter()
        self._metrics = InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self.sink = OtelSink(self.tracers, MeterProvider([self._metrics]), content=content)

    @property
    def spans(self) -> list[ReadableSpan]:
        return sorted(self._spans.get_finished_spans(), key=lambda span: span.start_time or 0)

    def span(self, name: str) -> ReadableSpan:
        (result,) = (span for span in self.spans if span.name == name)
        return result

    @property
    def points(self) -> list[HistogramDataPoint]:
        data = self._metrics.get_metrics_data()
        metrics = [
            metric
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
        ]
        return [
            point for metric in metrics for point in metric.data.data_points if isinstance(point, HistogramDataPoint)
        ]

    def everything(self) -> str:
        data = self._metrics.get_metrics_data()
        output = [span.to_json(indent=None) for span in self.spans]
        return "\n".join([*output, data.to_json(indent=None) if data else ""])


def ticking() -> Iterable[float]:
    return count(START, 1.0)


def runner(watch: Watch, tools: Iterable[Tool], **options: object) -> Runner:
    times = iter(ticking())
    return Runner(tools, direct=[watch.sink], clock=lambda: next(times), **options)  # type: ignore[arg-type]


def call(name: str, call_id: str = "toolu_1", /, **fields: object) -> dict[str, object]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": fields}


def seconds(span: ReadableSpan) -> tuple[float, float]:
    assert span.start_time is not None
    assert span.end_time is not None
    return span.start_time / SECOND - START, span.end_time / SECOND - START
