"""`toolspan risky`: removals, force pushes, uploads, credentials and production systems in command lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import click

from toolspan.analysis.risks import RISK_KINDS, RiskKind
from toolspan.archive.archive import Archive
from toolspan.archive.filters import Filter
from toolspan.archive.risky import SORT_ALIASES, SORT_COLUMNS, RiskyCommand
from toolspan.archive.words import format_count
from toolspan.cli import lists, select
from toolspan.cli.filters import NameChoice, filter_options
from toolspan.cli.output import (
    STATE_STYLES,
    TargetCell,
    escape_markup,
    format_time,
    make_console,
    make_table,
    print_json,
)
from toolspan.reading.history import short_id

_NARROW_WIDTH = 110
_RISK_STYLES: dict[RiskKind, str] = {
    "removal": "yellow", "force_push": "red", "upload": "magenta", "credentials": "red", "production": "bold red",
}  # fmt: skip


@click.command("risky")
@select.archive_options(tables=True)
@click.option("--risk", multiple=True, type=NameChoice(RISK_KINDS), help="Only risks of this kind (repeatable).")
@lists.limit_option(40, "commands")
@lists.sort_option(*SORT_COLUMNS, **SORT_ALIASES)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per risky part of a command line.")
@filter_options
def command(
    *, archive: Archive, risk: tuple[str, ...], limit: int, sort: str | None, as_json: bool, call_filter: Filter
) -> None:
    """List risky commands: removals, force pushes, uploads, credentials, production systems.

    Each program that a command line runs is compared with a table of risky uses; quoted text and
    comments do not count. Each row shows the prompt that led to the command, and its state: a
    denied command did not run. Code in scripts and in interpreters is not examined.
    """
    rows = archive.risky(call_filter, risk=risk, sort=sort)
    visible_rows = lists.limit_rows(rows, limit, sort)
    if as_json:
        print_json(*visible_rows)
    else:
        _print_rows(visible_rows, rows, archive.names, is_sorted=sort is not None)


def _print_rows(
    rows: Sequence[RiskyCommand], all_rows: Sequence[RiskyCommand], names: Sequence[str], *, is_sorted: bool
) -> None:
    out = make_console()
    columns = ("requested", "call", "state", "risk", "command")[out.width < _NARROW_WIDTH :]
    table = make_table(*columns, cut=("command",))
    for row in rows:
        cells: dict[str, str | TargetCell] = {
            "requested": format_time(row.requested),
            "call": escape_markup(short_id(row.id)[:8]),
            "state": f"[{STATE_STYLES[row.state]}]{row.state}[/]",
            "risk": f"[{_RISK_STYLES[row.risk]}]{row.risk}[/]",
            "command": TargetCell(row.part),
        }
        table.add_row(*(cells[name] for name in columns))
        why = f"{row.reason}{'' if row.is_understood else '; the line may do more'}"
        asked = f" · asked: {row.prompt}" if row.prompt else ""
        cells = dict.fromkeys(columns, "") | {"command": TargetCell(f"↳ {why}{asked}")}
        table.add_row(*(cells[name] for name in columns))
    if rows:
        out.print(table)
    kinds = ", ".join(f"{count:,} {name}" for name, count in Counter(row.risk for row in all_rows).most_common())
    stopped = sum(not row.ran for row in all_rows)
    note = f" ({kinds})" if kinds else ""
    note += f"; {stopped:,} did not run" if stopped else ""
    limit_note = lists.limit_note(len(rows), len(all_rows), "first" if is_sorted else "last")
    out.print(f"{format_count(len(all_rows), 'risky command')}{note}{limit_note}")
    if rows:
        lists.print_hints(names, lists.CALL_HINT)
