"""`toolspan time`: where the time went, in parts that sum to the clock's."""

from collections.abc import Iterator, Sequence
from typing import Any

import click
import msgspec
from rich.text import Text

from toolspan.cli.gather import gather_meant
from toolspan.cli.output import (
    clock,
    console,
    count,
    duration,
    escape,
    print_json,
    print_table,
    short,
    table,
)
from toolspan.cli.select import filters, named, wanted_filter
from toolspan.model.span import moment
from toolspan.read.spread import Job
from toolspan.report.time.timesheet import AgentSheet, SessionSheet, Timesheet, by_tool, slowest
from toolspan.report.time.timing import PARTS, CallTime, FileTime, Part, Split, file_time

_STYLES: dict[Part, str] = {
    "model": "cyan", "tools": "green", "permission": "yellow", "hooks": "magenta", "idle": "dim",
}  # fmt: skip
_MEANINGS: dict[Part, str] = {
    "model": "thinking and writing",
    "tools": "some call was running",
    "permission": "a person was asked",
    "hooks": "hooks ran, no call did",
    "idle": "between turns",
}
_BAR = 30
_PATIENT = 10_000
"""Milliseconds that reading or editing a file does not take."""


@click.command("time")
@named
@click.option("--last", is_flag=True, help="The session written to last.")
@click.option(
    "--limit", default=10, show_default=True, type=click.IntRange(min=0),
    help="Rows of each table shown; 0 for all.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@filters
def command(
    names: tuple[str, ...], *, last: bool, limit: int, as_json: bool, **wanted: Any
) -> None:
    """Where the time went: model, tools, permission, hooks, idle.

    The parts sum to the wall time exactly; calls that overlap are counted once there, and each in
    full in the tables. With --since and --until only the time between counts. Filters that choose
    calls (tool, state, error, agent) choose rows of the tables; the split is of whole sessions.
    """
    keep = wanted_filter(wanted)
    found = gather_meant(names, Job(file_time, FileTime), keep, last=last)
    sheet = Timesheet.of(found, since=keep.since, until=keep.until)
    rest = keep._replace(project=None, session=None, dialect=None)  # files were chosen by these
    calls = [call for call in sheet.calls if rest.takes(call.call)]
    if as_json:
        print_json(_row(sheet, calls, limit))
    else:
        _print(sheet, calls, limit)


def _row(sheet: Timesheet, calls: Sequence[CallTime], limit: int) -> dict[str, object]:
    return {
        "sessions": len(sheet.sessions),
        "split": _split_row(sheet.split),
        "calls": len(calls),
        "calls_ms": sum(call.took_ms or 0 for call in calls),
        "agents": len(sheet.agents),
        "agents_split": _split_row(Split.of(part for one in sheet.agents for part in one.slices)),
        "tools": [msgspec.to_builtins(row) for row in by_tool(calls)],
        "slowest": [msgspec.to_builtins(call) for call in slowest(calls, limit)],
        "by_session": [_session_row(one) for one in sheet.sessions],
    }


def _session_row(one: SessionSheet) -> dict[str, object]:
    return {
        "id": one.id,
        "file": one.file,
        **_agent_row(one.main),
        "agents": [_agent_row(agent) for agent in one.agents],
    }


def _agent_row(sheet: AgentSheet) -> dict[str, object]:
    return {
        "agent": sheet.agent,
        "role": sheet.role,
        "split": _split_row(sheet.split),
        "calls": len(sheet.calls),
        "calls_ms": sheet.calls_ms,
    }


def _split_row(split: Split) -> dict[str, object]:
    found: dict[str, object] = msgspec.to_builtins(split)
    return found


def _print(sheet: Timesheet, calls: Sequence[CallTime], limit: int) -> None:
    out = console()
    split = sheet.split
    if not split.wall_ms and not calls:
        out.print("No times here.")
        return
    out.print(_answer(sheet, split))
    out.print()
    for part in PARTS:
        out.print(_part_line(part, split, max(min(_BAR, out.width - 56), 0)))
    out.print()
    for line in _notes(sheet, calls):
        out.print(f"[dim]{line}[/]")
    _print_tools(calls, limit)
    _print_slowest(calls, limit)
    if len(sheet.sessions) > 1:
        _print_sessions(sheet.sessions, limit)
    elif sheet.agents:
        _print_agents(sheet.sessions[0], limit)


def _answer(sheet: Timesheet, split: Split) -> str:
    parts = sorted(PARTS, key=lambda part: -split.part(part))
    most = [part for part in parts if part != "idle" and split.part(part)][:1]
    where = f"[bold]{duration(split.wall_ms)}[/] in {count(len(sheet.sessions), 'session')}"
    busy = split.wall_ms - split.idle_ms
    if not most or not busy:
        return f"{where}, all of it idle"
    share = split.part(most[0]) / busy
    return (
        f"{where}, [bold]{duration(busy)}[/] of it at work: "
        f"most of that went to {_WHO[most[0]]} ({share:.0%})"
    )


_WHO: dict[Part, str] = {
    "model": "the model",
    "tools": "tools",
    "permission": "waiting for permission",
    "hooks": "hooks",
    "idle": "nobody",
}


def _part_line(part: Part, split: Split, width: int) -> Text:
    ms = split.part(part)
    share = ms / split.wall_ms if split.wall_ms else 0
    bar = "█" * round(share * width) or ("▏" if ms else "")
    line = Text(f"  {part:11}{duration(ms):>9}{share:>5.0%}  ")
    line.append(f"{bar:{width}}", style=_STYLES[part]).append(f"  {_MEANINGS[part]}", style="dim")
    return line


def _notes(sheet: Timesheet, calls: Sequence[CallTime]) -> Iterator[str]:
    yield f"{count(len(calls), 'call')}, {duration(sum(c.took_ms or 0 for c in calls))} in all."
    waits = {
        certainty: _waited([call for call in calls if call.certainty == certainty])
        for certainty in ("known", "inferred")
    }
    told = ", ".join(f"{duration(ms)} {certainty}" for certainty, ms in waits.items() if ms)
    unknown = sum(call.certainty == "unknown" for call in calls)
    doubt = f"; {count(unknown, 'call')} may hide one, counted as tools" if unknown else ""
    yield f"Waits for permission: {told or 'none known'}{doubt}."
    odd = [call for call in calls if _likely_waited(call)]
    if odd:
        took = duration(sum(call.took_ms or 0 for call in odd))
        yield (
            f"Edits or lookups of more than {duration(_PATIENT)} among those: {len(odd):,}, "
            f"{took} in all, likely waits."
        )
    if sheet.agents:
        own = Split.of(part for one in sheet.agents for part in one.slices).wall_ms
        yield (
            f"{count(len(sheet.agents), 'subagent')} took {duration(own)} of their own; "
            "where a call waited for one, that is tools above."
        )


def _likely_waited(call: CallTime) -> bool:
    """Tools that answer at once do not run so long; nobody wrote down that they waited."""
    quick = call.call.kind in ("edit", "write", "read", "search")
    return quick and call.certainty == "unknown" and (call.took_ms or 0) > _PATIENT


def _waited(calls: Sequence[CallTime]) -> int:
    return sum(call.wait_ms or 0 for call in calls)


def _print_tools(calls: Sequence[CallTime], limit: int) -> None:
    rows = by_tool(calls)
    shown = rows[:limit] if limit else rows
    total = sum(row.total_ms for row in rows)
    if not total:
        return
    numbers = ("calls", "total", "share", "waited", "p50", "max")
    listing = table("tool", *numbers, right=numbers, cut=("tool",))
    for row in shown:
        listing.add_row(
            escape(row.tool),
            f"{row.calls:,}",
            duration(row.total_ms),
            f"{row.total_ms / total:.0%}",
            duration(row.wait_ms) if row.wait_ms else "",
            duration(row.p50_ms),
            duration(row.max_ms),
        )
    print_table(listing)


def _print_slowest(calls: Sequence[CallTime], limit: int) -> None:
    rows = slowest(calls, limit)
    if not rows:
        return
    listing = table(
        "slowest", "asked", "took", "waited", "about", right=("took", "waited"), cut=("about",)
    )
    for row in rows:
        call = row.call
        listing.add_row(
            escape(short(call.tool, 20)),
            clock(moment(call.requested)),
            duration(row.took_ms),
            _wait(row),
            escape(short(call.target, 160)),
        )
    print_table(listing)
    console().print("[dim]Waited: ~ is inferred, ? is not known.[/]")


def _wait(row: CallTime) -> str:
    if row.wait_ms is None:
        return "?"
    if not row.wait_ms:
        return ""
    return f"{'~' if row.certainty == 'inferred' else ''}{duration(row.wait_ms)}"


def _print_sessions(sessions: Sequence[SessionSheet], limit: int) -> None:
    ranked = sorted(sessions, key=lambda one: -one.main.split.wall_ms)
    shown = ranked[:limit] if limit else ranked
    rows = [
        (one.main, escape(one.id[:8]), escape(short(one.info.title or one.info.first_prompt, 80)))
        for one in shown
    ]
    _print_splits("longest", rows)


def _print_agents(session: SessionSheet, limit: int) -> None:
    ranked = sorted(session.agents, key=lambda one: -one.split.wall_ms)
    shown = ranked[:limit] if limit else ranked
    _print_splits(
        "subagent",
        [(one, escape(short(one.agent, 17)), escape(short(one.role, 40))) for one in shown],
    )


def _print_splits(head: str, rows: Sequence[tuple[AgentSheet, str, str]]) -> None:
    """Several splits under each other, without the parts that none of them has."""
    parts = [part for part in PARTS if any(sheet.split.part(part) for sheet, _, _ in rows)]
    listing = table(head, "wall", *parts, "about", right=("wall", *parts), cut=("about",))
    for sheet, name, about in rows:
        times = [sheet.split.part(part) for part in parts]
        cells = [duration(ms) if ms else "" for ms in times]
        listing.add_row(name, duration(sheet.split.wall_ms), *cells, about)
    print_table(listing)
