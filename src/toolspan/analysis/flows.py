"""Patterns in the order of calls: batches, missed parallelism, sequences and known flows.

`FLOWS` are those of one file. `Flows` combines many files and counts content only once if resumed or forked sessions
copied it. Recovery chains are found in `recovery.py`.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from toolspan.analysis.recovery import RecoveryChain, find_chains, group_by_agent, is_lookup, lookup_kind, path_names_in
from toolspan.errors import SourceError
from toolspan.formats.base import TranscriptContent
from toolspan.formats.pairing import Branches
from toolspan.reading.facts import FactKind, FileReading
from toolspan.reading.lineage import CopyTracker, Lineages, call_key
from toolspan.reading.timeline import build_timeline
from toolspan.types.session import SessionInfo
from toolspan.types.span import Span, to_epoch_ms


class FlowCall(Struct, frozen=True, array_like=True, gc=False):
    """A call in an agent's sequence of calls."""

    id: str
    tool: str
    batch: str | None
    good: bool


class FileFlows(Struct, frozen=True, kw_only=True):
    """Batches, flows and sequences from one file."""

    file: str
    info: SessionInfo
    calls: int
    chains: list[RecoveryChain]
    flows: list[Flow]
    batches: list[MultiCallBatch]
    missed: list[MissedBatch]
    threads: list[list[FlowCall]]
    problem: str | None = None
    """The reason why the file could not be read. If set, the other fields are empty."""


def _find_file_flows(reading: FileReading) -> FileFlows:
    """Return the flows in a file.

    Raises:
        SourceError: the file can no longer be read.
    """
    transcript = reading.transcript
    spans = transcript.spans
    turn_spans: list[Span] = []
    for agent in reading.timeline.iter_timelines():
        for number, turn in enumerate(agent.turns):
            for placed in turn.calls:
                span = placed.span
                if span.call.prompt_id is None:
                    span = replace(span, call=replace(span.call, prompt_id=f"turn {number}"))
                turn_spans.append(span)
    turns: dict[str, str] = {span.id: span.call.prompt_id or "" for span in turn_spans}
    return FileFlows(
        file=transcript.file,
        info=transcript.info,
        calls=sum(span.state != "orphan_result" for span in spans),
        chains=find_chains(spans, transcript.file, transcript.message_tokens, turns),
        flows=find_flows(turn_spans),
        batches=find_batches(spans),
        missed=find_missed_batches(turn_spans),
        threads=[
            [
                FlowCall(span.id, canonical_tool(span.tool), span.call.message_id, span.state == "succeeded")
                for span in thread
            ]
            for thread in group_by_agent(spans)
        ],
    )


FLOWS = FactKind(
    name="flows",
    measure=_find_file_flows,
    facts_type=FileFlows,
    unreadable=lambda file, problem: FileFlows(
        file=file, info=SessionInfo(), calls=0, chains=[], flows=[], batches=[], missed=[], threads=[], problem=problem
    ),
)


class Flows:
    """The flows from many files, with copies counted once."""

    def __init__(self, files: Iterable[FileFlows]) -> None:
        self.files = sorted(files, key=lambda item: (item.info.started_at or "", item.info.ended_at or "", item.file))
        self.calls = 0
        self.flows: list[Flow] = []
        self.batches: list[MultiCallBatch] = []
        self.missed: list[MissedBatch] = []
        self.threads: list[list[str]] = []
        self._chains: dict[tuple[Hashable, str], list[RecoveryChain]] = {}
        self._succeeded: set[tuple[Hashable, str]] = set()
        lineages = Lineages()
        for file in self.files:
            keys = (call_key(call.id, call.batch) for thread in file.threads for call in thread)
            lineages.add(file.file, file.info, keys)
        take_new = CopyTracker(lineages).take_new
        for file in self.files:
            name, family = file.file, lineages.group_of(file.file)
            for chain in file.chains:
                self._chains.setdefault((family, chain.start.id), []).append(chain)
            self.flows += take_new(name, file.flows, lambda item: (item.name, item.calls))
            self.batches += take_new(name, file.batches, lambda item: ("batch", item.calls))
            self.missed += take_new(name, file.missed, lambda item: ("missed", item.calls))
            for thread in file.threads:
                self._succeeded |= {(family, call.id) for call in thread if call.good}
                tools = [call.tool for call in take_new(name, thread, lambda call: ("call", call.id))]
                self.calls += len(tools)
                self.threads.append(tools)

    @property
    def chains(self) -> list[RecoveryChain]:
        """The recovery chain of each failure. A call that succeeded in any copy of its session is not a failure."""
        failed = [key for key in self._chains if key not in self._succeeded]
        longest = {
            key: max(self._chains[key], key=lambda chain: (chain.outcome == "recovered", len(chain.links)))
            for key in failed
        }
        reported = {(key[0], call_id) for key, chain in longest.items() for call_id, _ in chain.failures}
        for key in failed:  # failures that occur only in other copies become forks of the longest copy
            family = key[0]
            forks = {
                call_id: batch
                for copy in self._chains[key]
                for call_id, batch in copy.failures
                if (family, call_id) not in reported and (family, call_id) not in self._succeeded
            }
            reported |= {(family, call_id) for call_id in forks}
            if forks:
                longest[key] = replace(longest[key], forks=tuple(forks.items()))
        return list(longest.values())

    def count_sequences(self, length: int = 3, *, runs: bool = True) -> Counter[tuple[str, ...]]:
        """Count sequences of `length` tools. With `runs`, consecutive calls of one tool are one step."""
        return _count_ngrams(self.threads, length, runs=runs)


# --- Sequences and known flows

FlowName = Literal["file_modification", "error_recovery", "search_and_modify", "parallel_lookup"]

_CURRENT_TOOL_NAMES = {
    "AgentOutputTool": "TaskOutput", "KillBash": "TaskStop", "KillShell": "TaskStop",
    "BashOutput": "TaskOutput", "Task": "Agent", "exit_plan_mode": "ExitPlanMode", "bash": "Bash",
}  # fmt: skip
_TOOL_LETTERS = {"LS": "L", "Glob": "G", "Grep": "g", "Read": "R", "Edit": "E", "MultiEdit": "M"}
_COMMAND_LETTERS = {"list": "L", "search": "g", "read": "R"}
_FLOW_PATTERNS: tuple[tuple[FlowName, re.Pattern[str]], ...] = (
    ("error_recovery", re.compile(r"(?<!e)e+R+[EMW]+P*")),
    ("search_and_modify", re.compile(
        r"(?<![gG])(?:[gG]+R+M[EM]*|G*g[gG]*R+[EM]+|[gG]+R+e+(?=W))e?W?P*"
    )),
    ("file_modification", re.compile(r"(?<![LG])[LG]+R+[EM]+P*")),
)  # fmt: skip
"""Patterns over one letter per call. `e` is a failed edit, `P` an update of a todo list or task."""


class Flow(Struct, frozen=True, kw_only=True):
    """One occurrence of a known flow."""

    name: FlowName
    tools: tuple[str, ...]
    calls: tuple[str, ...]
    requested: str | None


def canonical_tool(tool: str) -> str:
    """Return the current name of a tool, which may have been renamed."""
    return _CURRENT_TOOL_NAMES.get(tool, tool)


def count_tool_sequences(spans: Iterable[Span], length: int = 3, *, runs: bool = True) -> Counter[tuple[str, ...]]:
    """Count sequences of `length` tools. With `runs`, consecutive calls of one tool are one step."""
    threads = ([canonical_tool(span.tool) for span in thread] for thread in group_by_agent(spans))
    return _count_ngrams(threads, length, runs=runs)


def _count_ngrams(threads: Iterable[Sequence[str]], length: int, *, runs: bool) -> Counter[tuple[str, ...]]:
    counts: Counter[tuple[str, ...]] = Counter()
    for tools in threads:
        sequence = [tool for tool, _ in groupby(tools)] if runs else tools
        counts.update(zip(*(sequence[n:] for n in range(length)), strict=False))
    return counts


def find_flows(spans: Iterable[Span]) -> list[Flow]:
    """Return the known flows for each agent, in order."""
    flows: list[Flow] = []
    for thread in group_by_agent(spans):
        for _, group in groupby(thread, key=lambda span: span.call.prompt_id):
            turn = list(group)
            letters = "".join(_flow_letter(span) for span in turn)
            matches = [(match, name) for name, pattern in _FLOW_PATTERNS for match in pattern.finditer(letters)]
            previous_end = 0
            for match, name in sorted(matches, key=lambda pair: pair[0].start()):  # stable: the first pattern wins
                if match.start() >= previous_end:
                    flows.append(_make_flow(name, turn[match.start() : match.end()]))
                    previous_end = match.end()
        for _, group in groupby(thread, key=lambda span: span.call.message_id or span.id):
            batch = list(group)
            if len(batch) > 1 and all(is_lookup(span) for span in batch):
                flows.append(_make_flow("parallel_lookup", batch))
    return flows


def _make_flow(name: FlowName, spans: Sequence[Span]) -> Flow:
    return Flow(
        name=name,
        tools=tuple(canonical_tool(span.tool) for span in spans),
        calls=tuple(span.id for span in spans),
        requested=spans[0].call.requested_at,
    )


def _flow_letter(span: Span) -> str:
    kind = span.call.kind
    if span.state != "succeeded":
        return "e" if kind in ("edit", "write") else "."
    match kind:
        case "plan":
            return "P"
        case "write":
            return "W"
        case "shell":
            return _COMMAND_LETTERS.get(lookup_kind(span.call.target or ""), ".")
        case _:
            return _TOOL_LETTERS.get(span.tool, "E" if kind == "edit" else ".")


# --- Batches


class MultiCallBatch(Struct, frozen=True, kw_only=True):
    """A batch of two or more calls."""

    message: str | None
    calls: tuple[str, ...]
    tools: tuple[str, ...]
    concurrency: int
    serial: bool
    """True if the calls were requested together, but each finished before the next one began."""
    saved_ms: int
    """Time saved: the sum of the calls' durations minus the time in which at least one was in flight."""
    requested: str | None


def find_batches(spans: Iterable[Span]) -> list[MultiCallBatch]:
    """Return the batches of two or more calls, agent by agent."""
    no_branches = Branches(array("L"), bytearray())
    batches: list[MultiCallBatch] = []
    for thread in group_by_agent(spans):
        content = TranscriptContent(file="", agent_id=None, spans=thread, messages=(), branches=no_branches)
        for batch in build_timeline([content]).batches:
            calls = [placed.span for placed in batch.calls]
            if len(calls) < 2:
                continue
            batches.append(
                MultiCallBatch(
                    message=batch.message_id,
                    calls=tuple(span.id for span in calls),
                    tools=tuple(canonical_tool(span.tool) for span in calls),
                    concurrency=max(group.concurrency for group in batch.groups),
                    serial=batch.is_serial,
                    saved_ms=_saved_ms(calls),
                    requested=calls[0].call.requested_at,
                )
            )
    return batches


def _saved_ms(spans: Sequence[Span]) -> int:
    times = sorted(
        (start, end)
        for span in spans
        if (start := to_epoch_ms(span.requested)) is not None
        and (end := to_epoch_ms(span.finished)) is not None
        and end > start
    )
    saved, covered_until = 0, None
    for start, end in times:
        if covered_until is not None and start < covered_until:
            saved += min(end, covered_until) - start
        covered_until = end if covered_until is None else max(covered_until, end)
    return saved


# --- Missed parallelism

_MAX_MESSAGES = 12
_MAX_CALLS_PER_MESSAGE = 20
_TERM = re.compile(r"\w{3,}")
"""A word that can indicate a dependency. Shorter words are too common."""
_MAX_RESULT_CHARS = 1 << 20


class MissedBatch(Struct, frozen=True, kw_only=True):
    """Consecutive messages whose calls did not depend on each other."""

    calls: tuple[str, ...]
    tools: tuple[str, ...]
    targets: tuple[str | None, ...]
    messages: int
    duration_ms: int
    saved_ms: int
    """Upper bound: `duration_ms` minus the longest call, ignoring the time to write the requests."""
    requested: str | None


def find_missed_batches(spans: Iterable[Span]) -> list[MissedBatch]:
    """Return the runs of calls that could have been a single batch, agent by agent."""
    batches: list[MissedBatch] = []
    for thread in group_by_agent(spans):
        run: list[list[Span]] = []
        texts: dict[str, str | None] = {}
        for _, group in groupby(thread, key=lambda span: span.call.message_id or span.id):
            message = list(group)
            is_eligible = len(message) <= _MAX_CALLS_PER_MESSAGE and all(
                is_lookup(span) and span.state == "succeeded" and span.duration is not None and span.call.target
                for span in message
            )
            if run and not (is_eligible and _can_extend(run, message, texts)):
                batches += _build_missed_batch(run)
                run, texts = [], {}
            if is_eligible:
                run.append(message)
        batches += _build_missed_batch(run)
    return batches


def _can_extend(run: Sequence[Sequence[Span]], message: Sequence[Span], texts: dict[str, str | None]) -> bool:
    """Return whether a message continues a run and does not depend on its results. `texts` caches the results."""
    turn = message[0].call.prompt_id
    if len(run) >= _MAX_MESSAGES or turn is None or turn != run[0][0].call.prompt_id:
        return False  # in another turn, the user may have written something in between
    answered, requested = to_epoch_ms(run[-1][-1].finished), to_epoch_ms(message[0].requested)
    if answered is None or requested is None or requested < answered:
        return False  # implausible times
    earlier = [span for group in run for span in group]
    return not any(_may_depend_on(later, before, texts) for later in message for before in earlier)


def _may_depend_on(later: Span, before: Span, texts: dict[str, str | None]) -> bool:
    """Return whether the target of `later` may come from the target or result of `before`."""
    target, earlier_target = later.call.target or "", before.call.target or ""
    if target in earlier_target or earlier_target in target or path_names_in(target) & path_names_in(earlier_target):
        return True
    if before.id not in texts:
        try:
            text = before.result.text if before.result else ""
            texts[before.id] = text.lower() if len(text) <= _MAX_RESULT_CHARS else None
        except SourceError:
            texts[before.id] = None
    result = texts[before.id]
    name = target.replace("\\", "/").rpartition("/")[2] or target
    terms = {term.lower() for term in _TERM.findall(name.partition(".")[0] or name)}
    distinctive = terms - {term.lower() for term in _TERM.findall(earlier_target)} or {name.lower()}
    return result is None or any(term in result for term in distinctive)


def _build_missed_batch(messages: Sequence[Sequence[Span]]) -> Iterator[MissedBatch]:
    if len(messages) < 2:
        return
    spans = [span for message in messages for span in message]
    start, end = to_epoch_ms(spans[0].requested), to_epoch_ms(spans[-1].finished)
    if start is None or end is None or end <= start:
        return
    longest = max(span.duration for span in spans if span.duration is not None)
    yield MissedBatch(
        calls=tuple(span.id for span in spans),
        tools=tuple(canonical_tool(span.tool) for span in spans),
        targets=tuple(span.call.target for span in spans),
        messages=len(messages),
        duration_ms=end - start,
        saved_ms=max(end - start - round(longest.total_seconds() * 1000), 0),
        requested=spans[0].call.requested_at,
    )
