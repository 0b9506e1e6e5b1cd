"""How calls follow each other, over many files.

In: paths, one job each (`file_flows`). Out: `Flows`: chains, known flows, batches, missed batches
and sequences, each once although resumed and forked sessions copy them. The parts are pure
functions on spans: `chains.py`, `sequences.py`, `batches.py`, `missed.py`. Read `Flows` first.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from toolspan.errors import SourceError
from toolspan.model.session import SessionInfo
from toolspan.model.span import Span
from toolspan.read.messages import script
from toolspan.read.timeline import Strand, timeline
from toolspan.read.transcript import Transcript, read
from toolspan.report.copies import Copies
from toolspan.report.flow.agents import by_agent
from toolspan.report.flow.batches import Together, batches
from toolspan.report.flow.chains import Chain, chains
from toolspan.report.flow.missed import Missed, missed
from toolspan.report.flow.sequences import Flow, canonical, flows, grams


class Named(Struct, frozen=True, gc=False):
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
    chains: list[Chain]
    flows: list[Flow]
    batches: list[Together]
    missed: list[Missed]
    threads: list[list[Named]]
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
    turned = [
        span for strand in timeline([script(transcript)]).strands() for span in _turned(strand)
    ]
    return FileFlows(
        file=transcript.file,
        info=transcript.info,
        calls=sum(span.state != "orphan_result" for span in spans),
        chains=chains(
            spans,
            transcript.file,
            transcript.message_tokens,
            {span.id: span.call.prompt_id or "" for span in turned},
        ),
        flows=flows(turned),
        batches=batches(spans),
        missed=missed(turned),
        threads=[[_named(span) for span in thread] for thread in by_agent(spans)],
    )


def _named(span: Span) -> Named:
    good = span.state == "succeeded"
    return Named(span.id, canonical(span.tool), span.call.message_id, good)


def _turned(strand: Strand) -> Iterator[Span]:
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
        self.files = sorted(
            files, key=lambda one: (one.info.started_at or "", one.info.ended_at or "", one.file)
        )
        self._copies = Copies((file.file, file.info) for file in self.files)
        self.calls = 0
        self.flows: list[Flow] = []
        self.batches: list[Together] = []
        self.missed: list[Missed] = []
        self.threads: list[list[str]] = []
        self._chains: dict[tuple[Hashable, str], list[Chain]] = {}
        self._succeeded: set[tuple[Hashable, str]] = set()
        for file in self.files:
            self._add(file)

    @property
    def chains(self) -> list[Chain]:
        """What was done about each failure; a call that succeeded in some copy is none."""
        failed = [name for name in self._chains if name not in self._succeeded]
        told = {one for family, start in failed for one in self._ends(family, start)}
        return [self._joined(family, start, told) for family, start in failed]

    def _ends(self, family: Hashable, start: str) -> Iterator[tuple[Hashable, str]]:
        """The failures that the chain to be told names by itself."""
        chain = max(self._chains[family, start], key=_length)
        yield from ((family, name) for name, _ in chain.failures)

    def _joined(self, family: Hashable, start: str, told: set[tuple[Hashable, str]]) -> Chain:
        """Of copies of a failure, the one that goes on furthest; what others add are forks."""
        copies = self._chains[family, start]
        forks = {
            name: batch
            for copy in copies
            for name, batch in copy.failures
            if (family, name) not in told and (family, name) not in self._succeeded
        }
        told |= {(family, name) for name in forks}
        best = max(copies, key=_length)
        return replace(best, forks=tuple(forks.items())) if forks else best

    def _add(self, file: FileFlows) -> None:
        calls = [(call.id, call.batch) for thread in file.threads for call in thread]
        family = self._copies.family(file.file, calls)
        new = self._copies.new
        for chain in file.chains:
            self._chains.setdefault((family, chain.start.id), []).append(chain)
        self.flows += [one for one in file.flows if new(family, one.name, one.calls)]
        self.batches += [one for one in file.batches if new(family, "batch", one.calls)]
        self.missed += [one for one in file.missed if new(family, "missed", one.calls)]
        for thread in file.threads:
            self._succeeded |= {(family, call.id) for call in thread if call.good}
            fresh = [call.tool for call in thread if new(family, "call", call.id)]
            self.calls += len(fresh)
            self.threads.append(fresh)

    def steps(self, length: int = 3, *, runs: bool = True) -> Counter[tuple[str, ...]]:
        """How often which tools followed each other; `runs`: one tool used again is one step."""
        found: Counter[tuple[str, ...]] = Counter()
        for thread in self.threads:
            found.update(grams(thread, length, runs=runs))
        return found


def _length(chain: Chain) -> tuple[bool, int]:
    """Of two copies of a failure, the one whose file goes on further tells more."""
    return chain.outcome == "recovered", len(chain.links)
