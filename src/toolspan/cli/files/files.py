"""`toolspan files`: what calls did to files; the history of one file; its content at any time.

Here the words of the command line are told apart; each view has its own module.
"""

from collections.abc import Sequence
from typing import Any

import click

from toolspan.cli.files.asked import Wish
from toolspan.cli.files.content import print_content
from toolspan.cli.files.history import print_history
from toolspan.cli.files.totals import print_totals
from toolspan.cli.select import (
    filters,
    is_folder,
    limited,
    locate,
    of_project,
    require_session,
    session_files,
    wanted_filter,
)
from toolspan.errors import Ambiguous, NotFound
from toolspan.wire.detect import dialect_of
from toolspan.wire.source import source_of

_TRANSCRIPTS = (".jsonl", ".jsonl.zst")


@click.command("files")
@click.argument("names", nargs=-1, metavar="[FILE|FOLDER|SESSION|PATH]...")
@click.option("--path", help="The file, or the folder, whose changes are asked for.")
@click.option("--last", is_flag=True, help="The session written to last.")
@click.option("--diff", "with_diff", is_flag=True, help="The diff of every change, in full length.")
@click.option("--content", is_flag=True, help="What the file held; with --before or --after.")
@click.option("--before", metavar="CALL", help="Its content right before this call.")
@click.option("--after", metavar="CALL", help="Its content right after this call.")
@limited(40, "Rows")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per row.")
@filters
def command(  # noqa: PLR0913 - one per option
    names: tuple[str, ...],
    *,
    path: str | None,
    last: bool,
    with_diff: bool,
    content: bool,
    before: str | None,
    after: str | None,
    limit: int,
    as_json: bool,
    **wanted: Any,
) -> None:
    """What calls did to files.

    Without a path: every file that was changed, with lines added and removed, the last one last.
    With the path of a file, or its last parts: each change of it with its diff. With --content:
    what it held before or after a call, and how sure that is.
    """
    keep = wanted_filter(wanted)
    transcripts, path = _told_apart(names, path)
    wish = Wish(path, keep, limit, as_json, with_diff)
    files, _ = locate(transcripts, last=last)
    if keep.dialect is not None:
        files = [file for file in files if dialect_of(source_of(file.path)) == keep.dialect]
    require_session(keep.session, files)
    files = of_project(keep.project, files)
    if content or before or after:
        print_content(files, wish, before, after)
    elif path is None or is_folder(path):
        print_totals(files, wish)
    else:
        print_history(files, wish)


def _told_apart(names: Sequence[str], path: str | None) -> tuple[list[str], str | None]:
    """Which words name transcripts, and which one a file that was changed.

    Raises:
        Ambiguous: several paths are named.
    """
    paths = [name for name in names if not _names_transcripts(name)]
    if path is not None:
        paths.append(path)
    if len(paths) > 1:
        raise Ambiguous(f"{' and '.join(paths)}: files tells of one path at a time")
    return [name for name in names if _names_transcripts(name)], paths[0] if paths else None


def _names_transcripts(name: str) -> bool:
    if name.endswith(_TRANSCRIPTS) or is_folder(name):
        return True
    if "/" in name or "." in name:
        return False
    try:
        session_files(name)
    except Ambiguous:
        return True
    except NotFound:
        return False
    return True
