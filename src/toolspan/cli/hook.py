"""`toolspan hook`: hooks of ours in a client's settings; they note what transcripts do not tell."""

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
from toolspan.settings import Places
from toolspan.settings.listening import (
    Change,
    Version,
    events_for,
    listening,
    to_install,
    to_uninstall,
)
from toolspan.wire.paths import HOOKS, config_dir

_VERSION = re.compile(r"(\d{1,6})\.(\d{1,6})\.(\d{1,6})")
_PATIENCE = 10
P = ParamSpec("P")
R = TypeVar("R")


@click.group("hook")
def command() -> None:
    """Have Claude Code note when it asks for consent, and when it has it.

    Transcripts do not tell how long somebody was asked. Hooks do: with them, `toolspan time` knows
    each wait. They note times, names and ids beside the transcript, no contents, and never decide
    anything. All but `record`, which the hooks run, print JSON with --json.
    """


def _target(function: Callable[P, R]) -> Callable[P, R]:
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
@_target
@click.option("--client", help="The client's version, if it is not the `claude` on the PATH.")
@click.pass_context
def install(
    ctx: click.Context, /, *, project: bool, yes: bool, as_json: bool, client: str | None
) -> None:
    """Add the hooks to the client's settings, after showing what changes.

    Only hooks that the client knows are added: an old one does not read settings with others.
    """
    version = _parsed(client) if client is not None else _installed()
    change = to_install(_file(project=project), _command(), events_for(version))
    if not change:
        _tell(change, "They are there already.", as_json=as_json, done=False)
        return
    if _wanted(change, "Add these hooks?", yes=yes, as_json=as_json):
        change.make(installs=True)
        _tell(change, "Added. Sessions that begin from now on are noted.", as_json=as_json)
    else:
        ctx.exit(1)


@command.command("uninstall")
@_target
@click.pass_context
def uninstall(ctx: click.Context, /, *, project: bool, yes: bool, as_json: bool) -> None:
    """Take the hooks out again: the file is as it was before them."""
    change = to_uninstall(_file(project=project))
    if not change:
        _tell(change, "There are none.", as_json=as_json, done=False)
        return
    if _wanted(change, "Take these hooks out?", yes=yes, as_json=as_json):
        change.make(installs=False)
        text = (
            "Taken out. The file is as it was before."
            if change.restores
            else "Taken out. The file was changed since they were added, so nothing else was."
        )
        _tell(change, text, as_json=as_json)
    else:
        ctx.exit(1)


@command.command("status")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def status(*, as_json: bool) -> None:
    """Where the hooks are, and how many sessions were noted."""
    files = {"user": _file(project=False), "project": _file(project=True)}
    found = {name: dict(listening(path)) for name, path in files.items()}
    sessions = sum(1 for _ in _noted())
    if as_json:
        rows = {name: {"path": str(files[name]), "events": list(found[name])} for name in files}
        print_json({**rows, "sessions": sessions})
        return
    for name, events in found.items():
        click.echo(f"{name:8} {', '.join(events) or 'none'}")
        click.echo(f"{'':8} in {files[name]}")
    click.echo(f"{sessions} session{'' if sessions == 1 else 's'} noted so far")


@command.command("record")
def record() -> None:
    """What the hooks run: note what standard input says. Never fails."""
    from toolspan.cli.hook_record import record as note

    note()


def _file(*, project: bool) -> Path:
    places = Places.of(Path.cwd())
    return places.local if project else places.own


def _installed() -> Version | None:
    """The version of the client on the PATH; None when there is none that tells."""
    program = shutil.which("claude")
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, "--version"], capture_output=True, timeout=_PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.match(done.stdout.decode(errors="replace"))
    return None if found is None else tuple(map(int, found.groups()))


def _parsed(text: str) -> Version:
    found = _VERSION.fullmatch(text)
    if found is None:
        raise click.BadParameter(f"{text!r} is no version like 2.1.325")
    return tuple(map(int, found.groups()))


def _noted() -> Iterator[Path]:
    try:
        yield from (config_dir() / "projects").glob(f"*/*/{HOOKS}")
    except OSError:
        return


def _command() -> str:
    """How a shell runs us, wherever it is; quiet, and never a failure."""
    program = Path(sys.argv[0])
    if program.name.startswith("toolspan") and program.is_file():
        words = [str(program.absolute())]
    else:
        words = [sys.executable, "-m", "toolspan"]
    return f"{shlex.join([*words, 'hook', 'record'])} 2>/dev/null || true"


def _wanted(change: Change, question: str, *, yes: bool, as_json: bool) -> bool:
    if as_json:
        if not yes:
            _tell(change, "", as_json=True, done=False)
        return yes
    for line in change.diff():
        click.echo(_plain(line))
    return yes or click.confirm(question, default=False)


def _tell(change: Change, text: str, *, as_json: bool, done: bool = True) -> None:
    if as_json:
        row = {"path": str(change.path), "changed": done, "diff": list(change.diff())}
        print_json(row | {"exact": change.restores})
    else:
        click.echo(text)


def _plain(line: str) -> str:
    """Without what a terminal would obey: the file need not be ours."""
    return "".join(one if one.isprintable() or one == "\t" else repr(one)[1:-1] for one in line)
