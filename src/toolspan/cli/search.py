"""`toolspan search`: the calls and messages in which words stand."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolspan.cli.ahead import apart
from toolspan.cli.output import clean, clock, complain, count, print_json, short
from toolspan.cli.select import (
    Filter,
    call_hint,
    filters,
    in_project,
    require_session,
    surveyed,
    wanted_filter,
)
from toolspan.errors import SourceError
from toolspan.model.span import moment, within
from toolspan.read.discover import default_roots, discover_all
from toolspan.report.search.places import Prefilter
from toolspan.report.search.ripgrep import Ripgrep, ripgrep
from toolspan.report.search.words import query_of

if TYPE_CHECKING:
    from toolspan.report.search.find import Found, Match
    from toolspan.report.search.texts import Side
    from toolspan.report.search.words import Query

_SHOWN = 20
_WIDE = 160
"""Columns where there is no terminal."""
_ROOM = 12
"""With less room than this at the end of a line, nothing is put there."""
_SIDES: dict[str, "tuple[Side, ...]"] = {
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
    help=f"Matches shown; 0 for all.  [default: {_SHOWN}; all with --json]",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@filters
def command(
    words: tuple[str, ...], *, inside: str, ignore_case: bool, regex: bool, limit: int | None,
    as_json: bool, **wanted: Any,
) -> None:  # fmt: skip
    """Find the calls and messages in which all the words stand, the newest first.

    Words are taken literally, and found however the client spelled them in the file. Folders and
    transcripts to look in may follow the words: what comes after the first word, exists, and has a
    / in it or ends in .jsonl is a name. Without one: all of this user's transcripts.
    """
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        click.get_current_context().color = False
    keep = wanted_filter(wanted)
    named, places = apart(words)
    query = query_of(named, regex=regex, ignore_case=ignore_case)
    most = limit if limit is not None else 0 if as_json else _SHOWN
    try:
        found = _found(query, [*map(Path, places)], most, sides=_SIDES[inside], keep=keep)
    except SourceError:
        _hint(named, err=True)
        raise
    for problem in found.problems:
        complain(problem)
    if keep.session is not None and not found.matches:
        require_session(keep.session, discover_all([*map(Path, places)] or None))
    shown = _completed(found.matches[:most] if most else found.matches, all_lines=as_json)
    if as_json:
        for match in shown:
            print_json(match)
    else:
        _print(shown, found, call_hint(places))
        if not found.matches:
            _hint(named)


def _found(
    query: "Query", places: Sequence[Path], most: int, *, sides: "tuple[Side, ...]", keep: Filter
) -> "Found":
    """The matches that the filter takes: all, or the newest and one more than are shown."""
    program = ripgrep()
    ahead = click.get_current_context().find_object(Ripgrep)
    prefilter = Prefilter(places or default_roots(), query.rarest, program=program, ahead=ahead)

    def kept(matches: "Sequence[Match]") -> "list[Match]":
        return _kept(matches, keep)

    try:
        from toolspan.report.search import calls  # noqa: F401 - while ripgrep is at work
        from toolspan.report.search.newest import newest

        candidates = prefilter.candidates()
    finally:
        prefilter.close()
    return newest(candidates, query, most, sides=sides, keep=kept, program=program)


def _hint(words: Sequence[str], *, err: bool = False) -> None:
    """Say that what looks like a place was looked for, when nothing was found."""
    for word in words[1:]:
        if os.path.isdir(word):  # noqa: PTH112 - a word may be no path at all
            name = clean(word)
            told = f"{name} was a word; to look in the folder write ./{name}"
            click.secho(told, dim=True, err=err)
        elif word.startswith(("/", "./", "../", "~")) or word.endswith((".jsonl", ".zst")):
            told = f"{clean(word)} is no folder or transcript; it was a word"
            click.secho(told, dim=True, err=err)


def _kept(matches: "Sequence[Match]", keep: Filter) -> "list[Match]":
    """The matches that the filter takes; files are only read for what their lines do not tell."""
    dialects = _Dialects()
    near = [
        match
        for match in matches
        if (keep.session is None or (match.session or "").startswith(keep.session))
        and (keep.agent is None or (match.agent or "").startswith(keep.agent))
        and (keep.project is None or in_project(keep.project, match.file, match.cwd))
        and within(match.at, keep.since, keep.until)
        and (keep.dialect is None or dialects[match.file] == keep.dialect)
    ]
    if not (keep.tool or keep.state or keep.error):
        return near
    return [
        match
        for match in _completed([match for match in near if match.kind == "call"])
        if (not keep.tool or (match.tool or "").casefold() in keep.tool)
        and (not keep.state or match.state in keep.state)
        and (not keep.error or (match.error or "") in keep.error)
    ]


class _Dialects(dict[str, str]):
    """Whose files they are; looked up when asked for."""

    def __missing__(self, file: str) -> str:
        from toolspan.wire.detect import dialect_of
        from toolspan.wire.source import source_of

        self[file] = dialect_of(source_of(file))
        return self[file]


def _completed(matches: "Sequence[Match]", *, all_lines: bool = False) -> "list[Match]":
    """The matches with tool and state, and messages, which have no name, with their lines."""
    if not matches:
        return []
    from toolspan.report.search.calls import complete, numbered

    return complete(numbered(matches, calls=all_lines), surveyed, program=ripgrep())


def _print(shown: "Sequence[Match]", found: "Found", hint: str) -> None:
    width = _width()
    for match in shown:
        click.echo(_headline(match, width))
        click.echo("    " + _excerpt(match, width - 4) + "\n")
    click.echo(_total(len(shown), found))
    if found.passed:
        click.echo(f"{count(found.passed, 'line')} too long to look into")
    if any(match.kind == "call" for match in shown):
        click.secho(hint, dim=True)


def _width() -> int:
    """Of the terminal; as `shutil` tells it, which is slow to import."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    try:
        return os.get_terminal_size(1).columns or _WIDE
    except OSError:
        return _WIDE


def _total(shown: int, found: "Found") -> str:
    """How many there are; where nobody has counted them, in how many files they may stand."""
    total = len(found.matches)
    newest = f"the newest {shown:,} shown (--limit 0: all"
    if found.among is not None:
        return f"more than {shown:,} matches, {newest}, in up to {found.among:,} files)"
    text = f"{total:,} {'match' if total == 1 else 'matches'}"
    return f"{text}, {newest})" if shown < total else text


def _headline(match: "Match", width: int) -> str:
    """Who, what, when: a call with tool and state, a message with its voice."""
    agent = " ↳" if match.agent else ""
    session = clean((match.session or Path(match.file).stem)[:8]) + agent
    when = f"{clock(moment(match.at))}  {session}  "
    if match.kind == "message":
        place = f"{Path(match.file).name}:{match.line}"
        words: list[tuple[str, dict[str, Any]]] = [
            (str(match.voice), {"bold": True}),
            (f"  {place}", {"dim": True}),
        ]
    else:
        state = f" {match.state}" if match.state and match.state != "succeeded" else ""
        words = [
            (match.tool or "?", {"bold": True}),
            (state, {"fg": "red"}),
            (f" {'+'.join(match.sides)}  ", {}),
            (match.call or "", {"fg": "cyan"}),
        ]
        if len(when) + sum(len(text) for text, _ in words) > width:
            from toolspan.read.history import short_id

            words[-1] = (short_id(match.call or "")[:8], {"fg": "cyan"})
    line = when + "".join(click.style(clean(text), **how) for text, how in words)
    room = width - len(when) - sum(len(text) for text, _ in words) - 2
    about = match.target if "input" not in match.sides and room > _ROOM else None
    return line + click.style(f"  {short(about, room)}" if about else "", dim=True)


def _excerpt(match: "Match", width: int) -> str:
    """The snippet in one line; what does not fit goes at the ends."""
    snippet = match.snippet
    word = clean(snippet.match)[: max(width, 1)]
    room = max(width - len(word), 0)
    before, after = clean(snippet.before), clean(snippet.after)
    after = after[: max(room // 2, room - len(before))]
    before = before[max(len(before) + len(after) - room, 0) :]
    return before + click.style(word, fg="red", bold=True) + after
