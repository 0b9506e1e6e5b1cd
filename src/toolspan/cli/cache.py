"""`toolspan cache`: what is remembered about files, and how to forget it."""

from __future__ import annotations

import click

from toolspan.cli.output import format_count, print_json
from toolspan.errors import ToolspanError


@click.command("cache")
@click.option("--clear", is_flag=True, help="Forget everything.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(*, clear: bool, as_json: bool) -> None:
    """Where facts about files are kept between commands, and how many; they can be cleared.

    The cache only saves time: without it every answer is the same. TOOLSPAN_NO_CACHE=1 turns it
    off.
    """
    from toolspan.reading.cache import Cache, default_folder

    folder = default_folder()
    if folder is None:
        raise ToolspanError("there is no cache: TOOLSPAN_NO_CACHE is set, or there is no home")
    cache = Cache(folder)
    if clear:
        cache.clear()
    files, size = cache.usage()
    if as_json:
        print_json({"path": str(cache.file), "files": files, "bytes": size})
    else:
        click.echo(f"{cache.file}: {format_count(files, 'file')}, {size / 1_000_000:.1f} MB")
