"""Many files at once, on all cores: each becomes a bundle of facts.

In: paths. Out: `FileFacts` in the order of the paths. A worker sends facts, never bodies. The same
function of one file serves a process pool here and could serve any other executor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from toolspan.errors import SourceError
from toolspan.reading.parallel import AdvanceCallback, FileJob, parallel_map
from toolspan.reading.rows import CallRow, make_call_row
from toolspan.reading.transcript import Transcript, read
from toolspan.types.finding import Finding
from toolspan.types.session import SessionInfo
from toolspan.types.span import LineCounts
from toolspan.types.tokens import Tokens


class FileSummary(Struct, frozen=True, kw_only=True):
    """What one transcript holds, without bodies."""

    file: str
    info: SessionInfo
    counts: LineCounts
    calls: list[CallRow]
    message_tokens: dict[str, Tokens]
    tokens_raw_sum: Tokens
    findings: list[Finding]
    started: dict[str, str] = {}
    """Which call started which subagent, by the subagent's id."""
    successes: list[str] = []
    """Names of the calls that `calls` leaves out because they succeeded."""
    problem: str | None = None
    """Set when the file could not be read; everything else is then empty."""


def scan_file(path: str) -> FileSummary:
    """The facts of one file; a file that cannot be read is told, not raised."""
    try:
        transcript = read(Path(path))
        rows = [make_call_row(span, transcript.file) for span in transcript.iter_spans()]
    except SourceError as error:
        return unreadable_summary(path, error)
    return _make_summary(transcript, rows)


def summarize_transcript(transcript: Transcript) -> FileSummary:
    """The facts of a transcript that is read already."""
    return _make_summary(transcript, [make_call_row(span, transcript.file) for span in transcript.spans])


def _make_summary(transcript: Transcript, rows: list[CallRow]) -> FileSummary:
    return FileSummary(
        file=transcript.file,
        info=transcript.info,
        counts=transcript.counts,
        calls=rows,
        message_tokens=transcript.message_tokens,
        tokens_raw_sum=transcript.tokens_raw_sum,
        findings=transcript.findings,
        started=transcript.agent_starters,
    )


def unreadable_summary(path: str, error: SourceError) -> FileSummary:
    """The facts of a file that cannot be read."""
    return FileSummary(
        file=path, info=SessionInfo(), counts=LineCounts(), calls=[], message_tokens={},
        tokens_raw_sum=Tokens(), findings=[], problem=str(error),
    )  # fmt: skip


SCAN_JOB = FileJob(scan_file, FileSummary)
"""What a survey does with each file."""


def scan_files(paths: Sequence[Path], *, advance: AdvanceCallback = lambda _: None) -> Iterator[FileSummary]:
    """The facts of many files, in their order; `advance` is told the bytes done."""
    return parallel_map(paths, SCAN_JOB, advance=advance)
