"""Options and helpers for commands that print lists: limit, order, folding, and hints about more detailed commands."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import wraps
from itertools import groupby
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from toolspan.archive.answers import SortOrder
from toolspan.archive.sources import path_exists
from toolspan.cli.hints import hints_enabled
from toolspan.cli.output import escape_markup, make_console
from toolspan.cli.sample import demo_command
from toolspan.cli.select import name_as_typed
from toolspan.errors import InvalidFilter
from toolspan.formats.source import to_path

_MAX_HINT_PATHS = 3
MIN_FOLDED_ROWS = 3
R = TypeVar("R")


def limit_option(default: int, what: str) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Add `--limit` to a command that has `--json`. By default, JSON output is not limited."""

    def decorate(command: Callable[..., R]) -> Callable[..., R]:
        @wraps(command)
        def with_limit(*args: Any, limit: int | None, as_json: bool, **values: Any) -> R:
            if limit is None:
                limit = 0 if as_json else default
            return command(*args, limit=limit, as_json=as_json, **values)

        help_text = f"Show at most this many {what}; 0 for all.  [default: {default}; all with --json]"
        return click.option("--limit", type=click.IntRange(min=0), help=help_text)(with_limit)

    return decorate


def sort_option(*columns: str, **aliases: str) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Add `--sort` to a command. Its help lists `columns`; `aliases` has more names."""

    def check(_: click.Context, __: click.Parameter, text: str | None) -> str | None:
        try:
            SortOrder.parse(text, columns, aliases)
        except InvalidFilter as error:
            raise click.BadParameter(str(error)) from error
        return text

    help_text = f"Sort by a column: {', '.join(columns)}. Numbers sort descending; -COLUMN reverses the order."
    return click.option("--sort", metavar="COLUMN", callback=check, help=help_text)


def limit_rows(rows: Sequence[R], limit: int, sort: object) -> Sequence[R]:
    """Return the first rows of a sorted list, or the last rows of a chronological one; all rows if the limit is 0."""
    return rows[: limit or None] if sort else rows[-limit:]


def limit_note(visible_count: int, total: int, end: str = "last") -> str:
    """Return a note to append to a count if `--limit` hides some rows."""
    return f", the {end} {visible_count} shown (--limit 0: all)" if visible_count < total else ""


unfold_option = click.option("--unfold", is_flag=True, help="Do not fold runs of equal rows.")


def is_default_limit() -> bool:
    """Return whether `--limit` was omitted."""
    return click.get_current_context().get_parameter_source("limit") is ParameterSource.DEFAULT


def visible_rows(
    rows: Sequence[R], limit: int, sort: object, key: Callable[[R], Hashable], *, unfold: bool
) -> list[tuple[R, int]]:
    """Return the rows to print, each with the number of equal rows that it represents.

    An explicit limit counts all rows; the default limit counts the rows that remain after folding.
    """
    if not is_default_limit():
        return _fold_runs(limit_rows(rows, limit, sort), key, unfold=unfold)
    return [*limit_rows(_fold_runs(rows, key, unfold=unfold), limit, sort)]


def _fold_runs(rows: Iterable[R], key: Callable[[R], Hashable], *, unfold: bool) -> list[tuple[R, int]]:
    if unfold:
        return [(row, 1) for row in rows]
    folded: list[tuple[R, int]] = []
    for _, run in groupby(rows, key):
        members = list(run)
        is_long = len(members) >= MIN_FOLDED_ROWS
        folded += [(members[-1], len(members))] if is_long else [(row, 1) for row in members]
    return folded


def fold_note(count: int) -> str:
    """Return the text below a row that represents a run of equal rows."""
    return f"{count:,} × the same, --unfold"


def deeper_hints(names: Sequence[str], *hints: tuple[str, str]) -> list[str]:
    """Return the last lines of a list: commands that show more detail, each with its purpose.

    In a command, PATHS is replaced with the files and folders that the user named. Empty if hints are disabled.
    """
    import shlex

    if not hints_enabled():
        return []

    paths = [name for name in names if path_exists(to_path(name)) and name.isprintable()]
    more = " …" if len(paths) > _MAX_HINT_PATHS else ""
    places = "".join(f" {shlex.quote(name_as_typed(path))}" for path in paths[:_MAX_HINT_PATHS]) + more
    commands = [(f"toolspan {command.replace(' PATHS', places)}", purpose) for command, purpose in hints]
    return [f"{demo_command(command)} {purpose}." for command, purpose in commands]


def print_hints(names: Sequence[str], *hints: tuple[str, str], wrap: bool = True) -> None:
    """Print the last lines of a list, without wrapping, so that commands can be copied."""
    out = make_console()
    for hint in deeper_hints(names, *hints):
        out.print(f"[dim]{escape_markup(hint)}[/]", soft_wrap=not wrap)


CALL_HINT = ("show CALL PATHS", "shows one call in detail")
