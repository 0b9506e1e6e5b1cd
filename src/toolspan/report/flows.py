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
from toolspan.report.batches import Together, batches
from toolspan.report.chains import Chain, by_agent, chains
from toolspan.report.copies import Copies
from toolspan.report.missed import Missed, missed
from toolspan.report.sequences import Flow, canonical, flows, grams


class Named(Struct, frozen=True, gc=False):
    """A call and its tool."""

    id: str
    tool: str
    batch: str | None


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
        threads=[
            [Named(span.id, canonical(span.tool), span.call.message_id) for span in thread]
            for thread in by_agent(spans)
        ],
    )


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
        self._chains: dict[Hashable, Chain] = {}
        for file in self.files:
            self._add(file)

    @property
    def chains(self) -> list[Chain]:
        """What was done about each failure."""
        return list(self._chains.values())

    def _add(self, file: FileFlows) -> None:
        calls = [(call.id, call.batch) for thread in file.threads for call in thread]
        family = self._copies.family(file.file, calls)
        new = self._copies.new
        for chain in file.chains:
            name = (family, chain.start.id)
            known = self._chains.get(name)
            if known is None or _better(chain, known):
                self._chains[name] = chain
        self.flows += [one for one in file.flows if new(family, one.name, one.calls)]
        self.batches += [one for one in file.batches if new(family, "batch", one.calls)]
        self.missed += [one for one in file.missed if new(family, "missed", one.calls)]
        for thread in file.threads:
            fresh = [call.tool for call in thread if new(family, "call", call.id)]
            self.calls += len(fresh)
            self.threads.append(fresh)

    def steps(self, length: int = 3, *, runs: bool = True) -> Counter[tuple[str, ...]]:
        """How often which tools followed each other; `runs`: one tool used again is one step."""
        found: Counter[tuple[str, ...]] = Counter()
        for thread in self.threads:
            found.update(grams(thread, length, runs=runs))
        return found


def _better(chain: Chain, known: Chain) -> bool:
    """Of two copies of a failure, the one whose file goes on further tells more."""
    return (chain.outcome == "recovered", len(chain.links)) > (
        known.outcome == "recovered",
        len(known.links),
    )
