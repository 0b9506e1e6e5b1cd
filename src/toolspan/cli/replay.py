"""`toolspan replay`: run the calls of a session again in a copy of its project, and compare the results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import click
import msgspec

from toolspan.archive.words import format_count, plain_line
from toolspan.cli.output import combine_options, escape_markup, make_console, markup_line, print_json, warn
from toolspan.cli.process import cancel_on_signal
from toolspan.cli.profile_type import ProfileType
from toolspan.cli.select import REPORTER, complete_session, fetch_stores
from toolspan.errors import ToolspanError
from toolspan.replay import Replay, ReplayDifference, ReplayLimits, ReplayOutcome, ScratchProject, open_scratch
from toolspan.replay.replay import recorded_folder, recorded_version
from toolspan.replay.scratch import MAX_BYTES
from toolspan.replay.source import choose_source, read_session
from toolspan.runtime.process import become_subreaper
from toolspan.runtime.profiles import profile
from toolspan.runtime.sandbox import Sandbox

if TYPE_CHECKING:
    from toolspan.runtime.sandbox.active import ActiveSandbox

EXIT_DIFFERENT = 1
_OUTCOME_MARKS = {"same": ("✓", "green"), "differs": ("✗", "red"), "skipped": ("–", "dim")}


_replay_options = combine_options(
    click.option("--project", type=click.Path(path_type=Path, file_okay=False, exists=True),
                 help="The folder to copy.  [default: the recorded folder]"),
    click.option("--recorded", metavar="DIR",
                 help="The folder that paths in the transcript refer to.  [default: where the session began]"),
    click.option("--commit", metavar="REV", help="Copy the files of this commit; `none` for the current files."
                 "  [default: the commit in the transcript, if git has it]"),
    click.option("--bash", is_flag=True, help="Also run shell commands, inside a sandbox where one is available."),
    click.option("--no-sandbox", is_flag=True, help="With --bash: run commands with your own permissions."),
    click.option("--profile", "version", type=ProfileType(),
                 help="The client version to imitate.  [default: the recorded version]"),
    click.option("--most-mb", type=click.IntRange(min=1), default=MAX_BYTES >> 20, show_default=True,
                 help="Do not copy a folder larger than this many megabytes."),
    click.option("--keep", is_flag=True, help="Keep the copy, and print where it is."),
    click.option("--all", "everything", is_flag=True, help="Also list skipped calls and prepared files."),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object per call, and a summary."),
)  # fmt: skip


@click.command("replay")
@click.argument(
    "names", nargs=-1, callback=fetch_stores, required=True, shell_complete=complete_session, metavar="TRANSCRIPT..."
)
@_replay_options
@click.pass_context
def command(ctx: click.Context, /, names: tuple[str, ...], **_: object) -> None:
    """Run the calls of a session again in a copy of its project, and show the differences.

    File tools, searches and todo lists run as in the recorded client version. Files are first
    restored to their state at that time, as far as it is recorded. Only the copy is written to, and
    it is removed at the end. Calls that need the network, a server, a model or a user are skipped,
    and so are commands unless you add --bash.

    Exit codes: 0 no differences; 1 differences; 2 the session could not be replayed.
    """
    become_subreaper()
    ctx.exit(anyio.run(_run_replay, msgspec.convert({**ctx.params, "names": names}, _ReplayOptions)))


class _ReplayOptions(msgspec.Struct, frozen=True, kw_only=True):
    names: tuple[str, ...]
    project: Path | None
    recorded: str | None
    commit: str | None
    bash: bool
    no_sandbox: bool
    version: str | None
    most_mb: int
    keep: bool
    everything: bool
    as_json: bool


async def _run_replay(options: _ReplayOptions) -> int:
    transcripts = read_session(options.names, REPORTER)
    recorded = options.recorded or recorded_folder(transcripts)
    if recorded is None:
        raise ToolspanError("the transcript does not record its folder; name it with --recorded DIR")
    client = profile(options.version) if options.version else None
    folder, commit = choose_source(transcripts, recorded, project=options.project, commit=options.commit)
    with open_scratch(folder, commit=commit, max_bytes=options.most_mb << 20, keep=options.keep) as scratch:
        sandbox = _open_sandbox(scratch) if options.bash and not options.no_sandbox else None
        limits = ReplayLimits(bash=options.bash)
        replay = Replay(transcripts, scratch, recorded=recorded, limits=limits, client=client, sandbox=sandbox)
        printer = _ReplayPrinter(options, replay, recorded_version(transcripts))
        printer.print_start(folder, commit, scratch)
        try:
            with cancel_on_signal() as ended:
                await replay.run(printer.print_outcome)
        finally:
            if sandbox is not None:
                await sandbox.close()
        if ended.code is not None:
            return ended.code
        printer.print_summary(scratch)
    return EXIT_DIFFERENT if replay.summary.differs else 0


def _open_sandbox(scratch: ScratchProject) -> ActiveSandbox:
    from toolspan.runtime.sandbox.active import ActiveSandbox  # imports the proxy, which few commands need

    sandbox = ActiveSandbox(Sandbox(strict=True, allow_write=[scratch.root], ask_for_domains=False, required=False))
    sandbox.open()
    if sandbox.warning is not None:
        warn(f"commands run with your own permissions and WITHOUT a sandbox: {sandbox.warning}")
    return sandbox


class _ReplayPrinter:
    def __init__(self, options: _ReplayOptions, replay: Replay, version: str | None) -> None:
        self._options = options
        self._version = version
        self._replay = replay
        self._out = make_console()
        self._has_printed_preparation = False

    def print_start(self, folder: Path | None, commit: str | None, scratch: ScratchProject) -> None:
        if self._options.as_json:
            return
        client: str = self._replay.profile.name
        if self._version not in (None, client):
            client += f", recorded by {self._version}"
        if folder is None:
            recorded = self._replay.mapping.recorded_root
            start = f"{recorded} does not exist: using only files in the transcript; client {client}"
        else:
            size = f"{format_count(scratch.file_count, 'file')}, {scratch.total_bytes / (1 << 20):,.1f} MB"
            start = f"in a copy of {folder}{f' at {commit[:12]}' if commit else ''} ({size}); client {client}"
        self._out.print(f"[dim]{escape_markup(start)}[/]", soft_wrap=True)
        if not self._options.bash:
            self._out.print("[dim]shell commands are skipped; --bash runs them[/]")
        omitted = [path for path in scratch.omitted if not path.startswith(".git:")]
        for path in omitted[:5]:
            self._out.print(f"[dim]not copied: {escape_markup(path)}[/]", soft_wrap=True)
        if len(omitted) > 5:
            self._out.print(f"[dim]and {len(omitted) - 5:,} more are not copied[/]")

    def print_outcome(self, outcome: ReplayOutcome) -> None:
        self._print_preparation()
        if self._options.as_json:
            print_json({"type": "call", **msgspec.structs.asdict(outcome)})
            return
        if outcome.verdict == "skipped" and not self._options.everything:
            return
        mark, style = _OUTCOME_MARKS[outcome.verdict]
        agent = "↳ " if outcome.agent else ""
        line = f"[{style}]{mark}[/] {agent}[bold]{escape_markup(plain_line(outcome.tool, 30))}[/]"
        line += f"  {escape_markup(plain_line(outcome.target or '', 70))}"
        reason = outcome.reason or ", ".join(difference.what for difference in outcome.differences)
        self._out.print(f"{line}  [dim]{escape_markup(reason)}[/]" if reason else line, soft_wrap=True)
        for note in outcome.notes:
            self._out.print(f"    [dim]{markup_line(note, 200)}[/]", soft_wrap=True)
        for difference in outcome.differences:
            self._print_difference(difference)

    def _print_difference(self, difference: ReplayDifference) -> None:
        head = f"    [yellow]{markup_line(f'{difference.what} {difference.path or str()}', 120)}[/]"
        if not difference.diff:
            recorded, now = (markup_line(text, 60) for text in (difference.recorded, difference.now))
            self._out.print(f"{head}: {recorded} [dim]recorded,[/] {now} [dim]now[/]", soft_wrap=True)
            return
        self._out.print(head, soft_wrap=True)
        for line in difference.diff[2:] if len(difference.diff) > 2 else difference.diff:
            style = {"-": "red", "+": "green"}.get(line[:1], "dim")
            cut = escape_markup(plain_line(line, 160))
            self._out.print(f"      [{style}]{cut}[/]", no_wrap=True, overflow="ellipsis")

    def _print_preparation(self) -> None:
        if self._has_printed_preparation:
            return
        self._has_printed_preparation = True
        notes = self._replay.preparation_notes
        for note in notes:
            if self._options.as_json:
                print_json({"type": "prepared", "note": note})
            elif self._options.everything:
                self._out.print(f"[dim]{markup_line(note, 200)}[/]", soft_wrap=True)
        if notes and not self._options.as_json and not self._options.everything:
            doubtful = sum("doubtful" in note for note in notes)
            doubt = f", {doubtful:,} of them doubtful" if doubtful else ""
            files = format_count(len(notes), "file")
            self._out.print(f"[dim]{files} restored as recorded{doubt} (--all lists them)[/]")

    def print_summary(self, scratch: ScratchProject) -> None:
        summary = self._replay.summary
        skipped = sum(summary.skipped.values())
        copy_folder = str(scratch.root) if self._options.keep else None
        if self._options.as_json:
            print_json({"type": "summary", **msgspec.structs.asdict(summary), "kept": copy_folder})
            return
        calls = format_count(summary.same + summary.differs + skipped, "call")
        line = f"{calls}: {summary.same:,} the same, {summary.differs:,} different"
        self._out.print(f"{line}, {skipped:,} skipped")
        for reason, number in sorted(summary.skipped.items(), key=lambda item: -item[1]):
            self._out.print(f"  [dim]{number:>5,}  {escape_markup(reason)}[/]", soft_wrap=True)
        if copy_folder:
            self._out.print(f"kept: {escape_markup(copy_folder)}", soft_wrap=True)
