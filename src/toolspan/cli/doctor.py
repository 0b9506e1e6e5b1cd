"""`toolspan doctor`: problems in transcripts, and the client's reaction to them.

`--cache` shows the cache, `--sandbox` the sandboxes that this machine supports.
"""

from __future__ import annotations

import shlex
from collections import Counter
from pathlib import Path

import click
import msgspec

from toolspan.archive.archive import Archive
from toolspan.archive.doctor import check_files
from toolspan.archive.words import format_count
from toolspan.cli.output import (
    escape_markup,
    make_console,
    make_table,
    print_json,
)
from toolspan.cli.select import (
    REPORTER,
    last_option,
    locate_files,
    names_argument,
    newest_session_here,
)
from toolspan.errors import ToolspanError
from toolspan.formats.claude.paths import config_dir
from toolspan.formats.registry import FORMAT_NAMES, get_format, parse_file_name
from toolspan.formats.source import COMPRESSED_SUFFIXES, to_path
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
    transcript needs repair.

    With --cache, shows where results are cached between commands. The cache only saves time; set
    TOOLSPAN_NO_CACHE=1 to disable it.

    With --sandbox, shows which sandboxes work on this machine, and how to fix the others. Exits
    with code 1 if none works.
    """
    if sandbox:
        ctx.exit(_print_sandbox(is_alone=not (names or last or roundtrip or cache), as_json=as_json))
    if cache:
        _print_cache(clear=clear, as_json=as_json)
        return
    if clear:
        raise click.UsageError("--clear needs --cache")
    files = locate_files(names, last=last, allow_unknown=True)[0] if names or last else [newest_session_here()]
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
            _print_report(checked.report, checked.dialect, quiet=len(files) > 1)
    if not as_json and not files:
        make_console().print("0 files checked: there is no transcript")
    elif not as_json and len(files) > 1:
        needs = "needs" if unhealthy == 1 else "need"
        summary = f"{format_count(count, 'file')} checked, {unhealthy or 'none'} {needs} repair"
        make_console().print(f"{summary}, {unreadable:,} cannot be read" if unreadable else summary)
    ctx.exit(1 if unhealthy or unreadable else 0)


@click.command("cache", hidden=True)
@click.option("--clear", is_flag=True, help="Delete the cached results.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def cache_command(*, clear: bool, as_json: bool) -> None:
    """Show the cache, as `toolspan doctor --cache` does."""
    _print_cache(clear=clear, as_json=as_json)


def _print_cache(*, clear: bool, as_json: bool) -> None:
    from toolspan.reading.cache import Cache, default_folder

    folder = default_folder()
    if folder is None:
        raise ToolspanError("there is no cache: TOOLSPAN_NO_CACHE is set, or you have no home folder")
    cache = Cache(folder)
    if clear:
        cache.clear()
    files, size = cache.usage()
    if as_json:
        print_json({"path": str(cache.file), "files": files, "bytes": size})
    else:
        click.echo(f"{cache.file}: {format_count(files, 'file')}, {size / 1_000_000:.1f} MB")


def _print_sandbox(*, is_alone: bool, as_json: bool) -> int:
    """Print the supported sandboxes. Return the exit code."""
    from toolspan.runtime.sandbox import Sandbox
    from toolspan.runtime.sandbox.probe import probe_sandbox

    if not is_alone:
        raise click.UsageError("--sandbox can be combined only with --json")
    report = probe_sandbox(Sandbox())
    exit_code = 1 if report.backend is None else 0
    if as_json:
        print_json(msgspec.to_builtins(report))
        return exit_code
    out = make_console()
    yes, no = "[green]yes[/]", "[bold red]no[/]"
    backends = make_table("sandbox", "works", "")
    for backend in report.backends:
        notes = (backend.problem,) if backend.problem else backend.limitations
        backends.add_row(backend.name, yes if backend.works else no, "\n".join(map(escape_markup, notes)))
    out.print(backends)
    machine = make_table("machine", "", "")
    for item in report.checks:
        machine.add_row(item.name, yes if item.ok else no, escape_markup(item.detail))
    out.print(machine)
    if report.backend is None:
        out.print("[bold red]No sandbox works here.[/] Commands run with your full permissions.")
    else:
        weaker = ", which is weaker than bubblewrap" if report.backend == "Landlock" else ""
        out.print(f"--sandbox runs commands in {report.backend}{weaker}.")
        if report.backend == "bubblewrap":
            out.print("It hides secrets; `toolspan run` uses it by default if nobody is asked about calls.")
    fixes = [backend.fix for backend in report.backends if backend.fix]
    fixes += [item.fix for item in report.checks if item.fix]
    if fixes:
        out.print("To fix it:")
    for fix in dict.fromkeys(fixes):
        out.print(f"  {escape_markup(fix)}", soft_wrap=True)
    return exit_code


def _print_report(report: DiagnosticReport, dialect: str, *, quiet: bool) -> None:
    if quiet and not any(finding.severity != "info" for finding in report.findings):
        return
    out = make_console()
    counts = report.counts
    out.print(f"[bold]{escape_markup(report.file)}[/]")
    facts = [format_count(counts.lines, "line"), format_count(report.calls, "call"), f"{counts.malformed} malformed"]
    if report.roundtrip_equal is not None:
        facts.append(f"{report.roundtrip_equal:,} re-encode to equal JSON")
    out.print("  " + " · ".join(facts), style="dim")
    behavior = get_format(dialect).resume_behavior if dialect in FORMAT_NAMES else {}
    _print_findings(report, dialect, shows_client=bool(behavior))
    effects = {finding.code: behavior[finding.code] for finding in report.findings if finding.code in behavior}
    if effects:
        table = make_table("when resumed", "Claude Code 2.1.197 to 2.1.325", "2.1.80 and before")
        for code, effect in effects.items():
            table.add_row(code, escape_markup(effect.now), escape_markup(effect.older or "the same"))
        out.print(table)
    out.print(f"  {_format_diagnosis(report, dialect)}")
    if any(finding.severity == "error" and finding.code in behavior for finding in report.findings):
        remedy = _repair_argument(to_path(report.file))
        if remedy is not None:
            out.print(f"  toolspan repair {escape_markup(remedy)}  [dim]makes a repaired copy[/]", soft_wrap=True)
    out.print()


def _format_diagnosis(report: DiagnosticReport, dialect: str) -> str:
    state = "[green]healthy[/]" if report.is_healthy else "[bold red]needs repair[/]"
    match dialect:
        case "empty":
            return f"{state}; the file is empty"
        case "unknown":
            return "[bold red]not a transcript[/] of a known client; there is nothing to repair"
        case _ if get_format(dialect).is_repairable:
            return f"{state}; {_CLIENT_SUMMARIES[report.client_acceptance]}"
        case _:
            return state if report.is_healthy else f"{state}; only sessions of Claude Code can be repaired"


def _repair_argument(path: Path) -> str | None:
    """Return the argument for `toolspan repair`, or None if repair cannot help.

    A session is repaired together with its subagents, so a subagent's file is replaced by its session.
    """
    if parse_file_name(path).role == "agent":
        folder = next((folder.parent for folder in path.parents if folder.name == "subagents"), None)
        endings = ("", *COMPRESSED_SUFFIXES)
        candidates = [folder.with_name(f"{folder.name}.jsonl{ending}") for ending in endings] if folder else []
        session_path = next((path for path in candidates if path.is_file()), None)
        if session_path is None:
            return None
        path = session_path
    is_in_config_dir = path.absolute().is_relative_to(config_dir().absolute())
    return parse_file_name(path).stem if is_in_config_dir else shlex.quote(str(path))


def _print_findings(report: DiagnosticReport, dialect: str, *, shows_client: bool) -> None:
    columns = ["", "finding", "line", "times", "meaning"] + ["client"] * shows_client
    table = make_table(*columns, right=("line", "times"))
    counts: Counter[str] = Counter()
    rank = list(_SEVERITY_STYLES).index
    findings = sorted(report.findings, key=lambda item: (rank(item.severity), item.place.line if item.place else 0))
    for finding in findings:
        if dialect == "unknown" and finding.code != "no_transcript":
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
            _CLIENT_REACTIONS[finding.client],
        )
        table.add_row(*cells[: len(columns)])
    if report.findings:
        make_console().print(table)
    for code, n in counts.items():
        if n > _MAX_ROWS_PER_CODE:
            make_console().print(f"  [dim]and {n - _MAX_ROWS_PER_CODE:,} more of {code} (--json: all)[/]")
