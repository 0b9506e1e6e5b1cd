"""Draws a session for people: lanes, turns, subagents, all in one width.

In: a `Strand` and a `Look`. Out: lines of rich `Text`, already cut to the width. Knows neither
files nor options. Read `session_lines` first; the lanes are in `_marks`.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from toolspan.cli.draw import CLOCK, LEAST, cells, joined, plain_line, plain_lines
from toolspan.cli.output import STATE_STYLE, clock, count, duration
from toolspan.cli.show.look import VOICES, Look, call_text, event_note
from toolspan.cli.summary import summary
from toolspan.model.event import Event, Hook, Permission
from toolspan.model.span import Span
from toolspan.read.timeline import Batch, Group, Item, Placed, Said, Strand, Turn, opens
from toolspan.report.words import words

_QUIET = timedelta(minutes=5)
_MOST_LANES = 8
_BAR = 10
_NARROW = 96
_SUMMARY = 60
"""Letters of what a result comes to."""


class Row(NamedTuple):
    """One line before it is laid out: time, lanes, what happened, and what stands at the right."""

    at: datetime | None
    gutter: str
    body: Text
    right: Text = Text()

    def dimmed(self) -> "Row":
        """The same, in the background."""
        body = self.body.copy()
        body.stylize("dim")
        return self._replace(body=body)


def session_lines(strand: Strand, look: Look) -> Iterator[Text]:
    """A session as lines: every turn, with its words, calls and subagents."""
    shown: str | None = None
    day = strand.began.date() if strand.began else None
    for row in _strand(strand, "", look):
        if row is None:
            shown = None  # each turn tells its time
            yield Text()
            continue
        if row.at is not None and day is not None and row.at.date() > day:
            day = row.at.date()
            yield Text(f"{'':{CLOCK}}── {day.isoformat()}", style="dim")
        time = clock(row.at, date=False)
        yield _laid_out(row, "" if time == shown else time, look.width)
        shown = time or shown


def _laid_out(row: Row, time: str, width: int) -> Text:
    line = Text().append(f"{time:{CLOCK}}", style="dim").append(row.gutter, style="blue")
    room = width - cells(line.plain) - 1
    beside = cells(row.right.plain)
    right, beside = (row.right, beside) if room - beside >= LEAST else (Text(), 0)
    room = max(room - beside, 8)
    body = row.body.copy()
    taken = cells(body.plain)
    if taken > room:
        body.truncate(room, overflow="ellipsis")
    elif right.plain:
        body.append(" " * (room - taken))
    return line.append_text(body).append(" " if right.plain else "").append_text(right)


def _strand(strand: Strand, prefix: str, look: Look) -> Iterator[Row | None]:
    """The rows of one agent; None is an empty line."""
    left = False
    ended: datetime | None = None
    for turn in strand.turns:
        if turn.prompt is not None and look.messages and not prefix:
            yield None
        for item in turn.items:
            if ended and item.began and item.began - ended > _QUIET:
                gap = duration((item.began - ended).total_seconds() * 1000)
                yield Row(None, prefix, Text(f"┄ {gap} later", style="dim"))
            away = not isinstance(item, Strand) and item.branch == "abandoned"
            if away and not left:
                yield Row(None, prefix, Text("┊ left behind by a rewind:", style="yellow"))
            left = away
            rows = _item(item, turn, prefix + "┊ " * away, look)
            yield from (row.dimmed() if away and row else row for row in rows)
            ended = max((time for time in (ended, item.ended) if time), default=None)


def _item(item: Item, turn: Turn, prefix: str, look: Look) -> Iterator[Row | None]:
    match item:
        case Said():
            if look.wants(item.message):
                first = item.message is turn.prompt and not prefix
                right = _turn_note(turn) if first else Text()
                yield from _said(item, prefix, look, right)
        case Batch():
            yield from _batch(item, prefix, look)
        case Strand():
            yield from _agent(item, prefix, look)


def _turn_note(turn: Turn) -> Text:
    calls = sum(placed.span.state != "orphan_result" for placed in turn.calls)
    if not calls or turn.began is None or turn.ended is None:
        return Text()
    took = duration((turn.ended - turn.began).total_seconds() * 1000)
    return Text(f"{count(calls, 'call')} {took:>8}", style="dim")


def _said(item: Said, prefix: str, look: Look, right: Text) -> Iterator[Row]:
    mark, style = VOICES[item.message.voice]
    if item.message.voice == "command" and not opens(item.message):
        mark, style = VOICES["text"]  # what a command printed
    text = words(item.message)
    if item.message.voice == "summary" and not look.full:
        text = f"summary for the model, {len(text):,} characters"
    if not text.strip():
        return
    if not look.full:
        body = Text(mark + plain_line(text, look.width), style=style)
        yield Row(item.began, prefix, body, right)
        return
    room = max(look.width - CLOCK - len(prefix) - len(mark) - 1, 20)
    for n, line in enumerate(_wrapped(text, room)):
        body = Text((mark if n == 0 else " " * len(mark)) + line, style=style)
        yield Row(item.began if n == 0 else None, prefix, body)


def _wrapped(text: str, width: int) -> Iterator[str]:
    measure = Console(width=width)
    for line in plain_lines(text.strip("\n")):
        if cell_len(line) <= width:
            yield line
        else:
            yield from (part.plain.rstrip() for part in Text(line).wrap(measure, width))


def _agent(strand: Strand, prefix: str, look: Look) -> Iterator[Row | None]:
    name = joined(strand.role or "subagent", (strand.agent_id or "")[:12])
    loose = None if strand.linked else "started by no known call"
    head = plain_line("↳ " + joined(name, count(len(strand.calls), "call"), loose), look.width)
    yield Row(strand.began, prefix, Text(head, style="blue"))
    yield from _strand(strand, prefix + "  ", look)


def _batch(batch: Batch, prefix: str, look: Look) -> Iterator[Row | None]:
    if batch.serial:
        calls = batch.calls
        last = len(calls) - 1
        for n, placed in enumerate(calls):
            on = "╷ " if n == 0 else "╵ " if n == last else "╎ "
            below = "  " if n == last else "╎ "
            yield from _call(placed, prefix, (on, below), None, look)
        return
    for group in batch.groups:
        marks = _marks(group) if len(group.calls) > 1 else [("", "")]
        for placed, mark in zip(group.calls, marks, strict=True):
            yield from _call(placed, prefix, mark, group, look)


def _marks(group: Group) -> list[tuple[str, str]]:
    """The lane columns of each call: on its own line, and on the lines below it."""
    most = min(group.lanes, _MOST_LANES)
    found = []
    for n, placed in enumerate(group.calls):
        own = min(placed.lane, most - 1)
        busy = {min(other.lane, most - 1) for other in group.calls[:n] if _outlasts(other, placed)}
        busy.discard(own)
        if n < len(group.calls) - 1:
            start = "├" if placed.lane >= most else "┌"
            on = "".join(start if k == own else "│" if k in busy else " " for k in range(most))
            below = "".join("│" if k == own or k in busy else " " for k in range(most))
        else:  # all lanes come together in the last call
            on = "".join(_closing(k, own, busy) for k in range(most))
            below = " " * most
        found.append((on + " ", below + " "))
    return found


def _outlasts(other: Placed, placed: Placed) -> bool:
    end, start = other.span.finished, placed.span.requested
    return start is not None and (end is None or end > start)


def _closing(lane: int, own: int, busy: set[int]) -> str:
    left = min({own, *busy})
    if lane < left:
        return " "
    if lane in busy:
        return "└" if lane == left else "┴"
    return "─"


def _call(
    placed: Placed, prefix: str, marks: tuple[str, str], group: Group | None, look: Look
) -> Iterator[Row | None]:
    span = placed.span
    on, below = marks
    yield Row(
        span.requested or span.finished,
        prefix + on,
        call_text(span, look),
        _right(span, group, look),
    )
    yield from _failure(span, prefix + below + "  ", look.width)
    for note in _event_notes(span, look.width):
        yield Row(None, prefix + below + "  ", note)
    for agent in placed.agents:
        yield from _agent(agent, prefix + below + "  ", look)


def _right(span: Span, group: Group | None, look: Look) -> Text:
    text = Text()
    if span.state == "succeeded":
        text.append(plain_line(summary(span), _SUMMARY), style="dim")
    if group is not None and len(group.calls) > 1 and look.width >= _NARROW:
        text.append(" ").append_text(_bar(span, group))
    took = span.duration
    text.append(f" {duration(took.total_seconds() * 1000) if took is not None else '':>8}")
    return text


def _bar(span: Span, group: Group) -> Text:
    """When, within its group, a call was under way."""
    starts = [time for call in group.calls if (time := call.span.requested)]
    ends = [time for call in group.calls if (time := call.span.finished)]
    if not starts or not ends or span.requested is None or span.finished is None:
        return Text("─" * _BAR, style="dim")
    whole = (max(ends) - min(starts)).total_seconds() or 1.0
    first = int((span.requested - min(starts)).total_seconds() / whole * _BAR)
    last = int((span.finished - min(starts)).total_seconds() / whole * _BAR + 0.5)
    first = min(max(first, 0), _BAR - 1)
    last = min(max(last, first + 1), _BAR)
    bar = Text().append("─" * first, style="dim")
    bar.append("━" * (last - first), style=STATE_STYLE[span.state])
    return bar.append("─" * (_BAR - last), style="dim")


def _failure(span: Span, gutter: str, width: int) -> Iterator[Row]:
    """What went wrong and what helps; on one line if both fit."""
    if span.state == "succeeded" or (span.error_kind is None and not span.message):
        return
    follows = any(evidence.rule == "interrupt marker follows" for evidence in span.evidence)
    doubt = span.ambiguous and follows
    words = (span.error_kind or span.state) + (
        " or interrupted" if doubt and span.ambiguous else ""
    )
    said = Text(words, style=STATE_STYLE[span.state])
    if span.message:
        said.append(": " + plain_line(span.message, width), style="default")
    helps = Text(f"→ {span.advice.solution}" if span.advice else "", style="dim")
    if CLOCK + len(gutter) + said.cell_len + helps.cell_len + 1 < width:
        yield Row(None, gutter, said.append("  ").append_text(helps))
        return
    yield Row(None, gutter, said)
    yield Row(None, gutter, helps)


def _event_notes(span: Span, width: int) -> Iterator[Text]:
    """What happened around a call, what is usual left out."""
    told: dict[str, int] = {}
    for event in span.events:
        if not _usual(event, span.events):
            note = event_note(event)
            told[note] = told.get(note, 0) + 1
    for note, times in told.items():
        repeated = f" ×{times}" if times > 1 and note.startswith("hook") else ""
        yield Text(plain_line(note, width) + repeated, style="dim")


def _usual(event: Event, events: Sequence[Event]) -> bool:
    """Consent by configuration, denials told anyway, the start of a hook whose end is told."""
    if isinstance(event, Permission):
        return event.source is None or (event.decision, event.source) == ("accept", "config")
    if isinstance(event, Hook) and event.outcome == "started":
        ends = (other for other in events if isinstance(other, Hook) and other.outcome != "started")
        return any(other.name == event.name for other in ends)
    return False
