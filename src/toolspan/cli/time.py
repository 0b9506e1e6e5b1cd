"""`toolspan time`: wall time split into model, tools, permission, hooks and idle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime

import click
import msgspec
from rich.text import Text

from toolspan.analysis.timesheet import Timesheet, slowest_calls, time_by_tool
from toolspan.analysis.timing import TIME_PARTS, AgentTime, CallTime, FileTime, TimePart, TimeSplit, file_time
from toolspan.cli.filters import CallFilter, filter_options
from toolspan.cli.lists import CALL_HINT, print_hints
from toolspan.cli.output import (
    TargetCell,
    escape_markup,
    format_count,
    format_duration,
    format_time,
    make_console,
    make_table,
    print_json,
    print_table,
    shorten_line,
    shorten_middle,
)
from toolspan.cli.select import (
    check_project,
    choose_sessions,
    explain_nothing,
    last_option,
    names_argument,
    read_selected_files,
    tables_option,
)
from toolspan.reading.history import short_id
from toolspan.reading.parallel import FileJob
from toolspan.types.span import parse_timestamp

_PART_STYLES: dict[TimePart, str] = {
    "model": "cyan", "tools": "green", "idle": "dim", "nothing_recorded": "dim", "permission": "yellow",
    "hooks": "magenta",
}  # fmt: skip
_PART_MEANINGS: dict[TimePart, str] = {
    "model": "thinking and writing",
    "tools": "at least one call running",
    "permission": "waiting for permission",
    "hooks": "hooks running, no call",
    "idle": "between turns",
    "nothing_recorded": "long gaps inside calls",
}
_PART_LABELS: dict[TimePart, str] = {
    "model": "the model",
    "tools": "tools",
    "permission": "waiting for permission",
    "hooks": "hooks",
    "idle": "idle time",
    "nothing_recorded": "gaps without records",
}
_BAR_WIDTH = 30
_NARROW_WIDTH = 100
_DURATION_WIDTH = 7
_SPLIT_WIDTH = 34
"""The width of the columns beside the time bar."""
_SLOW_CALL_MS = 10_000
"""The duration above which a read or an edit has probably waited for permission."""


@click.command("time")
@names_argument
@last_option
@tables_option
@click.option(
    "--limit", default=10, show_default=True, type=click.IntRange(min=0),
    help="Show at most this many rows per table; 0 for all.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@filter_options
def command(names: tuple[str, ...], *, last: bool, limit: int, as_json: bool, call_filter: CallFilter) -> None:
    """Show where the time went: model, tools, permission, hooks, idle.

    The parts add up to the wall time. Calls that overlap are counted once in the split, and each
    in full in the tables. --since and --until count only the time in between. Filters on calls
    (tool, state, error, agent) select rows of the tables; the split covers whole sessions.
    """
    files, _ = read_selected_files(names, FileJob(file_time, FileTime), last=last)
    check_project(call_filter.project, [(file.file, file.info) for file in files])
    sheet = Timesheet.from_files(
        files,
        since=call_filter.since,
        until=call_filter.until,
        select=lambda sessions: choose_sessions(sessions, call_filter),
    )
    rest = call_filter.without_file_filters()
    calls = [call for call in sheet.calls if rest.accepts_call(call.call)]
    if not calls:
        explain_nothing(call_filter, [file.file for file in files])
    if as_json:
        print_json({
            "sessions": len(sheet.sessions),
            "split": msgspec.to_builtins(sheet.split),
            "calls": len(calls),
            "calls_ms": sum(call.took_ms or 0 for call in calls),
            "agents": len(sheet.agents),
            "agents_split": msgspec.to_builtins(_agents_split(sheet)),
            "tools": [msgspec.to_builtins(row) for row in time_by_tool(calls)],
            "slowest": [msgspec.to_builtins(call) for call in slowest_calls(calls, limit)],
            "by_session": [
                {"id": session.id, "file": session.file, **_agent_row(session.main),
                 "agents": [_agent_row(agent) for agent in session.agents]}
                for session in sheet.sessions
            ],
        })  # fmt: skip
    else:
        _print_report(sheet, calls, limit, call_filter.until)
        if sheet.split.wall_ms or calls:
            print_hints(names, CALL_HINT, ("time PATHS --session SESSION", "shows one session"))


def _agent_row(sheet: AgentTime) -> dict[str, object]:
    return {
        "agent": sheet.agent,
        "role": sheet.role,
        "split": msgspec.to_builtins(sheet.split),
        "calls": len(sheet.calls),
        "calls_ms": sheet.calls_ms,
    }


def _agents_split(sheet: Timesheet) -> TimeSplit:
    return TimeSplit.from_slices(part for agent in sheet.agents for part in agent.slices)


def _print_report(sheet: Timesheet, calls: Sequence[CallTime], limit: int, until: datetime | None) -> None:
    out = make_console()
    split = sheet.split
    if not split.wall_ms and not calls:
        out.print("No times recorded.")
        return
    headline = f"[bold]{format_duration(split.wall_ms)}[/] in {format_count(len(sheet.sessions), 'session')}"
    busy = split.wall_ms - split.idle_ms - split.nothing_recorded_ms
    largest = max((part for part in TIME_PARTS if part not in ("idle", "nothing_recorded")), key=split.part_ms)
    if split.part_ms(largest) and busy:
        share = split.part_ms(largest) / busy
        headline += f", [bold]{format_duration(busy)}[/] of it busy: "
        headline += f"most of it went to {_PART_LABELS[largest]} ({share:.0%})"
    else:
        headline += ", all of it idle"
    out.print(f"{headline}\n")
    width = max([11, *(len(part) + 1 for part in TIME_PARTS if split.part_ms(part))])
    bar_width = max(min(_BAR_WIDTH, out.width - 45 - width), 0)
    for part in TIME_PARTS:
        ms = split.part_ms(part)
        if part == "nothing_recorded" and not ms:
            continue
        share = ms / split.wall_ms if split.wall_ms else 0
        bar = "█" * round(share * bar_width) or ("▏" if ms else "")
        line = Text(f"  {part.replace('_', ' '):{width}}{format_duration(ms):>9}{share:>5.0%}  ")
        line.append(f"{bar:{bar_width}}", style=_PART_STYLES[part]).append(f"  {_PART_MEANINGS[part]}", style="dim")
        out.print(line)
    out.print()
    for note in _note_lines(sheet, calls, until):
        out.print(f"[dim]{note}[/]")
    _print_tools(calls, limit)
    _print_slowest(calls, limit)
    if len(sheet.sessions) > 1:
        sessions = sorted(sheet.sessions, key=lambda session: -session.main.split.wall_ms)
        _print_splits(
            "longest",
            [
                (session.main, session.id[:8], shorten_line(session.info.title or session.info.first_prompt, 80))
                for session in sessions[: limit or None]
            ],
        )
    elif sheet.agents:
        agents = sorted(sheet.sessions[0].agents, key=lambda agent: -agent.split.wall_ms)
        rows = [(agent, shorten_line(agent.agent, 17), shorten_line(agent.role, 40)) for agent in agents]
        _print_splits("subagent", rows[: limit or None])


def _note_lines(sheet: Timesheet, calls: Sequence[CallTime], until: datetime | None) -> Iterator[str]:
    yield f"{format_count(len(calls), 'call')}, {format_duration(sum(c.took_ms or 0 for c in calls))} in total."
    ends = (parse_timestamp(call.call.finished) for call in calls)
    if late := sum(end is not None and until is not None and end > until for end in ends):
        yield f"Calls count in full here and in the tables; {late:,} of them ended after the period."
    waits: Counter[str] = Counter()
    for call in calls:
        waits[call.certainty] += call.wait_ms or 0
    known_waits = [f"{format_duration(waits[name])} {name}" for name in ("known", "inferred") if waits[name]]
    unknown = [call for call in calls if call.certainty == "unknown"]
    doubt = f"; {format_count(len(unknown), 'call')} may include one, counted as tools" if unknown else ""
    yield f"Waits for permission: {', '.join(known_waits) or 'none recorded'}{doubt}."
    quick = [call.took_ms or 0 for call in unknown if call.call.kind in ("edit", "write", "read", "search")]
    if slow := [ms for ms in quick if ms > _SLOW_CALL_MS]:
        took = format_duration(sum(slow))
        yield (
            f"Of those, {len(slow):,} reads, searches or edits took more than "
            f"{format_duration(_SLOW_CALL_MS)} ({took} in total), probably waiting."
        )
    if sheet.agents:
        took = format_duration(_agents_split(sheet).wall_ms)
        yield (
            f"{format_count(len(sheet.agents), 'subagent')} took {took} in total; "
            "while a call waits for one, that time counts as tools."
        )


def _print_tools(calls: Sequence[CallTime], limit: int) -> None:
    rows = time_by_tool(calls)
    total = sum(row.total_ms for row in rows)
    if not total:
        return
    numbers = ("calls", "total", "share", "waited", "p50", "max")
    table = make_table("tool", *numbers, right=numbers, cut=("tool",))
    for row in rows[: limit or None]:
        table.add_row(
            TargetCell(row.tool, shorten=shorten_middle),
            f"{row.calls:,}",
            format_duration(row.total_ms),
            f"{row.total_ms / total:.0%}",
            format_duration(row.wait_ms) if row.wait_ms else "",
            format_duration(row.p50_ms),
            format_duration(row.max_ms),
        )
    print_table(table)


def _print_slowest(calls: Sequence[CallTime], limit: int) -> None:
    rows = slowest_calls(calls, limit)
    if not rows:
        return
    columns = ["call", "slowest", "requested", "took", "waited", "about"]
    if make_console().width < _NARROW_WIDTH:
        columns.remove("requested")
    table = make_table(*columns, right=("took", "waited"), cut=("about",))
    for row in rows:
        wait = "?" if row.wait_ms is None else format_duration(row.wait_ms) if row.wait_ms else ""
        cells: dict[str, str | TargetCell] = {
            "call": escape_markup(short_id(row.call.id)[:8]),
            "slowest": escape_markup(shorten_middle(row.call.tool or "?", 20)),
            "took": format_duration(row.took_ms),
            "waited": f"~{wait}" if row.wait_ms and row.certainty == "inferred" else wait,
            "about": TargetCell(row.call.target),
        }
        if "requested" in columns:
            cells["requested"] = format_time(parse_timestamp(row.call.requested))
        table.add_row(*(cells[column] for column in columns))
    print_table(table)
    make_console().print("[dim]waited: ~ means inferred, ? means unknown[/]")


def _print_splits(head: str, rows: Sequence[tuple[AgentTime, str, str]]) -> None:
    room = make_console().width - _SPLIT_WIDTH
    fitting: list[TimePart] = []
    for part in _PART_STYLES:  # a narrow terminal has no room for the last ones
        if any(sheet.split.part_ms(part) for sheet, _, _ in rows):
            room -= max(len(part), _DURATION_WIDTH) + 3
            fitting += [part] if room >= 0 else []
    parts = [part for part in TIME_PARTS if part in fitting]
    labels = [part.replace("_", " ") for part in parts]
    table = make_table(head, "wall", *labels, "about", right=("wall", *labels), cut=("about",))
    for sheet, name, about in rows:
        times = [sheet.split.part_ms(part) for part in parts]
        cells = [format_duration(ms) if ms else "" for ms in times]
        table.add_row(escape_markup(name), format_duration(sheet.split.wall_ms), *cells, TargetCell(about))
    print_table(table)
