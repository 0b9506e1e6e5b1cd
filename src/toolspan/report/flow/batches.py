"""Calls that were asked for together: did they run together?

In: spans in the order the model asked. Out: `Together` per batch of two calls or more, with the
concurrency that requests and results show. Pure; the timeline decides what overlaps.
"""

from array import array
from collections.abc import Iterable, Sequence

from msgspec import Struct

from toolspan.model.span import Span
from toolspan.read.messages import Script
from toolspan.read.timeline import Batch, timeline
from toolspan.read.tree import Branches
from toolspan.report.flow.agents import by_agent
from toolspan.report.flow.sequences import canonical
from toolspan.report.time.phases import stamp


class Together(Struct, frozen=True, kw_only=True):
    """One batch of several calls."""

    message: str | None
    calls: tuple[str, ...]
    tools: tuple[str, ...]
    concurrency: int
    """How many were under way at the same moment, at most."""
    serial: bool
    """Asked for together, but each finished before the next one began."""
    saved_ms: int
    """The sum of the calls' durations less the time in which any was under way."""
    requested: str | None


def batches(spans: Iterable[Span]) -> list[Together]:
    """Every batch of two calls or more, agent by agent."""
    return [
        _together(batch)
        for thread in by_agent(spans)
        for batch in _timed(thread)
        if len(batch.calls) > 1
    ]


def _timed(spans: Sequence[Span]) -> list[Batch]:
    """The batches as a timeline without words tells them."""
    nowhere = Branches(array("L"), bytearray())
    return timeline(
        [Script(file="", agent_id=None, spans=spans, messages=(), branches=nowhere)]
    ).batches


def _together(batch: Batch) -> Together:
    spans = [placed.span for placed in batch.calls]
    return Together(
        message=batch.message_id,
        calls=tuple(span.id for span in spans),
        tools=tuple(canonical(span.tool) for span in spans),
        concurrency=max(group.concurrency for group in batch.groups),
        serial=batch.serial,
        saved_ms=_saved(spans),
        requested=spans[0].call.requested_at,
    )


def _saved(spans: Sequence[Span]) -> int:
    times = sorted(
        (start, end)
        for span in spans
        if (start := stamp(span.requested)) is not None
        and (end := stamp(span.finished)) is not None
        and end > start
    )
    saved, covered = 0, None
    for start, end in times:
        if covered is not None and start < covered:
            saved += min(end, covered) - start
        covered = end if covered is None else max(covered, end)
    return saved
