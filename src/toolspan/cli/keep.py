"""`toolspan keep`: keep all sessions in an archive that survives their deletion, and put them back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from toolspan.archive.keep.kept import KeepReport, KeptArchive
from toolspan.archive.keep.store import ArchiveInUseError
from toolspan.archive.retention import find_retention
from toolspan.archive.words import format_count, format_size, join_parts
from toolspan.cli.output import escape_unprintable, format_time, print_json, warn
from toolspan.cli.select import REPORTER

_to_option = click.option("--to", "folder", metavar="DIR|s3://...",
                          help="The place of the archive.  [default: ~/.local/share/toolspan/kept]")  # fmt: skip
_json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


@click.group("keep", invoke_without_command=True)
@_to_option
@click.option("--quiet", is_flag=True, help="Print only problems, for cron and hooks.")
@_json_option
@click.pass_context
def command(ctx: click.Context, /, *, folder: str | None, quiet: bool, as_json: bool) -> None:
    """Keep the sessions of all clients in an archive that survives their deletion.

    Claude Code deletes sessions after 30 days. Each run copies what is new or has grown, with
    subagents, long results and copies of edited files, compressed. A file that the client deletes,
    truncates or rewrites stays in the archive; nothing is ever removed from it. It is safe to run
    at any time, also twice at once or from cron. An archive in S3 may be written to by several
    machines.

    Every command reads an archive like a folder: toolspan errors ~/.local/share/toolspan/kept
    """
    ctx.obj = folder
    if ctx.invoked_subcommand is not None:
        return
    try:
        report = KeptArchive(folder, reporter=REPORTER).keep()
    except ArchiveInUseError as error:
        if not quiet:
            warn(str(error))
        return
    _print_report(report, quiet=quiet, as_json=as_json)
    if report.problems:
        ctx.exit(1)


@command.command("restore")
@click.argument("session")
@_to_option
@click.option("--folder", "target", type=click.Path(path_type=Path), metavar="DIR",
              help="Move the session to this working folder: paths in it are rewritten.")  # fmt: skip
@click.option("--replace", is_flag=True, help="Overwrite files that exist with other content.")
@click.option("--version", type=click.IntRange(min=1), metavar="NUMBER",
              help="Put back this earlier content of the session, from `keep versions`.")  # fmt: skip
@_json_option
@click.pass_context
def restore(
    ctx: click.Context,
    /,
    *,
    session: str,
    folder: str | None,
    target: Path | None,
    replace: bool,
    version: int | None,
    as_json: bool,
) -> None:
    """Put a session back, so that its client resumes it.

    SESSION is the beginning of its id. The restored files count as new, so the client does not
    delete them at its next start.
    """
    restored = KeptArchive(folder or ctx.obj).restore(session, folder=target, replace=replace, version=version)
    if as_json:
        print_json(restored)
        return
    click.echo(f"Restored {restored.session} ({format_count(len(restored.files), 'file')}).")
    if restored.command:
        place = f"cd {restored.folder} && " if restored.folder else ""
        click.echo(f"Resume it: {place}{restored.command}")


@command.command("versions")
@click.argument("session")
@_to_option
@_json_option
@click.pass_context
def versions(ctx: click.Context, /, *, session: str, folder: str | None, as_json: bool) -> None:
    """List what a session contained before the client rewrote it.

    SESSION is the beginning of its id. `keep restore --version NUMBER` puts an earlier transcript
    back; earlier versions of other files, such as its subagents, are listed only.
    """
    rows = KeptArchive(folder or ctx.obj).versions(session)
    if as_json:
        print_json(*rows)
        return
    for row in rows:
        number = f"version {row.version}" if row.is_session else f"({row.version})"
        time = format_time(row.kept)
        click.echo(escape_unprintable(f"{number:12}  {time}  {format_size(row.size):>9}  {row.name}"))
    if not rows:
        click.echo("The client has rewritten none of its files.")


@command.command("verify")
@_to_option
@_json_option
@click.pass_context
def verify(ctx: click.Context, /, *, folder: str | None, as_json: bool) -> None:
    """Read every kept file and compare it with its checksum. Exit code 1 if one is damaged."""
    files, damaged = 0, 0
    for file in KeptArchive(folder or ctx.obj).verify():
        files += 1
        if file.problem is not None:
            damaged += 1
            if as_json:
                print_json(file)
            else:
                click.echo(f"{file.name}: {file.problem}")
    if as_json:
        print_json({"files": files, "damaged": damaged})
    else:
        click.echo(f"{format_count(files, 'file')}, {damaged or 'none'} damaged")
    if damaged:
        ctx.exit(1)


@command.command("pull")
@click.argument("other", metavar="DIR|s3://...")
@_to_option
@_json_option
@click.pass_context
def pull(ctx: click.Context, /, *, other: str, folder: str | None, as_json: bool) -> None:
    """Add what another archive has, such as that of another machine."""
    _print_report(KeptArchive(folder or ctx.obj, reporter=REPORTER).pull(other), quiet=False, as_json=as_json)


@command.command("push")
@click.argument("other", metavar="DIR|s3://...")
@_to_option
@_json_option
@click.pass_context
def push(ctx: click.Context, /, *, other: str, folder: str | None, as_json: bool) -> None:
    """Add what this archive has to another one, such as in S3 for several machines."""
    _print_report(KeptArchive(folder or ctx.obj, reporter=REPORTER).push(other), quiet=False, as_json=as_json)


def _print_report(report: KeepReport, *, quiet: bool, as_json: bool) -> None:
    for problem in report.problems:
        warn(problem)
    retention = find_retention()
    if as_json:
        row: dict[str, Any] = {name: getattr(report, name) for name in report.__struct_fields__}
        print_json({**row, "retention": retention})
    elif not quiet:
        changed = [f"{count:,} {name}" for name, count in report.outcomes.items() if name != "unchanged"]
        click.echo(join_parts(f"{format_count(report.files, 'file')}: {', '.join(changed) or 'nothing new'}"))
        size = f"{format_size(report.bytes)} in {format_size(report.kept_bytes)}"
        gone = f"{format_count(report.gone, 'file')} no longer at the client" if report.gone else None
        click.echo(join_parts(f"{report.folder}: {size}", gone))
        if retention is not None and retention.soon:
            click.echo(
                f"Claude Code deletes sessions after {retention.days:g} days: {retention.soon:,} of its "
                f"{retention.sessions:,} within a week. They are kept here."
            )
