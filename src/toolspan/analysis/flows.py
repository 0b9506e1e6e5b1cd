"""How calls follow each other, over many files.

In: paths, one job each (`file_flows`). Out: `Flows`: chains, known flows, batches, missed batches
and sequences, each once although resumed and forked sessions copy them. The parts are pure
functions on spans: `chains.py`, `sequences.py`, `batches.py`, `missed.py`. Read `Flows` first.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from toolspan.analysis.call_targets import is_lookup_command, lookup_kind, path_names_in
from toolspan.analysis.phases import to_epoch_ms
from toolspan.analysis.recovery import RecoveryChain, find_chains, group_by_agent
from toolspan.analysis.timesheet import CopyTracker
from toolspan.errors import SourceError
from toolspan.formats.base import TranscriptContent
from toolspan.formats.pairing import Branches
from toolspan.reading.timeline import AgentTimeline, TimelineBatch, build_timeline
from toolspan.reading.transcript import Transcript, read, read_content
from toolspan.types.session import SessionInfo
from toolspan.types.span import Span

FlowName = Literal["file_modification", "error_recovery", "search_and_modify", "parallel_lookup"]

_CURRENT_TOOL_NAMES = {
    "AgentOutputTool": "TaskOutput", "KillBash": "TaskStop", "KillShell": "TaskStop",
    "BashOutput": "TaskOutput", "Task": "Agent", "exit_plan_mode": "ExitPlanMode", "bash": "Bash",
}  # fmt: skip
"""Tools that were renamed, by the name they have now."""
_TOOL_LETTERS = {"LS": "L", "Glob": "G", "Grep": "g", "Read": "R", "Edit": "E", "MultiEdit": "M"}
_COMMAND_LETTERS = {"list": "L", "search": "g", "read": "R"}
"""Commands that do what those tools do."""
_FLOW_PATTERNS: tuple[tuple[FlowName, re.Pattern[str]], ...] = (
    ("error_recovery", re.compile(r"(?<!e)e+R+[EMW]+P*")),
    ("search_and_modify", re.compile(
        r"(?<![gG])(?:[gG]+R+M[EM]*|G*g[gG]*R+[EM]+|[gG]+R+e+(?=W))e?W?P*"
    )),
    ("file_modification", re.compile(r"(?<![LG])[LG]+R+[EM]+P*")),
)  # fmt: skip
"""Flows as letters: e is an edit that did not succeed, P a todo list or task that was updated."""


def canonical_tool(tool: str) -> str:
    """The name a tool has now."""
    return _CURRENT_TOOL_NAMES.get(tool, tool)


def count_tool_sequences(spans: Iterable[Span], length: int = 3, *, runs: bool = True) -> Counter[tuple[str, ...]]:
    """How often which tools followed each other; `runs` takes one tool used again as one step."""
    counts: Counter[tuple[str, ...]] = Counter()
    for thread in group_by_agent(spans):
        counts.update(tool_ngrams([canonical_tool(span.tool) for span in thread], length, runs=runs))
    return counts


def tool_ngrams(names: Sequence[str], length: int, *, runs: bool) -> Iterator[tuple[str, ...]]:
    """Every so many names that stand one after another."""
    sequence = [name for name, _ in groupby(names)] if runs else names
    return zip(*(sequence[n:] for n in range(length)), strict=False)


class Flow(Struct, frozen=True, kw_only=True):
    """A known way of working, as it was done once."""

    name: FlowName
    tools: tuple[str, ...]
    calls: tuple[str, ...]
    requested: str | None


def find_flows(spans: Iterable[Span]) -> list[Flow]:
    """The known flows, agent by agent, in order."""
    return [flow for thread in group_by_agent(spans) for flow in _flows_in_thread(thread)]


def _flows_in_thread(thread: Sequence[Span]) -> Iterator[Flow]:
    for _, turn in groupby(thread, key=lambda span: span.call.prompt_id):
        yield from _flows_in_turn(list(turn))
    for _, batch in groupby(thread, key=lambda span: span.call.message_id or span.id):
        together = list(batch)
        if len(together) > 1 and all(is_lookup(span) for span in together):
            yield _make_flow("parallel_lookup", together)


def _flows_in_turn(spans: Sequence[Span]) -> Iterator[Flow]:
    letters = "".join(_flow_letter(span) for span in spans)
    taken = 0
    matches = [
        (match.start(), match.end(), name) for name, pattern in _FLOW_PATTERNS for match in pattern.finditer(letters)
    ]
    for start, end, name in sorted(matches, key=lambda candidate: candidate[0]):  # of two at one place the first
        if start >= taken:
            yield _make_flow(name, spans[start:end])
            taken = end


def _make_flow(name: FlowName, spans: Sequence[Span]) -> Flow:
    return Flow(
        name=name,
        tools=tuple(canonical_tool(span.tool) for span in spans),
        calls=tuple(span.id for span in spans),
        requested=spans[0].call.requested_at,
    )


def is_lookup(span: Span) -> bool:
    """Whether a call only reads or searches, be it by a command."""
    if span.call.kind == "shell":
        return is_lookup_command(span.call.target or "")
    return span.call.kind in ("read", "search") and span.tool not in ("ToolSearch", "tool_search")


def _flow_letter(span: Span) -> str:
    kind, good = span.call.kind, span.state == "succeeded"
    if kind in ("edit", "write") and not good:
        return "e"
    if kind == "plan" and good:
        return "P"
    if kind == "write":
        return "W"
    if kind == "shell" and good:
        return _COMMAND_LETTERS.get(lookup_kind(span.call.target or ""), ".")
    return _TOOL_LETTERS.get(span.tool, "E" if kind == "edit" else ".") if good else "."


class MultiCallBatch(Struct, frozen=True, kw_only=True):
    """One batch of several calls."""

    message: str | None
    calls: tuple[str, ...]
    tools: tuple[str, ...]
    concurrency: int
    """How many were under way at the same moment, at most."""
    serial: bool
    """Asked for together, but each finished before the next one began."""
    saved_ms: int
    """The sum of the calls' durations less the time in which any was under way."""
    requested: str | None


def find_batches(spans: Iterable[Span]) -> list[MultiCallBatch]:
    """Every batch of two calls or more, agent by agent."""
    return [
        _measure_batch(batch)
        for thread in group_by_agent(spans)
        for batch in _timeline_batches(thread)
        if len(batch.calls) > 1
    ]


def _timeline_batches(spans: Sequence[Span]) -> list[TimelineBatch]:
    """The batches as a timeline without words tells them."""
    nowhere = Branches(array("L"), bytearray())
    return build_timeline(
        [TranscriptContent(file="", agent_id=None, spans=spans, messages=(), branches=nowhere)]
    ).batches


def _measure_batch(batch: TimelineBatch) -> MultiCallBatch:
    spans = [placed.span for placed in batch.calls]
    return MultiCallBatch(
        message=batch.message_id,
        calls=tuple(span.id for span in spans),
        tools=tuple(canonical_tool(span.tool) for span in spans),
        concurrency=max(group.concurrency for group in batch.groups),
        serial=batch.is_serial,
        saved_ms=_saved_ms(spans),
        requested=spans[0].call.requested_at,
    )


def _saved_ms(spans: Sequence[Span]) -> int:
    times = sorted(
        (start, end)
        for span in spans
        if (start := to_epoch_ms(span.requested)) is not None
        and (end := to_epoch_ms(span.finished)) is not None
        and end > start
    )
    saved, covered = 0, None
    for start, end in times:
        if covered is not None and start < covered:
            saved += min(end, covered) - start
        covered = end if covered is None else max(covered, end)
    return saved


_MAX_MESSAGES = 12
"""Messages in one run: more are not compared with each other."""
_MAX_CALLS_PER_MESSAGE = 20
"""Calls in one message: more are not compared either."""
_TERM = re.compile(r"\w{3,}")
"""Shorter words tell nothing."""
_MAX_RESULT_CHARS = 1 << 20


class MissedBatch(Struct, frozen=True, kw_only=True):
    """Messages with calls that did not need each other."""

    calls: tuple[str, ...]
    tools: tuple[str, ...]
    targets: tuple[str | None, ...]
    messages: int
    """How many messages it took; one would have done."""
    took_ms: int
    """From the first request to the last result."""
    saved_ms: int
    """At most: what it took less its longest call. The model would still have had to write all."""
    requested: str | None


def find_missed_batches(spans: Iterable[Span]) -> list[MissedBatch]:
    """The runs of calls that could have been one batch, agent by agent."""
    return [missed_batch for thread in group_by_agent(spans) for missed_batch in _missed_in_thread(thread)]


def _missed_in_thread(thread: Sequence[Span]) -> Iterator[MissedBatch]:
    run = _MessageRun()
    for _, group in groupby(thread, key=lambda span: span.call.message_id or span.id):
        message = list(group)
        if run.messages and not run.can_extend(message):
            yield from _build_missed_batch(run.messages)
            run = _MessageRun()
        if _is_eligible(message):
            run.messages.append(message)
    yield from _build_missed_batch(run.messages)


def _is_eligible(message: Sequence[Span]) -> bool:
    """Its calls are few, look and change nothing, and their times are known."""
    return len(message) <= _MAX_CALLS_PER_MESSAGE and all(
        is_lookup(span) and span.state == "succeeded" and span.duration is not None and span.call.target
        for span in message
    )


class _MessageRun:
    """Messages that did not need each other so far, and the results that were looked at."""

    def __init__(self) -> None:
        self.messages: list[list[Span]] = []
        self._texts: dict[str, str | None] = {}

    def can_extend(self, message: Sequence[Span]) -> bool:
        """Whether a message goes on with the run without needing it."""
        if len(self.messages) >= _MAX_MESSAGES or not _is_eligible(message):
            return False
        first, last = self.messages[0][0], self.messages[-1][-1]
        turn = message[0].call.prompt_id
        if turn is None or turn != first.call.prompt_id:
            return False  # a person may have spoken between
        if _is_out_of_order(last, message[0]):
            return False
        earlier = [span for group in self.messages for span in group]
        return not any(self._may_depend_on(later, before) for later in message for before in earlier)

    def _may_depend_on(self, later: Span, before: Span) -> bool:
        """Whether a call may come from an earlier one: its target, or words of it in the result."""
        target, earlier_target = later.call.target or "", before.call.target or ""
        if (
            target in earlier_target
            or earlier_target in target
            or path_names_in(target) & path_names_in(earlier_target)
        ):
            return True
        if before.id not in self._texts:
            self._texts[before.id] = _result_text(before)
        text = self._texts[before.id]
        return text is None or any(word in text for word in _distinctive_terms(target, earlier_target))


def _is_out_of_order(last: Span, following: Span) -> bool:
    """Times that make no sense: asked for before the one before had its result."""
    answered, requested = to_epoch_ms(last.finished), to_epoch_ms(following.requested)
    return answered is None or requested is None or requested < answered


def _distinctive_terms(target: str, earlier_target: str) -> set[str]:
    """The words of a target's last part that an earlier call's target did not have."""
    name = target.replace("\\", "/").rpartition("/")[2] or target
    terms = {word.lower() for word in _TERM.findall(name.partition(".")[0] or name)}
    return terms - {word.lower() for word in _TERM.findall(earlier_target)} or {name.lower()}


def _result_text(span: Span) -> str | None:
    """What a call gave back; None when that cannot be told."""
    try:
        text = span.result.text if span.result else ""
    except SourceError:
        return None
    return text.lower() if len(text) <= _MAX_RESULT_CHARS else None


def _build_missed_batch(run: Sequence[Sequence[Span]]) -> Iterator[MissedBatch]:
    if len(run) < 2:
        return
    spans = [span for message in run for span in message]
    start, end = to_epoch_ms(spans[0].requested), to_epoch_ms(spans[-1].finished)
    took = [span.duration for span in spans if span.duration is not None]
    if start is None or end is None or end <= start:
        return
    longest = round(max(took).total_seconds() * 1000)
    yield MissedBatch(
        calls=tuple(span.id for span in spans),
        tools=tuple(canonical_tool(span.tool) for span in spans),
        targets=tuple(span.call.target for span in spans),
        messages=len(run),
        took_ms=end - start,
        saved_ms=max(end - start - longest, 0),
        requested=spans[0].call.requested_at,
    )


class FlowCall(Struct, frozen=True, gc=False):
    """A call and its tool."""

    id: str
    tool: str
    batch: str | None
    good: bool
    """Whether it succeeded."""


class FileFlows(Struct, frozen=True, kw_only=True):
    """How the calls of one file follow each other."""

    file: str
    info: SessionInfo
    calls: int
    chains: list[RecoveryChain]
    flows: list[Flow]
    batches: list[MultiCallBatch]
    missed: list[MissedBatch]
    threads: list[list[FlowCall]]
    """Each agent's calls, by the names tools have now."""
    problem: str | None = None
    """Set when the file could not be read; everything else is then empty."""


def file_flows(path: str) -> FileFlows:
    """The flows of one file; a file that cannot be read is told, not raised."""
    try:
        return flows_of(read(Path(path)))
    except SourceError as error:
        return FileFlows(
            file=path, info=SessionInfo(), calls=0, chains=[], flows=[], batches=[], missed=[],
            threads=[], problem=str(error),
        )  # fmt: skip


def flows_of(transcript: Transcript) -> FileFlows:
    """The flows of a transcript.

    Raises:
        SourceError: the file can no longer be read.
    """
    spans = transcript.spans
    turn_spans = [
        span
        for strand in build_timeline([read_content(transcript)]).iter_timelines()
        for span in _spans_with_turn(strand)
    ]
    return FileFlows(
        file=transcript.file,
        info=transcript.info,
        calls=sum(span.state != "orphan_result" for span in spans),
        chains=find_chains(
            spans,
            transcript.file,
            transcript.message_tokens,
            {span.id: span.call.prompt_id or "" for span in turn_spans},
        ),
        flows=find_flows(turn_spans),
        batches=find_batches(spans),
        missed=find_missed_batches(turn_spans),
        threads=[[_flow_call(span) for span in thread] for thread in group_by_agent(spans)],
    )


def _flow_call(span: Span) -> FlowCall:
    good = span.state == "succeeded"
    return FlowCall(span.id, canonical_tool(span.tool), span.call.message_id, good)


def _spans_with_turn(strand: AgentTimeline) -> Iterator[Span]:
    """A strand's calls; where the client did not name their prompt, the turn's number stands in."""
    for n, turn in enumerate(strand.turns):
        for placed in turn.calls:
            span = placed.span
            if span.call.prompt_id is None:
                span = replace(span, call=replace(span.call, prompt_id=f"turn {n}"))
            yield span


class Flows:
    """How the calls of many files follow each other, each once."""

    def __init__(self, files: Iterable[FileFlows]) -> None:
        self.files = sorted(files, key=lambda item: (item.info.started_at or "", item.info.ended_at or "", item.file))
        self._copies = CopyTracker((file.file, file.info) for file in self.files)
        self.calls = 0
        self.flows: list[Flow] = []
        self.batches: list[MultiCallBatch] = []
        self.missed: list[MissedBatch] = []
        self.threads: list[list[str]] = []
        self._chains: dict[tuple[Hashable, str], list[RecoveryChain]] = {}
        self._succeeded: set[tuple[Hashable, str]] = set()
        for file in self.files:
            self._add_file(file)

    @property
    def chains(self) -> list[RecoveryChain]:
        """What was done about each failure; a call that succeeded in some copy is none."""
        failed = [name for name in self._chains if name not in self._succeeded]
        reported = {failure for family, start in failed for failure in self._chain_failures(family, start)}
        return [self._join_copies(family, start, reported) for family, start in failed]

    def _chain_failures(self, family: Hashable, start: str) -> Iterator[tuple[Hashable, str]]:
        """The failures that the chain to be told names by itself."""
        chain = max(self._chains[family, start], key=_chain_length)
        yield from ((family, name) for name, _ in chain.failures)

    def _join_copies(self, family: Hashable, start: str, reported: set[tuple[Hashable, str]]) -> RecoveryChain:
        """Of copies of a failure, the one that goes on furthest; what others add are forks."""
        copies = self._chains[family, start]
        forks = {
            name: batch
            for copy in copies
            for name, batch in copy.failures
            if (family, name) not in reported and (family, name) not in self._succeeded
        }
        reported |= {(family, name) for name in forks}
        best = max(copies, key=_chain_length)
        return replace(best, forks=tuple(forks.items())) if forks else best

    def _add_file(self, file: FileFlows) -> None:
        calls = [(call.id, call.batch) for thread in file.threads for call in thread]
        family = self._copies.family_of(file.file, calls)
        new = self._copies.add_if_new
        for chain in file.chains:
            self._chains.setdefault((family, chain.start.id), []).append(chain)
        self.flows += [item for item in file.flows if new(family, item.name, item.calls)]
        self.batches += [item for item in file.batches if new(family, "batch", item.calls)]
        self.missed += [item for item in file.missed if new(family, "missed", item.calls)]
        for thread in file.threads:
            self._succeeded |= {(family, call.id) for call in thread if call.good}
            fresh = [call.tool for call in thread if new(family, "call", call.id)]
            self.calls += len(fresh)
            self.threads.append(fresh)

    def count_sequences(self, length: int = 3, *, runs: bool = True) -> Counter[tuple[str, ...]]:
        """How often which tools followed each other; `runs`: one tool used again is one step."""
        counts: Counter[tuple[str, ...]] = Counter()
        for thread in self.threads:
            counts.update(tool_ngrams(thread, length, runs=runs))
        return counts


def _chain_length(chain: RecoveryChain) -> tuple[bool, int]:
    """Of two copies of a failure, the one whose file goes on further tells more."""
    return chain.outcome == "recovered", len(chain.links)
