"""Calls as OpenTelemetry spans, printed; a real program exports them to its collector instead."""

from __future__ import annotations

import asyncio

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from toolspan import Permissions, Session, ToolError, tool
from toolspan.integrations import OtelSink


@tool(concurrent=True)
async def square_root(of: float) -> str:
    """Give the square root of a number."""
    if of < 0:
        raise ToolError("There is none")
    return str(of**0.5)


def shown(span: ReadableSpan) -> str:
    milliseconds = ((span.end_time or 0) - (span.start_time or 0)) / 1e6
    shown = {k: v for k, v in (span.attributes or {}).items() if k.startswith(("toolspan", "error"))}
    return f"{'  ' if span.parent else ''}{span.name} {milliseconds:.1f} ms {shown}"


async def main(sink: OtelSink) -> None:
    calls = [
        {"type": "tool_use", "id": "a", "name": "square_root", "input": {"of": 16}},
        {"type": "tool_use", "id": "b", "name": "square_root", "input": {"of": -1}},
    ]
    async with Session(
        permissions=Permissions.allow_all(), tools=[square_root], transcript=None, sinks=[sink]
    ) as session:
        session.say("Square roots of 16 and -1?")
        await session.run({"role": "assistant", "content": calls})


exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
with OtelSink(provider) as telemetry:
    asyncio.run(main(telemetry))
for one in sorted(exporter.get_finished_spans(), key=lambda span: span.start_time or 0):
    print(shown(one))
