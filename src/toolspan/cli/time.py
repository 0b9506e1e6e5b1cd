"""`toolspan time`: wall time split into model, tools, permission, hooks and idle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click
from rich.text import Text

from toolspan.analysis.timesheet import ToolTime
from toolspan.analysis.timing import SLOW_CALL_MS, TIME_PARTS, CallTime, TimePart, TimeSplit
from toolspan.archive.archive import Archive
from toolspan.archive.filters import Filter
from toolspan.archive.time import TimeReport
from toolspan.archive.words import format_count, format_duration, shorten_line, shorten_middle
from toolspan.cli import select
from toolspan.cli.filters import filter_options
from toolspan.cli.lists import CALL_HINT, print_hints
from toolspan.cli.output import (
    TargetCell,
    escape_markup,
    format_time,
    make_console,
    make_table,
    print_json,
    print_table,
)
from toolspan.reading.history import short_id

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


@click.command("time")
@select.archive_options(tables=True)
@click.option(
    "--limit", default=10, show_default=True, type=click.IntRange(min=0),
    help="Show at most this many rows per table; 0 for all.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@filter_options
def command(*, archive: Archive, limit: int, as_json: bool, call_filter: Filter) -> None:
    """Show where the time went: model, tools, permission, hooks, idle.

    The parts add up to the wall time. Calls that overlap are counted once in the split, and each
    in full in the tables. --since and --until count only the time in between. Filters on calls
    (tool, state, error, agent) select rows of the tables; the split covers whole sessions.
    """
    report = archive.time(call_filter, limit=limit)
    if as_json:
        print_json(report)
        return
    _print_report(report, limit)
    if report.split.wall_ms or report.calls:
        print_hints(archive.names, CALL_HINT, ("time PATHS --session SESSION", "shows one session"))


def _print_report(report: TimeReport, limit: int) -> None:
    out = make_console()
    split = report.split
    if not split.wall_ms and not report.calls:
        out.print("No times recorded.")
        return
    headline = f"[bold]{format_duration(split.wall_ms)}[/] in {format_count(report.sessions, 'session')}"
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
    for note in _note_lines(report):
        out.print(f"[dim]{note}[/]")
    _print_tools(report.tools, limit)
    _print_slowest(report.slowest)
    if report.sessions > 1:
        sessions = sorted(report.by_session, key=lambda session: -session.split.wall_ms)
        rows = [(session.split, session.id[:8], shorten_line(session.title, 80)) for session in sessions]
        _print_splits("longest", rows[: limit or None])
    elif report.agents:
        agents = sorted(report.by_session[0].agents, key=lambda agent: -agent.split.wall_ms)
        rows = [(agent.split, shorten_line(agent.agent, 17), shorten_line(agent.role, 40)) for agent in agents]
        _print_splits("subagent", rows[: limit or None])


def _note_lines(report: TimeReport) -> Iterator[str]:
    yield f"{format_count(report.calls, 'call')}, {format_duration(report.calls_ms)} in total."
    if report.late:
        yield f"Calls count in full here and in the tables; {report.late:,} of them ended after the period."
    waits = [
        f"{format_duration(report.waits[name])} {name}" for name in ("known", "inferred") if report.waits.get(name)
    ]
    unknown = report.unknown_waits
    doubt = f"; {format_count(unknown, 'call')} may include one, counted as tools" if unknown else ""
    yield f"Waits for permission: {', '.join(waits) or 'none recorded'}{doubt}."
    if slow := report.slow_unknown:
        yield (
            f"Of those, {len(slow):,} reads, searches or edits took more than "
            f"{format_duration(SLOW_CALL_MS)} ({format_duration(sum(slow))} in total), probably waiting."
        )
    if report.agents:
        took = format_duration(report.agents_split.wall_ms)
        yield (
            f"{format_count(report.agents, 'subagent')} took {took} in total; "
            "while a call waits for one, that time counts as tools."
        )


def _print_tools(rows: Sequence[ToolTime], limit: int) -> None:
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


def _print_slowest(rows: Sequence[CallTime]) -> None:
    if not rows:
        return
    columns = ["call", "slowest", "requested", "duration", "waited", "about"]
    if make_console().width < _NARROW_WIDTH:
        columns.remove("requested")
    table = make_table(*columns, right=("duration", "waited"), cut=("about",))
    for row in rows:
        wait = "?" if row.wait_ms is None else format_duration(row.wait_ms) if row.wait_ms else ""
        cells: dict[str, str | TargetCell] = {
            "call": escape_markup(short_id(row.call.id)[:8]),
            "slowest": escape_markup(shorten_middle(row.call.tool or "?", 20)),
            "duration": format_duration(row.call.duration_ms),
            "waited": f"~{wait}" if row.wait_ms and row.certainty == "inferred" else wait,
            "about": TargetCell(row.call.target),
        }
        if "requested" in columns:
            cells["requested"] = format_time(row.call.requested)
        table.add_row(*(cells[column] for column in columns))
    print_table(table)
    make_console().print("[dim]waited: ~ means inferred, ? means unknown[/]")


def _print_splits(head: str, rows: Sequence[tuple[TimeSplit, str, str]]) -> None:
    room = make_console().width - _SPLIT_WIDTH
    fitting: list[TimePart] = []
    for part in _PART_STYLES:  # a narrow terminal has no room for the last ones
        if any(split.part_ms(part) for split, _, _ in rows):
            room -= max(len(part), _DURATION_WIDTH) + 3
            fitting += [part] if room >= 0 else []
    parts = [part for part in TIME_PARTS if part in fitting]
    labels = [part.replace("_", " ") for part in parts]
    table = make_table(head, "wall", *labels, "about", right=("wall", *labels), cut=("about",))
    for split, name, about in rows:
        times = [split.part_ms(part) for part in parts]
        cells = [format_duration(ms) if ms else "" for ms in times]
        table.add_row(escape_markup(name), format_duration(split.wall_ms), *cells, TargetCell(about))
    print_table(table)
