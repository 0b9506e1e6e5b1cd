"""`toolspan disk`: the space that sessions take, and their age."""

from __future__ import annotations

from collections import Counter

import click

from toolspan.archive.answers import Rows
from toolspan.archive.archive import Archive
from toolspan.archive.disk import GROUPINGS, SORT_ALIASES, SORT_COLUMNS, DiskRow
from toolspan.archive.filters import Filter
from toolspan.archive.keep.deletion import Deletable
from toolspan.archive.keep.kept import KeptArchive
from toolspan.archive.words import format_count, format_size, join_parts, plain_line, shorten_line
from toolspan.cli import lists, select
from toolspan.cli.filters import session_filter_options
from toolspan.cli.output import (
    TargetCell,
    escape_markup,
    escape_unprintable,
    format_time,
    make_console,
    make_table,
    markup_line,
    print_json,
    warn,
)
from toolspan.errors import ToolspanError

_NUMBERS = ("sessions", "files", "size")


@click.command("disk")
@select.archive_options(last=False)
@click.option("--by", type=click.Choice(GROUPINGS), default="project", show_default=True,
              help="The grouping of the rows.")  # fmt: skip
@lists.limit_option(20, "rows")
@lists.sort_option(*SORT_COLUMNS, **SORT_ALIASES)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per row.")
@click.option("--delete", "is_delete", is_flag=True,
              help="List what can be deleted, and delete it after a confirmation.")  # fmt: skip
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--kept", "folder", metavar="DIR|s3://...",
              help="The archive of `toolspan keep`.  [default: ~/.local/share/toolspan/kept]")  # fmt: skip
@session_filter_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    archive: Archive,
    by: str,
    limit: int,
    sort: str | None,
    as_json: bool,
    is_delete: bool,
    yes: bool,
    folder: str | None,
    call_filter: Filter,
) -> None:
    """Show how much space sessions take, largest first, and how old they are.

    Sizes include subagents and other files of a session, such as long results and the copies of
    edited files with which Claude Code rewinds. `oldest` and `last` are times of last records: of
    the session that has been idle longest, and of the newest.

    Nothing is deleted without --delete. It lists the sessions whose files are all in the archive of
    `toolspan keep` with the same content, and copies of edited files and todo lists of sessions that
    are gone, and asks. Sessions in progress and files changed in the last day are never deleted.
    """
    kept = KeptArchive(folder)
    if is_delete:
        _delete(ctx, archive.deletable(call_filter, kept=kept), yes=yes, as_json=as_json)
        return
    rows = archive.disk(call_filter, by=by, sort=sort)
    if as_json:
        print_json(*rows[: limit or None])
    else:
        _print_rows(rows, limit, by)
        if items := archive.deletable(call_filter, kept=kept, verify=False):
            click.echo(f"{_describe(items)} can be deleted (--delete lists them and asks)")
        if rows:
            hint = ("disk PATHS --by session --sort oldest", "lists the oldest sessions")
            lists.print_hints(archive.names, ("disk PATHS --by age", "shows sizes by age"), hint)


def _delete(ctx: click.Context, items: list[Deletable], *, yes: bool, as_json: bool) -> None:
    if not as_json:
        for item in items:
            click.echo(escape_unprintable(f"{format_size(item.bytes):>9}  {item.reason:8}  {_name_item(item)}"))
        if not items:
            click.echo("Nothing can be deleted: `toolspan keep` keeps sessions first.")
            return
    is_confirmed = yes or (not as_json and click.confirm(f"Delete {_describe(items)}?", default=False))
    problems = 0
    for item in items:
        problem = None
        if is_confirmed:
            try:
                item.delete()
            except ToolspanError as error:
                problem, problems = str(error), problems + 1
                warn(problem)
        if as_json:
            files = [file.path for file in item.files]
            print_json({"name": item.name, "reason": item.reason, "bytes": item.bytes, "files": files,
                        "deleted": is_confirmed and problem is None})  # fmt: skip
    if is_confirmed and not as_json:
        click.echo(f"{len(items) - problems:,} of {len(items):,} deleted. `toolspan keep restore` puts sessions back.")
    if problems or not (is_confirmed or as_json):
        ctx.exit(1)


def _name_item(item: Deletable) -> str:
    return item.name if item.title is None else f"{item.name}  {shorten_line(plain_line(item.title, 200), 60)}"


def _describe(items: list[Deletable]) -> str:
    counts = Counter(item.reason for item in items)
    kept = f"{format_count(counts['kept'], 'session')} that the archive has" if counts["kept"] else ""
    orphaned = f"the files of {format_count(counts['orphaned'], 'session')} without a transcript"
    names = " and ".join(filter(None, (kept, orphaned if counts["orphaned"] else "")))
    return f"{format_size(sum(item.bytes for item in items))} in {names}"


def _print_rows(rows: Rows[DiskRow], limit: int, by: str) -> None:
    out = make_console()
    visible_rows = rows[: limit or None]
    columns = (by, *(name for name in _NUMBERS if (by, name) != ("session", "sessions")), "oldest", "last")
    columns = (*columns[:-2], "last", "about") if by == "session" else columns
    table = make_table(*columns, right=_NUMBERS, cut=(by if by == "project" else "about",))
    for row in visible_rows:
        cells: dict[str, str | TargetCell] = {
            "project": TargetCell(row.name or "(unknown)"),
            "session": escape_markup(row.name[:13]),
            "sessions": f"{row.sessions:,}",
            "files": f"{row.files + row.side_files:,}",
            "size": format_size(row.bytes),
            "oldest": format_time(row.oldest)[:10],
            "last": format_time(row.last)[:10],
            "about": markup_line(row.title, 200),
        }
        table.add_row(*(cells.get(column, escape_markup(row.name)) for column in columns))
    if visible_rows:
        out.print(table)
    sessions, files = sum(row.sessions for row in rows), sum(row.files for row in rows)
    side_files, side_bytes = sum(row.side_files for row in rows), sum(row.side_bytes for row in rows)
    side = f"{format_size(side_bytes)} of it in {format_count(side_files, 'other file')}" if side_files else ""
    total = f"{format_size(sum(row.bytes for row in rows))} in {format_count(sessions, 'session')}"
    out.print(join_parts(f"{total}, {format_count(files, 'transcript')}", side))
    if len(visible_rows) < len(rows):
        out.print(f"{format_count(len(rows) - len(visible_rows), 'more row')} (--limit 0: all)")
