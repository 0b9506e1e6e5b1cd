"""`toolspan search`: the calls and messages in which words stand."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolspan.analysis.search.candidates import find_candidates, find_ripgrep
from toolspan.analysis.search.query import query_of
from toolspan.cli.output import format_count, format_time, print_json, replace_unprintable, shorten_line, warn
from toolspan.cli.select import (
    CallFilter,
    call_hint,
    filter_options,
    in_project,
    make_filter,
    require_session,
    scan_with_cache,
)
from toolspan.errors import SourceError
from toolspan.reading.discovery import default_roots, find_all_transcripts
from toolspan.types.span import is_within, parse_timestamp

if TYPE_CHECKING:
    from toolspan.analysis.search.find import SearchMatch, SearchResults
    from toolspan.analysis.search.query import MatchSide, SearchQuery


_DEFAULT_LIMIT = 20
_DEFAULT_WIDTH = 160
"""Columns where there is no terminal."""
_MIN_TARGET_WIDTH = 12
"""With less room than this at the end of a line, nothing is put there."""
_SIDES: dict[str, tuple[MatchSide, ...]] = {
    "input": ("input",),
    "result": ("result",),
    "message": ("message",),
    "all": ("input", "result", "message"),
}


@click.command("search")
@click.argument("words", nargs=-1, required=True, metavar="WORD... [FILE|FOLDER]...")
@click.option(
    "--in",
    "inside",
    type=click.Choice(list(_SIDES)),
    default="all",
    show_default=True,
    help="Where: what calls were given, what they gave back, what was said.",
)
@click.option("-i", "--ignore-case", is_flag=True, help="Upper and lower case are the same.")
@click.option("--regex", is_flag=True, help="The words are regular expressions.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=None,
    help=f"Matches shown; 0 for all.  [default: {_DEFAULT_LIMIT}; all with --json]",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@filter_options
def command(
    words: tuple[str, ...], *, inside: str, ignore_case: bool, regex: bool, limit: int | None,
    as_json: bool, **filter_values: Any,
) -> None:  # fmt: skip
    """Find the calls and messages in which all the words stand, the newest first.

    Words are taken literally, and found however the client spelled them in the file. Folders and
    transcripts to look in may follow the words: what comes after the first word, exists, and has a
    / in it or ends in .jsonl is a name. Without one: all of this user's transcripts.
    """
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        click.get_current_context().color = False
    call_filter = make_filter(filter_values)
    terms, locations = _split_locations(words)
    query = query_of(terms, regex=regex, ignore_case=ignore_case)
    max_matches = limit if limit is not None else 0 if as_json else _DEFAULT_LIMIT
    try:
        result = _find_matches(
            query, [*map(Path, locations)], max_matches, sides=_SIDES[inside], call_filter=call_filter
        )
    except SourceError:
        _print_location_hint(terms, err=True)
        raise
    for problem in result.problems:
        warn(problem)
    if call_filter.session is not None and not result.matches:
        require_session(call_filter.session, find_all_transcripts([*map(Path, locations)] or None))
    visible_matches = _complete_matches(
        result.matches[:max_matches] if max_matches else result.matches, all_lines=as_json
    )
    if as_json:
        for match in visible_matches:
            print_json(match)
    else:
        _print_matches(visible_matches, result, call_hint(locations))
        if not result.matches:
            _print_location_hint(terms)


def _split_locations(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split the arguments into search words and the files and folders that follow them."""
    end = len(arguments)
    while end > 1 and _is_location(arguments[end - 1]):
        end -= 1
    return list(arguments[:end]), list(arguments[end:])


def _is_location(argument: str) -> bool:
    if "/" not in argument and not argument.endswith((".jsonl", ".jsonl.zst")):
        return False
    return os.path.isdir(argument) or (".jsonl" in argument and os.path.isfile(argument))  # noqa: PTH112, PTH113


def _find_matches(
    query: SearchQuery,
    locations: Sequence[Path],
    max_matches: int,
    *,
    sides: tuple[MatchSide, ...],
    call_filter: CallFilter,
) -> SearchResults:
    """The matches that the filter takes: all, or the newest and one more than are shown."""
    program = find_ripgrep()

    def accept_matches(matches: Sequence[SearchMatch]) -> list[SearchMatch]:
        return _filter_matches(matches, call_filter)

    from toolspan.analysis.search.find import search_newest

    candidates = find_candidates(locations or default_roots(), query.rarest_filter, program=program)
    return search_newest(candidates, query, max_matches, sides=sides, keep=accept_matches, program=program)


def _print_location_hint(terms: Sequence[str], *, err: bool = False) -> None:
    """Say that what looks like a place was looked for, when nothing was found."""
    for term in terms[1:]:
        if os.path.isdir(term):  # noqa: PTH112 - a word may be no path at all
            name = replace_unprintable(term)
            message = f"{name} was a word; to look in the folder write ./{name}"
            click.secho(message, dim=True, err=err)
        elif term.startswith(("/", "./", "../", "~")) or term.endswith((".jsonl", ".zst")):
            message = f"{replace_unprintable(term)} is no folder or transcript; it was a word"
            click.secho(message, dim=True, err=err)


def _filter_matches(matches: Sequence[SearchMatch], call_filter: CallFilter) -> list[SearchMatch]:
    """The matches that the filter takes; files are only read for what their lines do not tell."""
    dialects = _DialectCache()
    candidates = [
        match
        for match in matches
        if (call_filter.session is None or (match.session or "").startswith(call_filter.session))
        and (call_filter.agent is None or (match.agent or "").startswith(call_filter.agent))
        and (call_filter.project is None or in_project(call_filter.project, match.file, match.cwd))
        and is_within(match.at, call_filter.since, call_filter.until)
        and (call_filter.dialect is None or dialects[match.file] == call_filter.dialect)
    ]
    if not (call_filter.tool or call_filter.state or call_filter.error):
        return candidates
    return [
        match
        for match in _complete_matches([match for match in candidates if match.kind == "call"])
        if (not call_filter.tool or (match.tool or "").casefold() in call_filter.tool)
        and (not call_filter.state or match.state in call_filter.state)
        and (not call_filter.error or (match.error or "") in call_filter.error)
    ]


class _DialectCache(dict[str, str]):
    """Whose files they are; looked up when asked for."""

    def __missing__(self, file: str) -> str:
        from toolspan.formats.detect import detect_dialect
        from toolspan.formats.source import source_for_path

        self[file] = detect_dialect(source_for_path(file))
        return self[file]


def _complete_matches(matches: Sequence[SearchMatch], *, all_lines: bool = False) -> list[SearchMatch]:
    """The matches with tool and state, and messages, which have no name, with their lines."""
    if not matches:
        return []
    from toolspan.analysis.search.find import complete_matches, number_lines

    return complete_matches(number_lines(matches, calls=all_lines), scan_with_cache)


def _print_matches(visible_matches: Sequence[SearchMatch], result: SearchResults, hint: str) -> None:
    width = _terminal_width()
    for match in visible_matches:
        click.echo(_format_headline(match, width))
        click.echo("    " + _format_excerpt(match, width - 4) + "\n")
    click.echo(_format_total(len(visible_matches), result))
    if result.passed:
        click.echo(f"{format_count(result.passed, 'line')} too long to look into")
    if any(match.kind == "call" for match in visible_matches):
        click.secho(hint, dim=True)


def _terminal_width() -> int:
    """Of the terminal; as `shutil` tells it, which is slow to import."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    try:
        return os.get_terminal_size(1).columns or _DEFAULT_WIDTH
    except OSError:
        return _DEFAULT_WIDTH


def _format_total(visible_count: int, result: SearchResults) -> str:
    """How many there are; where nobody has counted them, in how many files they may stand."""
    total = len(result.matches)
    newest = f"the newest {visible_count:,} shown (--limit 0: all"
    if result.among is not None:
        return f"more than {visible_count:,} matches, {newest}, in up to {result.among:,} files)"
    text = f"{total:,} {'match' if total == 1 else 'matches'}"
    return f"{text}, {newest})" if visible_count < total else text


def _format_headline(match: SearchMatch, width: int) -> str:
    """Who, what, when: a call with tool and state, a message with its voice."""
    agent = " ↳" if match.agent else ""
    session = replace_unprintable((match.session or Path(match.file).stem)[:8]) + agent
    when = f"{format_time(parse_timestamp(match.at))}  {session}  "
    if match.kind == "message":
        place = f"{Path(match.file).name}:{match.line}"
        parts: list[tuple[str, dict[str, Any]]] = [(str(match.voice), {"bold": True}), (f"  {place}", {"dim": True})]
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


def _format_excerpt(match: SearchMatch, width: int) -> str:
    """The snippet in one line; what does not fit goes at the ends."""
    snippet = match.snippet
    word = replace_unprintable(snippet.match)[: max(width, 1)]
    context_width = max(width - len(word), 0)
    before, after = replace_unprintable(snippet.before), replace_unprintable(snippet.after)
    after = after[: max(context_width // 2, context_width - len(before))]
    before = before[max(len(before) + len(after) - context_width, 0) :]
    return before + click.style(word, fg="red", bold=True) + after
