"""Sequences of calls, batches, missed parallelism and recovery chains: `Archive.flows` and `toolspan flows`."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, to_builtins

from toolspan.analysis.flows import FLOWS, FileFlows, Flow, Flows, MissedBatch, MultiCallBatch
from toolspan.analysis.recovery import RecoveryChain
from toolspan.archive.engine import Engine
from toolspan.archive.filters import Filter
from toolspan.archive.selection import explain_nothing, read_filtered_files
from toolspan.reading.facts import single_job
from toolspan.types.span import parse_timestamp

_JOB = single_job(FLOWS)


class ToolSequence(Struct, frozen=True, kw_only=True):
    """Tools that were called one after another, and how often."""

    tools: tuple[str, ...]
    count: int


class FlowReport(Struct, frozen=True, kw_only=True):
    """How calls follow each other."""

    calls: int | None
    """Number of calls in the sessions; null if a filter selects calls."""
    chains: tuple[RecoveryChain, ...]
    flows: tuple[Flow, ...]
    batches: tuple[MultiCallBatch, ...]
    missed: tuple[MissedBatch, ...]
    sequences: tuple[ToolSequence, ...]
    """The most frequent first."""

    def to_rows(self, limit: int = 0, *, only_chains: bool = False) -> list[dict[str, object]]:
        """Return everything as one list of rows with a type each, at most `limit` of each type unless it is 0."""
        kinds: dict[str, Sequence[Struct]] = {"chain": self.chains}
        if not only_chains:
            kinds |= {"flow": self.flows, "batch": self.batches, "missed": self.missed}
        rows = [{"type": kind, **to_builtins(row)} for kind, own in kinds.items() for row in own[-limit:]]
        sequences = () if only_chains else self.sequences[: limit or None]
        return rows + [{"type": "sequence", **to_builtins(row)} for row in sequences]


def find_flows(
    engine: Engine, call_filter: Filter, *, chain: Sequence[str] = (), length: int = 3, every: bool = False
) -> FlowReport:
    """Return recovery chains, known flows, batches, missed batches and sequences of `length` tools.

    Filters on calls select chains by the call that failed. Sequences cover whole sessions, those that overlap the
    period. With `every`, repeated calls of one tool are separate steps.
    """
    files = read_filtered_files(engine, _JOB, call_filter)
    flows = Flows([file for file in files if _overlaps(file, call_filter)])
    rest = call_filter.without_file_filters()
    in_time = call_filter.accepts_time
    chains = [item for item in flows.chains if rest.accepts_call(item.start) and (not chain or item.name in chain)]
    if not chains:
        explain_nothing(engine, call_filter, [file.file for file in files])
    counts = flows.count_sequences(length, runs=not every)
    return FlowReport(
        calls=flows.calls if rest == Filter() else None,
        chains=tuple(chains),
        flows=tuple(item for item in flows.flows if in_time(item.requested)),
        batches=tuple(item for item in flows.batches if in_time(item.requested)),
        missed=tuple(item for item in flows.missed if in_time(item.requested)),
        sequences=tuple(ToolSequence(tools=tools, count=count) for tools, count in counts.most_common()),
    )


def _overlaps(file: FileFlows, call_filter: Filter) -> bool:
    start, end = parse_timestamp(file.info.started_at), parse_timestamp(file.info.ended_at)
    return (call_filter.since is None or end is None or end >= call_filter.since) and (
        call_filter.until is None or start is None or start < call_filter.until
    )
