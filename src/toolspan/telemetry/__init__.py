"""The events of a runner as OpenTelemetry spans and metrics. Needs `pip install 'toolspan[otel]'`.

    with OtelSink() as telemetry:
        async with Session(sinks=[telemetry]) as session: ...

Start at `sink.py`; `words.py` says what content may leave, and `model/telemetry.py`
has every name that does.
"""

try:
    from toolspan.telemetry.sink import OtelSink
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "opentelemetry":
        raise
    told = "toolspan.telemetry needs OpenTelemetry: pip install 'toolspan[otel]'"
    raise ImportError(told, name=error.name) from error

__all__ = ["OtelSink"]
