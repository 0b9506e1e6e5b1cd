"""`toolspan hook`: hooks of ours in a client's settings; they note what transcripts do not tell."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ParamSpec, TypeVar

import click

from toolspan.cli.output import print_json
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
P = ParamSpec("P")
R = TypeVar("R")


@click.group("hook")
def command() -> None:
    """Have Claude Code note when it asks for consent, and when it has it.

    Transcripts do not tell how long somebody was asked. Hooks do: with them, `toolspan time` knows
    each wait. They note times, names and ids beside the transcript, no contents, and never decide
    anything. All but `record`, which the hooks run, print JSON with --json.
    """


def _target_options(function: Callable[P, R]) -> Callable[P, R]:
    options = (
        click.option("--project", is_flag=True, help="The settings of this folder alone"
                     " (.claude/settings.local.json), not the user's."),
        click.option("--yes", is_flag=True, help="Without being asked."),
        click.option("--json", "as_json", is_flag=True, help="One JSON object; nobody is asked."),
    )  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function


@command.command("install")
@_target_options
@click.option("--client", help="The client's version, if it is not the `claude` on the PATH.")
@click.pass_context
def install(ctx: click.Context, /, *, project: bool, yes: bool, as_json: bool, client: str | None) -> None:
    """Add the hooks to the client's settings, after showing what changes.

    Only hooks that the client knows are added: an old one does not read settings with others.
    """
    version = _parse_version(client) if client is not None else _installed_client_version()
    change = plan_install(_settings_file(project=project), _record_command_line(), events_for(version))
    if not change:
        _print_result(change, "They are there already.", as_json=as_json, done=False)
        return
    if _confirm_change(change, "Add these hooks?", yes=yes, as_json=as_json):
        change.apply(installs=True)
        _print_result(change, "Added. Sessions that begin from now on are noted.", as_json=as_json)
    else:
        ctx.exit(1)


@command.command("uninstall")
@_target_options
@click.pass_context
def uninstall(ctx: click.Context, /, *, project: bool, yes: bool, as_json: bool) -> None:
    """Take the hooks out again: the file is as it was before them."""
    change = plan_uninstall(_settings_file(project=project))
    if not change:
        _print_result(change, "There are none.", as_json=as_json, done=False)
        return
    if _confirm_change(change, "Take these hooks out?", yes=yes, as_json=as_json):
        change.apply(installs=False)
        text = (
            "Taken out. The file is as it was before."
            if change.is_exact
            else "Taken out. The file was changed since they were added, so nothing else was."
        )
        _print_result(change, text, as_json=as_json)
    else:
        ctx.exit(1)


@command.command("status")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def status(*, as_json: bool) -> None:
    """Where the hooks are, and how many sessions were noted."""
    files = {"user": _settings_file(project=False), "project": _settings_file(project=True)}
    events_by_scope = {name: dict(installed_hooks(path)) for name, path in files.items()}
    sessions = sum(1 for _ in _recorded_files())
    if as_json:
        rows = {name: {"path": str(files[name]), "events": list(events_by_scope[name])} for name in files}
        print_json({**rows, "sessions": sessions})
        return
    for name, events in events_by_scope.items():
        click.echo(f"{name:8} {', '.join(events) or 'none'}")
        click.echo(f"{'':8} in {files[name]}")
    click.echo(f"{sessions} session{'' if sessions == 1 else 's'} noted so far")


@command.command("record")
def record_command() -> None:
    """What the hooks run: note what standard input says. Never fails."""
    from toolspan.cli.hook_record import record_hook_input as note

    note()


def _settings_file(*, project: bool) -> Path:
    places = SettingsPaths.for_project(Path.cwd())
    return places.local_file if project else places.user_file


def _installed_client_version() -> VersionTuple | None:
    """The version of the client on the PATH; None when there is none that tells."""
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


def _parse_version(text: str) -> VersionTuple:
    match = _VERSION_PATTERN.fullmatch(text)
    if match is None:
        raise click.BadParameter(f"{text!r} is no version like 2.1.325")
    return tuple(map(int, match.groups()))


def _recorded_files() -> Iterator[Path]:
    try:
        yield from (config_dir() / "projects").glob(f"*/*/{HOOK_LOG_NAME}")
    except OSError:
        return


def _record_command_line() -> str:
    """How a shell runs us, wherever it is; quiet, and never a failure."""
    program = Path(sys.argv[0])
    if program.name.startswith("toolspan") and program.is_file():
        arguments = [str(program.absolute())]
    else:
        arguments = [sys.executable, "-m", "toolspan"]
    return f"{shlex.join([*arguments, 'hook', 'record'])} 2>/dev/null || true"


def _confirm_change(change: SettingsChange, question: str, *, yes: bool, as_json: bool) -> bool:
    if as_json:
        if not yes:
            _print_result(change, "", as_json=True, done=False)
        return yes
    for line in change.diff_lines():
        click.echo(_escape_unprintable(line))
    return yes or click.confirm(question, default=False)


def _print_result(change: SettingsChange, text: str, *, as_json: bool, done: bool = True) -> None:
    if as_json:
        row = {"path": str(change.path), "changed": done, "diff": list(change.diff_lines())}
        print_json(row | {"exact": change.is_exact})
    else:
        click.echo(text)


def _escape_unprintable(line: str) -> str:
    """Without what a terminal would obey: the file need not be ours."""
    return "".join(
        character if character.isprintable() or character == "\t" else repr(character)[1:-1] for character in line
    )
