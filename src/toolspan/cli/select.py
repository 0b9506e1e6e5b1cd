"""Options that name transcripts, and the archive that they stand for.

Start at `archive_options`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from toolspan.archive.archive import Archive
from toolspan.archive.reporter import Reporter
from toolspan.cli.output import progress_bar, warn
from toolspan.errors import ToolspanError
from toolspan.reading.discovery import find_all_transcripts
from toolspan.stores.opening import is_store_url

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


_store_urls: dict[str, str] = {}
"""The stores that this command reads, by the folders of their local copies."""


def fetch_stores(_: click.Context, __: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    """Replace the URLs of stores among the arguments with the folders of their local copies, brought up to date."""
    return tuple(_fetch_store(name) if is_store_url(name) else name for name in names)


def _fetch_store(url: str) -> str:
    from toolspan.stores.mirror import fetch_store

    folder = str(fetch_store(url))
    _store_urls[folder] = url
    return folder


def name_as_typed(name: str) -> str:
    """Return the URL of the store whose copy is in a folder, or the name itself."""
    return _store_urls.get(name, name)


names_argument = click.argument(
    "names",
    nargs=-1,
    callback=fetch_stores,
    shell_complete=complete_session,
    metavar="[FILE|FOLDER|SESSION|STORE]...",
)
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
