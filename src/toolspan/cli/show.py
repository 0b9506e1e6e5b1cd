"""`toolspan show`: a session as a timeline, or one call in full."""

from __future__ import annotations

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

from toolspan.cli.call_detail import CallDetail, RowFormat, build_call_detail, call_json, call_lines, format_period
from toolspan.cli.output import (
    STATE_STYLES,
    fact_lines,
    format_count,
    join_parts,
    make_console,
    print_json,
    print_lines,
)
from toolspan.cli.read_selected import read_transcripts, transcripts_containing
from toolspan.cli.redaction_options import add_redaction_options, make_redactor, write_output
from toolspan.cli.select import (
    complete_session,
    files_of_session,
    find_session_files,
    newest_session,
    path_exists,
    require_known_format,
)
from toolspan.cli.show_session import session_lines
from toolspan.errors import Ambiguous, NotFound, SourceError
from toolspan.formats.claude.paths import session_folder
from toolspan.formats.paths import parse_file_name
from toolspan.formats.source import source_for_path
from toolspan.reading.discovery import TranscriptFile, default_roots, find_transcripts
from toolspan.reading.history import CallTable, match_prefix, short_id
from toolspan.reading.lineage import sum_tokens
from toolspan.reading.rows import CallRow
from toolspan.reading.timeline import AgentTimeline, build_timeline, turn_rows
from toolspan.reading.transcript import Transcript, read, read_content
from toolspan.types.span import Span, parse_timestamp
from toolspan.types.state import STATE_SYMBOLS
from toolspan.types.tokens import Tokens

_HEAD_BYTES = 1 << 16


def resolve_names(names: Sequence[str], *, last: bool, session: str | None) -> list[TranscriptFile] | CallDetail:
    """What the words name: the files of a session, or a call.

    Raises:
        NotFound: nothing has that name, or more than one thing has.
    """
    if not all(names):
        raise NotFound("a name is empty; name a file, a folder, a session or a call")
    paths = [Path(name) for name in names if path_exists(Path(name))]
    others = [name for name in names if not path_exists(Path(name))]
    if len(others) > 1:
        raise NotFound(f"{' and '.join(others)}: show tells one session or one call")
    if others:
        return _find_by_id(others[0], paths, session)
    if session is not None:
        return find_session_files(session, _root_folder(paths))
    if last or not paths:
        return newest_session([str(path) for path in paths])
    if len(paths) > 1:
        raise Ambiguous(f"{len(paths)} files named: show tells one session or one call")
    return _file_with_subagents(paths[0]) if not paths[0].is_dir() else _only_session(paths[0])


def _root_folder(paths: Sequence[Path]) -> Path | None:
    return paths[0] if paths and paths[0].is_dir() else None


def _file_with_subagents(path: Path) -> list[TranscriptFile]:
    """A named file, with the subagents that belong to it.

    Raises:
        UnknownDialect: it is no transcript at all.
    """
    require_known_format(path)
    files = find_transcripts(path)
    if files[0].name.role == "agent":
        return files
    folder = session_folder(path)
    inside = find_transcripts(folder) if folder.is_dir() else []
    others = sorted(path.parent.glob("agent-*.jsonl*"))
    beside = (file for other in others for file in find_transcripts(other))
    mine = (file for file in beside if _mentions_session(file, files[0].name.stem))
    return [*files, *(file for file in (*inside, *mine) if file.name.role == "agent")]


def _mentions_session(file: TranscriptFile, session: str) -> bool:
    try:
        return session.encode() in source_for_path(file.path).read(0, _HEAD_BYTES)
    except SourceError:
        return False


def _only_session(folder: Path) -> list[TranscriptFile]:
    stems = {file.name.stem for file in find_transcripts(folder) if file.name.role == "session"}
    if len(stems) > 1:
        raise Ambiguous(f"{folder}: {len(stems)} sessions there; name one by its id, or add --last")
    return newest_session([str(folder)])


def _find_by_id(word: str, paths: Sequence[Path], session: str | None) -> list[TranscriptFile] | CallDetail:
    """The session, or else the call, whose id begins with a word."""
    if "/" in word or word.endswith((".jsonl", ".zst")):
        raise NotFound(f"{word}: no such file or folder")
    if session is not None:
        return _find_call(word, find_session_files(session, _root_folder(paths)))
    if any(not path.is_dir() for path in paths):
        groups = (find_transcripts(path) if path.is_dir() else _file_with_subagents(path) for path in paths)
        return _find_call(word, [file for files in groups for file in files])
    files = [file for path in paths or default_roots() for file in find_transcripts(path)]
    try:
        stems = [file.name.stem for file in files if file.name.role == "session"]
        stem = match_prefix(word, stems, "session", hint=lambda session_id: session_id[:13])
    except Ambiguous:
        raise
    except NotFound:
        transcripts = list(transcripts_containing(word, files))
        inside = files_of_session(word, CallTable.from_transcripts(transcripts), files)
        return inside or _find_call_detail(word, transcripts)
    return find_session_files(stem, _root_folder(paths))


def _find_call(word: str, files: Sequence[TranscriptFile]) -> CallDetail:
    """The call whose id begins with a word; of several with the same id, the newest."""
    return _find_call_detail(word, list(transcripts_containing(word, files)))


def _find_call_detail(word: str, transcripts: Sequence[Transcript]) -> CallDetail:
    ledger = CallTable.from_transcripts(transcripts)
    rows = [row for row in ledger.calls if _has_prefix(row.id, word)]
    if not rows:
        raise NotFound(f"no session or call begins with {word!r}")
    name = match_prefix(word, sorted({row.id for row in rows}), "call")
    *others, newest = sorted((row for row in rows if row.id == name), key=_row_time)
    transcript = next(candidate for candidate in transcripts if candidate.file == newest.file)
    span = next(span for span in transcript.spans if span.id == name)
    elsewhere = tuple(row.session or Path(row.file).stem for row in reversed(others))
    return build_call_detail(ledger.link_span(span), transcript, elsewhere)


def _has_prefix(name: str, word: str) -> bool:
    return name.startswith(word) or short_id(name).startswith(word)


def _row_time(row: CallRow) -> float:
    at = parse_timestamp(row.finished or row.requested)
    return at.timestamp() if at else 0.0


class SessionDetail(Struct, frozen=True, kw_only=True):
    """A session, read."""

    main: Transcript
    files: list[Transcript]
    strand: AgentTimeline

    @classmethod
    def from_files(cls, files: Sequence[TranscriptFile]) -> SessionDetail:
        """The session of these files."""
        session_transcripts = read_session_transcripts(files)
        strand = build_timeline([read_content(transcript) for transcript in session_transcripts])
        return cls(main=session_transcripts[0], files=session_transcripts, strand=strand)

    @property
    def cwd(self) -> str | None:
        """The folder it worked in."""
        return self.main.info.cwd

    @property
    def spans(self) -> list[Span]:
        """Every call, subagents' calls included."""
        return [placed.span for strand in self.strand.iter_timelines() for placed in strand.calls]

    @property
    def agent_count(self) -> int:
        """How many subagents it had."""
        return sum(1 for _ in self.strand.iter_timelines()) - 1

    @property
    def tokens(self) -> Tokens:
        """Of all files, each message once."""
        return sum_tokens(transcript.message_tokens for transcript in self.files)

    @property
    def max_concurrency(self) -> int:
        """How many calls of one batch were under way at once, at most."""
        batches = (batch for strand in self.strand.iter_timelines() for batch in strand.batches)
        groups = (group for batch in batches for group in batch.groups)
        return max((group.concurrency for group in groups), default=0)


def read_session_transcripts(files: Sequence[TranscriptFile]) -> list[Transcript]:
    """The session's own transcript, then its subagents'."""
    mains = [file for file in files if file.name.role != "agent"] or files
    main = max(mains, key=lambda file: file.modified)
    others = [file for file in files if file.name.role == "agent" and file is not main]
    return [read(main.path), *read_transcripts(file.path for file in others)]


@click.command("show")
@click.argument("names", nargs=-1, shell_complete=complete_session, metavar="[FILE|FOLDER|SESSION|CALL]...")
@click.option("--last", is_flag=True, help="The session written to last (the default).")
@click.option("--session", help="Look for the call in the session whose id begins so.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.option("--messages/--no-messages", default=True, help="Whether the words between calls are told.")
@click.option("--thinking", is_flag=True, help="The model's thinking too.")
@click.option("--width", type=click.IntRange(40), help="Columns; by default the terminal's.")
@click.option("--full", is_flag=True, help="Texts in full length.")
@click.option("--html", "as_html", is_flag=True, help="One page that needs no network.")
@add_redaction_options
def command(
    names: tuple[str, ...],
    *,
    last: bool,
    session: str | None,
    as_json: bool,
    width: int | None,
    output: Path | None,
    **flags: bool,
) -> None:
    """Tell a session as a timeline, or one call in full.

    A session is named by its file or by the beginning of its id; its subagents stand under the
    calls that started them. A call is named by the beginning of its id, and looked for in the files
    and folders named beside it, else in all transcripts.

    Lanes: calls joined by ┌ │ └ ran at the same time; ╷ ╎ ╵ were asked for together and ran one
    after another; ┊ marks what a rewind left behind. Times are UTC.
    """
    if as_json and flags["as_html"]:
        raise click.UsageError("--json and --html: one of them")
    target = resolve_names(names, last=last, session=session)
    page = HtmlPage(flags.pop("as_html"), output, flags.pop("redact"), flags.pop("skeleton"))
    if page.is_requested:
        page.write_page(target)
        return
    out = make_console()
    out.width = width or _terminal_width() or out.width
    detail = SessionDetail.from_files(target) if isinstance(target, list) else target
    row_format = RowFormat(out.width, detail.cwd, **flags)
    if as_json:
        print_json(_session_json(detail, row_format) if isinstance(detail, SessionDetail) else call_json(detail))
        return
    lines = _detail_lines(detail, row_format) if isinstance(detail, SessionDetail) else call_lines(detail, row_format)
    print_lines(lines, out)


def _terminal_width() -> int | None:
    """The terminal's width, also when the output goes to a pager."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):
        return None


class HtmlPage(NamedTuple):
    """What was said about the page that a session may be made into."""

    html: bool
    output: Path | None
    redact: bool
    skeleton: bool

    @property
    def is_requested(self) -> bool:
        """Whether a page is to be written.

        Raises:
            UsageError: it is told where or how, but not that it is.
        """
        if not self.html and (self.output or self.redact or self.skeleton):
            raise click.UsageError("-o, --redact and --skeleton go with --html")
        return self.html

    def write_page(self, target: list[TranscriptFile] | CallDetail) -> None:
        """Write the page of a session.

        Raises:
            UsageError: it is a call, or the page would go to a terminal.
        """
        from toolspan.export import html

        if not isinstance(target, list):
            raise click.UsageError("--html makes a page of a session, not of one call")
        if self.output is None and sys.stdout.isatty():
            raise click.UsageError("a page is not for the terminal: add -o FILE")
        redactor = make_redactor(redact=self.redact, skeleton=self.skeleton)
        text = html.render_transcripts(*read_session_transcripts(target), redactor=redactor)
        write_output((text.encode("utf-8", "replace"),), self.output)
        if self.output is not None:
            click.echo(f"{self.output}: {len(text) / 1e6:.1f} MB", err=True)


def _detail_lines(detail: SessionDetail, row_format: RowFormat) -> Iterator[Text]:
    info, width = detail.main.info, row_format.width
    name = info.session_id or parse_file_name(Path(detail.main.file)).stem
    yield from fact_lines("session", join_parts(name, info.agent_id), width, "bold")
    yield from fact_lines("about", info.title or info.first_prompt, width)
    yield from fact_lines("project", join_parts(info.cwd, info.git_branch), width)
    yield from fact_lines("client", join_parts(*info.versions, *info.models), width)
    yield from fact_lines(
        "when", format_period(parse_timestamp(info.started_at), parse_timestamp(info.ended_at)), width
    )
    yield _calls_line(detail, width)
    agents = format_count(detail.agent_count, "subagent") if detail.agent_count else None
    busiest = f"up to {detail.max_concurrency} calls at once" if detail.max_concurrency > 1 else None
    yield from fact_lines("", join_parts(agents, busiest), width, "dim")
    yield from fact_lines("tokens", _format_tokens(detail.tokens), width)
    yield from session_lines(detail.strand, row_format)


def _calls_line(detail: SessionDetail, width: int) -> Text:
    states = Counter(span.state for span in detail.spans)
    calls = states.total() - states["orphan_result"]  # which is no call
    (line,) = fact_lines("calls", f"{calls:,}", width)
    for state, n in states.most_common():
        line.append(f"  {STATE_SYMBOLS[state]} {n:,} {state}", style=STATE_STYLES[state])
    line.truncate(width, overflow="ellipsis")
    return line


def _format_tokens(tokens: Tokens) -> str:
    return (
        f"{tokens.input_tokens:,} in · {tokens.output_tokens:,} out · "
        f"{tokens.cache_creation_input_tokens:,} cache writes · "
        f"{tokens.cache_read_input_tokens:,} cache reads"
    )


def _session_json(detail: SessionDetail, row_format: RowFormat) -> dict[str, object]:
    session = {
        **msgspec.to_builtins(detail.main.info),
        "file": detail.main.file,
        "files": [transcript.file for transcript in detail.files],
        "calls": Counter(span.state for span in detail.spans),
        "agents": detail.agent_count,
        "concurrency": detail.max_concurrency,
        "tokens": detail.tokens,
    }
    return {"session": session, "turns": turn_rows(detail.strand, row_format.includes_message)}
