"""`toolspan agents`: list subagents, one row each, as a tree."""

from __future__ import annotations

from collections.abc import Sequence

import click

from toolspan.archive.agents import SORT_ALIASES, SORT_COLUMNS, AgentRow
from toolspan.archive.archive import Archive
from toolspan.archive.filters import Filter
from toolspan.archive.words import format_count, format_duration, shorten_middle
from toolspan.cli import lists, select
from toolspan.cli.filters import session_filter_options
from toolspan.cli.output import TargetCell, escape_markup, format_time, make_console, make_table, print_json
from toolspan.reading.history import short_id

_NARROW_WIDTH = 110
_UUID_LENGTH = 36
_MAX_TYPE = 24
_COLUMNS = ("agent", "type", "started", "duration", "calls", "unsuccessful", "cost", "about")
_WIDE_COLUMNS = ("started", "unsuccessful")


@click.command("agents")
@select.archive_options(tables=True)
@lists.limit_option(40, "subagents")
@lists.sort_option(*SORT_COLUMNS, **SORT_ALIASES)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per subagent.")
@session_filter_options
def command(*, archive: Archive, limit: int, sort: str | None, as_json: bool, call_filter: Filter) -> None:
    """List subagents with name, type, prompt, cost, calls and failures.

    A subagent comes after the one that started it, with an indented id. `toolspan show ID` shows
    its timeline; an id of a call is that of a subagent without an id of its own.
    """
    rows = archive.agents(call_filter, sort=sort, limit=limit)
    if as_json:
        print_json(*rows)
    else:
        print_agents(rows, rows.total, archive.names, is_sorted=sort is not None)


def print_agents(rows: Sequence[AgentRow], total: int, names: Sequence[str], *, is_sorted: bool) -> None:
    """Print a table of subagents."""
    out = make_console()
    columns = [name for name in _COLUMNS if out.width >= _NARROW_WIDTH or name not in _WIDE_COLUMNS]
    table = make_table(*columns, right=("duration", "calls", "unsuccessful", "cost"), cut=("about",))
    for row in rows:
        cells: dict[str, str | TargetCell] = {
            "agent": escape_markup("  " * (0 if is_sorted else row.depth) + _shorten_id(row.id)),
            "type": escape_markup(shorten_middle(row.type, _MAX_TYPE)),
            "started": format_time(row.started),
            "duration": format_duration(row.duration_ms),
            "calls": f"{row.calls:,}",
            "unsuccessful": f"{row.unsuccessful:,}" if row.unsuccessful else "",
            "cost": "" if row.cost_usd is None else f"${row.cost_usd:,.2f}",
            "about": TargetCell(row.name or row.prompt),
        }
        table.add_row(*(cells[name] for name in columns))
    if rows:
        out.print(table)
    count = format_count(total, "subagent")
    out.print(count + lists.limit_note(len(rows), total, "first" if is_sorted else "last"))
    if rows:
        hints = ("show AGENT PATHS", "shows what a subagent did"), ("calls PATHS --agent AGENT", "lists its calls")
        lists.print_hints(names, *hints)


def _shorten_id(name: str) -> str:
    """Return the beginning of an id, long enough for `show`."""
    if short_id(name) != name:
        return short_id(name)[:8]
    return name[:13] if len(name) == _UUID_LENGTH else name
