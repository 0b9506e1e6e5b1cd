"""`toolspan hook`: record when Claude Code asks for permission, and answer in the page of `toolspan ui`."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import click

from toolspan.cli.output import combine_options, escape_unprintable, format_count, print_json
from toolspan.formats.claude.paths import HOOK_LOG_NAME, config_dir
from toolspan.integrations.claude_hooks import (
    SettingsChange,
    VersionTuple,
    events_for,
    installed_hooks,
    plan_install,
    plan_uninstall,
)
from toolspan.runtime.settings import SettingsPaths

_VERSION_PATTERN = re.compile(r"(\d{1,6})\.(\d{1,6})\.(\d{1,6})")
_VERSION_TIMEOUT_SECONDS = 10


@click.group("hook")
def command() -> None:
    """Make Claude Code record when it asks for permission and when you answer.

    Transcripts do not record how long a call waited for permission. With these hooks, `toolspan
    time` shows each wait. They write times, names and ids next to the transcript, no contents, and
    decide nothing, unless you install them with --approve: then you can answer in `toolspan ui`. All
    commands except `record` and `approve`, which the hooks run, print JSON with --json.
    """


_target_options = combine_options(
    click.option("--project", is_flag=True, help="Change the settings of this folder"
                 " (.claude/settings.local.json), not your user settings."),
    click.option("--yes", is_flag=True, help="Do not ask for confirmation."),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object; needs --yes to change anything."),
)  # fmt: skip


@command.command("install")
@_target_options
@click.option("--client", help="The client version.  [default: that of `claude` on the PATH]")
@click.option("--approve", is_flag=True, help="Also let you answer permission requests in the page of `toolspan ui`.")
@click.pass_context
def install(
    ctx: click.Context, /, *, project: bool, yes: bool, as_json: bool, client: str | None, approve: bool
) -> None:  # fmt: skip
    """Add the hooks to the client's settings, after showing the change.

    Only hooks that the client version supports are added, because old clients reject settings
    with others.

    With --approve, a permission request is also shown in the page of a running `toolspan ui`. The
    client waits at most 60 seconds for an answer there, and not at all if no page is open; then it
    asks as always. Install again without --approve to turn it off.
    """
    if client is None:
        version = _installed_client_version()
    elif match := _VERSION_PATTERN.fullmatch(client):
        version = tuple(map(int, match.groups()))
    else:
        raise click.BadParameter(f"{client!r} is not a version such as 2.1.325")
    change = plan_install(
        _settings_file(project=project),
        _hook_command_line("record"),
        events_for(version),
        approve_command=_hook_command_line("approve") if approve else None,
    )
    if not change:
        _print_result(change, "The hooks are already installed.", as_json=as_json, done=False)
    elif _confirm_change(change, "Add these hooks?", yes=yes, as_json=as_json):
        change.apply(installs=True)
        _print_result(change, "Hooks added. New sessions will be recorded.", as_json=as_json)
    else:
        ctx.exit(1)


@command.command("uninstall")
@_target_options
@click.pass_context
def uninstall(ctx: click.Context, /, *, project: bool, yes: bool, as_json: bool) -> None:
    """Remove the hooks and restore the settings file."""
    change = plan_uninstall(_settings_file(project=project))
    if not change:
        _print_result(change, "The hooks are not installed.", as_json=as_json, done=False)
    elif _confirm_change(change, "Remove these hooks?", yes=yes, as_json=as_json):
        change.apply(installs=False)
        restored = "is as it was before" if change.is_exact else "has other changes since then, which were kept"
        _print_result(change, f"Hooks removed. The settings file {restored}.", as_json=as_json)
    else:
        ctx.exit(1)


@command.command("status")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def status(*, as_json: bool) -> None:
    """Show which settings have the hooks, and how many sessions were recorded."""
    files = {"user": _settings_file(project=False), "project": _settings_file(project=True)}
    commands_by_scope = {name: installed_hooks(path) for name, path in files.items()}
    answers = {name: any("hook approve" in line for lines in commands.values() for line in lines)
               for name, commands in commands_by_scope.items()}  # fmt: skip
    sessions = 0
    with suppress(OSError):
        sessions = len(list((config_dir() / "projects").glob(f"*/*/{HOOK_LOG_NAME}")))
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
    from toolspan.cli.hook_record import record_hook_input

    record_hook_input()


@command.command("approve")
def approve_command() -> None:
    """Ask for the permission on standard input in `toolspan ui`. The hooks run this; it never fails."""
    from toolspan.cli.hook_approve import answer_permission_request

    answer_permission_request()


def _settings_file(*, project: bool) -> Path:
    places = SettingsPaths.for_project(Path.cwd())
    return places.local_file if project else places.user_file


def _installed_client_version() -> VersionTuple | None:
    program = shutil.which("claude")
    if program is None:
        return None
    try:
        process = subprocess.run(
            [program, "--version"], capture_output=True, timeout=_VERSION_TIMEOUT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION_PATTERN.match(process.stdout.decode(errors="replace"))
    return None if match is None else tuple(map(int, match.groups()))


def _hook_command_line(name: str) -> str:
    """Return the shell command for the hooks. It uses an absolute path and always succeeds."""
    program = Path(sys.argv[0])
    if program.name.startswith("toolspan") and program.is_file():
        arguments = [str(program.absolute())]
    else:
        arguments = [sys.executable, "-m", "toolspan"]
    return f"{shlex.join([*arguments, 'hook', name])} 2>/dev/null || true"


def _confirm_change(change: SettingsChange, question: str, *, yes: bool, as_json: bool) -> bool:
    if as_json:
        if not yes:
            _print_result(change, "", as_json=True, done=False)
        return yes
    for line in change.diff_lines():
        click.echo(escape_unprintable(line, keep="\t"))
    return yes or click.confirm(question, default=False)


def _print_result(change: SettingsChange, text: str, *, as_json: bool, done: bool = True) -> None:
    if as_json:
        row = {"path": str(change.path), "changed": done, "diff": list(change.diff_lines())}
        print_json(row | {"exact": change.is_exact})
    else:
        click.echo(text)
