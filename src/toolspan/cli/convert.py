"""`toolspan convert`: continue a session with another client, or summarize it for one."""

from __future__ import annotations

from pathlib import Path

import click

from toolspan.archive.words import format_count
from toolspan.cli import select
from toolspan.cli.output import escape_markup, make_console, print_json
from toolspan.export.convert import convert_session, summarize_session
from toolspan.formats.registry import all_formats


def _check_client(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    writable = [item.name for item in all_formats() if item.is_writable]
    if value is not None and value not in writable:
        raise click.BadParameter(f"{value!r} is not one of {', '.join(writable)}")
    return value


@click.command("convert")
@select.names_argument
@click.option("--to", callback=_check_client, metavar="CLIENT", help="The client that continues the session.")
@click.option(
    "--cwd",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The folder of the new session; by default that of the original.",
)
@click.option(
    "--brief",
    is_flag=True,
    help="Write a summary of at most 8,000 characters instead of the conversation; without --to, print it.",
)
@click.option(
    "--home",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The client's folder, if it is not that of this user.",
)
@select.last_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    names: tuple[str, ...], *, to: str | None, cwd: Path | None, brief: bool, home: Path | None, last: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Continue a session with another client: claude, codex or pi.

    The session becomes a native session of that client, in its own folder; the original is not
    changed. Commands, reads, writes, edits and searches become calls of the client's own tools if it
    has an equivalent; other calls become text. Thinking, the client's own instructions and subagents'
    calls are left out.

    A summary has the goal, the prompts, the changed files, the failures that are still open and the
    last state. No model writes it.
    """
    if to is None:
        if not brief:
            raise click.UsageError("name a client with --to, or print a summary with --brief")
        summary = summarize_session(names, last=last, reporter=select.REPORTER)
        print_json({"summary": summary}) if as_json else click.echo(summary, nl=False)
        return
    folder = None if cwd is None else str(cwd.absolute())
    written = convert_session(names, to, last=last, cwd=folder, home=home, brief=brief, reporter=select.REPORTER)
    if as_json:
        print_json(written)
        return
    out = make_console()
    out.print(
        f"{format_count(written.messages, 'message')} and {format_count(written.calls, 'call')} "
        f"in the new session, {written.session}"
    )
    if written.calls_as_text:
        out.print(
            f"  {format_count(written.calls_as_text, 'more call')} as text, without an equivalent tool", style="dim"
        )
    out.print(f"  [dim]{escape_markup(written.path)}[/]", soft_wrap=True)
    if written.resume_command:
        out.print(f"\nTo continue it:\n  {escape_markup(written.resume_command)}", soft_wrap=True)
