"""`toolspan replay`: the calls of a session, run again in a copy, and what came out otherwise."""

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import anyio
import click
import msgspec
from anyio.abc import TaskStatus

from toolspan.cli.draw import plain_line
from toolspan.cli.output import console, count, escape, print_json, short
from toolspan.cli.select import complete_session, locate
from toolspan.errors import ToolspanError
from toolspan.process import become_subreaper
from toolspan.profile import VERSIONS, profile
from toolspan.read.discover import FoundFile
from toolspan.read.transcript import Transcript, read
from toolspan.replay import Difference, Limits, Outcome, Replay, Scratch, open_scratch
from toolspan.replay.replay import recorded_commit, recorded_folder, recorded_version
from toolspan.replay.scratch import MOST_BYTES

DIFFERENT = 1
_MARKS = {"same": ("✓", "green"), "differs": ("✗", "red"), "skipped": ("–", "dim")}


@click.command("replay")
@click.argument(
    "names", nargs=-1, required=True, shell_complete=complete_session, metavar="TRANSCRIPT..."
)
@click.option(
    "--project",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="The folder to copy, if it is not the recorded one.",
)
@click.option(
    "--recorded",
    metavar="DIR",
    help="The folder that was recorded, if it is not the one the session began in.",
)
@click.option(
    "--commit",
    metavar="REV",
    help="Copy the files of this commit; `none`: what is there now. Default: the one the"
    " transcript names, if git has it.",
)
@click.option(
    "--bash",
    is_flag=True,
    help="Run commands too: with your rights, wherever they lead. Off by default.",
)
@click.option(
    "--profile",
    "version",
    type=click.Choice(VERSIONS),
    help="The client version to behave like, if not the recorded one.",
)
@click.option(
    "--most-mb",
    type=click.IntRange(min=1),
    default=MOST_BYTES >> 20,
    show_default=True,
    help="How large a folder is copied.",
)
@click.option("--keep", is_flag=True, help="Leave the copy there, and say where.")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Also list skipped calls and prepared files, one by one.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per call, and a summary.")
@click.pass_context
def command(ctx: click.Context, /, names: tuple[str, ...], **_: object) -> None:  # fmt: skip
    """Run the calls of a session again, in a copy of its project, and show what differs.

    File tools, searches and todo lists are run with the client version that was recorded; files are
    first put as they were then, as far as the transcript tells. Nothing but the copy is written,
    and it is removed at the end. Calls that need the network, a server, a model or a person are
    skipped; so are commands, unless --bash is given.

    Exit codes: 0 nothing differs; 1 something does; 2 it could not be tried.
    """
    wishes = msgspec.convert({**ctx.params, "names": names}, Wishes)
    become_subreaper()
    ctx.exit(anyio.run(_main, wishes))


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asks for."""

    names: tuple[str, ...]
    project: Path | None
    recorded: str | None
    commit: str | None
    bash: bool
    version: str | None
    most_mb: int
    keep: bool
    everything: bool
    as_json: bool


async def _main(wishes: Wishes) -> int:
    transcripts = _transcripts(wishes.names)
    recorded = wishes.recorded or recorded_folder(transcripts)
    if recorded is None:
        raise ToolspanError("the transcript does not say which folder it is about: --recorded DIR")
    source = _source(wishes, recorded, transcripts)
    client = profile(wishes.version) if wishes.version else None
    with open_scratch(
        source.folder, commit=source.commit, most_bytes=wishes.most_mb << 20, keep=wishes.keep
    ) as scratch:
        replay = Replay(
            transcripts,
            scratch,
            recorded=recorded,
            limits=Limits(bash=wishes.bash),
            client=client,
        )
        show = _Show(wishes, replay, recorded_version(transcripts))
        show.begin(source, scratch)
        stopped = await _until_signal(replay, show)
        if stopped is not None:
            return stopped
        show.end(scratch)
    return DIFFERENT if replay.summary.differs else 0


async def _until_signal(replay: Replay, show: "_Show") -> int | None:
    """Run it; the exit code when somebody ends it before: calls and the copy are ended first."""
    code: int | None = None
    failure: Exception | None = None

    async def listen(scope: anyio.CancelScope, *, task_status: TaskStatus[None]) -> None:
        nonlocal code
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
            task_status.started()
            async for number in signals:
                code = 128 + number
                scope.cancel()

    async with anyio.create_task_group() as group:
        await group.start(listen, group.cancel_scope)
        try:
            await replay.run(show.outcome)
        except Exception as error:  # noqa: BLE001 - raised below, where no group wraps it
            failure = error
        group.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return code


class _Source(NamedTuple):
    """What is copied."""

    folder: Path | None
    commit: str | None


def _source(wishes: Wishes, recorded: str, transcripts: Sequence[Transcript]) -> _Source:
    folder = wishes.project or Path(recorded)
    if not folder.is_dir() or (not folder.is_absolute() and wishes.project is None):
        if wishes.commit not in (None, "none"):
            raise ToolspanError(f"{folder}: no such folder; name the project with --project")
        return _Source(None, None)
    if folder.resolve() in (Path(folder.anchor or "/"), Path.home().resolve()):
        raise ToolspanError(f"{folder} is no project to copy; name one with --project")
    if wishes.commit is not None:
        return _Source(folder, None if wishes.commit == "none" else wishes.commit)
    commit = next(filter(None, map(recorded_commit, transcripts)), None)
    return _Source(folder, commit if commit is not None and has_commit(folder, commit) else None)


def has_commit(folder: Path, commit: str) -> bool:
    """Whether git has a commit, and the folder is all that it is about."""
    import subprocess

    command = ["git", "-C", str(folder), "cat-file", "-e", f"{commit}^{{commit}}"]
    try:
        return subprocess.run(command, check=False, capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _transcripts(names: Sequence[str]) -> list[Transcript]:
    """The files of one session, the main conversation first.

    Raises:
        ToolspanError: there is none, or they are of several sessions.
    """
    files = [file for name in names for file in _files(name)]
    sessions = {file.name.stem for file in files if file.name.role == "session"}
    if len(sessions) > 1:
        raise ToolspanError(f"{len(sessions)} sessions: only one can be run again at a time")
    ordered = sorted(files, key=lambda file: file.name.role != "session")
    return [read(file.path) for file in ordered]


def _files(name: str) -> list[FoundFile]:
    """A file with those of its subagents, or what a session's id names."""
    from toolspan.read.discover import discover
    from toolspan.wire.paths import session_folder

    found, _ = locate([name])
    path = Path(name)
    below = session_folder(path) / "subagents"
    if path.is_file() and path.suffix == ".jsonl" and below.is_dir():
        found = [*found, *(file for file in discover(below) if file.name.role == "agent")]
    return found


class _Show:
    """Tells how it goes: rows for programs, lines for people."""

    def __init__(self, wishes: Wishes, replay: Replay, version: str | None) -> None:
        self._wishes = wishes
        self._version = version
        self._replay = replay
        self._out = console()
        self._told = False

    def begin(self, source: _Source, scratch: Scratch) -> None:
        """What is run, and where."""
        if self._wishes.as_json:
            return
        self._out.print(f"[dim]{escape(self._begun(source, scratch))}[/]", soft_wrap=True)
        if not self._wishes.bash:
            self._out.print("[dim]commands are not run; --bash runs them[/]")
        left = [one for one in scratch.left_out if not one.startswith(".git:")]
        for one in left[:5]:
            self._out.print(f"[dim]not copied: {escape(one)}[/]", soft_wrap=True)
        if len(left) > 5:
            self._out.print(f"[dim]and {len(left) - 5:,} more are not copied[/]")

    def _begun(self, source: _Source, scratch: Scratch) -> str:
        name: str = self._replay.profile.name
        if self._version not in (None, name):
            name += f", recorded by {self._version}"
        if source.folder is None:
            folder = self._replay.ground.recorded
            return f"{folder} is not there: only files the transcript knows; as client {name}"
        what = f"{count(scratch.files, 'file')}, {scratch.size / (1 << 20):,.1f} MB"
        commit = f" at {source.commit[:12]}" if source.commit else ""
        return f"in a copy of {source.folder}{commit} ({what}); as client {name}"

    def outcome(self, outcome: Outcome) -> None:
        """One call."""
        self._prepared()
        if self._wishes.as_json:
            print_json({"type": "call", **msgspec.structs.asdict(outcome)})
            return
        if outcome.verdict == "skipped" and not self._wishes.everything:
            return
        mark, style = _MARKS[outcome.verdict]
        agent = "↳ " if outcome.agent else ""
        line = f"[{style}]{mark}[/] {agent}[bold]{escape(plain_line(outcome.tool, 30))}[/]"
        line += f"  {escape(plain_line(outcome.target or '', 70))}"
        told = outcome.reason or ", ".join(one.what for one in outcome.differences)
        self._out.print(f"{line}  [dim]{escape(told)}[/]" if told else line, soft_wrap=True)
        for note in outcome.notes:
            self._out.print(f"    [dim]{escape(short(note, 200))}[/]", soft_wrap=True)
        for one in outcome.differences:
            self._difference(one)

    def _difference(self, one: Difference) -> None:
        head = f"    [yellow]{escape(short(f'{one.what} {one.path or str()}', 120))}[/]"
        if not one.diff:
            told = f"{escape(short(one.recorded, 60))} [dim]then,[/] {escape(short(one.now, 60))}"
            self._out.print(f"{head}: {told} [dim]now[/]", soft_wrap=True)
            return
        self._out.print(head, soft_wrap=True)
        for line in one.diff[2:] if len(one.diff) > 2 else one.diff:
            style = {"-": "red", "+": "green"}.get(line[:1], "dim")
            cut = escape(plain_line(line, 160))
            self._out.print(f"      [{style}]{cut}[/]", no_wrap=True, overflow="ellipsis")

    def _prepared(self) -> None:
        """What was done to files before the first call; told once."""
        if self._told:
            return
        self._told = True
        notes = self._replay.prepared
        for note in notes:
            if self._wishes.as_json:
                print_json({"type": "prepared", "note": note})
            elif self._wishes.everything:
                self._out.print(f"[dim]{escape(short(note, 200))}[/]", soft_wrap=True)
        if notes and not self._wishes.as_json and not self._wishes.everything:
            doubtful = sum("doubtful" in note for note in notes)
            doubt = f", {doubtful:,} of them doubtful" if doubtful else ""
            files = count(len(notes), "file")
            self._out.print(f"[dim]{files} put as recorded{doubt} (--all lists them)[/]")

    def end(self, scratch: Scratch) -> None:
        """The numbers."""
        summary = self._replay.summary
        skipped = sum(summary.skipped.values())
        kept = str(scratch.place) if self._wishes.keep else None
        if self._wishes.as_json:
            print_json({"type": "summary", **msgspec.structs.asdict(summary), "kept": kept})
            return
        calls = count(summary.same + summary.differs + skipped, "call")
        line = f"{calls}: {summary.same:,} the same, {summary.differs:,} different"
        self._out.print(f"{line}, {skipped:,} skipped")
        for reason, number in sorted(summary.skipped.items(), key=lambda one: -one[1]):
            self._out.print(f"  [dim]{number:>5,}  {escape(reason)}[/]", soft_wrap=True)
        if kept:
            self._out.print(f"kept: {escape(kept)}", soft_wrap=True)
