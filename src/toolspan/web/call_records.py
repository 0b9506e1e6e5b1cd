"""`/api/call/ID/records`: the permission decision for a call as `why` explains it, its raw lines and result blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from toolspan.archive.reporter import Reporter
from toolspan.archive.sources import find_session_files, locate_files, transcripts_containing
from toolspan.archive.why import explain_permission, explanation_rows
from toolspan.errors import NotFound, SourceError
from toolspan.formats.source import source_for_path, to_path
from toolspan.types.ids import SourceLocation
from toolspan.types.span import Progress, Span

_MAX_RECORD_BYTES = 256 << 10
_MAX_BLOCKS_BYTES = 16 << 20


def read_call_records(names: Sequence[str], session: str | None, reporter: Reporter) -> dict[str, object]:
    """Return the explanation of the permission decision, the raw records, and the blocks if not all are text.

    The first of `names` is the call's id. Raises:
        NotFound: there is no such call.
    """
    span = _find_span(*names, session=session, reporter=reporter)
    records = []
    for what, place in _places(span):
        data = source_for_path(place.file).read(place.offset, min(place.length, _MAX_RECORD_BYTES))
        records.append(
            {
                "what": what,
                "file": place.file,
                "line": place.line,
                "bytes": place.length,
                "text": data.decode("utf-8", "replace"),
            }
        )
    explanation = explain_permission(span)
    why = {"allowed": explanation.allowed, "rows": explanation_rows(explanation)}
    return {"why": why, "records": records, "blocks": _read_blocks(span)}


def _find_span(call: str, *names: str, session: str | None, reporter: Reporter) -> Span:
    """Return the newest call whose id is `call`.

    Raises:
        NotFound: there is no such call.
    """
    root = to_path(names[0]) if names else None
    files = find_session_files(session, root) if session else locate_files(names, reporter=reporter)[0]
    transcripts = transcripts_containing(call, files, call=True, reporter=reporter)
    spans = [span for transcript in transcripts for span in transcript.spans if span.id == call]
    if not spans:
        raise NotFound(f"no call {call!r}")
    return max(spans, key=lambda span: span.call.requested_at or "")


def _places(span: Span) -> Iterator[tuple[str, SourceLocation]]:
    """Yield the kind and location of each line about a call, in file order and without repetitions."""
    places: dict[tuple[str, int], tuple[str, SourceLocation]] = {}
    if span.call.place:
        places[span.call.place.file, span.call.place.offset] = ("request", span.call.place)
    for event in span.events:
        if not isinstance(event, Progress):
            kind = str(event.__struct_config__.tag)
            places.setdefault((event.place.file, event.place.offset), (kind, event.place))
    if span.result:
        places[span.result.place.file, span.result.place.offset] = ("result", span.result.place)
    for copy in span.copies:
        places.setdefault((copy.place.file, copy.place.offset), (f"repeated {copy.what}", copy.place))
    yield from sorted(places.values(), key=lambda item: (item[1].file, item[1].offset))


def _read_blocks(span: Span) -> object:
    """Return the blocks of a result if one of them is not text, such as an image, or None."""
    if span.result is None or span.result.place.length > _MAX_BLOCKS_BYTES:
        return None
    try:
        content = span.result.content
    except SourceError:
        return None
    if isinstance(content, list) and any(isinstance(block, dict) and block.get("type") != "text" for block in content):
        return content
    return None
