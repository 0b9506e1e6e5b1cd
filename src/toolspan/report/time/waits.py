"""How long somebody was asked about one call, as hooks of ours noted it (`toolspan hook`)."""

from pathlib import Path

from toolspan.model.span import Span
from toolspan.report.time.heard import read_heard
from toolspan.report.time.phases import phases


def noted_wait(span: Span) -> int | None:
    """Milliseconds from the question to the answer; None when no question was noted."""
    if span.call.place is None:
        return None
    heard = read_heard(Path(span.call.place.file)).get(span.id)
    if heard is None or heard.asked is None:
        return None
    found = phases(span, heard=heard)
    waits = (one.end - one.start for one in found.intervals if one.phase == "permission")
    return sum(waits) if found.certainty == "known" else None
