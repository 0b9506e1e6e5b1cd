"""`toolspan search`: find calls and messages that contain all search words."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from toolspan.archive.archive import Archive
from toolspan.archive.filters import Filter
from toolspan.archive.search import PLACE_ALIASES, PLACES, Matches
from toolspan.archive.words import format_count, replace_unprintable, shorten_line
from toolspan.cli import lists, select
from toolspan.cli.filters import NameChoice, filter_options
from toolspan.cli.output import format_time, print_json, replace_unencodable
from toolspan.errors import SourceError
from toolspan.formats.container import CONTAINER_SUFFIXES
from toolspan.formats.registry import parse_file_name
from toolspan.formats.source import COMPRESSED_SUFFIXES, is_member, is_remote, to_path

if TYPE_CHECKING:
    from toolspan.analysis.search.find import SearchMatch


_DEFAULT_WIDTH = 160
_MIN_TARGET_WIDTH = 12
_SHORT_ADDRESS = 13
"""The length of a session id prefix; sessions that began within a minute may share the first eight digits."""


class PlaceChoice(NameChoice):
    """A choice of places that also accepts the singular."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the name of the place."""
        return super().convert(PLACE_ALIASES.get(value, value), param, ctx)


@click.command("search")
@click.argument("words", nargs=-1, callback=select.fetch_stores, required=True, metavar="WORD... [FILE|FOLDER]...")
@click.option(
    "--in",
    "inside",
    type=PlaceChoice(list(PLACES)),
    default="all",
    show_default=True,
    help="Search only your prompts, the model's answers or thinking, all messages, or the inputs or results of calls.",
)
@click.option(
    "-i/-s", "--ignore-case/--case-sensitive", default=None,
    help="Ignore case, or match it exactly. By default, case is ignored for lower-case words.",
)  # fmt: skip
@click.option("--regex", is_flag=True, help="Treat the words as regular expressions.")
@lists.limit_option(20, "matches")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per match.")
@filter_options
def command(
    words: tuple[str, ...], *, inside: str, ignore_case: bool | None, regex: bool, limit: int,
    as_json: bool, call_filter: Filter,
) -> None:  # fmt: skip
    """Find calls and messages that contain all the words, newest first.

    Words match literally, however the client escaped them in the file. Folders and transcripts
    may follow the words: an argument after the first word that exists, and contains a / or ends in
    .jsonl, is a place to search. Without one, all of your transcripts are searched.
    """
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        click.get_current_context().color = False
    end = len(words)
    while end > 1 and _is_location(words[end - 1]):
        end -= 1
    terms, locations = words[:end], words[end:]
    try:
        matches = Archive(*locations, reporter=select.REPORTER).search(
            *terms, call_filter=call_filter, within=inside, regex=regex, ignore_case=ignore_case, limit=limit,
            all_lines=as_json,
        )  # fmt: skip
    except SourceError:
        _print_location_hint(terms, err=True)
        raise
    if as_json:
        print_json(*matches)
        return
    hints = {"call": lists.CALL_HINT, "message": ("show SESSION:LINE PATHS", "opens a session there")}
    kinds = {match.kind for match in matches}
    _print_matches(matches)
    for hint in lists.deeper_hints(locations, *(text for kind, text in hints.items() if kind in kinds)):
        click.secho(hint, dim=True)
    if not matches:
        _print_location_hint(terms)


def _is_location(argument: str) -> bool:
    if is_remote(argument):
        return True
    if "/" not in argument and not argument.endswith((".jsonl", ".jsonl.zst", ".jsonl.gz")):
        return False
    is_file = argument.endswith(CONTAINER_SUFFIXES) or ".jsonl" in argument
    return os.path.isdir(argument) or (is_file and os.path.isfile(argument)) or is_member(argument)  # noqa: PTH112, PTH113


def _print_location_hint(terms: Sequence[str], *, err: bool = False) -> None:
    """If nothing matches, note that an argument that looks like a path was used as a search word."""
    for term in terms[1:]:
        if os.path.isdir(term):  # noqa: PTH112 - a word need not be a valid path
            name = replace_unprintable(term)
            message = f"{name} was searched for as a word; to search in the folder, write ./{name}"
        elif term.startswith(("/", "./", "../", "~")) or term.endswith((".jsonl", *COMPRESSED_SUFFIXES)):
            message = f"{replace_unprintable(term)} is not a folder or transcript, so it was searched for as a word"
        else:
            continue
        click.secho(message, dim=True, err=err)


def _print_matches(matches: Matches) -> None:
    replace_unencodable(sys.stdout)
    # perf: the same as `shutil.get_terminal_size`, which is slow to import
    columns = os.environ.get("COLUMNS", "")
    width = int(columns) if columns.isdecimal() else 0
    if not width:
        with suppress(OSError):
            width = os.get_terminal_size(1).columns
    width = width or _DEFAULT_WIDTH
    for match in matches:
        click.echo(_format_headline(match, width))
        click.echo("    " + _format_excerpt(match, width - 4) + "\n")
    count, total = len(matches), matches.total
    newest = f"the newest {count:,} shown (--limit 0: all"
    if matches.among is not None:
        click.echo(f"more than {count:,} matches, {newest}, in up to {matches.among:,} files)")
    else:
        summary = f"{total:,} {'match' if total == 1 else 'matches'}"
        click.echo(f"{summary}, {newest})" if count < total else summary)
    if matches.passed:
        click.echo(f"{format_count(matches.passed, 'line')} too long to search")


def _format_headline(match: SearchMatch, width: int) -> str:
    agent = " ↳" if match.agent else ""
    session = replace_unprintable((match.session or to_path(match.file).stem)[:8]) + agent
    when = f"{format_time(match.at)}  {session}  "
    if match.kind == "message":
        parts: list[tuple[str, dict[str, Any]]] = [(f"{match.voice}  ", {"bold": True})]
        room = width - len(when) - len(parts[0][0])
        parts.append((_line_address(match, room), {"fg": "cyan"}))
    else:
        state = f" {match.state}" if match.state and match.state != "succeeded" else ""
        parts = [
            (match.tool or "?", {"bold": True}),
            (state, {"fg": "red"}),
            (f" {'+'.join(match.sides)}  ", {}),
            (match.call or "", {"fg": "cyan"}),
        ]
        if len(when) + sum(len(text) for text, _ in parts) > width:
            from toolspan.reading.history import short_id

            parts[-1] = (short_id(match.call or "")[:8], {"fg": "cyan"})
    line = when + "".join(click.style(replace_unprintable(text), **style) for text, style in parts)
    remaining_width = width - len(when) - sum(len(text) for text, _ in parts) - 2
    about = match.target if "input" not in match.sides and remaining_width > _MIN_TARGET_WIDTH else None
    return line + click.style(f"  {shorten_line(about, remaining_width)}" if about else "", dim=True)


def _line_address(match: SearchMatch, width: int) -> str:
    """Return the address of a message for `toolspan show`: the session, or the file of a subagent, and the line."""
    name = parse_file_name(match.file)
    owner = name.stem if name.role == "agent" else name.session_id or name.stem
    line = f":{match.line}"
    return (owner if len(owner) + len(line) <= width else owner[:_SHORT_ADDRESS]) + line


def _format_excerpt(match: SearchMatch, width: int) -> str:
    from toolspan.analysis.search.scan import SNIPPET_CHARS

    snippet = match.snippet
    word = replace_unprintable(snippet.match)[: max(width, 1)]
    context_width = max(width - len(word), 0)
    before, after = replace_unprintable(snippet.before), replace_unprintable(snippet.after)
    after_width = max(context_width // 2, context_width - len(before))
    if len(after) > after_width or len(after) >= SNIPPET_CHARS:
        after = after[: max(min(after_width, SNIPPET_CHARS) - 1, 0)] + "…" * bool(after_width)
    before_width = max(context_width - len(after), 0)
    if len(before) > before_width or len(before) >= SNIPPET_CHARS:
        room = max(min(before_width, SNIPPET_CHARS) - 1, 0)
        before = "…" * bool(before_width) + before[len(before) - room :]
    return before + click.style(word, fg="red", bold=True) + after
