"""`toolspan --demo COMMAND`: run a command on the sample archive."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pathlib import Path

    from toolspan.reading.discovery import TranscriptFile

_FLAG = "--demo"
_SAMPLE_KEY = "toolspan.sample"


def take_demo_flag(ctx: click.Context, args: Sequence[str], refused: Collection[str]) -> list[str]:
    """Return the arguments without `--demo`, which is accepted anywhere; with it, this process reads the sample.

    Commands in `refused` do not read transcripts, or change the settings of a client.
    """
    end = args.index("--") if "--" in args else len(args)
    options, rest = args[:end], args[end:]
    if _FLAG not in options:
        return list(args)
    name = next((arg for arg in options if not arg.startswith("-")), None)
    if name in refused:
        raise click.UsageError(f"{_FLAG} shows a sample archive, which `toolspan {name}` does not read", ctx)
    ctx.meta[_SAMPLE_KEY] = ctx.with_resource(_sample_environment())
    return [*(arg for arg in options if arg != _FLAG), *rest]


def sample_folder() -> Path | None:
    """Return the folder that is read because of `--demo`, or None without it."""
    ctx = click.get_current_context(silent=True)
    folder: Path | None = ctx.meta.get(_SAMPLE_KEY) if ctx else None
    return folder


def default_session() -> TranscriptFile:
    """Return the session that is checked and repaired without a name: the newest of this folder, or of the sample."""
    from toolspan.archive.sources import newest_session, newest_session_here  # perf: `toolspan --help` needs neither

    if not sample_folder():
        return newest_session_here()
    return next(file for file in newest_session() if file.name.role == "session")


def demo_command(command: str) -> str:
    """Return a suggested command as it must be typed: with `--demo` if this command has it."""
    return command.replace("toolspan ", f"toolspan {_FLAG} ", 1) if sample_folder() else command


@contextmanager
def _sample_environment() -> Iterator[Path]:
    """Let this process and those that it starts use a copy of the sample archive as the folder of each client.

    The copy is in the cache folder, so that `repair` and other commands may write there. Ages count from the end of its
    last session.
    """
    import tempfile  # perf: with pathlib, an eighth of `toolspan --help`
    from pathlib import Path

    from toolspan.archive.clock import NOW_VARIABLE
    from toolspan.formats.registry import all_formats
    from toolspan.reading import sample
    from toolspan.reading.cache import default_folder

    with tempfile.TemporaryDirectory(prefix="toolspan-") as temporary:
        folder = sample.copy_archive((default_folder() or Path(temporary)) / "sample")
        values = {item.home_variable: str(folder / item.name) for item in all_formats() if item.home_variable}
        values[NOW_VARIABLE] = sample.END.isoformat()
        before = {name: os.environ.get(name) for name in values}
        os.environ.update(values)
        try:
            yield folder
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})
