"""`toolspan search`: the calls and messages in which words stand."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolspan.cli.output import clean, clock, count, print_json, short
from toolspan.cli.select import Filter, filters, in_project, surveyed, wanted_filter
from toolspan.model.span import moment
from toolspan.read.discover import default_roots
from toolspan.report.search.places import Prefilter, ripgrep
from toolspan.report.search.words import query_of

if TYPE_CHECKING:
    from toolspan.report.search.find import Found, Match
    from toolspan.report.search.scan import Side

_SHOWN = 20
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
    named, places = _apart(words)
    query = query_of(named, regex=regex, ignore_case=ignore_case)
    prefilter = Prefilter(places or default_roots(), query.rarest, program=ripgrep())
    try:
        from toolspan.report.search.find import search  # while ripgrep is at work

        found = search(prefilter.candidates(), query, sides=_SIDES[inside])
    finally:
        prefilter.close()
    for problem in found.problems:
        click.echo(f"toolspan: {problem}", err=True)
    matches = _kept(found.matches, keep)
    most = limit if limit is not None else 0 if as_json else _SHOWN
    shown = _completed(matches[:most] if most else matches, all_lines=as_json)
    if as_json:
        for match in shown:
            print_json(match)
    else:
        _print(shown, len(matches), found)
        if not matches:
            _hint(named)


def _apart(words: Sequence[str]) -> tuple[list[str], list[Path]]:
    """The words, and the names of files and folders that follow them."""
    end = len(words)
    while end > 1 and _is_name(words[end - 1]):
        end -= 1
    return list(words[:end]), [Path(name) for name in words[end:]]


def _hint(words: Sequence[str]) -> None:
    """Say that what looks like a place was looked for, when nothing was found."""
    for word in words[1:]:
        if word.startswith(("/", "./", "../", "~")) or word.endswith((".jsonl", ".zst")):
            click.secho(f"{clean(word)} is no folder or transcript; it was a word", dim=True)


def _is_name(word: str) -> bool:
    if "/" not in word and not word.endswith((".jsonl", ".jsonl.zst")):
        return False
    try:
        return Path(word).is_dir() or (Path(word).is_file() and ".jsonl" in word)
    except (OSError, ValueError):
        return False


def _kept(matches: "list[Match]", keep: Filter) -> "list[Match]":
    """The matches that the filter takes; files are only read for what their lines do not tell."""
    dialects = _Dialects()
    near = [
        match
        for match in matches
        if (keep.session is None or (match.session or "").startswith(keep.session))
        and (keep.agent is None or (match.agent or "").startswith(keep.agent))
        and (keep.project is None or in_project(keep.project, match.file, match.cwd))
        and _in_time(match, keep)
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


def _in_time(match: "Match", keep: Filter) -> bool:
    if keep.since is None and keep.until is None:
        return True
    at = moment(match.at)
    if at is None:
        return False
    return (keep.since is None or at >= keep.since) and (keep.until is None or at < keep.until)


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

    return complete(numbered(matches, calls=all_lines), surveyed)


def _print(shown: "Sequence[Match]", total: int, found: "Found") -> None:
    width = shutil.get_terminal_size((160, 24)).columns
    for match in shown:
        click.echo(_headline(match, width))
        click.echo("    " + _excerpt(match, width - 4) + "\n")
    cut = f", the newest {len(shown)} shown (--limit 0: all)" if len(shown) < total else ""
    click.echo(f"{total:,} {'match' if total == 1 else 'matches'}{cut}")
    if found.passed:
        click.echo(f"{count(found.passed, 'line')} too long to look into")
    if any(match.kind == "call" for match in shown):
        click.secho("toolspan show CALL tells one call in full.", dim=True)


def _headline(match: "Match", width: int) -> str:
    """Who, what, when: a call with tool and state, a message with its voice."""
    from toolspan.read.history import short_id

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
