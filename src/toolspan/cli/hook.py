"""`toolspan hook`: record when Claude Code asks for permission, and answer on the page of `toolspan ui`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import click

from toolspan.archive.words import format_count
from toolspan.cli.output import combine_options, escape_unprintable, print_json
from toolspan.errors import InvalidFilter
from toolspan.integrations.claude_hooks import (
    EVENT_MIN_VERSIONS,
    count_recorded_sessions,
    events_for,
    hook_command,
    installed_hooks,
    installed_version,
    other_hook_files,
    parse_version,
    plan_install,
    plan_uninstall,
)
from toolspan.integrations.settings_change import SettingsChange
from toolspan.runtime.settings import SettingsPaths


@click.group("hook")
def command() -> None:
    """Make Claude Code record when it asks for permission and when you answer.

    Transcripts do not record how long a call waited for permission. With these hooks, `toolspan
    time` shows each wait. They write times, names and ids next to the transcript, but no contents.
    They do not decide anything unless you install them with --approve, which lets you answer in
    `toolspan ui`, or --guard. All commands except `record`, `approve`, `guard` and `known-errors`, which the hooks run,
    print JSON with --json.
    """


_target_options = combine_options(
    click.option("--project", is_flag=True, help="Change the settings of this folder"
                 " (.claude/settings.local.json), not your user settings."),
    click.option("--yes", is_flag=True, help="Do not ask for confirmation."),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object; needs --yes to change anything."),
)  # fmt: skip


@command.command("install")
@_target_options
@click.option("--client", metavar="VERSION|codex", help="The version of Claude Code, or `codex`."
              "  [default: that of `claude` on the PATH]")  # fmt: skip
@click.option("--approve", is_flag=True, help="Also let you answer permission requests on the page of `toolspan ui`.")
@click.option("--guard", is_flag=True, help="Also stop sessions at the limits of `toolspan guard`.")
@click.option("--keep", is_flag=True, help="Also run `toolspan keep` when a session ends.")
@click.option("--known-errors", is_flag=True, help="Also tell the model how the same failure was recovered before.")
@click.pass_context
def install(
    ctx: click.Context, /, *, project: bool, yes: bool, as_json: bool, client: str | None, **hooks: bool
) -> None:
    """Add the hooks to the client's settings, after showing the change.

    Only hooks that the client version supports are added, because old clients reject settings
    with others.

    With --approve, permission requests also appear on the page of a running `toolspan ui`. The
    client waits up to 60 seconds for an answer there before it shows its own dialog; if no page is
    open, it shows the dialog immediately.

    With --guard, each call first checks the limits of `toolspan guard set`. With --keep, sessions
    are kept when they end. With --known-errors, the model gets one line of context after a call
    that failed for a known cause: how often it was seen, and which calls recovered it.

    Codex has hooks for --guard only: --client codex adds it to ~/.codex/hooks.json. Codex asks you to
    review it with /hooks before it runs.

    To turn one of these off, install again without it.
    """
    names = [name.replace("_", "-") for name, is_wanted in hooks.items() if is_wanted]
    if path := other_hook_files().get(client or ""):
        if names != ["guard"] or project:
            raise InvalidFilter(f"--client {client} takes --guard, and no other hooks")
        change = plan_install(path, None, ("PreToolUse",), "guard")
        _apply(ctx, change, f"Hook added. Open /hooks in {client}, and trust it there.", yes=yes, as_json=as_json)
        return
    version = installed_version() if client is None else parse_version(client)
    if client is not None and version is None:
        raise click.BadParameter(f"{client!r} is not a version such as 2.1.327")
    events = events_for(version)
    if "known-errors" in names and "PostToolUseFailure" not in events:
        since = ".".join(map(str, EVENT_MIN_VERSIONS["PostToolUseFailure"]))
        raise InvalidFilter(f"--known-errors needs Claude Code {since} or later; --client names the version")
    change = plan_install(_settings_file(project=project), hook_command("record"), events, *names)
    _apply(ctx, change, "Hooks added. New sessions will be recorded.", yes=yes, as_json=as_json)


@command.command("uninstall")
@_target_options
@click.option("--client", metavar="codex", help="Remove the hook from this client instead.")
@click.pass_context
def uninstall(ctx: click.Context, /, *, project: bool, yes: bool, as_json: bool, client: str | None) -> None:
    """Remove the hooks and restore the settings file."""
    if client is not None and client not in other_hook_files():
        raise click.BadParameter(f"{client!r} is not one of {', '.join(other_hook_files())}")
    path = _settings_file(project=project) if client is None else other_hook_files()[client]
    change = plan_uninstall(path)
    restored = "is as it was before" if change.is_exact else "has other changes since then, which were kept"
    text = f"Hooks removed. The settings file {restored}."
    _apply(ctx, change, text, yes=yes, as_json=as_json, installs=False)


@command.command("status")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def status(*, as_json: bool) -> None:
    """Show which settings contain the hooks, and how many sessions were recorded."""
    files = {
        "user": _settings_file(project=False),
        "project": _settings_file(project=True),
        **other_hook_files(),
    }
    commands_by_scope = {name: installed_hooks(path) for name, path in files.items()}
    answers = {name: any("hook approve" in line for lines in commands.values() for line in lines)
               for name, commands in commands_by_scope.items()}  # fmt: skip
    sessions = count_recorded_sessions()
    if as_json:
        rows = {
            name: {"path": str(files[name]), "events": list(commands_by_scope[name]), "approve": answers[name]}
            for name in files
        }
        print_json({**rows, "sessions": sessions})
        return
    for name, events in commands_by_scope.items():
        in_page = "; you can answer in `toolspan ui`" if answers[name] else ""
        click.echo(f"{name:8} {', '.join(events) or 'none'}{in_page}")
        click.echo(f"{'':8} in {files[name]}")
    click.echo(f"{format_count(sessions, 'session')} recorded so far")


@command.command("record")
def record_command() -> None:
    """Record the hook input on standard input. The hooks run this; it never fails."""
    from toolspan.integrations.hook_record import record_hook_input

    record_hook_input()


@command.command("guard")
def guard_command() -> None:
    """Check the call on standard input against the limits. The hooks run this; it never fails."""
    from toolspan.integrations.guard import check_hook_input

    check_hook_input()


@command.command("known-errors")
@click.option("--update", is_flag=True, help="Read what is known now, and print nothing. The hooks run this, too.")
def known_errors_command(*, update: bool) -> None:
    """Describe how the failure on standard input was recovered before. The hooks run this; it never fails."""
    if update:
        from toolspan.integrations.known_error_index import update_known_errors

        update_known_errors()
        return
    from toolspan.integrations.known_error_hook import print_known_error

    print_known_error()


@command.command("approve")
def approve_command() -> None:
    """Show the permission request on standard input in `toolspan ui`. The hooks run this; it never fails."""
    with suppress(ImportError):  # only reading is installed
        from toolspan.integrations.permission_hook import answer_permission_request

        answer_permission_request()


def _settings_file(*, project: bool) -> Path:
    places = SettingsPaths.for_project(Path.cwd())
    return places.local_file if project else places.user_file


def _apply(
    ctx: click.Context, change: SettingsChange, text: str, *, yes: bool, as_json: bool, installs: bool = True
) -> None:
    """Make a change if it is confirmed, and print `text`. JSON output has the change even if it is not made."""
    confirmed = bool(change) and yes
    if change and not as_json:
        for line in change.diff_lines():
            click.echo(escape_unprintable(line, keep="\t"))
        question = "Add these hooks?" if installs else "Remove these hooks?"
        confirmed = yes or click.confirm(question, default=False)
    if confirmed:
        change.apply(installs=installs)
    if as_json:
        row = {"path": str(change.path), "changed": confirmed, "diff": list(change.diff_lines())}
        print_json(row | {"exact": change.is_exact})
    elif not change:
        click.echo("The hooks are already installed." if installs else "The hooks are not installed.")
    elif confirmed:
        click.echo(text)
    if change and not confirmed:
        ctx.exit(1)
