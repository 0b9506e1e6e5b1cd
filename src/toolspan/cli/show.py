"""`toolspan show`: a session as a timeline, or one call in detail.

`timeline.py` formats a session, `call_detail.py` a single call.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.text import Text

from toolspan.archive.archive import Archive
from toolspan.archive.call_detail import CallDetail, call_json
from toolspan.archive.session import RecordedSession, SessionDetail, resolve_topic
from toolspan.archive.sources import path_exists
from toolspan.archive.words import format_count, join_parts, short_number
from toolspan.cli import lists, select
from toolspan.cli.agents import print_agents
from toolspan.cli.call_detail import RowFormat, call_lines, format_period
from toolspan.cli.output import STATE_STYLES, fact_lines, make_console, print_json, print_lines, utc_option, warn
from toolspan.cli.sessions import print_sessions
from toolspan.cli.timeline import timeline_lines
from toolspan.cli.write import make_redactor, print_redaction, redaction_options, write_page
from toolspan.errors import Ambiguous, NotFound
from toolspan.formats.registry import is_collection, parse_file_name
from toolspan.formats.source import to_path
from toolspan.reading.discovery import TranscriptFile
from toolspan.types.span import parse_timestamp
from toolspan.types.state import STATE_SYMBOLS

if TYPE_CHECKING:
    from toolspan.redaction.redactor import Redactor

_LINE_ADDRESS = re.compile(r"(.+):(\d+)")


@click.command("show")
@click.argument(
    "names",
    nargs=-1,
    callback=select.fetch_stores,
    shell_complete=select.complete_session,
    metavar="[FILE|FOLDER|SESSION[:LINE]|CALL]...",
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

    Name a session by its file, by the beginning of its id, or by words of its title, prompts or
    folder; if several fit, they are listed. Its subagents are shown below the calls that started
    them. Name a call by the beginning of its id; the files and folders you name
    with it are searched, or else all of your transcripts. SESSION:LINE or FILE:LINE, as search
    prints it, begins at that line of the session's file and shows its text in full.

    Lanes: calls joined by ┌ │ └ ran at the same time; ╷ ╎ ╵ were requested together and ran one
    after another; ┊ marks calls abandoned by a rewind.
    """
    if as_json and as_html:
        raise click.UsageError("use either --json or --html")
    names, line = _split_line(names)
    try:
        target = resolve_topic(names, last=last, session=session, reporter=select.REPORTER)
    except Ambiguous as error:
        if as_json or not _list_candidates(names):
            raise
        warn(error)
        click.get_current_context().exit(2)
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
    if not isinstance(target, list):
        if line is not None:
            raise NotFound(f"{target.span.id} is a call; a line number needs a session or a file")
        row_format = RowFormat(out.width, target.cwd, file="", line=None, **flags)
        print_json(call_json(target)) if as_json else print_lines(call_lines(target, row_format), out)
        return
    is_file = any(path_exists(path) and not is_collection(path) for path in map(to_path, names))
    recorded = RecordedSession(target, select.REPORTER, is_joined=not is_file)
    file = "" if line is None else _check_line(recorded.detail, line)
    row_format = RowFormat(out.width, recorded.detail.cwd, file=file, line=line, **flags)
    if as_json:
        print_json(recorded.to_dict(row_format.includes_message, line))
    else:
        print_lines(_session_lines(recorded, row_format), out)


def _list_candidates(names: Sequence[str]) -> bool:
    """Print the sessions that match the names, or the subagents if no session does. Return False if nothing matches."""
    words = [name for name in names if not path_exists(to_path(name))]
    archive = Archive(*(name for name in names if name not in words))
    if not words:
        sessions = archive.sessions()
    else:
        with suppress(NotFound):
            print_sessions(partial(archive.sessions, session=words[0]), archive.names, limit=0, sort=None, unfold=True)
            return True
        if agents := archive.agents(agent=words[0]) if len(words) == 1 else ():
            print_agents(agents, len(agents), archive.names, is_sorted=False)
            return True
        sessions = archive.sessions(about=" ".join(words))
    if sessions:
        print_sessions(lambda **_: sessions, archive.names, limit=0, sort="relevance", unfold=True)
    return bool(sessions)


def _write_page(
    target: list[TranscriptFile] | CallDetail, output: Path | None, redactor: Redactor, *, open_page: bool
) -> None:

    from toolspan.export.export import export_page

    if not isinstance(target, list):
        raise click.UsageError("--html shows a session, not one call")
    write_page(export_page(target, redactor=redactor, reporter=select.REPORTER), output, open_page=open_page)


def _split_line(names: tuple[str, ...]) -> tuple[tuple[str, ...], int | None]:
    """Return the names without the line number of `SESSION:LINE`, and that number."""
    for n, name in enumerate(names):
        address = None if path_exists(to_path(name)) else _LINE_ADDRESS.fullmatch(name)
        if address is not None:
            return (*names[:n], address[1], *names[n + 1 :]), int(address[2])
    return names, None


def _check_line(detail: SessionDetail, line: int) -> str:
    """Return the main file of a session that has this line."""
    file, count = detail.main.file, detail.main.counts.lines
    if not 1 <= line <= count:
        raise NotFound(f"{to_path(file).name} has {format_count(count, 'line')}; there is no line {line:,}")
    return file


def _format_usage(recorded: RecordedSession) -> str:
    usage = recorded.usage
    cost = "no price" if usage.cost_usd is None else f"${usage.cost_usd:,.2f}{'*' if usage.unpriced_requests else ''}"
    context = f"context up to {short_number(usage.context_max)} tokens" if usage.context_max else None
    last = f"{short_number(usage.context_last)} at the end" if usage.context_last != usage.context_max else None
    compactions = recorded.info.compactions
    return join_parts(cost, context, last, format_count(compactions, "compaction") if compactions else None)


def _session_lines(recorded: RecordedSession, row_format: RowFormat) -> Iterator[Text]:
    detail = recorded.detail
    info, width = detail.main.info, row_format.width
    name = info.session_id or parse_file_name(detail.main.file).stem
    yield from fact_lines("session", join_parts(name, info.agent_id), width, "bold")
    yield from fact_lines("about", info.title or info.first_prompt, width)
    yield from fact_lines("project", join_parts(info.cwd, info.git_branch), width)
    yield from fact_lines("client", join_parts(*info.versions, *info.models), width)
    when = format_period(parse_timestamp(info.started_at), parse_timestamp(info.ended_at))
    yield from fact_lines("when", when, width)
    states = Counter(row.state for row in recorded.calls)
    (line,) = fact_lines("calls", f"{states.total() - states['orphan_result']:,}", width)
    for state, n in states.most_common():
        line.append(f"  {STATE_SYMBOLS[state]} {n:,} {state.replace('_', ' ')}", style=STATE_STYLES[state])
    line.truncate(width, overflow="ellipsis")
    yield line
    if copied := len({span.id for span in detail.spans}) - len(recorded.calls):
        where = "session" if info.agent_id is None else "transcript"
        yield from fact_lines("", f"{format_count(copied, 'more call')} copied from another {where}", width, "dim")
    agents = format_count(detail.agent_count, "subagent") if detail.agent_count else None
    busiest = f"up to {detail.max_concurrency} calls at once" if detail.max_concurrency > 1 else None
    yield from fact_lines("", join_parts(agents, busiest), width, "dim")
    tokens = recorded.tokens
    usage = (
        f"{tokens.input_tokens:,} in · {tokens.output_tokens:,} out · "
        f"{tokens.cache_creation_input_tokens:,} cache writes · "
        f"{tokens.cache_read_input_tokens:,} cache reads"
    )
    yield from fact_lines("tokens", usage, width)
    yield from fact_lines("cost", _format_usage(recorded), width)
    yield from timeline_lines(detail.timeline, row_format)
