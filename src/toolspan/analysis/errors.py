"""Read failed calls from files, detect whether later calls recovered them, and group them.

`toolspan errors` runs `file_recovery` on each file and passes the combined rows to `group_errors`. Recovery itself is
inferred in `recovery.py`.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, timedelta, tzinfo
from pathlib import Path

from msgspec import Struct

from toolspan.analysis.recovery import CallRef, ChainEnding, chain_endings
from toolspan.errors import SourceError
from toolspan.formats.source import to_path
from toolspan.reading.causes import background_failure, normalize_line
from toolspan.reading.parallel import FileSummary, unreadable_summary
from toolspan.reading.rows import CallRow, make_call_row
from toolspan.reading.transcript import read_calls
from toolspan.types.error_kinds import ADVICE, SANDBOX_NOTE
from toolspan.types.span import parse_timestamp
from toolspan.types.state import OPEN_STATES

_UNANSWERED_ADVICE = ("The session ended before the result was recorded", "Check whether the call took effect")
_ORPHAN_ADVICE = ("The request is in another file, or lost", "Read the whole session, not one file")


class FileRecovery(Struct, frozen=True, kw_only=True):
    """The failed calls in one file and the chains of calls that followed them."""

    facts: FileSummary
    endings: list[ChainEnding]

    @property
    def problem(self) -> str | None:
        """The reason why the file could not be read."""
        return self.facts.problem


def file_recovery(path: Path | str, *, all_calls: bool = False) -> FileRecovery:
    """Return the failed calls in one file, or with `all_calls` every call, and the endings of their recovery chains.

    Does not raise if the file is unreadable: `problem` is set instead.
    """
    try:
        transcript = read_calls(to_path(path))
        spans = transcript.spans
    except SourceError as error:
        return FileRecovery(facts=unreadable_summary(path, error), endings=[])
    selected = spans if all_calls else [span for span in spans if span.state != "succeeded" or background_failure(span)]
    summary = FileSummary(
        file=transcript.file,
        info=transcript.info,
        counts=transcript.counts,
        calls=[make_call_row(span, transcript.file) for span in selected],
        message_tokens={},
        findings=transcript.findings,
        started=transcript.agent_starters,
        started_by=transcript.agent_origin.starter_call,
        successes=[] if all_calls else transcript.success_keys,
        last_batch=next((span.call.message_id for span in reversed(spans) if span.branch == "active"), None),
    )
    return FileRecovery(facts=summary, endings=chain_endings(spans))


def file_recovery_all(path: Path | str) -> FileRecovery:
    """Call `file_recovery` with `all_calls`. It is a separate function, because cache keys contain function names."""
    return file_recovery(path, all_calls=True)


def recovery_by_call(endings: Iterable[ChainEnding]) -> dict[CallRef, ChainEnding]:
    """Return the ending of each failed call's chain. If a call occurs in several files, a recovery in any counts."""
    endings_by_call: dict[CallRef, ChainEnding] = {}
    for ending in endings:
        for call in ending.failures:
            if call not in endings_by_call or ending.recovered:
                endings_by_call[call] = ending
    return endings_by_call


class ErrorGroup(Struct, frozen=True, kw_only=True):
    """Failures with the same cause."""

    id: str
    """The id of the group. It depends only on the cause, not on the other calls that are read."""
    kind: str
    tool: str
    program: str | None
    """The program that failed, for commands."""
    signature: str
    """The kind, the program or tool, and the text with everything that varies replaced."""
    text: str | None
    """The line of the output that best explains the cause, from the latest failure."""
    count: int
    """Number of calls in the group, as listed by `toolspan calls --group ID`."""
    background: int
    """The number of those calls that started a background command which failed later."""
    states: dict[str, int]
    sessions: int
    first: str | None
    last: str | None
    trend: str
    """`new`, `rising`, `falling`, `steady` or `gone`, from the failures in the first and second half of the period."""
    per_day: dict[str, int]
    """Number of failures by day, for the days that have any."""
    cause: str
    solution: str
    retry: str | None
    recovered: int | None
    """The number of calls recovered by later calls; null if recovery was not examined."""
    recovered_by: dict[str, int]
    """Number of recovered calls by name of the recovery chain, most frequent first."""
    command: str
    """The command that lists all calls of the group."""
    example: CallRow


def is_unsuccessful(row: CallRow) -> bool:
    """Return whether a call ended in any state other than success, except searches that only found nothing."""
    return row.state != "succeeded" and row.state not in OPEN_STATES and row.error_kind != "nothing_found"


def count_outcomes(rows: Iterable[CallRow]) -> Counter[str]:
    """Count calls by state, for display. Searches that found nothing are counted separately from failures."""
    return Counter("found nothing" if row.error_kind == "nothing_found" else row.state for row in rows)


def group_errors(
    rows: Iterable[CallRow],
    recoveries: Mapping[CallRef, ChainEnding] | None = None,
    *,
    names: Sequence[str] = (),
    zone: tzinfo | None = UTC,
) -> list[ErrorGroup]:
    """Group failures by cause, most frequent group first, and the latest first among equally frequent ones.

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
    groups = [_make_group(group_id, group, period, recoveries, names, zone) for group_id, group in members.items()]
    groups.sort(key=lambda group: (group.last or "", group.id), reverse=True)
    return sorted(groups, key=lambda group: (group.kind == "nothing_found", -group.count))


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
    endings = [recoveries.get((row.id, row.batch)) for row in rows] if recoveries is not None else []
    recovered = [ending.by for ending in endings if ending is not None and ending.recovered]
    return ErrorGroup(
        id=group_id,
        kind=kind,
        tool=last.tool or "?",
        program=last.error_program if kind != "nothing_found" else None,
        signature=f"{kind} {who}" + (f": {normalize_line(last.error_text)}" if last.error_text else ""),
        text=last.error_text,
        count=len(rows),
        background=background,
        states=dict(Counter(row.state for row in rows)),
        sessions=len({row.session for row in rows}),
        first=times[0] if times else None,
        last=times[-1] if times else None,
        trend=_find_trend(times, period),
        per_day=dict(Counter(_local_day(at, zone) for at in times)),
        cause=cause,
        solution=solution,
        retry=last.retry,
        recovered=len(recovered) if recoveries is not None else None,
        recovered_by=dict(Counter(name for name in recovered if name).most_common()),
        command=shlex.join(["toolspan", "calls", *names, "--group", group_id]),
        example=last,
    )


def _local_day(timestamp: str, zone: tzinfo | None) -> str:
    time = parse_timestamp(timestamp)
    return timestamp[:10] if time is None else time.astimezone(zone).date().isoformat()


_TREND_FACTOR = 1.5
"""A group rises or falls if one of two equal periods has this many times as many failures as the other."""
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
