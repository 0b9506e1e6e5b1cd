"""Scan many files on all cores; each becomes a `FileSummary` without bodies."""

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
    """The facts of one transcript, without bodies."""

    file: str
    info: SessionInfo
    counts: LineCounts
    calls: list[CallRow]
    message_tokens: dict[str, Tokens]
    tokens_raw_sum: Tokens
    findings: list[Finding]
    started: dict[str, str] = {}
    """Ids of the calls that started subagents, by agent id."""
    successes: list[str] = []
    """Keys of the calls that `calls` leaves out because they succeeded."""
    problem: str | None = None
    """The reason why the file could not be read; everything else is then empty."""


def scan_file(path: str) -> FileSummary:
    """Return the facts of one file; an unreadable file has a `problem`."""
    try:
        transcript = read(Path(path))
        rows = [make_call_row(span, transcript.file) for span in transcript.iter_spans()]
    except SourceError as error:
        return unreadable_summary(path, error)
    return _make_summary(transcript, rows)


def summarize_transcript(transcript: Transcript) -> FileSummary:
    """Return the facts of a transcript that has been read."""
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
    """Return the summary of a file that cannot be read."""
    return FileSummary(
        file=path, info=SessionInfo(), counts=LineCounts(), calls=[], message_tokens={},
        tokens_raw_sum=Tokens(), findings=[], problem=str(error),
    )  # fmt: skip


SCAN_JOB = FileJob(scan_file, FileSummary)
"""The job of `scan_files`."""


def scan_files(paths: Sequence[Path], *, advance: AdvanceCallback = lambda _: None) -> Iterator[FileSummary]:
    """Yield the facts of many files in their order; `advance` gets the number of bytes done."""
    return parallel_map(paths, SCAN_JOB, advance=advance)
