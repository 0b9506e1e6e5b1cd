"""Read unsuccessful calls from files, detect whether later calls recovered them, and group them.

`toolspan errors` runs `FAILURES_JOB` on each file, or `RECOVERY_JOB` if a filter selects calls, and passes the combined
rows to `group_errors`. Recovery itself is inferred in `recovery.py`.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, timedelta, tzinfo

from msgspec import Struct
from msgspec.structs import replace

from toolspan.analysis.recovery import CallRef, ChainEnding, chain_endings
from toolspan.reading.facts import CALLS, FAILURES, FactKind, FileJob, FileSummary
from toolspan.reading.key_lines import normalize_line
from toolspan.reading.rows import CallRow
from toolspan.types.error_kinds import ADVICE, SANDBOX_NOTE
from toolspan.types.span import parse_timestamp

_UNANSWERED_ADVICE = ("The session ended before the result was recorded", "Check whether the call took effect")
_ORPHAN_ADVICE = ("The request is in another file, or lost", "Read the whole session, not one file")


class FileEndings(Struct, frozen=True, kw_only=True):
    """How the chains of calls that followed the unsuccessful calls in one file ended."""

    endings: list[ChainEnding]
    problem: str | None = None


class FileRecovery(Struct, frozen=True, kw_only=True):
    """The calls in one file and the chains of calls that followed the unsuccessful ones."""

    facts: FileSummary
    endings: list[ChainEnding]

    @property
    def problem(self) -> str | None:
        """The reason why the file could not be read."""
        return self.facts.problem


ENDINGS = FactKind(
    name="endings",
    measure=lambda reading: FileEndings(
        endings=chain_endings(reading.transcript.spans, reading.transcript.message_tokens)
    ),
    facts_type=FileEndings,
    unreadable=lambda _, problem: FileEndings(endings=[], problem=problem),
    finds_causes=False,
)


def _join(summary: FileSummary, endings: FileEndings) -> FileRecovery:
    return FileRecovery(facts=summary, endings=endings.endings)


RECOVERY_JOB = FileJob((CALLS, ENDINGS), _join)
FAILURES_JOB = FileJob((FAILURES, ENDINGS), _join)
"""The same without the rows of successful calls."""


def recovery_by_call(endings: Iterable[ChainEnding]) -> dict[CallRef, ChainEnding]:
    """Return the ending of each call's chain. If a call occurs in several files, a recovery in any of them counts."""
    endings_by_call: dict[CallRef, ChainEnding] = {}
    for ending in endings:
        for call in ending.failures:
            if call not in endings_by_call or ending.recovered:
                endings_by_call[call] = ending
    return endings_by_call


class ErrorGroup(Struct, frozen=True, kw_only=True):
    """Unsuccessful calls with the same cause."""

    id: str
    """The id of the group. It depends only on the cause, not on the other calls that are read."""
    kind: str
    tool: str
    program: str | None
    """The program that failed, for commands."""
    signature: str
    """The kind, the program or tool, and the message with everything that varies replaced."""
    message: str | None
    """The line of the output that best explains the cause, from the latest call that has one."""
    reasons: tuple[str, ...]
    """Reasons that the user gave for denials, latest first."""
    count: int
    """Number of calls in the group, as listed by `toolspan calls --group ID`."""
    background: int
    """The number of those calls that started a background command which failed later."""
    states: dict[str, int]
    sessions: int
    first: str | None
    last: str | None
    trend: str
    """`new`, `rising`, `falling`, `steady` or `gone`, from the calls in the first and second half of the period."""
    per_day: dict[str, int]
    """Number of calls by day, for the days that have any."""
    cause: str
    solution: str
    retry: str | None
    recovered: int | None
    """The number of calls recovered by later calls; null if recovery was not examined."""
    recovered_by: dict[str, int]
    """Number of recovered calls by name of the recovery chain, most frequent first."""
    repeated: int
    """Number of calls after the first one in the same session."""
    lost_ms: int
    """Time from the failures to the last attempts to recover, without idle time and refusals."""
    lost_tokens: int
    """Tokens of the requests that made these attempts, without those read from the cache."""
    harm: float
    """The share of this group in the time lost, the tokens lost, the calls not recovered and the repeated calls of
    all groups, as a mean from 0 to 1.
    """
    command: str
    """The command that lists all calls of the group."""
    example: CallRow

    @property
    def abandoned(self) -> int:
        """Number of calls that no later call recovered."""
        return self.count - (self.recovered or 0)


def group_errors(
    rows: Iterable[CallRow],
    recoveries: Mapping[CallRef, ChainEnding] | None = None,
    *,
    names: Sequence[str] = (),
    zone: tzinfo | None = UTC,
) -> list[ErrorGroup]:
    """Group unsuccessful calls by cause, most frequent group first, and the latest first among equally frequent ones.

    Searches that found nothing are one group, which is always the last. `names` are the files, folders or sessions
    that were read, for the commands that list the calls of each group. Days begin at midnight in `zone`, by default
    the local time zone.
    """
    members: dict[str, list[CallRow]] = {}
    for row in rows:
        if row.error_group is not None:
            members.setdefault(row.error_group, []).append(row)
    times = sorted(at for group in members.values() for row in group if (at := row.requested or row.finished))
    period = (times[0], times[-1]) if times else None
    groups = _rate_harm(
        [_make_group(group_id, group, period, recoveries, names, zone) for group_id, group in members.items()]
    )
    groups.sort(key=lambda group: (group.last or "", group.id), reverse=True)
    return sorted(groups, key=lambda group: (group.kind == "nothing_found", -group.count))


def _rate_harm(groups: Sequence[ErrorGroup]) -> list[ErrorGroup]:
    """Return the groups with their shares of the harm. Searches that found nothing do none."""
    measures = [
        (0, 0, 0, 0)
        if group.kind == "nothing_found"
        else (group.lost_ms, group.lost_tokens, group.abandoned, group.repeated)
        for group in groups
    ]
    totals = [sum(column) for column in zip(*measures, strict=True)]
    return [
        replace(
            group,
            harm=round(sum(part / total for part, total in zip(parts, totals, strict=True) if total) / len(parts), 4),
        )
        for group, parts in zip(groups, measures, strict=True)
    ]


def _make_group(
    group_id: str,
    rows: Sequence[CallRow],
    period: tuple[str, str] | None,
    recoveries: Mapping[CallRef, ChainEnding] | None,
    names: Sequence[str],
    zone: tzinfo | None,
) -> ErrorGroup:
    last = max(rows, key=lambda row: row.requested or row.finished or "")
    # Calls that succeeded, but whose background command failed later.
    background = sum(row.state == "succeeded" and row.error_group is not None for row in rows)
    if last.state == "orphan_result":
        kind, (cause, solution) = "orphan_result", _ORPHAN_ADVICE
    else:
        kinds = Counter(row.error_kind for row in rows if row.error_kind)
        error_kind = kinds.most_common(1)[0][0] if kinds else None
        if error_kind is None and background:
            is_denied = (last.error_text or "").startswith(SANDBOX_NOTE)
            error_kind = "sandbox_denied" if is_denied else "command_failed"
        cause, solution = (ADVICE[error_kind].cause, ADVICE[error_kind].solution) if error_kind else _UNANSWERED_ADVICE
        kind = error_kind or last.state
    who = last.tool or "?" if last.error_program is None or kind == "nothing_found" else last.error_program
    times = sorted(at for row in rows if (at := row.requested or row.finished))
    reasons: tuple[str, ...] = ()
    message = last.error_text
    if kind == "user_denied":
        latest_first = sorted(rows, key=lambda row: row.requested or row.finished or "", reverse=True)
        reasons = tuple(dict.fromkeys(row.message for row in latest_first if row.message))
        message = next((row.error_text for row in latest_first if row.error_text), None)
    endings = [recoveries.get((row.id, row.batch)) for row in rows] if recoveries is not None else []
    recovered = [ending.by for ending in endings if ending is not None and ending.recovered]
    # A chain counts for the group of its first failure.
    first_of = [
        ending
        for row, ending in zip(rows, endings, strict=False)
        if ending is not None and ending.failures[0] == (row.id, row.batch)
    ]
    sessions = len({row.session for row in rows})
    return ErrorGroup(
        id=group_id,
        kind=kind,
        tool=last.tool or "?",
        program=last.error_program if kind != "nothing_found" else None,
        signature=f"{kind} {who}" + (f": {normalize_line(message)}" if message and kind != "user_denied" else ""),
        message=message,
        reasons=reasons,
        count=len(rows),
        background=background,
        states=dict(Counter(row.state for row in rows)),
        sessions=sessions,
        first=times[0] if times else None,
        last=times[-1] if times else None,
        trend=_find_trend(times, period),
        per_day=dict(Counter(local_day(at, zone) for at in times)),
        cause=cause,
        solution=solution,
        retry=last.retry,
        recovered=len(recovered) if recoveries is not None else None,
        recovered_by=dict(Counter(name for name in recovered if name).most_common()),
        repeated=len(rows) - sessions,
        lost_ms=sum(ending.lost_ms for ending in first_of),
        lost_tokens=sum(ending.lost_tokens for ending in first_of),
        harm=0.0,
        command=shlex.join(["toolspan", "calls", *names, "--group", group_id]),
        example=last,
    )


def local_day(timestamp: str, zone: tzinfo | None) -> str:
    """Return the date of a timestamp in a zone."""
    time = parse_timestamp(timestamp)
    return timestamp[:10] if time is None else time.astimezone(zone).date().isoformat()


_TREND_FACTOR = 1.5
"""A group rises or falls if one of two equal periods has this many times as many calls as the other."""
_MAX_RECENT = timedelta(days=14)


def _find_trend(times: Sequence[str], period: tuple[str, str] | None) -> str:
    """Return the trend: the last two weeks compared with the two weeks before, or the halves of a shorter period."""
    start, end = map(parse_timestamp, period) if period else (None, None)
    if start is None or end is None or end <= start:
        return "steady"
    recent = min((end - start) / 2, _MAX_RECENT)
    ages = [end - moment for at in times if (moment := parse_timestamp(at)) is not None]
    later = sum(age < recent for age in ages)
    earlier = sum(recent <= age <= 2 * recent for age in ages)
    if later in (0, len(ages)):
        return "new" if later else "gone"
    if later >= max(2, earlier * _TREND_FACTOR):
        return "rising"
    return "falling" if earlier >= later * _TREND_FACTOR else "steady"
