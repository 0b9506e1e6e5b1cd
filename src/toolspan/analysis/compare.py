"""Compare two sets of sessions, or two periods: calls, outcomes, time, tokens, cost and changed files.

`COMPARE_JOB` reads one file, `summarize_side` adds up the files of one side, and `compare_sides` subtracts the sides.
`find_parting` finds the first step at which two sessions that began alike differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Literal

from msgspec import Struct

from toolspan.analysis.file_history.archive import CHANGES, FileChanges, RecordedChange
from toolspan.analysis.file_time import TIMES, FileTime, FileTimes, join_time
from toolspan.analysis.timesheet import Timesheet
from toolspan.analysis.timing import TimeSplit
from toolspan.analysis.usage import USAGE, FileUsage, filter_requests, join_requests, sum_usage
from toolspan.prices import PriceTable
from toolspan.reading.facts import CALLS, FileJob, FileSummary
from toolspan.reading.rows import CallRow
from toolspan.reading.transcript import Transcript, read_content
from toolspan.types.session import Message, SessionInfo, Tokens
from toolspan.types.span import Span

_TEXT_LIMIT = 200


class ComparedFile(Struct, frozen=True, kw_only=True):
    """The calls, times, requests and file changes of one transcript."""

    file: str
    info: SessionInfo
    usage: FileUsage
    time: FileTime
    changes: list[RecordedChange]
    problem: str | None = None


def _join_facts(summary: FileSummary, times: FileTimes, usage: FileUsage, changes: FileChanges) -> ComparedFile:
    return ComparedFile(
        file=summary.file,
        info=summary.info,
        usage=usage,
        time=join_time(summary, times),
        changes=[change for change in changes.changes if change.kind is not None],
        problem=summary.problem,
    )


COMPARE_JOB = FileJob((CALLS, TIMES, USAGE, CHANGES), _join_facts)


class ComparedSide(Struct, frozen=True, kw_only=True):
    """One side of a comparison."""

    name: str
    since: datetime | None
    until: datetime | None
    sessions: int
    calls: int
    unsuccessful: int
    error_kinds: dict[str, int]
    """Number of unsuccessful calls by error kind, or by state if they have none; most frequent first."""
    time: TimeSplit
    """The combined time of the main conversations."""
    tokens: Tokens
    requests: int
    cost_usd: float | None
    """The cost of the requests whose model has a price; None if none of them has one."""
    unpriced_requests: int
    models: tuple[str, ...]
    files_changed: int
    lines_added: int
    lines_removed: int
    files: dict[str, int]
    """Number of changes by file, most frequent first."""
    tools: dict[str, int]
    """Number of calls by tool, most frequent first."""


CallPredicate = Callable[[CallRow], bool]


def summarize_side(
    name: str,
    files: Sequence[ComparedFile],
    prices: PriceTable,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    agent: str | None = None,
    accepts_call: CallPredicate = lambda _: True,
) -> ComparedSide:
    """Add up the calls, times and requests of these files in a period. Copies in several files are counted once."""
    sheet = Timesheet.from_files([file.time for file in files], since=since, until=until)
    calls = [item.call for item in sheet.calls if accepts_call(item.call)]
    error_kinds = Counter(row.error_kind or row.state for row in calls if row.is_unsuccessful)
    requests = filter_requests(join_requests(file.usage for file in files), since, until, agent)
    usage = sum_usage(name, requests, prices)
    sessions = {session.id for session in sheet.sessions} | {request.session for request in requests}
    if since is None and until is None:
        sessions |= {file.info.session_id for file in files if file.info.session_id and not file.info.agent_id}
    called = {row.id for row in calls}
    changes = {(change.call, change.path): change for file in files for change in file.changes if change.call in called}
    return ComparedSide(
        name=name,
        since=since,
        until=until,
        sessions=len(sessions),
        calls=len(calls),
        unsuccessful=sum(error_kinds.values()),
        error_kinds=dict(error_kinds.most_common()),
        time=sheet.split,
        tokens=usage.tokens,
        requests=usage.requests,
        cost_usd=usage.cost_usd,
        unpriced_requests=usage.unpriced_requests,
        models=usage.models,
        files_changed=len({change.path for change in changes.values()}),
        lines_added=sum(change.added or 0 for change in changes.values()),
        lines_removed=sum(change.removed or 0 for change in changes.values()),
        files=dict(Counter(change.path for change in changes.values()).most_common()),
        tools=dict(Counter(row.tool for row in calls if row.tool).most_common()),
    )


class Comparison(Struct, frozen=True, kw_only=True):
    """Two sides, and the differences of their numbers: the second minus the first."""

    a: ComparedSide
    b: ComparedSide
    difference: dict[str, object]
    parting: Parting | None = None


_COUNTS = (
    "sessions", "calls", "unsuccessful", "requests", "files_changed", "lines_added", "lines_removed",
)  # fmt: skip


def compare_sides(a: ComparedSide, b: ComparedSide, parting: Parting | None = None) -> Comparison:
    """Subtract the numbers of the first side from those of the second."""
    difference: dict[str, object] = {name: getattr(b, name) - getattr(a, name) for name in _COUNTS}
    for name in ("error_kinds", "tools"):
        before, after = getattr(a, name), getattr(b, name)
        difference[name] = {key: after.get(key, 0) - before.get(key, 0) for key in {**before, **after}}
    times = [name for name in TimeSplit.__struct_fields__ if name.endswith("_ms")]
    difference["time"] = {name: getattr(b.time, name) - getattr(a.time, name) for name in times}
    difference["tokens"] = {
        name: getattr(b.tokens, name) - getattr(a.tokens, name) for name in Tokens.__struct_fields__
    }
    has_costs = a.cost_usd is not None and b.cost_usd is not None
    difference["cost_usd"] = round((b.cost_usd or 0) - (a.cost_usd or 0), 9) if has_costs else None
    return Comparison(a=a, b=b, difference=difference, parting=parting)


# The first difference between two sessions


class Step(Struct, frozen=True, kw_only=True):
    """A prompt or a call in the main conversation of a session."""

    kind: Literal["prompt", "call"]
    text: str
    """The beginning of the prompt, or the subject of the call."""
    tool: str | None = None
    call: str | None = None
    state: str | None = None
    at: str | None = None
    file: str
    line: int


class Parting(Struct, frozen=True, kw_only=True):
    """The first step at which two sessions that began alike differ."""

    shared_steps: int
    """The number of prompts and calls that both sessions begin with."""
    last_shared: Step
    """The last shared step, as recorded in the first session."""
    a: Step | None
    """The next step of the first session; None if it ends there."""
    b: Step | None
    first_different_result: Step | None
    """The first shared call whose results differ, which may be the cause, as recorded in the first session."""


def find_parting(a: Transcript, b: Transcript) -> Parting | None:
    """Return the first step at which two sessions differ, or None if already their first steps differ.

    Steps are the prompts and calls of the main conversations. Calls are equal if their tools and inputs are equal,
    apart from descriptions and from the sessions' working folders.

    Raises:
        SourceError: a file can no longer be read.
    """
    steps_a, steps_b = list(_iter_steps(a)), list(_iter_steps(b))
    count = 0
    different: Step | None = None
    for (step, key, span), (_, other_key, other_span) in zip(steps_a, steps_b, strict=False):
        if key != other_key:
            break
        count += 1
        if different is None and span is not None and other_span is not None:
            results = [_result_key(item, transcript) for item, transcript in ((span, a), (other_span, b))]
            different = step if results[0] != results[1] else None
    if not count:
        return None
    return Parting(
        shared_steps=count,
        last_shared=steps_a[count - 1][0],
        a=steps_a[count][0] if count < len(steps_a) else None,
        b=steps_b[count][0] if count < len(steps_b) else None,
        first_different_result=different,
    )


def _iter_steps(transcript: Transcript) -> Iterator[tuple[Step, tuple[str, ...], Span | None]]:
    content = read_content(transcript)
    inline = content.inline_agent_keys
    items: list[tuple[int, Message | Span]] = [
        (message.place.line, message)
        for message in content.messages
        if message.voice == "prompt" and message.place.line not in inline
    ]
    items += [
        (place.line, span)
        for span in content.spans
        if (place := span.call.place) is not None and place.line not in inline
    ]
    for line, item in sorted(items, key=lambda pair: pair[0]):
        if isinstance(item, Message):
            text = _without_folder(item.text.strip(), transcript)
            step = Step(kind="prompt", text=text[:_TEXT_LIMIT], at=item.at, file=transcript.file, line=line)
            yield step, ("prompt", text), None
            continue
        step = Step(
            kind="call",
            text=item.call.target or "",
            tool=item.tool,
            call=item.id,
            state=item.state,
            at=item.call.requested_at,
            file=transcript.file,
            line=line,
        )
        arguments = sorted((name, value) for name, value in item.call.arguments.items() if name != "description")
        yield step, ("call", item.tool, _without_folder(repr(arguments), transcript)), item


def _result_key(span: Span, transcript: Transcript) -> tuple[str, str]:
    return span.state, _without_folder(span.result.text, transcript) if span.result else ""


def _without_folder(text: str, transcript: Transcript) -> str:
    """Return a text with the session's working folder replaced, so that copies of a project compare as equal."""
    folder = transcript.info.cwd
    return text.replace(folder, ".") if folder and len(folder) > 1 else text
