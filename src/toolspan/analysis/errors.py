"""Read failed calls from files, detect whether later calls recovered them, and group them.

`toolspan errors` runs `file_recovery` on each file and passes the combined rows to `group_errors`. Recovery itself is
inferred in `recovery.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from toolspan.analysis.recovery import CallRef, ChainEnding, chain_endings
from toolspan.errors import SourceError
from toolspan.reading.parallel import FileSummary, unreadable_summary
from toolspan.reading.rows import CallRow, make_call_row
from toolspan.reading.transcript import read_calls
from toolspan.types.error_kinds import ADVICE, error_signature
from toolspan.types.state import OPEN_STATES

_UNANSWERED_ADVICE = ("The session ended before the result was recorded", "Check whether it took effect")
_ORPHAN_ADVICE = ("The request is in another file, or lost", "Read the whole session, not one file")


class FileRecovery(Struct, frozen=True, kw_only=True):
    """The failed calls in one file and the chains of calls that followed them."""

    facts: FileSummary
    endings: list[ChainEnding]

    @property
    def problem(self) -> str | None:
        """The reason why the file could not be read."""
        return self.facts.problem


def file_recovery(path: str) -> FileRecovery:
    """Read the failed calls in one file. If it is unreadable, `problem` is set and nothing is raised."""
    return _read_recovery(path, all_calls=False)


def file_recovery_all(path: str) -> FileRecovery:
    """Read one file like `file_recovery`, but return rows for all calls, so that they can be filtered."""
    return _read_recovery(path, all_calls=True)


def _read_recovery(path: str, *, all_calls: bool) -> FileRecovery:
    try:
        transcript = read_calls(Path(path))
        spans = transcript.spans
    except SourceError as error:
        return FileRecovery(facts=unreadable_summary(path, error), endings=[])
    selected = spans if all_calls else [span for span in spans if span.state != "succeeded"]
    summary = FileSummary(
        file=transcript.file,
        info=transcript.info,
        counts=transcript.counts,
        calls=[make_call_row(span, transcript.file) for span in selected],
        message_tokens={},
        tokens_raw_sum=transcript.tokens_raw_sum,
        findings=transcript.findings,
        started=transcript.agent_starters,
        successes=[] if all_calls else transcript.success_keys,
    )
    return FileRecovery(facts=summary, endings=chain_endings(spans))


def recovery_by_call(endings: Iterable[ChainEnding]) -> dict[CallRef, ChainEnding]:
    """Return the ending of each failed call's chain. If a call occurs in several files, a recovery in any counts."""
    endings_by_call: dict[CallRef, ChainEnding] = {}
    for ending in endings:
        for call in ending.failures:
            if call not in endings_by_call or ending.recovered:
                endings_by_call[call] = ending
    return endings_by_call


class ErrorGroup(Struct, frozen=True, kw_only=True):
    """Calls that failed in the same way."""

    kind: str
    tool: str
    signature: str
    count: int
    states: dict[str, int]
    sessions: int
    first: str | None
    last: str | None
    cause: str
    solution: str
    retry: str | None
    recovered: int | None
    """The number of calls recovered by later calls; null if recovery was not examined."""
    recovered_by: dict[str, int]
    """Number of recovered calls by name of the recovery chain, most frequent first."""
    example: CallRow


def is_unsuccessful(row: CallRow) -> bool:
    """Return whether a call ended in any state other than success."""
    return row.state != "succeeded" and row.state not in OPEN_STATES


def group_errors(rows: Iterable[CallRow], recoveries: Mapping[CallRef, ChainEnding] | None = None) -> list[ErrorGroup]:
    """Group failed calls by kind, tool and wording, most frequent group first."""
    members: dict[str, list[CallRow]] = {}
    for row in rows:
        if is_unsuccessful(row):
            signature = f"{row.state} {row.tool or '?'}"
            if row.error_kind is not None and row.state != "orphan_result":
                signature = error_signature(row.error_kind, row.tool or "?", row.message or "")
            members.setdefault(signature, []).append(row)
    groups: list[ErrorGroup] = []
    for signature, group in members.items():
        last = max(group, key=lambda row: row.requested or row.finished or "")
        kind = None if last.state == "orphan_result" else last.error_kind
        if kind is None:
            cause, solution = _ORPHAN_ADVICE if last.state == "orphan_result" else _UNANSWERED_ADVICE
        else:
            cause, solution = ADVICE[kind].cause, ADVICE[kind].solution
        times = sorted(at for row in group if (at := row.requested or row.finished))
        endings = [recoveries.get((row.id, row.batch)) for row in group] if recoveries is not None else []
        recovered = [ending.by for ending in endings if ending is not None and ending.recovered]
        groups.append(
            ErrorGroup(
                kind=kind or last.state,
                tool=last.tool or "?",
                signature=signature,
                count=len(group),
                states=dict(Counter(row.state for row in group)),
                sessions=len({row.session for row in group}),
                first=times[0] if times else None,
                last=times[-1] if times else None,
                cause=cause,
                solution=solution,
                retry=last.retry,
                recovered=len(recovered) if recoveries is not None else None,
                recovered_by=dict(Counter(name for name in recovered if name).most_common()),
                example=last,
            )
        )
    return sorted(groups, key=lambda group: (-group.count, group.signature))
