"""`toolspan doctor`: what is wrong with a transcript, and what the client would make of it."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from toolspan.cli.output import escape_markup, format_count, make_console, make_table, print_json, progress_bar, warn
from toolspan.cli.select import locate_files, names_argument, newest_session_here
from toolspan.errors import NotFound, SourceError
from toolspan.formats.base import TranscriptFormat
from toolspan.formats.claude.paths import config_dir
from toolspan.formats.detect import detect_dialect
from toolspan.formats.paths import parse_file_name
from toolspan.formats.registry import FORMAT_NAMES, get_format
from toolspan.formats.source import source_for_path
from toolspan.reading.diagnostics import DiagnosticReport, check
from toolspan.reading.discovery import TranscriptFile
from toolspan.types.finding import Finding

_MAX_ROWS_PER_CODE = 20
"""Rows of one kind that are shown; a file with more of them is no clearer with all."""
_SEVERITY_STYLES = {"error": "bold red", "warning": "yellow", "info": "dim"}
_CLIENT_REACTIONS = {
    "accepts": "accepts it",
    "skips": "skips the line",
    "loses": "loses part of the conversation",
    "refuses": "refuses it",
    "unknown": "not known",
}
_CLIENT_SUMMARIES = {
    "accepts": "the client accepts it",
    "skips": "the client skips damaged lines and goes on",
    "loses": "on resume the client loses part of the conversation",
    "refuses": "the client cannot resume it",
    "unknown": "what the client does with it is not known",
}


@click.command("doctor")
@names_argument
@click.option("--last", is_flag=True, help="The session written to last.")
@click.option("--roundtrip", is_flag=True, help="Re-encode every line and compare.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per file.")
@click.pass_context
def command(ctx: click.Context, names: tuple[str, ...], *, last: bool, roundtrip: bool, as_json: bool) -> None:
    """Diagnose transcripts: damage, orphans, broken links, drift.

    Without a name: the newest session of the current folder. Exit code 1 when something needs
    mending.
    """
    files = locate_files(names, last=last, allow_unknown=True)[0] if names or last else [_require_newest_session()]
    unhealthy = unreadable = 0
    with progress_bar(sum(file.size for file in files), "examining") as advance:
        for file in files:
            advance(file.size)
            try:
                checkup = check(file.path, roundtrip=roundtrip)
            except SourceError as error:
                if len(files) == 1:
                    raise
                warn(error)
                unreadable += 1
                continue
            unhealthy += not checkup.is_healthy
            if as_json:
                print_json(_checkup_row(checkup))
            else:
                _print_checkup(checkup, quiet=len(files) > 1)
    if not as_json and len(files) != 1:
        make_console().print(_format_total(len(files), unhealthy, unreadable))
    ctx.exit(1 if unhealthy or unreadable else 0)


def _format_total(files: int, unhealthy: int, unreadable: int) -> str:
    """What came out, in one line."""
    if not files:
        return "0 files examined: there is no transcript"
    needs = "needs" if unhealthy == 1 else "need"
    summary = f"{format_count(files, 'file')} examined, {unhealthy or 'none'} {needs} mending"
    return f"{summary}, {unreadable:,} cannot be read" if unreadable else summary


def _require_newest_session() -> TranscriptFile:
    newest = newest_session_here()
    if newest is None:
        raise NotFound("no session of this folder; name a file, a folder or a session")
    return newest


def _checkup_row(checkup: DiagnosticReport) -> dict[str, object]:
    transcript_format = _format_of(checkup)
    resume_effects = transcript_format.resume_behavior if transcript_format else {}
    return {
        "file": checkup.file,
        "healthy": checkup.is_healthy,
        "client": checkup.client_acceptance,
        **msgspec.to_builtins(checkup.counts),
        "entries": checkup.entries,
        "calls": checkup.calls,
        "roundtrip_equal": checkup.roundtrip_equal,
        "findings": [
            {
                **msgspec.to_builtins(finding),
                "place": str(finding.place) if finding.place else None,
                "on_resume": resume_effects[finding.code]._asdict() if finding.code in resume_effects else None,
            }
            for finding in checkup.findings
        ],
    }


def _print_checkup(checkup: DiagnosticReport, *, quiet: bool) -> None:
    if quiet and not any(finding.severity != "info" for finding in checkup.findings):
        return
    out = make_console()
    counts = checkup.counts
    out.print(f"[bold]{escape_markup(checkup.file)}[/]")
    facts = [format_count(counts.lines, "line"), format_count(checkup.calls, "call"), f"{counts.malformed} malformed"]
    if checkup.roundtrip_equal is not None:
        facts.append(f"{checkup.roundtrip_equal:,} re-encode to equal JSON")
    out.print("  " + " · ".join(facts), style="dim")
    dialect = detect_dialect(source_for_path(checkup.file))
    transcript_format = _format_of(checkup)
    _print_findings(checkup, dialect)
    if transcript_format is not None:
        _print_on_resume(checkup, transcript_format)
    out.print(f"  {_format_diagnosis(checkup, dialect)}")
    remedy = _repair_argument(checkup, transcript_format) if transcript_format else None
    if remedy is not None:
        hint = f"  toolspan repair {escape_markup(remedy)}  [dim]makes a sound copy of it[/]"
        out.print(hint, soft_wrap=True)
    out.print()


def _format_of(checkup: DiagnosticReport) -> TranscriptFormat | None:
    """Return the format of an examined file; None if it is empty or not a transcript."""
    dialect = detect_dialect(source_for_path(checkup.file))
    return get_format(dialect) if dialect in FORMAT_NAMES else None


def _format_diagnosis(checkup: DiagnosticReport, dialect: str) -> str:
    """How it is, and what its client makes of that."""
    state = "[green]healthy[/]" if checkup.is_healthy else "[bold red]needs mending[/]"
    match dialect:
        case "empty":
            return f"{state}; it is empty"
        case "unknown":
            return "[bold red]no transcript[/]; there is nothing to mend"
        case _ if get_format(dialect).is_repairable:
            return f"{state}; {_CLIENT_SUMMARIES[checkup.client_acceptance]}"
        case _:
            return state if checkup.is_healthy else f"{state}; repair is for Claude Code's sessions"


def _repair_argument(checkup: DiagnosticReport, transcript_format: TranscriptFormat) -> str | None:
    """What to name for `toolspan repair`, where it can help: a session, not its subagents."""
    if not any(finding.severity == "error" and finding.code in transcript_format.resume_behavior for finding in checkup.findings):
        return None
    path = Path(checkup.file)
    if parse_file_name(path).role == "agent":
        session_path = _find_session_file(path)
        if session_path is None:
            return None
        path = session_path
    ours = path.absolute().is_relative_to(config_dir().absolute())
    return parse_file_name(path).stem if ours else shlex.quote(str(path))


def _find_session_file(agent: Path) -> Path | None:
    """The transcript of the session in whose folder a subagent's lies."""
    for folder in agent.parents:
        if folder.name == "subagents":
            session_folder = folder.parent
            candidates = (
                session_folder.with_name(f"{session_folder.name}{ending}") for ending in (".jsonl", ".jsonl.zst")
            )
            return next(filter(Path.is_file, candidates), None)
    return None


def _print_findings(checkup: DiagnosticReport, dialect: str) -> None:
    columns = ["", "finding", "line", "times", "what it means"]
    if dialect in FORMAT_NAMES and get_format(dialect).resume_behavior:
        columns.append("the client")
    listing = make_table(*columns, right=("line", "times"))
    counts: Counter[str] = Counter()
    for finding in _sort_by_severity(checkup):
        if dialect == "unknown" and finding.code != "no_transcript":
            continue  # whatever it is, its lines are not damaged records
        counts[finding.code] += 1
        if counts[finding.code] > _MAX_ROWS_PER_CODE:
            continue
        cells = (
            f"[{_SEVERITY_STYLES[finding.severity]}]{finding.severity}[/]",
            finding.code,
            str(finding.place.line) if finding.place else "",
            str(finding.count),
            escape_markup(finding.explanation),
            _CLIENT_REACTIONS[finding.client],
        )
        listing.add_row(*cells[: len(columns)])
    if checkup.findings:
        make_console().print(listing)
    for code, n in counts.items():
        if n > _MAX_ROWS_PER_CODE:
            make_console().print(f"  [dim]and {n - _MAX_ROWS_PER_CODE:,} more of {code} (--json: all)[/]")


def _print_on_resume(checkup: DiagnosticReport, transcript_format: TranscriptFormat) -> None:
    """What the client was seen to do with each kind of damage."""
    behavior = transcript_format.resume_behavior
    effects = {finding.code: behavior[finding.code] for finding in checkup.findings if finding.code in behavior}
    if not effects:
        return
    listing = make_table("when resumed", "Claude Code 2.1.197 to 2.1.325", "2.1.80 and before")
    for code, effect in effects.items():
        listing.add_row(code, escape_markup(effect.now), escape_markup(effect.older or "the same"))
    make_console().print(listing)


def _sort_by_severity(checkup: DiagnosticReport) -> Sequence[Finding]:
    rank = {"error": 0, "warning": 1, "info": 2}
    return sorted(
        checkup.findings, key=lambda finding: (rank[finding.severity], finding.place.line if finding.place else 0)
    )
