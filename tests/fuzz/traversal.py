"""Read everything that a transcript offers; nothing may raise."""

from __future__ import annotations

from toolspan.analysis.errors import group_errors
from toolspan.analysis.stats import tool_stats
from toolspan.formats.source import BytesSource
from toolspan.reading.diagnostics import check
from toolspan.reading.rows import encode_json_line, make_call_row
from toolspan.reading.timeline import build_timeline
from toolspan.reading.transcript import Transcript, read, read_content
from toolspan.types.span import Span


def visit(data: bytes) -> Transcript:
    """Read a file and look at every fact and body in it, `doctor`'s included."""
    source = BytesSource(data)
    transcript = read(source)
    for span in transcript.spans:
        visit_span(span)
        assert encode_json_line(make_call_row(span, transcript.file))
    assert transcript.info is not None
    assert transcript.tokens is not None
    assert transcript.counts.lines >= transcript.counts.malformed
    for entry, place in transcript.entries():
        assert isinstance(entry.is_known, bool)
        assert source.read(place.offset, place.length)
    for message in transcript.messages():
        assert isinstance(message.text, str)
    assert list(build_timeline([read_content(transcript)]).iter_timelines())
    rows = [make_call_row(span, transcript.file) for span in transcript.spans]
    assert sum(tool.calls for tool in tool_stats(rows)) <= len(rows)
    assert len(group_errors(rows)) <= len(rows)
    check(source, roundtrip=True)
    return transcript


def visit_span(span: Span) -> None:
    assert span.input is not None
    assert span.call.raw_input
    assert span.duration is None or span.duration.total_seconds() >= 0
    assert span.call.kind
    result = span.result
    if result is not None:
        assert isinstance(result.text, str)
        assert result.structured is None or result.structured
        assert result.content is not False
