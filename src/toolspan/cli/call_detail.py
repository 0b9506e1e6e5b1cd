"""One call in detail: input, state, error, result, diff, recovery and neighbours, as lines or as JSON.

Start at `build_call_detail`, then `call_lines`. `show.py` finds the call.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import chain
from typing import NamedTuple

import msgspec
from msgspec import Struct
from rich.text import Text

from toolspan.analysis.file_history.archive import FileArchive, diff_of_change
from toolspan.analysis.file_history.changes import FileChange, changes_of
from toolspan.analysis.recovery import ChainLink, RecoveryChain, find_chains
from toolspan.analysis.timing import noted_wait
from toolspan.cli.output import (
    STATE_STYLES,
    diff_line,
    fact_lines,
    format_count,
    format_duration,
    format_time,
    join_parts,
    plain_line,
    plain_lines,
)
from toolspan.diffs import DiffKind, added_removed, problems, unified
from toolspan.errors import SourceError
from toolspan.formats.claude import results, work_results
from toolspan.formats.claude.paths import config_dir
from toolspan.formats.claude.results import UnknownResult
from toolspan.formats.registry import relative_to_folder
from toolspan.formats.source import to_path
from toolspan.reading.excerpt import keep_excerpt
from toolspan.reading.rows import CallRow, make_call_row
from toolspan.reading.timeline import AgentTimeline, TimelineBatch, TimelineMessage, Turn, build_timeline, display_text
from toolspan.reading.transcript import Transcript, read, read_content
from toolspan.types.error_kinds import KIND_WORDS
from toolspan.types.ids import SourceLocation
from toolspan.types.inputs import UnknownInput, decode_json_or_text
from toolspan.types.session import Message, MessageAuthor
from toolspan.types.span import Call, Event, Hook, Note, Notification, Permission, Progress, Span, parse_timestamp
from toolspan.types.state import STATE_MEANINGS, STATE_SYMBOLS

_EDIT_RESULTS = (results.EditResult, results.MultiEditResult, results.WriteResult)
_SPAN_FLAGS = ("ambiguous", "background", "deferred", "synthetic")
_MAX_RESULT_LINES = 40
_MAX_INPUT_LINES = 16
_MAX_LINE_LENGTH = 2_000
_MAX_MESSAGES_AROUND = 3
_MAX_RESTORE_HINTS = 3
_MAX_ID_LENGTH = 100
_MIN_TEXT_WIDTH = 40
AUTHOR_STYLES: dict[MessageAuthor, tuple[str, str]] = {
    "prompt": ("❯ ", "bold"),
    "command": ("❯ ", "bold"),
    "text": ("  ", "dim"),
    "thinking": ("∴ ", "dim italic"),
    "injected": ("+ ", "dim"),
    "summary": ("≡ ", "dim"),
    "notification": ("◆ ", "cyan"),
    "interrupt": ("■ ", "magenta"),
    "error": ("! ", "red"),
    "system": ("── ", "yellow"),
}
_MARKER_AUTHORS = frozenset({"interrupt", "system", "error"})
"""Authors whose messages are shown even with `--no-messages`."""

Neighbour = TimelineMessage | Span


class RowFormat(NamedTuple):
    """Display options for the timeline."""

    width: int
    cwd: str | None = None
    messages: bool = True
    thinking: bool = False
    full: bool = False
    unfold: bool = False
    file: str = ""
    line: int | None = None
    """The line of `file` that the user selected."""

    def is_target(self, place: SourceLocation) -> bool:
        """Return whether a record is on the line that the user selected."""
        return place.line == self.line and place.file == self.file

    def includes_message(self, message: Message) -> bool:
        """Return whether a message is shown."""
        if message.voice == "thinking":
            return self.thinking
        return self.messages or message.voice in _MARKER_AUTHORS

    def format_target(self, call: Call) -> str:
        """Return a call's target with shortened paths, or its input if the tool has no target."""
        text = relative_to_folder(call.target or "", self.cwd)
        if not text and call.kind in ("mcp", "question", "other"):
            with suppress(SourceError):
                text = call.raw_input[: self.width * 4].decode("utf-8", "replace").strip("{}")
        return plain_line(text, self.width)


def call_text(span: Span, row_format: RowFormat) -> Text:
    """Format a call as one line: state symbol, tool and target."""
    text = Text()
    text.append(f"{STATE_SYMBOLS[span.state]} ", style=STATE_STYLES[span.state])
    text.append(f"{plain_line(span.tool or 'orphan', 60):5} ", style="bold")
    text.append(row_format.format_target(span.call))
    if flags := [name for name in ("background", "deferred", "synthetic") if getattr(span, name)]:
        text.append(f" ⟳ {', '.join(flags)}", style="cyan")
    return text


def event_note(event: Event) -> str:
    """Return a description of a call's event."""
    match event:
        case Hook():
            hook_text = (event.text or "").strip('" ')
            name = event.name or event.point
            return join_parts(f"hook {name}", event.outcome, format_duration(event.duration_ms), hook_text)
        case Progress():
            first, last = parse_timestamp(event.first_at), parse_timestamp(event.last_at)
            over = format_duration((last - first).total_seconds() * 1000) if first and last else ""
            return f"progress: {event.kind} ×{event.count}" + (f" over {over}" if over else "")
        case Permission():
            return "permission: " + join_parts(event.decision, event.source, event.reason)
        case Notification():
            return "background " + join_parts(event.task_id or "task", event.status, event.summary)
        case Note():
            return join_parts(event.kind.replace("_", " "), event.text)


class CallDetail(Struct, frozen=True, kw_only=True):
    """A call with its context."""

    span: Span
    file: str
    cwd: str | None
    turn: Turn | None = None
    batch: TimelineBatch | None = None
    before: tuple[Neighbour, ...] = ()
    after: tuple[Neighbour, ...] = ()
    diff: str | None = None
    changed_paths: tuple[str, ...] = ()
    chain: RecoveryChain | None = None
    other_sessions: tuple[str, ...] = ()
    """Other sessions that contain a call with this id, newest first."""


def build_call_detail(span: Span, transcript: Transcript, others: tuple[str, ...] = ()) -> CallDetail:
    """Collect the context of a call from its own file."""
    changes = changes_of(span, transcript.info.cwd)
    diff = _call_diff(span, transcript, changes)
    spans = keep_excerpt(transcript, span)
    timelines = list(build_timeline([read_content(transcript, spans)]).iter_timelines())
    detail = CallDetail(
        span=span,
        file=transcript.file,
        cwd=transcript.info.cwd,
        diff=diff,
        changed_paths=tuple(dict.fromkeys(change.path for change in changes if change.kind != "created")),
        chain=_find_chain(span, spans, transcript.file, timelines),
        other_sessions=others,
    )
    for timeline in timelines:
        items: list[Neighbour] = []
        for item in chain.from_iterable(turn.items for turn in timeline.turns):
            if isinstance(item, TimelineMessage):
                items.append(item)
            elif isinstance(item, TimelineBatch):
                items += [placed.span for placed in item.calls]
        ids = [item.id if isinstance(item, Span) else None for item in items]
        if span.id in ids:
            at = ids.index(span.id)
            detail = msgspec.structs.replace(
                detail,
                turn=next(turn for turn in timeline.turns if span.id in _call_ids(turn)),
                batch=next(batch for batch in timeline.batches if span.id in _call_ids(batch)),
                before=_nearest_neighbours(items[:at][::-1])[::-1],
                after=_nearest_neighbours(items[at + 1 :]),
            )
    return detail


def _find_chain(
    span: Span, spans: Sequence[Span], file: str, timelines: Sequence[AgentTimeline]
) -> RecoveryChain | None:  # fmt: skip
    """Return the recovery chain that the call started, or else one that contains it."""
    turns: dict[str, str] = {
        placed.span.id: placed.span.call.prompt_id or f"{timeline.agent_id} {n}"
        for timeline in timelines
        for n, turn in enumerate(timeline.turns)
        for placed in turn.calls
    }
    chains = find_chains(spans, file, turns=turns)
    begun = (candidate for candidate in chains if span.id in (candidate.start.id, *candidate.siblings))
    joins = (candidate for candidate in chains if any(link.id == span.id for link in candidate.links))
    return next(chain.from_iterable((begun, joins)), None)


def _nearest_neighbours(items: Sequence[Neighbour]) -> tuple[Neighbour, ...]:
    messages: list[Neighbour] = []
    for item in items:
        if isinstance(item, Span):
            return (*messages[:_MAX_MESSAGES_AROUND], item)
        messages.append(item)
    return tuple(messages[:_MAX_MESSAGES_AROUND])


def _call_diff(span: Span, transcript: Transcript, changes: Sequence[FileChange]) -> str | None:
    """Return the change made by a call as a diff, or None for created files, whose content is the input."""
    recorded_diff = result_diff(span.result.structured if span.result else None)
    if recorded_diff is not None:
        return recorded_diff
    if all(change.kind == "created" for change in changes):
        return None
    paths = {change.path for change in changes} | {change.moved_from for change in changes}
    whole = transcript if transcript.reader.excerpt is None else read(transcript.file)
    archive = FileArchive([whole], paths.__contains__)
    return "".join(diff_of_change(archive, change) for change in changes) or None


def _call_ids(part: Turn | TimelineBatch) -> list[str]:
    return [placed.span.id for placed in part.calls]


def format_period(start: datetime | None, end: datetime | None) -> str:
    """Format a period as start, end and duration."""
    if start is None or end is None:
        return format_time(start or end)
    took = format_duration(max((end - start).total_seconds(), 0) * 1000)
    return f"{format_time(start)} – {format_time(end, date=start.date() != end.date())} ({took})"


def call_json(detail: CallDetail) -> dict[str, object]:
    """Return the object that `show CALL --json` prints."""
    span = detail.span
    prompt = detail.turn.prompt if detail.turn else None
    around = {
        side: [make_call_row(item, detail.file) if isinstance(item, Span) else item.message for item in items]
        for side, items in (("before", detail.before), ("after", detail.after))
    }
    return {
        "call": make_call_row(span, detail.file),
        "meaning": STATE_MEANINGS[span.state],
        "advice": span.advice._asdict() if span.advice else None,
        "events": span.events,
        "prompt": prompt.text if prompt else None,
        "input_type": type(span.input).__name__,
        "input": decode_json_or_text(span.call.raw_input),
        "result": _result_json(span),
        "diff": detail.diff,
        "before": _neighbour_id(detail.before),
        "after": _neighbour_id(detail.after),
        "around": around,
        "recovery": detail.chain,
        "others": detail.other_sessions,
    }


def _neighbour_id(neighbours: Sequence[Neighbour]) -> str | None:
    return next((neighbour.id for neighbour in neighbours if isinstance(neighbour, Span)), None)


def _result_json(span: Span) -> dict[str, object] | None:
    if span.result is None:
        return None
    structured = span.result.structured
    if isinstance(structured, UnknownResult):
        value = structured.json()
    else:
        try:
            value = decode_json_or_text(msgspec.json.encode(structured))
        except (UnicodeEncodeError, TypeError):
            value = repr(structured)
    return {
        "text": span.result.text,
        "summary": result_summary(span),
        "structured_type": type(structured).__name__ if structured is not None else None,
        "structured": value,
    }


def call_lines(detail: CallDetail, row_format: RowFormat) -> Iterator[Text]:
    """Yield the lines that `show CALL` prints."""
    span, width = detail.span, row_format.width
    yield call_text(span, row_format)
    yield Text()
    yield from _call_fact_lines(detail, width)
    kind = "unknown type" if isinstance(span.input, UnknownInput) else type(span.input).__name__
    yield from _section_lines(join_parts("input", kind), _input_lines(span, row_format), row_format)
    if span.result is not None:
        lines = _limit_lines(plain_lines(span.result.text.rstrip("\n")), row_format, _MAX_RESULT_LINES)
        yield from _section_lines(join_parts("result", result_summary(span)), lines, row_format)
    if detail.diff:
        lines = _limit_lines(plain_lines(detail.diff.rstrip("\n")), row_format, _MAX_RESULT_LINES * 2)
        yield from _section_lines("diff", (diff_line(line.plain) for line in lines), row_format)
    if detail.chain is not None:
        recovery = detail.chain
        name = (recovery.name or "not attempted").replace("_", " ")
        evasion = "possible evasion" if recovery.evasion else None
        title = join_parts("recovery", name, recovery.outcome, evasion)
        yield from _section_lines(title, _chain_lines(recovery, span, row_format), row_format)
    if detail.before or detail.after:
        yield from _section_lines("around", _neighbour_lines(detail, row_format), row_format)
    # How to undo the changes, except for file names with control characters
    name = span.id[:_MAX_ID_LENGTH]
    paths = [path for path in detail.changed_paths if path.isprintable() and name.isprintable()]
    is_default_location = to_path(detail.file).absolute().is_relative_to(config_dir().absolute())
    where = "" if is_default_location else f" {shlex.quote(detail.file)}"
    if paths:
        yield Text("\nTo undo it:")
    for path in paths[:_MAX_RESTORE_HINTS]:
        arguments = f"{shlex.quote(path)}{where if where.isprintable() else ''}"
        yield Text(f"  toolspan restore {arguments} --before {shlex.quote(name)}")


def _call_fact_lines(detail: CallDetail, width: int) -> Iterator[Text]:
    span = detail.span
    yield from fact_lines("id", span.id, width)
    yield from fact_lines("session", join_parts(span.call.session_id, span.call.agent_id), width)
    if detail.other_sessions:
        some = ", ".join(name[:13] for name in detail.other_sessions[:3])
        more = f"{format_count(len(detail.other_sessions), 'older session')} with this id: {some} (--session)"
        yield from fact_lines("also in", more, width, "yellow")
    prompt = detail.turn.prompt if detail.turn else None
    yield from fact_lines("prompt", display_text(prompt) if prompt else None, width)
    flags = [name for name in _SPAN_FLAGS if getattr(span, name)]
    state = f"{span.state}: {STATE_MEANINGS[span.state]}" + (f" ({', '.join(flags)})" if flags else "")
    yield from fact_lines("state", state, width, STATE_STYLES[span.state])
    for evidence in span.evidence:
        text = f"{evidence.rule}: {evidence.text}" if evidence.text else evidence.rule
        yield from fact_lines("evidence", text, width)
    yield from fact_lines("error", join_parts(KIND_WORDS.get(span.error_kind or ""), span.message), width)
    if span.advice:
        yield from fact_lines("cause", span.advice.cause, width)
        yield from fact_lines("solution", span.advice.solution, width, "bold")
        yield from fact_lines("retry", span.advice.retry, width)
    if span.result:
        code = span.result.exit_code
        yield from fact_lines("exit code", None if code is None else str(code), width)
        yield from fact_lines("saved to", span.result.persisted_path, _MAX_LINE_LENGTH)
    reported_ms = span.result.reported_ms if span.result else None
    reported = f"{format_duration(reported_ms)} reported by the tool" if reported_ms is not None else None
    wait_ms = noted_wait(span)
    waited = f"{format_duration(wait_ms)} of it waiting for permission" if wait_ms is not None else None
    times = format_period(span.requested, span.finished)
    if span.result and span.result.has_copied_times:
        times, reported = f"copied {format_time(span.finished)}", reported or "duration unknown"
    yield from fact_lines("times", join_parts(times, reported, waited), width)
    for event in span.events:
        yield from fact_lines("", event_note(event), width, "dim")
    yield from _location_lines(detail, width)


def _location_lines(detail: CallDetail, width: int) -> Iterator[Text]:
    span = detail.span
    yield from fact_lines("requested", str(span.call.place or "not recorded"), _MAX_LINE_LENGTH)
    yield from fact_lines("answered", str(span.result.place) if span.result else "never", _MAX_LINE_LENGTH)
    if detail.batch and len(detail.batch.calls) > 1:
        ids = _call_ids(detail.batch)
        most = max(group.concurrency for group in detail.batch.groups)
        how = "one after another" if detail.batch.is_serial else f"up to {most} at once"
        yield from fact_lines("batch", f"{ids.index(span.id) + 1} of {len(ids)}, {how}", width)
    if span.branch != "active":
        yield from fact_lines("branch", span.branch, width)
    yield from fact_lines("started by", span.call.parent_call, width)
    yield from fact_lines("subagent", span.agent, width)
    for copy in span.copies[:4]:
        yield from fact_lines("copy", f"{copy.what} at {copy.place}", _MAX_LINE_LENGTH)


def _section_lines(title: str, lines: Iterable[Text], row_format: RowFormat) -> Iterator[Text]:
    yield Text()
    head = f"── {plain_line(title, row_format.width)} "
    yield Text(head + "─" * max(row_format.width - len(head), 0), style="dim")
    yield from lines


def _input_lines(span: Span, row_format: RowFormat) -> Iterator[Text]:
    tool_input = decode_json_or_text(span.call.raw_input)
    for key, value in tool_input.items() if isinstance(tool_input, dict) else [("", tool_input)]:
        text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
        lines = plain_lines(text or '""')
        if len(lines) == 1:
            yield from fact_lines(str(key), text or '""', _MAX_LINE_LENGTH if row_format.full else row_format.width)
        else:
            yield from fact_lines(str(key), format_count(len(lines), "line"), row_format.width, "dim")
            yield from (Text("  ") + line for line in _limit_lines(lines, row_format, _MAX_INPUT_LINES))


def _limit_lines(lines: Sequence[str], row_format: RowFormat, max_lines: int) -> Iterator[Text]:
    if row_format.full:
        yield from (Text(line) for line in lines)
        return
    yield from (Text(line[:_MAX_LINE_LENGTH]) for line in lines[:max_lines])
    if len(lines) > max_lines:
        yield Text(f"… {format_count(len(lines) - max_lines, 'more line')} (--full)", style="dim")


def _chain_lines(recovery: RecoveryChain, span: Span, row_format: RowFormat) -> Iterator[Text]:
    calls: list[CallRow | ChainLink] = [recovery.start, *recovery.links]
    for link in calls:
        line = Text().append(f"{format_time(parse_timestamp(link.requested), date=False):10}", style="dim")
        line.append(f"{STATE_SYMBOLS[link.state]} ", style=STATE_STYLES[link.state])
        line.append(f"{plain_line(link.tool, 60):5} ", style="bold")
        about = join_parts(relative_to_folder(link.target or "", row_format.cwd), KIND_WORDS.get(link.error_kind or ""))
        line.append(plain_line(about, row_format.width))
        name = plain_line(link.id, _MAX_ID_LENGTH)
        line.truncate(max(row_format.width - len(name) - 9, _MIN_TEXT_WIDTH), overflow="ellipsis")
        line.append(f"  {name}", style="dim")
        yield line.append(" ◂ this") if link.id == span.id else line


def _neighbour_lines(detail: CallDetail, row_format: RowFormat) -> Iterator[Text]:
    for neighbour in detail.before:
        yield from _format_neighbour(neighbour, "before", row_format)
    yield (Text().append(f"{'':18}").append_text(call_text(detail.span, row_format)).append("  ◂ this"))
    for neighbour in detail.after:
        yield from _format_neighbour(neighbour, "after", row_format)


def _format_neighbour(neighbour: Neighbour, label: str, row_format: RowFormat) -> Iterator[Text]:
    if isinstance(neighbour, Span):
        name, at, text = plain_line(neighbour.id, _MAX_ID_LENGTH), neighbour.requested, call_text(neighbour, row_format)
    else:
        message = neighbour.message
        if not row_format.includes_message(message):
            return
        mark, style = AUTHOR_STYLES[message.voice]
        name = label = ""
        at, text = neighbour.start_time, Text(mark + plain_line(display_text(message), row_format.width), style=style)
    line = Text().append(f"{label:8}{format_time(at, date=False):10}", style="dim").append_text(text)
    if not row_format.full:
        line.truncate(max(row_format.width - len(name) - 2, _MIN_TEXT_WIDTH), overflow="ellipsis")
    yield line.append(f"  {name}", style="dim") if name else line


def result_summary(span: Span) -> str:
    """Summarize a structured result, such as `+3 −1` or `12 lines`; empty if there is no short form."""
    if span.result is None or span.result.is_error:
        return ""
    try:
        structured = span.result.structured
    except SourceError:
        return ""
    return _files_summary(structured) or _work_summary(structured)


def _files_summary(structured: object) -> str:
    match structured:
        case (
            results.EditResult(structured_patch=hunks)
            | results.MultiEditResult(structured_patch=hunks)
            | results.WriteResult(structured_patch=(_, *_) as hunks)
        ):
            added, removed = added_removed(hunks)
            return f"+{added} −{removed}"
        case results.WriteResult(content=str(content)):
            return f"new, {format_count(len(content.splitlines()), 'line')}"
        case results.ReadText(file=results.TextFile(num_lines=int(shown), total_lines=int(total)) as file):
            if file.content.endswith("\n") and (file.start_line or 1) + shown - 1 == total:
                shown, total = shown - 1, total - 1  # clients count an empty line after the last line break
            lines = format_count(total, "line")
            return f"{shown:,} of {lines}" if shown < total else lines
        case results.GrepResult(mode="content", num_lines=int(lines)):
            return format_count(lines, "line")
        case results.GlobResult() | results.GrepResult():
            return format_count(structured.num_files or len(structured.filenames), "file")
        case _:
            return ""


def _work_summary(structured: object) -> str:
    match structured:
        case results.BashResult(stdout=stdout, stderr=stderr):
            lines = len(stdout.splitlines()) + len(stderr.splitlines())
            interpretation = structured.return_code_interpretation
            return interpretation or (format_count(lines, "line") if lines else "no output")
        case work_results.AgentResult():
            calls, tokens = structured.total_tool_use_count, structured.total_tokens
            counts = [format_count(n, noun) for n, noun in ((calls, "call"), (tokens, "token")) if n]
            return "sent off" if structured.is_launched else ", ".join(counts)
        case work_results.TodoResult(new_todos=todos):
            return f"{sum(item.status == 'completed' for item in todos)}/{len(todos)} done"
        case work_results.WebFetchResult(code=int(code)):
            return f"HTTP {code}"
        case results.TaskOutputResult(task=results.BackgroundTask(status=str(status))):
            return status
        case _:
            return ""


def result_diff(structured: object) -> str | None:
    """Return an edit as a diff, or the reason why there is none. Return None for other tools' results."""
    if not isinstance(structured, _EDIT_RESULTS):
        return None
    hunks = structured.structured_patch
    if errors := problems(hunks):
        return "The recorded patch is invalid: " + " ".join(errors[:3])
    change: DiffKind = "create" if getattr(structured, "type", "") == "create" else "update"
    return unified(hunks, structured.file_path, change=change) or None
