"""A session's timeline as lines of text. Start at `timeline_lines`; `_lane_marks` draws overlapping calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import chain, groupby
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from toolspan.archive.call_detail import result_summary
from toolspan.archive.words import format_count, format_duration, join_parts, plain_line, plain_lines
from toolspan.cli.call_detail import AUTHOR_STYLES, RowFormat, call_text, event_note
from toolspan.cli.lists import MIN_FOLDED_ROWS, fold_note
from toolspan.cli.output import MIN_BODY_WIDTH, STATE_STYLES, TIME_COLUMN_WIDTH, cell_width, format_time, time_zone
from toolspan.reading.history import short_id
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
from toolspan.types.error_kinds import KIND_WORDS
from toolspan.types.ids import SourceLocation
from toolspan.types.span import Event, Hook, Permission, Span

_GAP_THRESHOLD = timedelta(minutes=5)
_MAX_LANES = 8
_BAR_WIDTH = 10
_NARROW_WIDTH = 96
_WIDTH_WITHOUT_IDS = 60
_ID_WIDTH = 8
_SUMMARY_WIDTH = 60
_ROWS_BEFORE_LINE = 3


class TimelineRow(NamedTuple):
    """The parts of one line before layout: time, lanes, main text and right column."""

    at: datetime | None
    gutter: str
    body: Text
    right: Text = Text()
    places: tuple[SourceLocation, ...] | None = None
    """The records of the message or call that begins with this row; None if the row continues one."""


def timeline_lines(timeline: AgentTimeline, row_format: RowFormat) -> Iterator[Text]:
    """Yield a session's lines, truncated to the width: every turn with its messages, calls and subagents.

    With a line number, the rows begin shortly before the record on that line. Runs of equal rows are folded.
    """
    rows = list(_agent_rows(timeline, "", row_format))
    if row_format.line is not None:
        rows = _rows_from_line(rows, timeline.file, row_format.line)
    if not row_format.unfold:
        rows = _fold_rows(rows)
    last_time: str | None = None
    day = timeline.start_time.astimezone(time_zone()).date() if timeline.start_time else None
    for row in rows:
        if row is None:
            last_time = None  # each turn shows its time
            yield Text()
            continue
        row_day = row.at.astimezone(time_zone()).date() if row.at is not None else None
        if row_day is not None and day is not None and row_day > day:
            day = row_day
            yield Text(f"{'':{TIME_COLUMN_WIDTH}}── {day.isoformat()}", style="dim")
        time = format_time(row.at, date=False)
        yield _lay_out(row, "" if time == last_time else time, row_format.width)
        last_time = time or last_time


def _rows_from_line(rows: Sequence[TimelineRow | None], file: str, line: int) -> list[TimelineRow | None]:
    """Return the rows from shortly before the record on a line, or before the next record that has a row."""
    places = {n: row.places or () for n, row in enumerate(rows) if row is not None}
    lines = {n: [place.line for place in row_places if place.file == file] for n, row_places in places.items()}
    exact = (n for n, row_lines in lines.items() if line in row_lines)
    later = (n for n, row_lines in lines.items() if row_lines and min(row_lines) > line)
    index = next(exact, next(later, len(rows) - 1))
    start = max(index - _ROWS_BEFORE_LINE, 0)
    while start and (row := rows[start]) is not None and row.places is None:
        start -= 1
    visible = list(rows[start:])
    if target := rows[index] if rows else None:
        visible[index - start] = target._replace(body=Text("▶ ", style="bold yellow").append_text(target.body))
    if start:
        note = Text(f"… {format_count(start, 'earlier line')}: toolspan show without the line number", style="dim")
        visible.insert(0, TimelineRow(None, "", note, places=()))
    return visible


def _fold_rows(rows: Sequence[TimelineRow | None]) -> list[TimelineRow | None]:
    """Return the rows with each run of equal messages or calls folded into its first row and a count."""
    blocks: list[list[TimelineRow | None]] = []
    for row in rows:
        if row is None or row.places is not None or not blocks or blocks[-1][0] is None:
            blocks.append([])
        blocks[-1].append(row)
    folded: list[TimelineRow | None] = []
    for _, run in groupby(blocks, lambda block: [row and (row.gutter, row.body.plain) for row in block]):
        members = list(run)
        head, last = members[0][0], members[-1][0]
        if len(members) < MIN_FOLDED_ROWS or head is None or last is None:
            folded += chain.from_iterable(members)
            continue
        note = Text(fold_note(len(members)), style="dim")
        folded += [*members[0], TimelineRow(last.at, head.gutter, note, places=())]
    return folded


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


def _agent_rows(timeline: AgentTimeline, prefix: str, row_format: RowFormat) -> Iterator[TimelineRow | None]:
    """Yield one agent's rows. None represents an empty line."""
    was_abandoned = False
    ended: datetime | None = None
    for turn in timeline.turns:
        if turn.prompt is not None and row_format.messages and not prefix:
            yield None
        for item in turn.items:
            if ended and item.start_time and item.start_time - ended > _GAP_THRESHOLD:
                gap = format_duration((item.start_time - ended).total_seconds() * 1000)
                yield TimelineRow(None, prefix, Text(f"┄ {gap} later", style="dim"), places=())
            is_abandoned = not isinstance(item, AgentTimeline) and item.branch == "abandoned"
            if is_abandoned and not was_abandoned:
                yield TimelineRow(None, prefix, Text("┊ abandoned by a rewind:", style="yellow"), places=())
            was_abandoned = is_abandoned
            for row in _item_rows(item, turn, prefix + "┊ " * is_abandoned, row_format):
                if is_abandoned and row:
                    row.body.stylize("dim")
                yield row
            ended = max((time for time in (ended, item.end_time) if time), default=None)


def _item_rows(item: TimelineItem, turn: Turn, prefix: str, row_format: RowFormat) -> Iterator[TimelineRow | None]:
    match item:
        case TimelineMessage():
            if row_format.includes_message(item.message) or row_format.is_target(item.message.place):
                right = Text()
                calls = sum(placed.span.state != "orphan_result" for placed in turn.calls)
                if item.message is turn.prompt and not prefix and calls and turn.start_time and turn.end_time:
                    took = format_duration((turn.end_time - turn.start_time).total_seconds() * 1000)
                    right = Text(f"{format_count(calls, 'call')} {took:>8}", style="dim")
                yield from _message_rows(item, prefix, row_format, right)
        case TimelineBatch():
            yield from _batch_rows(item, prefix, row_format)
        case AgentTimeline():
            yield from _subagent_rows(item, prefix, row_format)


def _message_rows(item: TimelineMessage, prefix: str, row_format: RowFormat, right: Text) -> Iterator[TimelineRow]:
    mark, style = AUTHOR_STYLES[item.message.voice]
    if item.message.voice == "command" and not starts_turn(item.message):
        mark, style = AUTHOR_STYLES["text"]  # the output of a command
    text = display_text(item.message)
    is_full = row_format.full or row_format.is_target(item.message.place)
    if item.message.voice == "summary" and not is_full:
        text = f"summary for the model, {len(text):,} characters"
    if not text.strip():
        return
    places: tuple[SourceLocation, ...] | None = (item.message.place,)
    if not is_full:
        body = Text(mark + plain_line(text, row_format.width), style=style)
        yield TimelineRow(item.start_time, prefix, body, right, places)
        return
    width = max(row_format.width - TIME_COLUMN_WIDTH - len(prefix) - len(mark) - 1, 20)
    measure = Console(width=width)
    at = item.start_time
    for line in plain_lines(text.strip("\n")):
        parts = [line]
        if cell_len(line) > width:
            parts = [part.plain.rstrip() for part in Text(line).wrap(measure, width)]
        for part in parts:
            yield TimelineRow(at, prefix, Text(mark + part, style=style), places=places)
            mark, at, places = " " * len(mark), None, None


def _subagent_rows(timeline: AgentTimeline, prefix: str, row_format: RowFormat) -> Iterator[TimelineRow | None]:
    name = join_parts(timeline.role or "subagent", (timeline.agent_id or "")[:12])
    unlinked = None if timeline.linked else "started by an unknown call"
    head = plain_line("↳ " + join_parts(name, format_count(len(timeline.calls), "call"), unlinked), row_format.width)
    yield TimelineRow(timeline.start_time, prefix, Text(head, style="blue"), places=())
    yield from _agent_rows(timeline, prefix + "  ", row_format)


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
    """Return the lane characters for each call: for its own line and for the lines below it."""
    most = min(group.lane_count, _MAX_LANES)
    marks = []
    for n, placed in enumerate(group.calls):
        call_lane = min(placed.lane, most - 1)
        start = placed.start
        busy = {
            min(other.lane, most - 1)
            for other in group.calls[:n]
            if start is not None and (other.span.finished is None or other.span.finished > start)
        } - {call_lane}
        if n < len(group.calls) - 1:
            corner = "├" if placed.lane >= most else "┌"
            on = "".join(corner if k == call_lane else "│" if k in busy else " " for k in range(most))
            below = "".join("│" if k == call_lane or k in busy else " " for k in range(most))
        else:  # all lanes end in the last call
            first = min({call_lane, *busy})
            closing = {lane: "└" if lane == first else "┴" for lane in busy}
            on = "".join(" " if k < first else closing.get(k, "─") for k in range(most))
            below = " " * most
        marks.append((on + " ", below + " "))
    return marks


def _call_rows(
    placed: TimelineCall, prefix: str, marks: tuple[str, str], group: OverlapGroup | None, row_format: RowFormat
) -> Iterator[TimelineRow | None]:
    span = placed.span
    on, below = marks
    right = Text()
    if span.state == "succeeded":
        right.append(plain_line(result_summary(span), _SUMMARY_WIDTH), style="dim")
    if group is not None and len(group.calls) > 1 and row_format.width >= _NARROW_WIDTH:
        right.append(" ").append_text(_duration_bar(placed, group))
    took = span.duration
    right.append(f" {format_duration(took.total_seconds() * 1000) if took is not None else '':>8}")
    if row_format.width >= _WIDTH_WITHOUT_IDS:
        right.append(f"  {plain_line(short_id(span.id)[:_ID_WIDTH], _ID_WIDTH):{_ID_WIDTH}}", style="dim")
    places = tuple(place for place in (span.call.place, span.result and span.result.place) if place)
    yield TimelineRow(span.requested or span.finished, prefix + on, call_text(span, row_format), right, places)
    yield from _failure_rows(span, prefix + below + "  ", row_format.width)
    notes = Counter(event_note(event) for event in span.events if not _is_usual_event(event, span))
    for note, times in notes.items():
        repeated = f" ×{times}" if times > 1 and note.startswith("hook") else ""
        text = Text(plain_line(note, row_format.width) + repeated, style="dim")
        yield TimelineRow(None, prefix + below + "  ", text)
    for agent in placed.agents:
        yield from _subagent_rows(agent, prefix + below + "  ", row_format)


def _duration_bar(placed: TimelineCall, group: OverlapGroup) -> Text:
    span, start = placed.span, placed.start
    starts = [time for call in group.calls if (time := call.start)]
    ends = [time for call in group.calls if (time := call.span.finished)]
    if not starts or not ends or start is None or span.finished is None:
        return Text("─" * _BAR_WIDTH, style="dim")
    whole = (max(ends) - min(starts)).total_seconds() or 1.0
    first = int((start - min(starts)).total_seconds() / whole * _BAR_WIDTH)
    last = int((span.finished - min(starts)).total_seconds() / whole * _BAR_WIDTH + 0.5)
    first = min(max(first, 0), _BAR_WIDTH - 1)
    last = min(max(last, first + 1), _BAR_WIDTH)
    bar = Text().append("─" * first, style="dim")
    bar.append("━" * (last - first), style=STATE_STYLES[span.state])
    return bar.append("─" * (_BAR_WIDTH - last), style="dim")


def _failure_rows(span: Span, gutter: str, width: int) -> Iterator[TimelineRow]:
    if span.state == "succeeded" or (span.error_kind is None and not span.message):
        return
    interrupt_follows = any(evidence.rule == "interrupt marker follows" for evidence in span.evidence)
    label = KIND_WORDS.get(span.error_kind or "", span.state) + (
        " or interrupted" if span.ambiguous and interrupt_follows else ""
    )
    message = Text(label, style=STATE_STYLES[span.state])
    if span.message:
        message.append(": " + plain_line(span.message, width), style="default")
    if not span.advice or not span.advice.solution:
        yield TimelineRow(None, gutter, message)
        return
    solution = Text(f"→ {span.advice.solution}", style="dim")
    if TIME_COLUMN_WIDTH + len(gutter) + message.cell_len + solution.cell_len + 1 < width:
        yield TimelineRow(None, gutter, message.append("  ").append_text(solution))
        return
    yield TimelineRow(None, gutter, message)
    yield TimelineRow(None, gutter, solution)


def _is_usual_event(event: Event, span: Span) -> bool:
    """Return whether an event is routine: permission by configuration, a denial already shown, or a hook start."""
    if isinstance(event, Permission):
        return event.source is None or (event.decision, event.source) == ("accept", "config")
    return isinstance(event, Hook) and event.outcome == "started" and span.result is not None
