"""Draws a session for people: lanes, turns, subagents, all in one width.

In: a `Strand` and a `Look`. Out: lines of rich `Text`, already cut to the width. Knows neither
files nor options. Read `session_lines` first; the lanes are in `_marks`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from toolspan.cli.call_detail import VOICE_STYLES, RowFormat, call_text, event_note, result_summary
from toolspan.cli.output import (
    MIN_BODY_WIDTH,
    STATE_STYLES,
    TIME_COLUMN_WIDTH,
    cell_width,
    format_count,
    format_duration,
    format_time,
    join_parts,
    plain_line,
    plain_lines,
)
from toolspan.reading.timeline import (
    AgentTimeline,
    OverlapGroup,
    TimelineBatch,
    TimelineCall,
    TimelineItem,
    TimelineMessage,
    Turn,
    display_text,
    starts_turn,
)
from toolspan.types.span import Event, Hook, Permission, Span

_GAP_THRESHOLD = timedelta(minutes=5)
_MAX_LANES = 8
_BAR_WIDTH = 10
_NARROW_WIDTH = 96
_SUMMARY_WIDTH = 60
"""Letters of what a result comes to."""


class TimelineRow(NamedTuple):
    """One line before it is laid out: time, lanes, what happened, and what stands at the right."""

    at: datetime | None
    gutter: str
    body: Text
    right: Text = Text()

    def with_dim_style(self) -> TimelineRow:
        """The same, in the background."""
        body = self.body.copy()
        body.stylize("dim")
        return self._replace(body=body)


def session_lines(strand: AgentTimeline, row_format: RowFormat) -> Iterator[Text]:
    """A session as lines: every turn, with its words, calls and subagents."""
    last_time: str | None = None
    day = strand.start_time.date() if strand.start_time else None
    for row in _strand_rows(strand, "", row_format):
        if row is None:
            last_time = None  # each turn tells its time
            yield Text()
            continue
        if row.at is not None and day is not None and row.at.date() > day:
            day = row.at.date()
            yield Text(f"{'':{TIME_COLUMN_WIDTH}}── {day.isoformat()}", style="dim")
        time = format_time(row.at, date=False)
        yield _lay_out(row, "" if time == last_time else time, row_format.width)
        last_time = time or last_time


def _lay_out(row: TimelineRow, time: str, width: int) -> Text:
    line = Text().append(f"{time:{TIME_COLUMN_WIDTH}}", style="dim").append(row.gutter, style="blue")
    available = width - cell_width(line.plain) - 1
    right_width = cell_width(row.right.plain)
    right, right_width = (row.right, right_width) if available - right_width >= MIN_BODY_WIDTH else (Text(), 0)
    available = max(available - right_width, 8)
    body = row.body.copy()
    taken = cell_width(body.plain)
    if taken > available:
        body.truncate(available, overflow="ellipsis")
    elif right.plain:
        body.append(" " * (available - taken))
    return line.append_text(body).append(" " if right.plain else "").append_text(right)


def _strand_rows(strand: AgentTimeline, prefix: str, row_format: RowFormat) -> Iterator[TimelineRow | None]:
    """The rows of one agent; None is an empty line."""
    was_abandoned = False
    ended: datetime | None = None
    for turn in strand.turns:
        if turn.prompt is not None and row_format.messages and not prefix:
            yield None
        for item in turn.items:
            if ended and item.start_time and item.start_time - ended > _GAP_THRESHOLD:
                gap = format_duration((item.start_time - ended).total_seconds() * 1000)
                yield TimelineRow(None, prefix, Text(f"┄ {gap} later", style="dim"))
            is_abandoned = not isinstance(item, AgentTimeline) and item.branch == "abandoned"
            if is_abandoned and not was_abandoned:
                yield TimelineRow(None, prefix, Text("┊ left behind by a rewind:", style="yellow"))
            was_abandoned = is_abandoned
            rows = _item_rows(item, turn, prefix + "┊ " * is_abandoned, row_format)
            yield from (row.with_dim_style() if is_abandoned and row else row for row in rows)
            ended = max((time for time in (ended, item.end_time) if time), default=None)


def _item_rows(item: TimelineItem, turn: Turn, prefix: str, row_format: RowFormat) -> Iterator[TimelineRow | None]:
    match item:
        case TimelineMessage():
            if row_format.includes_message(item.message):
                first = item.message is turn.prompt and not prefix
                right = _turn_note(turn) if first else Text()
                yield from _message_rows(item, prefix, row_format, right)
        case TimelineBatch():
            yield from _batch_rows(item, prefix, row_format)
        case AgentTimeline():
            yield from _subagent_rows(item, prefix, row_format)


def _turn_note(turn: Turn) -> Text:
    calls = sum(placed.span.state != "orphan_result" for placed in turn.calls)
    if not calls or turn.start_time is None or turn.end_time is None:
        return Text()
    took = format_duration((turn.end_time - turn.start_time).total_seconds() * 1000)
    return Text(f"{format_count(calls, 'call')} {took:>8}", style="dim")


def _message_rows(item: TimelineMessage, prefix: str, row_format: RowFormat, right: Text) -> Iterator[TimelineRow]:
    mark, style = VOICE_STYLES[item.message.voice]
    if item.message.voice == "command" and not starts_turn(item.message):
        mark, style = VOICE_STYLES["text"]  # what a command printed
    text = display_text(item.message)
    if item.message.voice == "summary" and not row_format.full:
        text = f"summary for the model, {len(text):,} characters"
    if not text.strip():
        return
    if not row_format.full:
        body = Text(mark + plain_line(text, row_format.width), style=style)
        yield TimelineRow(item.start_time, prefix, body, right)
        return
    text_width = max(row_format.width - TIME_COLUMN_WIDTH - len(prefix) - len(mark) - 1, 20)
    for n, line in enumerate(_wrap_text(text, text_width)):
        body = Text((mark if n == 0 else " " * len(mark)) + line, style=style)
        yield TimelineRow(item.start_time if n == 0 else None, prefix, body)


def _wrap_text(text: str, width: int) -> Iterator[str]:
    measure = Console(width=width)
    for line in plain_lines(text.strip("\n")):
        if cell_len(line) <= width:
            yield line
        else:
            yield from (part.plain.rstrip() for part in Text(line).wrap(measure, width))


def _subagent_rows(strand: AgentTimeline, prefix: str, row_format: RowFormat) -> Iterator[TimelineRow | None]:
    name = join_parts(strand.role or "subagent", (strand.agent_id or "")[:12])
    loose = None if strand.linked else "started by no known call"
    head = plain_line("↳ " + join_parts(name, format_count(len(strand.calls), "call"), loose), row_format.width)
    yield TimelineRow(strand.start_time, prefix, Text(head, style="blue"))
    yield from _strand_rows(strand, prefix + "  ", row_format)


def _batch_rows(batch: TimelineBatch, prefix: str, row_format: RowFormat) -> Iterator[TimelineRow | None]:
    if batch.is_serial:
        calls = batch.calls
        last = len(calls) - 1
        for n, placed in enumerate(calls):
            on = "╷ " if n == 0 else "╵ " if n == last else "╎ "
            below = "  " if n == last else "╎ "
            yield from _call_rows(placed, prefix, (on, below), None, row_format)
        return
    for group in batch.groups:
        marks = _lane_marks(group) if len(group.calls) > 1 else [("", "")]
        for placed, mark in zip(group.calls, marks, strict=True):
            yield from _call_rows(placed, prefix, mark, group, row_format)


def _lane_marks(group: OverlapGroup) -> list[tuple[str, str]]:
    """The lane columns of each call: on its own line, and on the lines below it."""
    most = min(group.lane_count, _MAX_LANES)
    marks = []
    for n, placed in enumerate(group.calls):
        call_lane = min(placed.lane, most - 1)
        busy = {min(other.lane, most - 1) for other in group.calls[:n] if _overlaps_start(other, placed)}
        busy.discard(call_lane)
        if n < len(group.calls) - 1:
            start = "├" if placed.lane >= most else "┌"
            on = "".join(start if k == call_lane else "│" if k in busy else " " for k in range(most))
            below = "".join("│" if k == call_lane or k in busy else " " for k in range(most))
        else:  # all lanes come together in the last call
            on = "".join(_closing_mark(k, call_lane, busy) for k in range(most))
            below = " " * most
        marks.append((on + " ", below + " "))
    return marks


def _overlaps_start(other: TimelineCall, placed: TimelineCall) -> bool:
    end, start = other.span.finished, placed.span.requested
    return start is not None and (end is None or end > start)


def _closing_mark(lane: int, call_lane: int, busy: set[int]) -> str:
    first_lane = min({call_lane, *busy})
    if lane < first_lane:
        return " "
    if lane in busy:
        return "└" if lane == first_lane else "┴"
    return "─"


def _call_rows(
    placed: TimelineCall, prefix: str, marks: tuple[str, str], group: OverlapGroup | None, row_format: RowFormat
) -> Iterator[TimelineRow | None]:
    span = placed.span
    on, below = marks
    yield TimelineRow(
        span.requested or span.finished,
        prefix + on,
        call_text(span, row_format),
        _right_column(span, group, row_format),
    )
    yield from _failure_rows(span, prefix + below + "  ", row_format.width)
    for note in _event_notes(span, row_format.width):
        yield TimelineRow(None, prefix + below + "  ", note)
    for agent in placed.agents:
        yield from _subagent_rows(agent, prefix + below + "  ", row_format)


def _right_column(span: Span, group: OverlapGroup | None, row_format: RowFormat) -> Text:
    text = Text()
    if span.state == "succeeded":
        text.append(plain_line(result_summary(span), _SUMMARY_WIDTH), style="dim")
    if group is not None and len(group.calls) > 1 and row_format.width >= _NARROW_WIDTH:
        text.append(" ").append_text(_duration_bar(span, group))
    took = span.duration
    text.append(f" {format_duration(took.total_seconds() * 1000) if took is not None else '':>8}")
    return text


def _duration_bar(span: Span, group: OverlapGroup) -> Text:
    """When, within its group, a call was under way."""
    starts = [time for call in group.calls if (time := call.span.requested)]
    ends = [time for call in group.calls if (time := call.span.finished)]
    if not starts or not ends or span.requested is None or span.finished is None:
        return Text("─" * _BAR_WIDTH, style="dim")
    whole = (max(ends) - min(starts)).total_seconds() or 1.0
    first = int((span.requested - min(starts)).total_seconds() / whole * _BAR_WIDTH)
    last = int((span.finished - min(starts)).total_seconds() / whole * _BAR_WIDTH + 0.5)
    first = min(max(first, 0), _BAR_WIDTH - 1)
    last = min(max(last, first + 1), _BAR_WIDTH)
    bar = Text().append("─" * first, style="dim")
    bar.append("━" * (last - first), style=STATE_STYLES[span.state])
    return bar.append("─" * (_BAR_WIDTH - last), style="dim")


def _failure_rows(span: Span, gutter: str, width: int) -> Iterator[TimelineRow]:
    """What went wrong and what helps; on one line if both fit."""
    if span.state == "succeeded" or (span.error_kind is None and not span.message):
        return
    follows = any(evidence.rule == "interrupt marker follows" for evidence in span.evidence)
    doubt = span.ambiguous and follows
    label = (span.error_kind or span.state) + (" or interrupted" if doubt and span.ambiguous else "")
    message = Text(label, style=STATE_STYLES[span.state])
    if span.message:
        message.append(": " + plain_line(span.message, width), style="default")
    helps = Text(f"→ {span.advice.solution}" if span.advice else "", style="dim")
    if TIME_COLUMN_WIDTH + len(gutter) + message.cell_len + helps.cell_len + 1 < width:
        yield TimelineRow(None, gutter, message.append("  ").append_text(helps))
        return
    yield TimelineRow(None, gutter, message)
    yield TimelineRow(None, gutter, helps)


def _event_notes(span: Span, width: int) -> Iterator[Text]:
    """What happened around a call, what is usual left out."""
    counts: dict[str, int] = {}
    for event in span.events:
        if not _is_usual_event(event, span.events):
            note = event_note(event)
            counts[note] = counts.get(note, 0) + 1
    for note, times in counts.items():
        repeated = f" ×{times}" if times > 1 and note.startswith("hook") else ""
        yield Text(plain_line(note, width) + repeated, style="dim")


def _is_usual_event(event: Event, events: Sequence[Event]) -> bool:
    """Consent by configuration, denials told anyway, the start of a hook whose end is told."""
    if isinstance(event, Permission):
        return event.source is None or (event.decision, event.source) == ("accept", "config")
    if isinstance(event, Hook) and event.outcome == "started":
        ends = (other for other in events if isinstance(other, Hook) and other.outcome != "started")
        return any(other.name == event.name for other in ends)
    return False
