"""One call in detail: input, state, error, result, diff, recovery and neighbours.

Start at `build_call_detail`. `session.py` finds the call, and `call_json` is what `show CALL --json` prints.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import msgspec
from msgspec import Struct

from toolspan.analysis.file_history.archive import FileArchive, diff_of_change
from toolspan.analysis.file_history.changes import FileChange, changes_of
from toolspan.analysis.recovery import RecoveryChain, find_chains
from toolspan.analysis.timing import UNKNOWN_WAIT, CallWait, measure_waits, read_hook_timings
from toolspan.archive.calls import TimedCall, add_wait
from toolspan.archive.words import format_count
from toolspan.diffs import DiffKind, added_removed, problems, unified
from toolspan.errors import SourceError
from toolspan.formats.source import to_path
from toolspan.reading.excerpt import keep_excerpt
from toolspan.reading.rows import make_call_row
from toolspan.reading.timeline import AgentTimeline, TimelineBatch, TimelineMessage, Turn, build_timeline
from toolspan.reading.transcript import Transcript, read, read_content
from toolspan.types import results, work_results
from toolspan.types.inputs import decode_json_or_text
from toolspan.types.results import UnknownResult
from toolspan.types.span import Span
from toolspan.types.state import STATE_MEANINGS

_EDIT_RESULTS = (results.EditResult, results.MultiEditResult, results.WriteResult)
_MAX_MESSAGES_AROUND = 3

Neighbour = TimelineMessage | Span


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
    wait: CallWait | None = None
    """The wait for permission in the call; None if it was not measured."""
    other_sessions: tuple[str, ...] = ()
    """Other sessions that contain a call with this id, newest first."""

    @property
    def row(self) -> TimedCall:
        """The call as a row of `toolspan calls`."""
        return add_wait(make_call_row(self.span, self.file), self.wait)


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
    timings = read_hook_timings(to_path(transcript.file))
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
                wait=measure_waits([placed.span for placed in timeline.calls], timings).get(span.id, UNKNOWN_WAIT),
                turn=next(turn for turn in timeline.turns if span.id in call_ids(turn)),
                batch=next(batch for batch in timeline.batches if span.id in call_ids(batch)),
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


def call_ids(part: Turn | TimelineBatch) -> list[str]:
    """Return the ids of the calls in a turn or batch."""
    return [placed.span.id for placed in part.calls]


def call_json(detail: CallDetail) -> dict[str, object]:
    """Return the object that `show CALL --json` prints."""
    span = detail.span
    prompt = detail.turn.prompt if detail.turn else None
    around = {
        side: [make_call_row(item, detail.file) if isinstance(item, Span) else item.message for item in items]
        for side, items in (("before", detail.before), ("after", detail.after))
    }
    return {
        "call": detail.row,
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
