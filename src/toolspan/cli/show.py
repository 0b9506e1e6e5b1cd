"""`toolspan show`: a session as a timeline, or one call in detail.

`timeline.py` formats a session, `call_detail.py` a single call.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec
from msgspec import Struct
from rich.text import Text

from toolspan.cli import lists, select
from toolspan.cli.call_detail import CallDetail, RowFormat, build_call_detail, call_json, call_lines, format_period
from toolspan.cli.output import (
    STATE_STYLES,
    fact_lines,
    format_count,
    join_parts,
    make_console,
    make_redactor,
    print_json,
    print_lines,
    print_redaction,
    redaction_options,
    utc_option,
    write_page,
)
from toolspan.cli.timeline import timeline_lines
from toolspan.errors import Ambiguous, NotFound
from toolspan.formats.claude.paths import session_folder
from toolspan.formats.registry import parse_file_name
from toolspan.formats.source import COMPRESSED_SUFFIXES, to_path
from toolspan.reading.discovery import TranscriptFile, default_roots, find_transcripts, recency
from toolspan.reading.history import CallTable, match_prefix, short_id
from toolspan.reading.lineage import sum_tokens
from toolspan.reading.timeline import AgentTimeline, build_timeline, turn_rows
from toolspan.reading.transcript import Transcript, read, read_content
from toolspan.types.session import SessionInfo, Tokens
from toolspan.types.span import Span, parse_timestamp
from toolspan.types.state import STATE_SYMBOLS

if TYPE_CHECKING:
    from toolspan.redaction.redactor import Redactor

_EARLIEST_TIME = datetime.min.replace(tzinfo=UTC)
_LINE_ADDRESS = re.compile(r"(.+):(\d+)")


@click.command("show")
@click.argument(
    "names", nargs=-1, shell_complete=select.complete_session, metavar="[FILE|FOLDER|SESSION[:LINE]|CALL]..."
)
@click.option("--last", is_flag=True, help="Show the session that was written to last (the default).")
@click.option("--session", help="Look for the call in the session whose id begins with this.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--messages/--no-messages", default=True, help="Show the messages between calls.  [default: messages]")
@click.option("--thinking", is_flag=True, help="Also show the model's thinking.")
@click.option("--width", type=click.IntRange(40), help="Width in columns; by default that of the terminal.")
@click.option("--full", is_flag=True, help="Do not shorten texts.")
@lists.unfold_option
@utc_option
@click.option("--html", "as_html", is_flag=True, help="Write one HTML page that works offline.")
@redaction_options
def command(
    names: tuple[str, ...],
    *,
    last: bool,
    session: str | None,
    as_json: bool,
    width: int | None,
    output: Path | None,
    as_html: bool,
    open_page: bool,
    redact: bool,
    report: bool,
    skeleton: bool,
    **flags: bool,
) -> None:
    """Show a session as a timeline, or one call in detail.

    Name a session by its file or by the beginning of its id; its subagents are shown below the
    calls that started them. Name a call by the beginning of its id; the files and folders you name
    with it are searched, or else all of your transcripts. SESSION:LINE or FILE:LINE, as search
    prints it, begins at that line of the session's file and shows its text in full.

    Lanes: calls joined by ┌ │ └ ran at the same time; ╷ ╎ ╵ were requested together and ran one
    after another; ┊ marks calls abandoned by a rewind.
    """
    if as_json and as_html:
        raise click.UsageError("use either --json or --html")
    names, line = _split_line(names)
    target = resolve_names(names, last=last, session=session)
    if as_html:
        if line is not None:
            raise click.UsageError("--html writes a whole session; name it without a line")
        redactor = make_redactor(redact=redact, skeleton=skeleton, report=report)
        _write_page(target, output, redactor, open_page=open_page)
        print_redaction(redactor, report=report, output=output)
        return
    if output or open_page or redact or report or skeleton:
        raise click.UsageError("-o, --open, --redact, --report and --skeleton need --html")
    out = make_console()
    with suppress(OSError, ValueError):  # the output may go to a pager
        out.width = os.get_terminal_size(sys.stderr.fileno()).columns or out.width
    out.width = width or out.width
    detail = SessionDetail.from_files(target) if isinstance(target, list) else target
    file = "" if line is None else _check_line(detail, line)
    row_format = RowFormat(out.width, detail.cwd, file=file, line=line, **flags)
    if as_json:
        print_json(_session_json(detail, row_format) if isinstance(detail, SessionDetail) else call_json(detail))
    elif isinstance(detail, SessionDetail):
        print_lines(_session_lines(detail, row_format), out)
    else:
        print_lines(call_lines(detail, row_format), out)


def _write_page(
    target: list[TranscriptFile] | CallDetail, output: Path | None, redactor: Redactor, *, open_page: bool
) -> None:
    from toolspan.export.html import write
    from toolspan.export.session_export import SessionExport

    if not isinstance(target, list):
        raise click.UsageError("--html shows a session, not one call")
    write_page(write([SessionExport(read_session(target), redactor=redactor)]), output, open_page=open_page)


def _split_line(names: tuple[str, ...]) -> tuple[tuple[str, ...], int | None]:
    """Return the names without the line number of `SESSION:LINE`, and that number."""
    for n, name in enumerate(names):
        address = None if select.path_exists(to_path(name)) else _LINE_ADDRESS.fullmatch(name)
        if address is not None:
            return (*names[:n], address[1], *names[n + 1 :]), int(address[2])
    return names, None


def _check_line(detail: SessionDetail | CallDetail, line: int) -> str:
    """Return the main file of a session that has this line."""
    if not isinstance(detail, SessionDetail):
        raise NotFound(f"{detail.span.id} is a call; a line number needs a session or a file")
    file, count = detail.main.file, detail.main.counts.lines
    if not 1 <= line <= count:
        raise NotFound(f"{to_path(file).name} has {format_count(count, 'line')}; there is no line {line:,}")
    return file


def resolve_names(
    names: Sequence[str], *, last: bool = False, session: str | None = None
) -> list[TranscriptFile] | CallDetail:
    """Return the files of the named session, or the named call."""
    if not all(names):
        raise NotFound("a name is empty; name a file, a folder, a session or a call")
    paths = [path for path in map(to_path, names) if select.path_exists(path)]
    others = [name for name in names if not select.path_exists(to_path(name))]
    root = paths[0] if paths and paths[0].is_dir() else None
    if len(others) > 1:
        raise NotFound(f"{' and '.join(others)}: name one session or one call")
    if others:
        return _find_by_id(others[0], paths, root, session)
    if session is not None:
        return select.find_session_files(session, root)
    if last or not paths:
        return select.newest_session([str(path) for path in paths])
    if len(paths) > 1:
        raise Ambiguous(f"{len(paths)} files named: name one session or one call")
    if root is None:
        return _file_with_subagents(paths[0])
    stems = {file.name.stem for file in find_transcripts(root) if file.name.role == "session"}
    if len(stems) > 1:
        raise Ambiguous(f"{root}: {len(stems)} sessions in this folder; name one by its id, or add --last")
    return select.newest_session([str(root)])


def _file_with_subagents(path: Path) -> list[TranscriptFile]:
    select.require_known_format(path)
    files = find_transcripts(path)
    if files[0].name.role == "agent":
        return files
    folder = session_folder(path)
    inside = find_transcripts(folder) if folder.is_dir() else []
    others = sorted(path.parent.glob("agent-*.jsonl*"))
    beside = (file for other in others for file in find_transcripts(other))
    mine = (file for file in beside if select.mentions_session(file, files[0].name.stem))
    return [*files, *(file for file in (*inside, *mine) if file.name.role == "agent")]


def _find_by_id(
    prefix: str, paths: Sequence[Path], root: Path | None, session: str | None
) -> list[TranscriptFile] | CallDetail:
    if "/" in prefix or prefix.endswith((".jsonl", *COMPRESSED_SUFFIXES)):
        raise NotFound(f"{prefix}: no such file or folder")
    if session is not None:
        files = select.find_session_files(session, root)
        return _find_call_detail(prefix, list(select.transcripts_containing(prefix, files, call=True)))
    if any(not path.is_dir() for path in paths):
        groups = (find_transcripts(path) if path.is_dir() else _file_with_subagents(path) for path in paths)
        files = [*chain.from_iterable(groups)]
        return _find_call_detail(prefix, list(select.transcripts_containing(prefix, files, call=True)))
    files = [file for path in paths or default_roots() for file in find_transcripts(path)]
    try:
        stem = select.match_session(prefix, [file.name.stem for file in files if file.name.role == "session"])
    except Ambiguous:
        raise
    except NotFound:
        agents = [file for file in files if file.name.role == "agent" and file.name.stem.startswith(prefix)]
        if len(agents) == 1:
            return agents
        transcripts = list(select.transcripts_containing(prefix, files, call=True))
        recorded = select.files_of_session(prefix, CallTable.from_transcripts(transcripts), files)
        return recorded or _find_call_detail(prefix, transcripts)
    return select.find_session_files(stem, root)


def _find_call_detail(prefix: str, transcripts: Sequence[Transcript]) -> CallDetail:
    """Return the call whose id begins with `prefix`. If several have the same id, return the newest."""
    call_table = CallTable.from_transcripts(transcripts)
    rows = [row for row in call_table.calls if row.id.startswith(prefix) or short_id(row.id).startswith(prefix)]
    if not rows:
        raise NotFound(f"no session or call begins with {prefix!r}")
    name = match_prefix(prefix, sorted({row.id for row in rows}), "call")
    *others, newest = sorted(
        (row for row in rows if row.id == name),
        key=lambda row: parse_timestamp(row.finished or row.requested) or _EARLIEST_TIME,
    )
    transcript = next(candidate for candidate in transcripts if candidate.file == newest.file)
    _mark_running_calls([transcript])
    span = next(span for span in transcript.spans if span.id == name)
    elsewhere = tuple(row.session or to_path(row.file).stem for row in reversed(others))
    return build_call_detail(call_table.link_span(span), transcript, elsewhere)


class SessionDetail(Struct, frozen=True, kw_only=True):
    """A session with all its files."""

    main: Transcript
    files: list[Transcript]
    timeline: AgentTimeline

    @classmethod
    def from_files(cls, files: Sequence[TranscriptFile]) -> SessionDetail:
        """Read the session that consists of these files."""
        transcripts = read_session(files)
        timeline = build_timeline([read_content(transcript) for transcript in transcripts])
        return cls(main=transcripts[0], files=transcripts, timeline=timeline)

    @property
    def cwd(self) -> str | None:
        """The working folder."""
        return self.main.info.cwd

    @property
    def spans(self) -> list[Span]:
        """All calls, including subagents' calls."""
        return [placed.span for timeline in self.timeline.iter_timelines() for placed in timeline.calls]

    @property
    def agent_count(self) -> int:
        """The number of subagents."""
        return len(list(self.timeline.iter_timelines())) - 1

    @property
    def max_concurrency(self) -> int:
        """The largest number of calls in one batch that ran at the same time."""
        batches = (batch for timeline in self.timeline.iter_timelines() for batch in timeline.batches)
        groups = (group for batch in batches for group in batch.groups)
        return max((group.concurrency for group in groups), default=0)


def session_paths(files: Sequence[TranscriptFile]) -> list[Path]:
    """Return a session's newest file and those of its subagents."""
    mains = [file for file in files if file.name.role != "agent"] or files
    main = max(mains, key=recency)
    return [main.path, *(file.path for file in files if file.name.role == "agent" and file is not main)]


def read_session(files: Sequence[TranscriptFile]) -> list[Transcript]:
    """Read a session's newest file and those of its subagents."""
    main, *others = session_paths(files)
    transcripts = [read(main), *select.read_transcripts(others)]
    _mark_running_calls(transcripts)
    return transcripts


def _mark_running_calls(transcripts: Sequence[Transcript]) -> None:
    if any(span.state == "never_answered" for transcript in transcripts for span in transcript.spans):
        from toolspan.analysis.live_sessions import mark_running_calls  # perf: rarely needed

        mark_running_calls(transcripts)


def _session_lines(detail: SessionDetail, row_format: RowFormat) -> Iterator[Text]:
    info, width = detail.main.info, row_format.width
    name = info.session_id or parse_file_name(detail.main.file).stem
    yield from fact_lines("session", join_parts(name, info.agent_id), width, "bold")
    yield from fact_lines("about", info.title or info.first_prompt, width)
    yield from fact_lines("project", join_parts(info.cwd, info.git_branch), width)
    yield from fact_lines("client", join_parts(*info.versions, *info.models), width)
    when = format_period(parse_timestamp(info.started_at), parse_timestamp(info.ended_at))
    yield from fact_lines("when", when, width)
    states = Counter(span.state for span in detail.spans)
    (line,) = fact_lines("calls", f"{states.total() - states['orphan_result']:,}", width)
    for state, n in states.most_common():
        line.append(f"  {STATE_SYMBOLS[state]} {n:,} {state.replace('_', ' ')}", style=STATE_STYLES[state])
    line.truncate(width, overflow="ellipsis")
    yield line
    agents = format_count(detail.agent_count, "subagent") if detail.agent_count else None
    busiest = f"up to {detail.max_concurrency} calls at once" if detail.max_concurrency > 1 else None
    yield from fact_lines("", join_parts(agents, busiest), width, "dim")
    tokens = sum_tokens(transcript.message_tokens for transcript in detail.files)
    usage = (
        f"{tokens.input_tokens:,} in · {tokens.output_tokens:,} out · "
        f"{tokens.cache_creation_input_tokens:,} cache writes · "
        f"{tokens.cache_read_input_tokens:,} cache reads"
    )
    yield from fact_lines("tokens", usage, width)
    yield from timeline_lines(detail.timeline, row_format)


def session_facts(
    info: SessionInfo, files: Sequence[str], *, calls: Mapping[str, int], agents: int, concurrency: int, tokens: Tokens
) -> dict[str, object]:
    """Return the facts about a whole session, as `show --json` prints them. Its own file is the first."""
    return {
        **msgspec.to_builtins(info), "file": files[0], "files": files, "calls": calls, "agents": agents,
        "concurrency": concurrency, "tokens": tokens,
    }  # fmt: skip


def _session_json(detail: SessionDetail, row_format: RowFormat) -> dict[str, object]:
    session = session_facts(
        detail.main.info,
        [transcript.file for transcript in detail.files],
        calls=Counter(span.state for span in detail.spans),
        agents=detail.agent_count,
        concurrency=detail.max_concurrency,
        tokens=sum_tokens(transcript.message_tokens for transcript in detail.files),
    )
    turns = turn_rows(detail.timeline, row_format.includes_message)
    if row_format.line is None:
        return {"session": session, "turns": turns}
    lines = [max(turn.lines_in(detail.main.file), default=0) for turn in detail.timeline.turns]
    first = next((n for n, last in enumerate(lines) if last >= row_format.line), len(lines))
    return {"session": session, "line": row_format.line, "turns": turns[first:]}
