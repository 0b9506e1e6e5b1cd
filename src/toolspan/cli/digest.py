"""`toolspan digest`: one page about a period, compared with the one before it, for the terminal or as HTML."""

from __future__ import annotations

from pathlib import Path

import click
from rich.text import Text

from toolspan.archive.archive import Archive
from toolspan.archive.digest import Digest
from toolspan.archive.filters import Filter
from toolspan.archive.words import plain_line
from toolspan.cli import lists, select
from toolspan.cli.filters import session_filter_options
from toolspan.cli.output import make_console, print_json, time_zone
from toolspan.cli.write import write_page

_MAX_PROJECTS = 8


@click.command("digest")
@select.archive_options(last=False, tables=True)
@click.option("--html", "as_html", is_flag=True, help="Write one HTML page that works offline.")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write the page to a file.")
@click.option("--open", "open_page", is_flag=True, help="Open the page in the browser.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@session_filter_options
def command(
    *, archive: Archive, as_html: bool, output: Path | None, open_page: bool, as_json: bool, call_filter: Filter
) -> None:
    """Show a period on one page: cost per project, the worst causes, slow hooks, waits, context.

    The period is the last seven days, or --since to --until, and is compared with the period of
    equal length before it. Each cause comes with one step to take; causes rank by harm, as in
    `toolspan errors --sort harm`.
    """
    if as_json and as_html:
        raise click.UsageError("use either --json or --html")
    if (output or open_page) and not as_html:
        raise click.UsageError("-o and --open need --html")
    zone = time_zone()
    digest = archive.digest(call_filter, zone=zone)
    if as_json:
        print_json(digest)
    elif as_html:
        from toolspan.export.digest import digest_page

        write_page([digest_page(digest, zone)], output, open_page=open_page)
    else:
        _print_digest(digest)
        hint = ("digest PATHS --html --open", "shows it as a page that you can send")
        lists.print_hints(archive.names, ("errors PATHS --sort harm", "shows all causes"), hint)


def _print_digest(digest: Digest) -> None:
    from toolspan.export.digest import digest_sections, headline

    out = make_console()
    out.print(Text(headline(digest, time_zone()), style="bold"))
    for title, rows in digest_sections(digest, max_projects=_MAX_PROJECTS):
        out.print()
        out.print(Text(title, style="bold"))
        left = max((len(row.value) for row in rows), default=0)
        for row in rows:
            room = max(out.width - left - 6, 20)
            line = Text(f"  {row.value:>{left}}  ").append(plain_line(row.text, room))
            out.print(line, no_wrap=True, crop=True)
            if row.note:
                out.print(Text(" " * (left + 4) + plain_line(row.note, room), style="green"), no_wrap=True, crop=True)
