"""One call in detail as lines for the terminal: input, state, error, result, diff, recovery and neighbours.

Start at `call_lines`. `toolspan.archive` finds the call and its context.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

from rich.text import Text

from toolspan.analysis.recovery import CHAIN_WORDS, ChainLink, RecoveryChain
from toolspan.archive.call_detail import CallDetail, Neighbour, call_ids, result_summary
from toolspan.archive.calls import TimedCall
from toolspan.archive.words import VOICES, format_count, format_duration, join_parts, plain_line, plain_lines
from toolspan.cli.output import STATE_STYLES, diff_line, fact_lines, format_time
from toolspan.errors import SourceError
from toolspan.formats.registry import is_default_file, relative_to_folder
from toolspan.formats.source import to_path
from toolspan.reading.rows import CallRow
from toolspan.reading.timeline import display_text
from toolspan.types.error_kinds import KIND_WORDS
from toolspan.types.ids import SourceLocation
from toolspan.types.inputs import UnknownInput, decode_json_or_text
from toolspan.types.session import Message, MessageAuthor
from toolspan.types.span import POLL, Call, Event, Hook, Note, Notification, Permission, Progress, Span, parse_timestamp
from toolspan.types.state import STATE_MEANINGS, STATE_SYMBOLS

_SPAN_FLAGS = ("ambiguous", "background", "deferred", "synthetic")
_MAX_RESULT_LINES = 40
_MAX_INPUT_LINES = 16
_MAX_LINE_LENGTH = 2_000
_MAX_RESTORE_HINTS = 3
_MAX_ID_LENGTH = 100
_MIN_TEXT_WIDTH = 40
_AUTHOR_COLORS: dict[MessageAuthor, str] = {
    "prompt": "bold", "command": "bold", "text": "dim", "thinking": "dim italic", "injected": "dim", "summary": "dim",
    "notification": "cyan", "interrupt": "magenta", "error": "red", "system": "yellow",
}  # fmt: skip
AUTHOR_STYLES = {author: (f"{VOICES[author][0]:1} ", style) for author, style in _AUTHOR_COLORS.items()}
_MARKER_AUTHORS = frozenset({"interrupt", "system", "error"})
"""Authors whose messages are shown even with `--no-messages`."""


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
        case Progress(kind=kind) if kind == POLL:
            return f"{format_count(event.count, 'later call')} read its output or stopped it"
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


def format_wait(row: TimedCall) -> str | None:
    """Return the wait for permission in a call, or a note that a long call may include one."""
    if row.wait_ms:
        inferred = " (inferred)" if row.wait_certainty == "inferred" else ""
        return f"{format_duration(row.wait_ms)} of it waiting for permission{inferred}"
    return "may include a wait for permission" if row.may_include_wait else None


def format_period(start: datetime | None, end: datetime | None) -> str:
    """Format a period as start, end and duration."""
    if start is None or end is None:
        return format_time(start or end)
    took = format_duration(max((end - start).total_seconds(), 0) * 1000)
    return f"{format_time(start)} – {format_time(end, date=start.date() != end.date())} ({took})"


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
        name = CHAIN_WORDS[recovery.name] if recovery.name else "not attempted"
        evasion = "possible evasion" if recovery.evasion else None
        title = join_parts("recovery", name, recovery.outcome, evasion)
        yield from _section_lines(title, _chain_lines(recovery, span, row_format), row_format)
    if detail.before or detail.after:
        yield from _section_lines("around", _neighbour_lines(detail, row_format), row_format)
    # How to undo the changes, except for file names with control characters
    name = span.id[:_MAX_ID_LENGTH]
    paths = [path for path in detail.changed_paths if path.isprintable() and name.isprintable()]
    is_default_location = is_default_file(to_path(detail.file))
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
        yield from fact_lines("evidence", evidence.summary, width)
    yield from fact_lines("error", join_parts(KIND_WORDS.get(span.error_kind or ""), span.message), width)
    if span.advice and span.advice.solution:
        yield from fact_lines("cause", span.advice.cause, width)
        yield from fact_lines("solution", span.advice.solution, width, "bold")
    if span.result:
        code = span.result.exit_code
        yield from fact_lines("exit code", None if code is None else str(code), width)
        yield from fact_lines("saved to", span.result.persisted_path, _MAX_LINE_LENGTH)
    reported_ms = span.result.reported_ms if span.result else None
    reported = f"{format_duration(reported_ms)} reported by the tool" if reported_ms is not None else None
    times = format_period(span.requested, span.finished)
    if span.result and span.result.has_copied_times:
        times, reported = f"copied {format_time(span.finished)}", reported or "duration unknown"
    yield from fact_lines("times", join_parts(times, reported, format_wait(detail.row)), width)
    if span.background_end is not None:
        lasted = f"until {format_time(span.background_end)}, {format_duration(span.duration_ms)} after the request"
        yield from fact_lines("background", lasted, width)
    for event in span.events:
        yield from fact_lines("", event_note(event), width, "dim")
    yield from _location_lines(detail, width)


def _location_lines(detail: CallDetail, width: int) -> Iterator[Text]:
    span = detail.span
    yield from fact_lines("requested", str(span.call.place or "not recorded"), _MAX_LINE_LENGTH)
    yield from fact_lines("answered", str(span.result.place) if span.result else "never", _MAX_LINE_LENGTH)
    if detail.batch and len(detail.batch.calls) > 1:
        ids = call_ids(detail.batch)
        most = max(group.concurrency for group in detail.batch.groups)
        how = "one after another" if detail.batch.is_serial else f"up to {most} at once"
        yield from fact_lines("batch", f"{ids.index(span.id) + 1} of {len(ids)}, {how}", width)
    if span.branch != "active":
        yield from fact_lines("branch", span.branch, width)
    yield from fact_lines("continues", span.call.continues, width)
    if span.call.parent_call != span.call.continues:
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
            yield from fact_lines(str(key), text or '""', _MAX_LINE_LENGTH)
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
        line = Text().append(f"{format_time(link.requested, date=False):10}", style="dim")
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
