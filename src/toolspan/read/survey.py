"""Many files at once, on all cores: each becomes a bundle of facts.

In: paths. Out: `FileFacts` in the order of the paths. A worker sends facts, never bodies. The same
function of one file serves a process pool here and could serve any other executor.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from toolspan.errors import SourceError
from toolspan.model.finding import Finding
from toolspan.model.session import SessionInfo
from toolspan.model.span import Counts
from toolspan.model.tokens import Tokens
from toolspan.read.facts import CallFacts, facts_of
from toolspan.read.spread import Advance, Job, spread
from toolspan.read.transcript import Transcript, read


class FileFacts(Struct, frozen=True, kw_only=True):
    """What one transcript holds, without bodies."""

    file: str
    info: SessionInfo
    counts: Counts
    calls: list[CallFacts]
    message_tokens: dict[str, Tokens]
    tokens_raw_sum: Tokens
    findings: list[Finding]
    started: dict[str, str] = {}
    """Which call started which subagent, by the subagent's id."""
    successes: list[str] = []
    """Names of the calls that `calls` leaves out because they succeeded."""
    problem: str | None = None
    """Set when the file could not be read; everything else is then empty."""


def file_facts(path: str) -> FileFacts:
    """The facts of one file; a file that cannot be read is told, not raised."""
    try:
        transcript = read(Path(path))
        rows = [facts_of(span, transcript.file) for span in transcript.surrender()]
    except SourceError as error:
        return unreadable(path, error)
    return _facts(transcript, rows)


def facts_from(transcript: Transcript) -> FileFacts:
    """The facts of a transcript that is read already."""
    return _facts(transcript, [facts_of(span, transcript.file) for span in transcript.spans])


def _facts(transcript: Transcript, rows: list[CallFacts]) -> FileFacts:
    return FileFacts(
        file=transcript.file,
        info=transcript.info,
        counts=transcript.counts,
        calls=rows,
        message_tokens=transcript.message_tokens,
        tokens_raw_sum=transcript.tokens_raw_sum,
        findings=transcript.findings,
        started=transcript.started,
    )


def unreadable(path: str, error: SourceError) -> FileFacts:
    """The facts of a file that cannot be read."""
    return FileFacts(
        file=path, info=SessionInfo(), counts=Counts(), calls=[], message_tokens={},
        tokens_raw_sum=Tokens(), findings=[], problem=str(error),
    )  # fmt: skip


FACTS = Job(file_facts, FileFacts)
"""What a survey does with each file."""


def survey(paths: Sequence[Path], *, advance: Advance = lambda _: None) -> Iterator[FileFacts]:
    """The facts of many files, in their order; `advance` is told the bytes done."""
    return spread(paths, FACTS, advance=advance)
