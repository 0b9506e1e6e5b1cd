"""`toolspan doctor`: problems in transcripts, and the client's reaction to them. See also `machine.py`."""

from __future__ import annotations

from collections import Counter

import click

from toolspan.archive.archive import Archive
from toolspan.archive.doctor import check_files, repair_argument
from toolspan.archive.retention import find_retention
from toolspan.archive.sources import current_folder, locate_files
from toolspan.archive.words import format_count
from toolspan.cli.machine import print_cache, print_sandbox
from toolspan.cli.output import escape_markup, make_console, make_table, print_json, warn
from toolspan.cli.sample import default_session
from toolspan.cli.select import REPORTER, last_option, names_argument
from toolspan.errors import MissingExtra, ToolspanError
from toolspan.formats.registry import FORMAT_NAMES, get_format
from toolspan.formats.source import to_path
from toolspan.reading.diagnostics import DiagnosticReport

_MAX_ROWS_PER_CODE = 20
_SEVERITY_STYLES = {"error": "bold red", "warning": "yellow", "info": "dim"}
_CLIENT_REACTIONS = {
    "accepts": "accepts it",
    "skips": "skips the line",
    "loses": "loses part of the conversation",
    "refuses": "refuses it",
    "unknown": "unknown",
}
_CLIENT_SUMMARIES = {
    "accepts": "the client accepts it",
    "skips": "the client skips damaged lines",
    "loses": "the client loses part of the conversation when it resumes",
    "refuses": "the client cannot resume it",
    "unknown": "the client's reaction is unknown",
}


@click.command("doctor")
@names_argument
@last_option
@click.option("--roundtrip", is_flag=True, help="Also check that every line can be re-encoded to equal JSON.")
@click.option("--cache", is_flag=True, help="Show the cache instead of checking transcripts.")
@click.option("--clear", is_flag=True, help="With --cache: delete the cached results.")
@click.option("--sandbox", is_flag=True, help="Show which sandboxes this machine supports instead.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per file.")
@click.pass_context
def command(
    ctx: click.Context,
    names: tuple[str, ...],
    *,
    last: bool,
    roundtrip: bool,
    cache: bool,
    clear: bool,
    sandbox: bool,
    as_json: bool,
) -> None:
    """Check transcripts for damage, orphan results, broken links and unknown fields.

    Without a name, the newest session of the current folder is checked. Exits with code 1 if a
    transcript needs repair. Permission rules in your settings and those of the current folder that
    have no effect, such as "bash(rm:*)", are reported on standard error.

    With --cache, shows where results are cached between commands. The cache only saves time; set
    TOOLSPAN_NO_CACHE=1 to disable it.

    With --sandbox, shows which sandboxes work on this machine, and how to fix the others. Exits
    with code 1 if none works.
    """
    if sandbox:
        ctx.exit(print_sandbox(is_alone=not (names or last or roundtrip or cache), as_json=as_json))
    if cache:
        print_cache(clear=clear, as_json=as_json)
        return
    if clear:
        raise click.UsageError("--clear needs --cache")
    _warn_about_rules()
    retention = None if names else find_retention()
    if retention is not None and retention.advice:
        warn(retention.advice)
    if names or last:
        files, _ = locate_files(names, last=last, allow_unknown=True, reporter=REPORTER)
    else:
        files = [default_session()]
    unhealthy = unreadable = count = 0
    for checked in check_files(Archive(*names, reporter=REPORTER).file_engine, files, roundtrip=roundtrip):
        count += 1
        if checked.report is None:
            unreadable += 1
            continue
        unhealthy += not checked.report.is_healthy
        if as_json:
            print_json(checked.to_dict())
        else:
            _print_report(checked.report, checked.client, quiet=len(files) > 1)
    if not as_json and not files:
        make_console().print("0 files checked: there is no transcript")
    elif not as_json and len(files) > 1:
        needs = "needs" if unhealthy == 1 else "need"
        summary = f"{format_count(count, 'file')} checked, {unhealthy or 'none'} {needs} repair"
        make_console().print(f"{summary}, {unreadable:,} cannot be read" if unreadable else summary)
    ctx.exit(1 if unhealthy or unreadable else 0)


def _warn_about_rules() -> None:
    """Warn about permission rules that have no effect, in the settings of the user and of the current folder."""
    try:
        from toolspan.replay.policy import find_settings_problems  # perf: rarely needed

        for problem in find_settings_problems(current_folder()):
            warn(problem)
    except MissingExtra:
        return  # nothing that applies rules is installed
    except ToolspanError as error:
        warn(error)


def _print_report(report: DiagnosticReport, client: str, *, quiet: bool) -> None:
    if quiet and not any(finding.severity != "info" for finding in report.findings):
        return
    out = make_console()
    counts = report.counts
    out.print(f"[bold]{escape_markup(report.file)}[/]")
    facts = [format_count(counts.lines, "line"), format_count(report.calls, "call"), f"{counts.malformed} malformed"]
    if report.roundtrip_equal is not None:
        facts.append(f"{report.roundtrip_equal:,} re-encode to equal JSON")
    out.print("  " + " · ".join(facts), style="dim")
    behavior = get_format(client).resume_behavior if client in FORMAT_NAMES else {}
    _print_findings(report, client, shows_client=bool(behavior))
    effects = {finding.code: behavior[finding.code] for finding in report.findings if finding.code in behavior}
    if effects:
        table = make_table("when resumed", "Claude Code 2.1.197 to 2.1.325", "2.1.80 and before")
        for code, effect in effects.items():
            table.add_row(code, escape_markup(effect.now), escape_markup(effect.older or "the same"))
        out.print(table)
    out.print(f"  {_format_diagnosis(report, client)}")
    if any(finding.severity == "error" and finding.code in behavior for finding in report.findings):
        remedy = repair_argument(to_path(report.file))
        if remedy is not None:
            out.print(f"  toolspan repair {escape_markup(remedy)}  [dim]makes a repaired copy[/]", soft_wrap=True)
    out.print()


def _format_diagnosis(report: DiagnosticReport, client: str) -> str:
    state = "[green]healthy[/]" if report.is_healthy else "[bold red]needs repair[/]"
    match client:
        case "empty":
            return f"{state}; the file is empty"
        case "unknown":
            return "[bold red]not a transcript[/] of a known client; there is nothing to repair"
        case _ if get_format(client).is_repairable:
            return f"{state}; {_CLIENT_SUMMARIES[report.acceptance]}"
        case _:
            return state if report.is_healthy else f"{state}; only sessions of Claude Code can be repaired"


def _print_findings(report: DiagnosticReport, client: str, *, shows_client: bool) -> None:
    columns = ["", "finding", "line", "times", "meaning"] + ["client"] * shows_client
    table = make_table(*columns, right=("line", "times"))
    counts: Counter[str] = Counter()
    rank = list(_SEVERITY_STYLES).index
    findings = sorted(report.findings, key=lambda item: (rank(item.severity), item.place.line if item.place else 0))
    for finding in findings:
        if client == "unknown" and finding.code != "no_transcript":
            continue  # lines in other kinds of files are not damaged records
        counts[finding.code] += 1
        if counts[finding.code] > _MAX_ROWS_PER_CODE:
            continue
        cells = (
            f"[{_SEVERITY_STYLES[finding.severity]}]{finding.severity}[/]",
            finding.code,
            str(finding.place.line) if finding.place else "",
            str(finding.count),
            escape_markup(finding.explanation),
            _CLIENT_REACTIONS[finding.acceptance],
        )
        table.add_row(*cells[: len(columns)])
    if report.findings:
        make_console().print(table)
    for code, n in counts.items():
        if n > _MAX_ROWS_PER_CODE:
            make_console().print(f"  [dim]and {n - _MAX_ROWS_PER_CODE:,} more of {code} (--json: all)[/]")
