"""`toolspan files`: every file that was changed, a row each."""

from collections.abc import Sequence
from pathlib import Path, PurePath

from toolspan.cli.files.asked import Wish, read_all, takes
from toolspan.cli.output import clock, console, count, escape, print_json, table
from toolspan.cli.select import current_folder, limit_note
from toolspan.model.span import moment
from toolspan.read.discover import FoundFile
from toolspan.report.files.archive import FileTotals, Tally
from toolspan.report.files.place import within


def print_totals(files: Sequence[FoundFile], wish: Wish) -> None:
    """Every file that was changed, the last one last."""
    folder = str(Path(wish.path).resolve()) if wish.path else None
    tally = Tally()
    for archive in read_all(files):
        for one in archive.touches:
            if takes(wish.keep, one) and (folder is None or within(one.path, folder)):
                tally.add(one)
    rows = tally.rows()
    if wish.as_json:
        for row in rows[-wish.limit :]:  # all of them, when it is 0
            print_json(row)
        return
    _print_rows(rows, wish.limit)


def _print_rows(rows: Sequence[FileTotals], limit: int) -> None:
    out = console()
    shown = rows[-limit:] if limit else rows
    wide = out.width >= 100
    columns = ["file", "changes", "lines", "errors", "last"] + ["by"] * wide
    listing = table(*columns, right=("changes", "errors"), cut=("file",))
    for row in shown:
        cells = _cells(row, out.width)
        listing.add_row(*(cells[column] for column in columns))
    if shown:
        out.print(listing)
    more = limit_note(len(shown), len(rows))
    added, removed = sum(row.added for row in rows), sum(row.removed for row in rows)
    out.print(f"{count(len(rows), 'file')}, +{added:,} −{removed:,} lines{more}")


def _cells(row: FileTotals, width: int) -> dict[str, str]:
    mark = "" if row.known else " ?"
    lines = f"[green]+{row.added:,}[/] [red]−{row.removed:,}[/]{mark}" if row.changes else ""
    sessions = (
        count(len(row.sessions), "session") if len(row.sessions) != 1 else row.sessions[0][:8]
    )
    agents = f" ↳ {len(row.agents)}" if row.agents else ""
    fate = " (new)" if row.created else ""
    fate = " (deleted)" if row.deleted else fate
    room = max(width - (60 if width >= 100 else 48), 20)
    return {
        "file": escape(_tail(_shortened(row.path), room - len(fate))) + f"[dim]{fate}[/]",
        "changes": str(row.changes),
        "lines": lines,
        "errors": f"[red]{row.errors}[/]" if row.errors else "",
        "last": clock(moment(row.last))[: 16 if width >= 100 else 10],
        "by": escape(sessions + agents),
    }


def _shortened(path: str) -> str:
    """A path as short as it is still clear: below the current folder, or below the home."""
    for folder, sign in ((current_folder(), ""), (Path.home(), "~/")):
        if within(path, str(folder)) and path != str(folder):
            return sign + str(PurePath(path).relative_to(folder))
    return path


def _tail(path: str, room: int) -> str:
    return path if len(path) <= room else "…" + path[-(room - 1) :]
