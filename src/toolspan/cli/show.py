"""`toolspan show`: a session as a timeline, or one call in detail.

`call_detail.py` formats a single call. `_lane_marks` draws the lanes of calls that ran at the same time.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
import msgspec
from msgspec import Struct
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from toolspan.cli import select
from toolspan.cli.call_detail import (
    AUTHOR_STYLES,
    CallDetail,
    RowFormat,
    build_call_detail,
    call_json,
    call_lines,
    call_text,
    event_note,
    format_period,
    result_summary,
)
from toolspan.cli.output import (
    MIN_BODY_WIDTH,
    STATE_STYLES,
    TIME_COLUMN_WIDTH,
    cell_width,
    fact_lines,
    format_count,
    format_duration,
    format_time,
    join_parts,
    make_console,
    make_redactor,
    plain_line,
    plain_lines,
    print_json,
    print_lines,
    print_redaction,
    redaction_options,
    utc_option,
    write_output,
)
from toolspan.errors import Ambiguous, NotFound
from toolspan.formats.claude.paths import session_folder
from toolspan.formats.registry import parse_file_name
from toolspan.reading.discovery import TranscriptFile, default_roots, find_transcripts, recency
from toolspan.reading.history import CallTable, match_prefix, short_id
from toolspan.reading.lineage import sum_tokens
from toolspan.reading.timeline import (
    AgentTimeline,
    OverlapGroup,
    TimelineBatch,
    TimelineCall,
    TimelineItem,
    TimelineMessage,
    Turn,
    build_timeline,
    display_text,
    starts_turn,
    turn_rows,
)
from toolspan.reading.transcript import Transcript, read, read_content
from toolspan.types.error_kinds import KIND_WORDS
from toolspan.types.span import Event, Hook, Permission, Span, parse_timestamp
from toolspan.types.state import STATE_SYMBOLS

if TYPE_CHECKING:
    from toolspan.export.redact import Redactor

_EARLIEST_TIME = datetime.min.replace(tzinfo=UTC)
_GAP_THRESHOLD = timedelta(minutes=5)
_MAX_LANES = 8
_BAR_WIDTH = 10
_NARROW_WIDTH = 96
_SUMMARY_WIDTH = 60


@click.command("show")
@click.argument("names", nargs=-1, shell_complete=select.complete_session, metavar="[FILE|FOLDER|SESSION|CALL]...")
@click.option("--last", is_flag=True, help="Show the session that was written to last (the default).")
@click.option("--session", help="Look for the call in the session whose id begins with this.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--messages/--no-messages", default=True, help="Show the messages between calls.  [default: messages]")
@click.option("--thinking", is_flag=True, help="Also show the model's thinking.")
@click.option("--width", type=click.IntRange(40), help="Width in columns; by default that of the terminal.")
@click.option("--full", is_flag=True, help="Do not shorten texts.")
@utc_option
@click.option("--html", "as_html", is_flag=True, help="Write one HTML page that works offline.")
@redaction_options
def command(
    names: tuple[str, ...],
    *,
    last: bool,
    session: str | None,
    as_json: bool,
    width: int | None,
    output: Path | None,
    as_html: bool,
    redact: bool,
    report: bool,
    skeleton: bool,
    **flags: bool,
) -> None:
    """Show a session as a timeline, or one call in detail.

    Name a session by its file or by the beginning of its id; its subagents are shown below the
    calls that started them. Name a call by the beginning of its id; it is looked for in the files
    and folders you name with it, or in all of your transcripts.

    Lanes: calls joined by ┌ │ └ ran at the same time; ╷ ╎ ╵ were requested together and ran one
    after another; ┊ marks what a rewind left behind. Times are UTC.
    """
    if as_json and as_html:
        raise click.UsageError("use either --json or --html")
    target = resolve_names(names, last=last, session=session)
    if as_html:
        redactor = make_redactor(redact=redact, skeleton=skeleton, report=report)
        _write_page(target, output, redactor)
        print_redaction(redactor, report=report, output=output)
        return
    if output or redact or report or skeleton:
        raise click.UsageError("-o, --redact, --report and --skeleton need --html")
    out = make_console()
    with suppress(OSError, ValueError):  # the output may go to a pager
        out.width = os.get_terminal_size(sys.stderr.fileno()).columns or out.width
    out.width = width or out.width
    detail = SessionDetail.from_files(target) if isinstance(target, list) else target
    row_format = RowFormat(out.width, detail.cwd, **flags)
    if as_json:
        print_json(_session_json(detail, row_format) if isinstance(detail, SessionDetail) else call_json(detail))
    elif isinstance(detail, SessionDetail):
        print_lines(_session_lines(detail, row_format), out)
    else:
        print_lines(call_lines(detail, row_format), out)


def _write_page(target: list[TranscriptFile] | CallDetail, output: Path | None, redactor: Redactor) -> None:
    from toolspan.export.html import render_transcripts

    if not isinstance(target, list):
        raise click.UsageError("--html shows a session, not one call")
    if output is None and sys.stdout.isatty():
        raise click.UsageError("the page would go to the terminal; add -o FILE")
    text = render_transcripts(*read_session(target), redactor=redactor)
    write_output((text.encode("utf-8", "replace"),), output)
    if output is not None:
        click.echo(f"{output}: {len(text) / 1e6:.1f} MB", err=True)


def resolve_names(
    names: Sequence[str], *, last: bool = False, session: str | None = None
) -> list[TranscriptFile] | CallDetail:
    """Return the files of the named session, or the named call."""
    if not all(names):
        raise NotFound("a name is empty; name a file, a folder, a session or a call")
    paths = [Path(name) for name in names if select.path_exists(Path(name))]
    others = [name for name in names if not select.path_exists(Path(name))]
    root = paths[0] if paths and paths[0].is_dir() else None
    if len(others) > 1:
        raise NotFound(f"{' and '.join(others)}: name one session or one call")
    if others:
        return _find_by_id(others[0], paths, root, session)
    if session is not None:
        return select.find_session_files(session, root)
    if last or not paths:
        return select.newest_session([str(path) for path in paths])
    if len(paths) > 1:
        raise Ambiguous(f"{len(paths)} files named: name one session or one call")
    if root is None:
        return _file_with_subagents(paths[0])
    stems = {file.name.stem for file in find_transcripts(root) if file.name.role == "session"}
    if len(stems) > 1:
        raise Ambiguous(f"{root}: {len(stems)} sessions in this folder; name one by its id, or add --last")
    return select.newest_session([str(root)])


def _file_with_subagents(path: Path) -> list[TranscriptFile]:
    select.require_known_format(path)
    files = find_transcripts(path)
    if files[0].name.role == "agent":
        return files
    folder = session_folder(path)
    inside = find_transcripts(folder) if folder.is_dir() else []
    others = sorted(path.parent.glob("agent-*.jsonl*"))
    beside = (file for other in others for file in find_transcripts(other))
    mine = (file for file in beside if select.mentions_session(file, files[0].name.stem))
    return [*files, *(file for file in (*inside, *mine) if file.name.role == "agent")]


def _find_by_id(
    prefix: str, paths: Sequence[Path], root: Path | None, session: str | None
) -> list[TranscriptFile] | CallDetail:
    if "/" in prefix or prefix.endswith((".jsonl", ".zst")):
        raise NotFound(f"{prefix}: no such file or folder")
    if session is not None:
        return _find_call_detail(
            prefix, list(select.transcripts_containing(prefix, select.find_session_files(session, root)))
        )
    if any(not path.is_dir() for path in paths):
        groups = (find_transcripts(path) if path.is_dir() else _file_with_subagents(path) for path in paths)
        return _find_call_detail(prefix, list(select.transcripts_containing(prefix, [*chain.from_iterable(groups)])))
    files = [file for path in paths or default_roots() for file in find_transcripts(path)]
    try:
        stem = select.match_session(prefix, [file.name.stem for file in files if file.name.role == "session"])
    except Ambiguous:
        raise
    except NotFound:
        transcripts = list(select.transcripts_containing(prefix, files))
        recorded = select.files_of_session(prefix, CallTable.from_transcripts(transcripts), files)
        return recorded or _find_call_detail(prefix, transcripts)
    return select.find_session_files(stem, root)


def _find_call_detail(prefix: str, transcripts: Sequence[Transcript]) -> CallDetail:
    """Return the call whose id begins with `prefix`. If several have the same id, return the newest."""
    call_table = CallTable.from_transcripts(transcripts)
    rows = [row for row in call_table.calls if row.id.startswith(prefix) or short_id(row.id).startswith(prefix)]
    if not rows:
        raise NotFound(f"no session or call begins with {prefix!r}")
    name = match_prefix(prefix, sorted({row.id for row in rows}), "call")
    *others, newest = sorted(
        (row for row in rows if row.id == name),
        key=lambda row: parse_timestamp(row.finished or row.requested) or _EARLIEST_TIME,
    )
    transcript = next(candidate for candidate in transcripts if candidate.file == newest.file)
    _mark_running_calls([transcript])
    span = next(span for span in transcript.spans if span.id == name)
    elsewhere = tuple(row.session or Path(row.file).stem for row in reversed(others))
    return build_call_detail(call_table.link_span(span), transcript, elsewhere)


class SessionDetail(Struct, frozen=True, kw_only=True):
    """A session with all its files."""

    main: Transcript
    files: list[Transcript]
    timeline: AgentTimeline

    @classmethod
    def from_files(cls, files: Sequence[TranscriptFile]) -> SessionDetail:
        """Read the session that consists of these files."""
        transcripts = read_session(files)
        timeline = build_timeline([read_content(transcript) for transcript in transcripts])
        return cls(main=transcripts[0], files=transcripts, timeline=timeline)

    @property
    def cwd(self) -> str | None:
        """The working folder."""
        return self.main.info.cwd

    @property
    def spans(self) -> list[Span]:
        """All calls, including subagents' calls."""
        return [placed.span for timeline in self.timeline.iter_timelines() for placed in timeline.calls]

    @property
    def agent_count(self) -> int:
        """The number of subagents."""
        return len(list(self.timeline.iter_timelines())) - 1

    @property
    def max_concurrency(self) -> int:
        """The largest number of calls in one batch that ran at the same time."""
        batches = (batch for timeline in self.timeline.iter_timelines() for batch in timeline.batches)
        groups = (group for batch in batches for group in batch.groups)
        return max((group.concurrency for group in groups), default=0)


def read_session(files: Sequence[TranscriptFile]) -> list[Transcript]:
    """Read a session's own transcript and those of its subagents, in this order."""
    mains = [file for file in files if file.name.role != "agent"] or files
    main = max(mains, key=recency)
    others = [file for file in files if file.name.role == "agent" and file is not main]
    transcripts = [read(main.path), *select.read_transcripts(file.path for file in others)]
    _mark_running_calls(transcripts)
    return transcripts


def _mark_running_calls(transcripts: Sequence[Transcript]) -> None:
    if any(span.state == "never_answered" for transcript in transcripts for span in transcript.spans):
        from toolspan.analysis.live_sessions import mark_running_calls  # perf: rarely needed

        mark_running_calls(transcripts)


def _session_lines(detail: SessionDetail, row_format: RowFormat) -> Iterator[Text]:
    info, width = detail.main.info, row_format.width
    name = info.session_id or parse_file_name(Path(detail.main.file)).stem
    yield from fact_lines("session", join_parts(name, info.agent_id), width, "bold")
    yield from fact_lines("about", info.title or info.first_prompt, width)
    yield from fact_lines("project", join_parts(info.cwd, info.git_branch), width)
    yield from fact_lines("client", join_parts(*info.versions, *info.models), width)
    when = format_period(parse_timestamp(info.started_at), parse_timestamp(info.ended_at))
    yield from fact_lines("when", when, width)
    states = Counter(span.state for span in detail.spans)
    (line,) = fact_lines("calls", f"{states.total() - states['orphan_result']:,}", width)
    for state, n in states.most_common():
        line.append(f"  {STATE_SYMBOLS[state]} {n:,} {state}", style=STATE_STYLES[state])
    line.truncate(width, overflow="ellipsis")
    yield line
    agents = format_count(detail.agent_count, "subagent") if detail.agent_count else None
    busiest = f"up to {detail.max_concurrency} calls at once" if detail.max_concurrency > 1 else None
    yield from fact_lines("", join_parts(agents, busiest), width, "dim")
    tokens = sum_tokens(transcript.message_tokens for transcript in detail.files)
    usage = (
        f"{tokens.input_tokens:,} in · {tokens.output_tokens:,} out · "
        f"{tokens.cache_creation_input_tokens:,} cache writes · "
        f"{tokens.cache_read_input_tokens:,} cache reads"
    )
    yield from fact_lines("tokens", usage, width)
    yield from timeline_lines(detail.timeline, row_format)


def _session_json(detail: SessionDetail, row_format: RowFormat) -> dict[str, object]:
    return {"session": session_facts(detail), "turns": turn_rows(detail.timeline, row_format.includes_message)}


def session_facts(detail: SessionDetail) -> dict[str, object]:
    """Return the facts about a whole session, as `show --json` prints them."""
    return {
        **msgspec.to_builtins(detail.main.info),
        "file": detail.main.file,
        "files": [transcript.file for transcript in detail.files],
        "calls": Counter(span.state for span in detail.spans),
        "agents": detail.agent_count,
        "concurrency": detail.max_concurrency,
        "tokens": sum_tokens(transcript.message_tokens for transcript in detail.files),
    }


class TimelineRow(NamedTuple):
    """The parts of one line before layout: time, lanes, main text and right column."""

    at: datetime | None
    gutter: str
    body: Text
    right: Text = Text()


def timeline_lines(timeline: AgentTimeline, row_format: RowFormat) -> Iterator[Text]:
    """Yield a session's lines, truncated to the width: every turn with its messages, calls and subagents."""
    last_time: str | None = None
    day = timeline.start_time.date() if timeline.start_time else None
    for row in _agent_rows(timeline, "", row_format):
        if row is None:
            last_time = None  # each turn shows its time
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


def _agent_rows(timeline: AgentTimeline, prefix: str, row_format: RowFormat) -> Iterator[TimelineRow | None]:
    """Yield one agent's rows. None stands for an empty line."""
    was_abandoned = False
    ended: datetime | None = None
    for turn in timeline.turns:
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
            for row in _item_rows(item, turn, prefix + "┊ " * is_abandoned, row_format):
                if is_abandoned and row:
                    row.body.stylize("dim")
                yield row
            ended = max((time for time in (ended, item.end_time) if time), default=None)


def _item_rows(item: TimelineItem, turn: Turn, prefix: str, row_format: RowFormat) -> Iterator[TimelineRow | None]:
    match item:
        case TimelineMessage():
            if row_format.includes_message(item.message):
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
    if item.message.voice == "summary" and not row_format.full:
        text = f"summary for the model, {len(text):,} characters"
    if not text.strip():
        return
    if not row_format.full:
        body = Text(mark + plain_line(text, row_format.width), style=style)
        yield TimelineRow(item.start_time, prefix, body, right)
        return
    width = max(row_format.width - TIME_COLUMN_WIDTH - len(prefix) - len(mark) - 1, 20)
    measure = Console(width=width)
    at = item.start_time
    for line in plain_lines(text.strip("\n")):
        parts = [line]
        if cell_len(line) > width:
            parts = [part.plain.rstrip() for part in Text(line).wrap(measure, width)]
        for part in parts:
            yield TimelineRow(at, prefix, Text(mark + part, style=style))
            mark, at = " " * len(mark), None


def _subagent_rows(timeline: AgentTimeline, prefix: str, row_format: RowFormat) -> Iterator[TimelineRow | None]:
    name = join_parts(timeline.role or "subagent", (timeline.agent_id or "")[:12])
    unlinked = None if timeline.linked else "started by an unknown call"
    head = plain_line("↳ " + join_parts(name, format_count(len(timeline.calls), "call"), unlinked), row_format.width)
    yield TimelineRow(timeline.start_time, prefix, Text(head, style="blue"))
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
    yield TimelineRow(span.requested or span.finished, prefix + on, call_text(span, row_format), right)
    yield from _failure_rows(span, prefix + below + "  ", row_format.width)
    notes = Counter(event_note(event) for event in span.events if not _is_usual_event(event, span.events))
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
    solution = Text(f"→ {span.advice.solution}" if span.advice else "", style="dim")
    if TIME_COLUMN_WIDTH + len(gutter) + message.cell_len + solution.cell_len + 1 < width:
        yield TimelineRow(None, gutter, message.append("  ").append_text(solution))
        return
    yield TimelineRow(None, gutter, message)
    yield TimelineRow(None, gutter, solution)


def _is_usual_event(event: Event, events: Sequence[Event]) -> bool:
    """Return whether an event is routine: permission by configuration, a denial already shown, or a hook start."""
    if isinstance(event, Permission):
        return event.source is None or (event.decision, event.source) == ("accept", "config")
    if isinstance(event, Hook) and event.outcome == "started":
        ends = (other for other in events if isinstance(other, Hook) and other.outcome != "started")
        return any(other.name == event.name for other in ends)
    return False
