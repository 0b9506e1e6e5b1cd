"""Everything a reader can ask of a transcript, at once: whatever the bytes, nothing raises."""

from toolspan.model.span import Span
from toolspan.read.checkup import check
from toolspan.read.facts import facts_of, json_line
from toolspan.read.groups import error_groups, tool_stats
from toolspan.read.messages import script
from toolspan.read.timeline import timeline
from toolspan.read.transcript import Transcript, read
from toolspan.wire.source import BytesSource


def visit(data: bytes) -> Transcript:
    """Read a file and look at every fact and body in it, `doctor`'s included."""
    source = BytesSource(data)
    transcript = read(source)
    for span in transcript.spans:
        visit_span(span)
        assert json_line(facts_of(span, transcript.file))
    assert transcript.info is not None
    assert transcript.tokens is not None
    assert transcript.counts.lines >= transcript.counts.malformed
    for entry, place in transcript.entries():
        assert isinstance(entry.known, bool)
        assert source.read(place.offset, place.length)
    for message in transcript.messages():
        assert isinstance(message.text, str)
    assert list(timeline([script(transcript)]).strands())
    rows = [facts_of(span, transcript.file) for span in transcript.spans]
    assert sum(tool.calls for tool in tool_stats(rows)) <= len(rows)
    assert len(error_groups(rows)) <= len(rows)
    check(source, roundtrip=True)
    return transcript


def visit_span(span: Span) -> None:
    """Every body of one call, and what is computed from its facts."""
    assert span.input is not None
    assert span.call.raw_input
    assert span.duration is None or span.duration.total_seconds() >= 0
    assert span.call.kind
    result = span.result
    if result is not None:
        assert isinstance(result.text, str)
        assert result.structured is None or result.structured
        assert result.content is not False
