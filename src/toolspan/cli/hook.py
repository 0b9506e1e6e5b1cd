"""`toolspan hook`: record when Claude Code asks for permission, and answer on the page of `toolspan ui`."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolspan.archive.words import format_count
from toolspan.cli.output import combine_options, escape_unprintable, print_json
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

if TYPE_CHECKING:
    from toolspan.integrations.web_approver import AlwaysOffer
    from toolspan.runtime.permissions.decide import PermissionRequest
    from toolspan.runtime.permissions.suggestions import Suggestion

_VERSION_PATTERN = re.compile(r"(\d{1,6})\.(\d{1,6})\.(\d{1,6})")
_VERSION_TIMEOUT_SECONDS = 10


@click.group("hook")
def command() -> None:
    """Make Claude Code record when it asks for permission and when you answer.

    Transcripts do not record how long a call waited for permission. With these hooks, `toolspan
    time` shows each wait. They write times, names and ids next to the transcript, but no contents.
    They do not decide anything unless you install them with --approve, which lets you answer in
    `toolspan ui`. All commands except `record` and `approve`, which the hooks run, print JSON with
    --json.
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
@click.option("--approve", is_flag=True, help="Also let you answer permission requests on the page of `toolspan ui`.")
@click.pass_context
def install(
    ctx: click.Context, /, *, project: bool, yes: bool, as_json: bool, client: str | None, approve: bool
) -> None:  # fmt: skip
    """Add the hooks to the client's settings, after showing the change.

    Only hooks that the client version supports are added, because old clients reject settings
    with others.

    With --approve, permission requests also appear on the page of a running `toolspan ui`. The
    client waits up to 60 seconds for an answer there before it shows its own dialog; if no page is
    open, it shows the dialog immediately. To turn this off, install again without --approve.
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
    """Show which settings contain the hooks, and how many sessions were recorded."""
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
    """Show the permission request on standard input in `toolspan ui`. The hooks run this; it never fails."""
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


_DESTINATIONS = {"session": "session", "local": "localSettings", "user": "userSettings"}
_SCOPES = {"session": "for this session", "local": "in this project", "user": "in all your projects"}


def answer_permission_request() -> None:
    """Ask about the hook input on standard input, and print the answer in the client's format. Never raises."""
    try:
        if sys.stdin is None or sys.stdin.isatty():
            return
        hook_input = json.loads(sys.stdin.buffer.read())
        decision = _ask(hook_input) if hook_input.get("hook_event_name") == "PermissionRequest" else None
        if decision is not None:
            output = {"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": decision}}
            sys.stdout.write(json.dumps(output) + "\n")
    except Exception:  # noqa: BLE001 - a failure must never disturb the client
        return


def _ask(hook_input: Mapping[str, object]) -> dict[str, object] | None:
    from toolspan.integrations.claude_hooks import APPROVE_SECONDS
    from toolspan.integrations.web_approver import ASK_USER_QUESTION, PermissionQuestion, ask_page
    from toolspan.tools.request_preview import preview_request

    tool, tool_input = str(hook_input["tool_name"]), hook_input.get("tool_input")
    if tool == ASK_USER_QUESTION or not isinstance(tool_input, Mapping):
        return None  # the client shows its own form
    session, cwd, agent = (hook_input.get(key) for key in ("session_id", "cwd", "agent_id"))
    preview = preview_request(_permission_request(tool, tool_input, cwd))
    suggestions = hook_input.get("permission_suggestions")
    updates = [update for update in suggestions if isinstance(update, dict)] if isinstance(suggestions, list) else []
    answer = ask_page(
        PermissionQuestion(
            tool=tool,
            input=tool_input,
            client="Claude Code",
            session=session if isinstance(session, str) else None,
            agent=agent if isinstance(agent, str) else None,
            cwd=cwd if isinstance(cwd, str) else None,
            text=preview.raw_text,
            is_diff=preview.is_diff,
            files=preview.files,
            seconds=APPROVE_SECONDS,
            needs_page=True,
            always=_describe_offer(updates),
        )
    )
    if answer is None:
        return None
    if answer.behavior == "allow":
        if answer.always is None:
            return {"behavior": "allow"}
        destination = _DESTINATIONS[answer.always]
        return {
            "behavior": "allow", "updatedPermissions": [{**update, "destination": destination} for update in updates]
        }  # fmt: skip
    return {"behavior": "deny", "message": answer.message or "The user denied this in toolspan ui."}


def _permission_request(tool: str, tool_input: Mapping[str, object], cwd: object) -> PermissionRequest:
    from toolspan.runtime.pending_call import LiveBodyStore
    from toolspan.runtime.permissions.decide import PermissionRequest
    from toolspan.types.ids import CallId
    from toolspan.types.span import Call

    folder = Path(cwd if isinstance(cwd, str) else "/")
    call = Call(
        id=CallId(""), tool=tool, at=0, requested_at=None, target=None, body_store=LiveBodyStore(tool_input)
    )  # fmt: skip
    project = Path(os.environ.get("CLAUDE_PROJECT_DIR") or folder)
    return PermissionRequest(call=call, input=tool_input, cwd=folder, project=project)


def _describe_offer(updates: Sequence[Suggestion]) -> AlwaysOffer | None:
    """Return the permissions that the client itself would offer as "always"."""
    if not updates:
        return None
    from toolspan.cli.prompt.approver import GrantOffer
    from toolspan.integrations.web_approver import AlwaysOffer

    offer = GrantOffer.from_suggestions(updates)
    allows = tuple(offer.summary_lines())
    return AlwaysOffer(allows=allows, scopes={scope: _SCOPES[scope] for scope in offer.scopes}) if allows else None
