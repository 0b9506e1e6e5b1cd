"""Options that name transcripts, and the archive that they stand for.

Start at `archive_options`. The other functions call `toolspan.archive` with the warnings and progress of the terminal.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from toolspan.archive import sources
from toolspan.archive.archive import Archive
from toolspan.archive.reporter import Reporter
from toolspan.cli.output import progress_bar, warn
from toolspan.errors import ToolspanError
from toolspan.reading.discovery import find_all_transcripts

if TYPE_CHECKING:
    pass

R = TypeVar("R")
REPORTER = Reporter(warn=warn, progress=progress_bar)

last_option = click.option("--last", is_flag=True, help="Read the session that was written to last.")


def complete_session(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return the session ids that begin with `incomplete`, for shell completion."""
    try:
        files = find_all_transcripts()
    except ToolspanError:
        return []
    stems = [file.name.stem for file in files if file.name.role == "session"]
    return [stem for stem in stems if stem.startswith(incomplete)]


names_argument = click.argument("names", nargs=-1, shell_complete=complete_session, metavar="[FILE|FOLDER|SESSION]...")
_tables_option = click.option("--tables", type=click.Path(path_type=Path), metavar="OUT",
                              help="Read tables written by `toolspan tables` instead of transcripts.")  # fmt: skip


def archive_options(*, last: bool = True, tables: bool = False) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Add the names of transcripts, `--last` and `--tables` to a command, which receives them as `archive`."""

    def decorate(command: Callable[..., R]) -> Callable[..., R]:
        @wraps(command)
        def with_archive(
            *args: Any, names: tuple[str, ...], last: bool = False, tables: Path | None = None, **values: Any
        ) -> R:
            if tables is None:
                return command(*args, archive=Archive(*names, last=last, reporter=REPORTER), **values)
            if names or last or values.get("live"):
                raise click.UsageError("--tables covers all transcripts in the tables; use filters instead of names")
            return command(*args, archive=Archive.from_tables(tables, reporter=REPORTER), **values)

        wrapped: Callable[..., R] = with_archive
        for option in (_tables_option if tables else None, last_option if last else None, names_argument):
            wrapped = option(wrapped) if option is not None else wrapped
        return wrapped

    return decorate


# Functions of the archive with the warnings and progress of the terminal

current_folder = sources.current_folder
files_of_session = sources.files_of_session
find_session_files = sources.find_session_files
is_folder = sources.is_folder
locate_files = partial(sources.locate_files, reporter=REPORTER)
match_session = sources.match_session
mentions_session = sources.mentions_session
newest_session = partial(sources.newest_session, reporter=REPORTER)
newest_session_here = sources.newest_session_here
path_exists = sources.path_exists
read_transcripts = partial(sources.read_transcripts, reporter=REPORTER)
require_known_format = sources.require_known_format
session_project = sources.session_project
transcripts_containing = partial(sources.transcripts_containing, reporter=REPORTER)
