"""`toolspan doctor`: what is wrong with a transcript, and what the client would make of it."""

import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from toolspan.cli.output import complain, console, count, escape, print_json, progress, table
from toolspan.cli.select import locate, named, newest_here
from toolspan.errors import NotFound, SourceError
from toolspan.model.finding import Finding
from toolspan.read.checkup import Checkup, check
from toolspan.read.damage import ON_RESUME
from toolspan.read.discover import FoundFile
from toolspan.wire.detect import Dialect, dialect_of
from toolspan.wire.paths import config_dir, parse_name
from toolspan.wire.source import source_of

_EACH = 20
"""Rows of one kind that are shown; a file with more of them is no clearer with all."""
_STYLE = {"error": "bold red", "warning": "yellow", "info": "dim"}
_CLIENT = {
    "accepts": "accepts it",
    "skips": "skips the line",
    "loses": "loses part of the conversation",
    "refuses": "refuses it",
    "unknown": "not known",
}
_VERDICT = {
    "accepts": "the client accepts it",
    "skips": "the client skips damaged lines and goes on",
    "loses": "on resume the client loses part of the conversation",
    "refuses": "the client cannot resume it",
    "unknown": "what the client does with it is not known",
}


@click.command("doctor")
@named
@click.option("--last", is_flag=True, help="The session written to last.")
@click.option("--roundtrip", is_flag=True, help="Re-encode every line and compare.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per file.")
@click.pass_context
def command(
    ctx: click.Context, names: tuple[str, ...], *, last: bool, roundtrip: bool, as_json: bool
) -> None:
    """Diagnose transcripts: damage, orphans, broken links, drift.

    Without a name: the newest session of the current folder. Exit code 1 when something needs
    mending.
    """
    files = locate(names, last=last, strangers=True)[0] if names or last else [_newest_here()]
    sick = unread = 0
    with progress(sum(file.size for file in files), "examining") as advance:
        for file in files:
            advance(file.size)
            try:
                checkup = check(file.path, roundtrip=roundtrip)
            except SourceError as error:
                if len(files) == 1:
                    raise
                complain(error)
                unread += 1
                continue
            sick += not checkup.healthy
            if as_json:
                print_json(_row(checkup))
            else:
                _print(checkup, quiet=len(files) > 1)
    if not as_json and len(files) != 1:
        console().print(_total(len(files), sick, unread))
    ctx.exit(1 if sick or unread else 0)


def _total(files: int, sick: int, unread: int) -> str:
    """What came out, in one line."""
    if not files:
        return "0 files examined: there is no transcript"
    needs = "needs" if sick == 1 else "need"
    told = f"{count(files, 'file')} examined, {sick or 'none'} {needs} mending"
    return f"{told}, {unread:,} cannot be read" if unread else told


def _newest_here() -> FoundFile:
    found = newest_here()
    if found is None:
        raise NotFound("no session of this folder; name a file, a folder or a session")
    return found


def _row(checkup: Checkup) -> dict[str, object]:
    seen = ON_RESUME if dialect_of(source_of(checkup.file)) == "claude" else {}
    return {
        "file": checkup.file,
        "healthy": checkup.healthy,
        "client": checkup.client,
        **msgspec.to_builtins(checkup.counts),
        "entries": checkup.entries,
        "calls": checkup.calls,
        "roundtrip_equal": checkup.roundtrip_equal,
        "findings": [
            {
                **msgspec.to_builtins(found),
                "place": str(found.place) if found.place else None,
                "on_resume": seen[found.code]._asdict() if found.code in seen else None,
            }
            for found in checkup.findings
        ],
    }


def _print(checkup: Checkup, *, quiet: bool) -> None:
    if quiet and not any(found.severity != "info" for found in checkup.findings):
        return
    out = console()
    counts = checkup.counts
    out.print(f"[bold]{escape(checkup.file)}[/]")
    facts = [
        count(counts.lines, "line"),
        count(checkup.calls, "call"),
        f"{counts.malformed} malformed",
    ]
    if checkup.roundtrip_equal is not None:
        facts.append(f"{checkup.roundtrip_equal:,} re-encode to equal JSON")
    out.print("  " + " · ".join(facts), style="dim")
    dialect = dialect_of(source_of(checkup.file))
    _print_findings(checkup, dialect)
    if dialect == "claude":
        _print_on_resume(checkup)
    out.print(f"  {_verdict(checkup, dialect)}")
    remedy = _remedy(checkup) if dialect == "claude" else None
    if remedy is not None:
        told = f"  toolspan repair {escape(remedy)}  [dim]makes a sound copy of it[/]"
        out.print(told, soft_wrap=True)
    out.print()


def _verdict(checkup: Checkup, dialect: Dialect) -> str:
    """How it is, and what its client makes of that."""
    state = "[green]healthy[/]" if checkup.healthy else "[bold red]needs mending[/]"
    match dialect:
        case "claude":
            return f"{state}; {_VERDICT[checkup.client]}"
        case "codex":
            return state if checkup.healthy else f"{state}; repair is for Claude Code's sessions"
        case "empty":
            return f"{state}; it is empty"
        case "unknown":
            return "[bold red]no transcript[/]; there is nothing to mend"


def _remedy(checkup: Checkup) -> str | None:
    """What to name for `toolspan repair`, where it can help: a session, not its subagents."""
    if not any(one.severity == "error" and one.code in ON_RESUME for one in checkup.findings):
        return None
    path = Path(checkup.file)
    if parse_name(path).role == "agent":
        found = _session_of(path)
        if found is None:
            return None
        path = found
    ours = path.absolute().is_relative_to(config_dir().absolute())
    return parse_name(path).stem if ours else shlex.quote(str(path))


def _session_of(agent: Path) -> Path | None:
    """The transcript of the session in whose folder a subagent's lies."""
    for folder in agent.parents:
        if folder.name == "subagents":
            own = folder.parent
            beside = (own.with_name(f"{own.name}{ending}") for ending in (".jsonl", ".jsonl.zst"))
            return next(filter(Path.is_file, beside), None)
    return None


def _print_findings(checkup: Checkup, dialect: Dialect) -> None:
    columns = ["", "finding", "line", "times", "what it means"]
    if dialect == "claude":
        columns.append("the client")
    listing = table(*columns, right=("line", "times"))
    shown: Counter[str] = Counter()
    for found in _by_severity(checkup):
        if dialect == "unknown" and found.code != "no_transcript":
            continue  # whatever it is, its lines are not damaged records
        shown[found.code] += 1
        if shown[found.code] > _EACH:
            continue
        cells = (
            f"[{_STYLE[found.severity]}]{found.severity}[/]",
            found.code,
            str(found.place.line) if found.place else "",
            str(found.count),
            escape(found.explanation),
            _CLIENT[found.client],
        )
        listing.add_row(*cells[: len(columns)])
    if checkup.findings:
        console().print(listing)
    for code, n in shown.items():
        if n > _EACH:
            console().print(f"  [dim]and {n - _EACH:,} more of {code} (--json: all)[/]")


def _print_on_resume(checkup: Checkup) -> None:
    """What the client was seen to do with each kind of damage."""
    found = {one.code: ON_RESUME[one.code] for one in checkup.findings if one.code in ON_RESUME}
    if not found:
        return
    listing = table("when resumed", "Claude Code 2.1.197 to 2.1.325", "2.1.80 and before")
    for code, seen in found.items():
        listing.add_row(code, escape(seen.now), escape(seen.older or "the same"))
    console().print(listing)


def _by_severity(checkup: Checkup) -> Sequence[Finding]:
    rank = {"error": 0, "warning": 1, "info": 2}
    return sorted(
        checkup.findings,
        key=lambda found: (rank[found.severity], found.place.line if found.place else 0),
    )
