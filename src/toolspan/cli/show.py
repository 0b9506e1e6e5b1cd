"""`toolspan show`: a session as a timeline, or one call in full."""

import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import click
import msgspec
from msgspec import Struct
from rich.text import Text

from toolspan.cli.output import STATE_STYLE, console, count, print_json, progress
from toolspan.cli.portrait import Portrait, call_json, call_lines, period, portrait_of
from toolspan.cli.render import GLYPHS, Look, draw, facts, joined, session_lines
from toolspan.cli.select import complete_session, newest_session, session_files
from toolspan.cli.veiled import deliver, veil, veils
from toolspan.errors import Ambiguous, NotFound, SourceError
from toolspan.model.span import Span, moment
from toolspan.model.tokens import Tokens
from toolspan.read.discover import FoundFile, default_roots, discover
from toolspan.read.facts import CallFacts
from toolspan.read.history import Ledger, pick, short_id
from toolspan.read.lineage import sum_tokens
from toolspan.read.messages import script
from toolspan.read.timeline import Strand, timeline, turn_facts
from toolspan.read.transcript import Transcript, read
from toolspan.report.files.gather import mentions
from toolspan.wire.paths import parse_name, session_folder
from toolspan.wire.source import source_of

_HEAD = 1 << 16


@click.command("show")
@click.argument(
    "names", nargs=-1, shell_complete=complete_session, metavar="[FILE|FOLDER|SESSION|CALL]..."
)
@click.option("--last", is_flag=True, help="The session written to last (the default).")
@click.option("--session", help="Look for the call in the session whose id begins so.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.option(
    "--messages/--no-messages", default=True, help="Whether the words between calls are told."
)
@click.option("--thinking", is_flag=True, help="The model's thinking too.")
@click.option("--width", type=click.IntRange(40), help="Columns; by default the terminal's.")
@click.option("--full", is_flag=True, help="Texts in full length.")
@click.option("--html", "as_html", is_flag=True, help="One page that needs no network.")
@veils
def command(
    names: tuple[str, ...],
    *,
    last: bool,
    session: str | None,
    as_json: bool,
    width: int | None,
    output: Path | None,
    **wishes: bool,
) -> None:
    """Tell a session as a timeline, or one call in full.

    A session is named by its file or by the beginning of its id; its subagents stand under the
    calls that started them. A call is named by the beginning of its id, and looked for in the files
    and folders named beside it, else in all transcripts.

    Lanes: calls joined by ┌ │ └ ran at the same time; ╷ ╎ ╵ were asked for together and ran one
    after another; ┊ marks what a rewind left behind. Times are UTC.
    """
    found = _find(names, last=last, session=session)
    page = Page(wishes.pop("as_html"), output, wishes.pop("redact"), wishes.pop("skeleton"))
    if page.wanted:
        page.write(found)
        return
    out = console()
    out.width = width or _columns() or out.width
    told = Told.of(found) if isinstance(found, list) else found
    look = Look(out.width, told.cwd, **wishes)
    if as_json:
        print_json(_session_json(told, look) if isinstance(told, Told) else call_json(told))
        return
    lines = _session_lines(told, look) if isinstance(told, Told) else call_lines(told, look)
    draw(lines, out)


def _columns() -> int | None:
    """The terminal's width, also when the output goes to a pager."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):
        return None


class Page(NamedTuple):
    """What was said about the page that a session may be made into."""

    html: bool
    output: Path | None
    redact: bool
    skeleton: bool

    @property
    def wanted(self) -> bool:
        """Whether a page is to be written.

        Raises:
            UsageError: it is told where or how, but not that it is.
        """
        if not self.html and (self.output or self.redact or self.skeleton):
            raise click.UsageError("-o, --redact and --skeleton go with --html")
        return self.html

    def write(self, found: list[FoundFile] | Portrait) -> None:
        """Write the page of a session.

        Raises:
            UsageError: it is a call, or the page would go to a terminal.
        """
        from toolspan.export import html

        if not isinstance(found, list):
            raise click.UsageError("--html makes a page of a session, not of one call")
        if self.output is None and sys.stdout.isatty():
            raise click.UsageError("a page is not for the terminal: add -o FILE")
        over = veil(redact=self.redact, skeleton=self.skeleton)
        made = html.page(*_transcripts(found), veil=over)
        deliver((made.encode("utf-8", "replace"),), self.output)
        if self.output is not None:
            click.echo(f"{self.output}: {len(made) / 1e6:.1f} MB", err=True)


class Told(Struct, frozen=True, kw_only=True):
    """A session, read."""

    main: Transcript
    files: list[Transcript]
    strand: Strand

    @classmethod
    def of(cls, files: Sequence[FoundFile]) -> "Told":
        """The session of these files."""
        transcripts = _transcripts(files)
        strand = timeline([script(transcript) for transcript in transcripts])
        return cls(main=transcripts[0], files=transcripts, strand=strand)

    @property
    def cwd(self) -> str | None:
        """The folder it worked in."""
        return self.main.info.cwd

    @property
    def spans(self) -> list[Span]:
        """Every call, subagents' calls included."""
        return [placed.span for strand in self.strand.strands() for placed in strand.calls]

    @property
    def agents(self) -> int:
        """How many subagents it had."""
        return sum(1 for _ in self.strand.strands()) - 1

    @property
    def tokens(self) -> Tokens:
        """Of all files, each message once."""
        return sum_tokens(transcript.message_tokens for transcript in self.files)

    @property
    def busiest(self) -> int:
        """How many calls of one batch were under way at once, at most."""
        batches = (batch for strand in self.strand.strands() for batch in strand.batches)
        groups = (group for batch in batches for group in batch.groups)
        return max((group.concurrency for group in groups), default=0)


def _transcripts(files: Sequence[FoundFile]) -> list[Transcript]:
    """The session's own transcript, then its subagents'."""
    mains = [file for file in files if file.name.role != "agent"] or files
    main = max(mains, key=lambda file: file.modified)
    others = [file for file in files if file.name.role == "agent" and file is not main]
    return [read(main.path), *_readable(others)]


def _readable(files: Sequence[FoundFile]) -> Iterator[Transcript]:
    for file in files:
        try:
            yield read(file.path)
        except SourceError as error:
            click.echo(f"toolspan: {error}", err=True)


def _find(names: Sequence[str], *, last: bool, session: str | None) -> list[FoundFile] | Portrait:
    """What the words name: the files of a session, or a call.

    Raises:
        NotFound: nothing has that name, or more than one thing has.
    """
    paths = [Path(name) for name in names if _exists(name)]
    others = [name for name in names if not _exists(name)]
    if len(others) > 1:
        raise NotFound(f"{' and '.join(others)}: show tells one session or one call")
    if others:
        return _named(others[0], paths, session)
    if session is not None:
        return session_files(session, _root(paths))
    if last or not paths:
        return newest_session([str(path) for path in paths])
    if len(paths) > 1:
        raise Ambiguous(f"{len(paths)} files named: show tells one session or one call")
    return _alone(paths[0]) if not paths[0].is_dir() else _only_session(paths[0])


def _exists(name: str) -> bool:
    try:
        return Path(name).exists()
    except (OSError, ValueError):
        return False


def _root(paths: Sequence[Path]) -> Path | None:
    return paths[0] if paths and paths[0].is_dir() else None


def _alone(path: Path) -> list[FoundFile]:
    """A named file, with the subagents that belong to it."""
    found = discover(path)
    if found[0].name.role == "agent":
        return found
    folder = session_folder(path)
    inside = discover(folder) if folder.is_dir() else []
    others = sorted(path.parent.glob("agent-*.jsonl*"))
    beside = (file for other in others for file in discover(other))
    mine = (file for file in beside if _speaks_of(file, found[0].name.stem))
    return [*found, *(file for file in (*inside, *mine) if file.name.role == "agent")]


def _speaks_of(file: FoundFile, session: str) -> bool:
    try:
        return session.encode() in source_of(file.path).read(0, _HEAD)
    except SourceError:
        return False


def _only_session(folder: Path) -> list[FoundFile]:
    stems = {file.name.stem for file in discover(folder) if file.name.role == "session"}
    if len(stems) > 1:
        raise Ambiguous(f"{folder}: {len(stems)} sessions there; name one by its id, or add --last")
    return newest_session([str(folder)])


def _named(word: str, paths: Sequence[Path], session: str | None) -> list[FoundFile] | Portrait:
    """The session, or else the call, whose id begins with a word."""
    if "/" in word or word.endswith((".jsonl", ".zst")):
        raise NotFound(f"{word}: no such file or folder")
    if session is not None:
        return _call(word, session_files(session, _root(paths)))
    if any(not path.is_dir() for path in paths):
        found = (discover(path) if path.is_dir() else _alone(path) for path in paths)
        return _call(word, [file for files in found for file in files])
    files = [file for path in paths or default_roots() for file in discover(path)]
    try:
        stems = [file.name.stem for file in files if file.name.role == "session"]
        stem = pick(word, stems, "session", hint=lambda known: known[:13])
    except Ambiguous:
        raise
    except NotFound:
        return _call(word, files)
    return session_files(stem, _root(paths))


def _call(word: str, files: Sequence[FoundFile]) -> Portrait:
    """The call whose id begins with a word; of several with the same id, the newest."""
    transcripts = []
    with progress(sum(file.size for file in files), "searching") as advance:
        for file in files:
            if mentions(file, word.encode("utf-8", "replace")):
                transcripts.append(read(file.path))
            advance(file.size)
    ledger = Ledger.of(transcripts)
    rows = [row for row in ledger.calls if _begins(row.id, word)]
    if not rows:
        raise NotFound(f"no session or call begins with {word!r}")
    name = pick(word, sorted({row.id for row in rows}), "call")
    *others, newest = sorted((row for row in rows if row.id == name), key=_age)
    transcript = next(found for found in transcripts if found.file == newest.file)
    span = next(span for span in transcript.spans if span.id == name)
    elsewhere = tuple(row.session or Path(row.file).stem for row in reversed(others))
    return portrait_of(ledger.tied(span), transcript, elsewhere)


def _begins(name: str, word: str) -> bool:
    return name.startswith(word) or short_id(name).startswith(word)


def _age(row: CallFacts) -> float:
    at = moment(row.finished or row.requested)
    return at.timestamp() if at else 0.0


def _session_lines(told: Told, look: Look) -> Iterator[Text]:
    info, width = told.main.info, look.width
    name = info.session_id or parse_name(Path(told.main.file)).stem
    yield from facts("session", joined(name, info.agent_id), width, "bold")
    yield from facts("about", info.title or info.first_prompt, width)
    yield from facts("project", joined(info.cwd, info.git_branch), width)
    yield from facts("client", joined(*info.versions, *info.models), width)
    yield from facts("when", period(moment(info.started_at), moment(info.ended_at)), width)
    yield _calls_line(told, width)
    agents = count(told.agents, "subagent") if told.agents else None
    busiest = f"up to {told.busiest} calls at once" if told.busiest > 1 else None
    yield from facts("", joined(agents, busiest), width, "dim")
    yield from facts("tokens", _spent(told.tokens), width)
    yield from session_lines(told.strand, look)


def _calls_line(told: Told, width: int) -> Text:
    states = Counter(span.state for span in told.spans)
    (line,) = facts("calls", f"{states.total():,}", width)
    for state, n in states.most_common():
        line.append(f"  {GLYPHS[state]} {n:,} {state}", style=STATE_STYLE[state])
    line.truncate(width, overflow="ellipsis")
    return line


def _spent(tokens: Tokens) -> str:
    return (
        f"{tokens.input_tokens:,} in · {tokens.output_tokens:,} out · "
        f"{tokens.cache_creation_input_tokens:,} cache writes · "
        f"{tokens.cache_read_input_tokens:,} cache reads"
    )


def _session_json(told: Told, look: Look) -> dict[str, object]:
    session = {
        **msgspec.to_builtins(told.main.info),
        "file": told.main.file,
        "files": [transcript.file for transcript in told.files],
        "calls": Counter(span.state for span in told.spans),
        "agents": told.agents,
        "concurrency": told.busiest,
        "tokens": told.tokens,
    }
    return {"session": session, "turns": turn_facts(told.strand, look.wants)}
