"""Many files at once, on all cores: each becomes a bundle of facts.

In: paths. Out: `FileFacts` in the order of the paths. A worker sends facts, never bodies. The same
function of one file serves a process pool here and could serve any other executor.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from toolspan.errors import SourceError
from toolspan.model.finding import Finding
from toolspan.model.session import SessionInfo
from toolspan.model.span import Counts, Span
from toolspan.model.tokens import Tokens
from toolspan.read.facts import CallFacts, facts_of
from toolspan.read.pool import processes
from toolspan.read.transcript import Transcript, read, read_calls

_ALONE = 12 << 20
"""Below so many bytes a pool costs more than it gives."""
_BATCHES = 8
"""Batches per worker, so that none waits long for another."""


Wanted = Literal["all", "failures"]
"""All calls in full, or only those that did not succeed and the names of the others."""


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


def file_facts(path: str, wanted: Wanted = "all") -> FileFacts:
    """The facts of one file; a file that cannot be read is told, not raised."""
    try:
        if wanted == "failures":
            transcript = read_calls(Path(path))
            return _facts(transcript, transcript.failures(), successes=transcript.successes)
        transcript = read(Path(path))
        return _facts(transcript, transcript.surrender(), tokens=transcript.message_tokens)
    except SourceError as error:
        return FileFacts(
            file=path, info=SessionInfo(), counts=Counts(), calls=[], message_tokens={},
            tokens_raw_sum=Tokens(), findings=[], problem=str(error),
        )  # fmt: skip


def facts_from(transcript: Transcript) -> FileFacts:
    """The facts of a transcript that is read already."""
    return _facts(transcript, transcript.spans, tokens=transcript.message_tokens)


def _facts(
    transcript: Transcript,
    spans: Iterable[Span],
    *,
    tokens: dict[str, Tokens] | None = None,
    successes: Sequence[str] = (),
) -> FileFacts:
    return FileFacts(
        file=transcript.file,
        info=transcript.info,
        counts=transcript.counts,
        calls=[facts_of(span, transcript.file) for span in spans],
        message_tokens=tokens or {},
        tokens_raw_sum=transcript.tokens_raw_sum,
        findings=transcript.findings,
        started=transcript.started,
        successes=list(successes),
    )


def survey(
    paths: Sequence[Path],
    *,
    wanted: Wanted = "all",
    advance: Callable[[int], None] = lambda _: None,
) -> Iterator[FileFacts]:
    """The facts of many files, in their order; `advance` is told the bytes done."""
    sizes = [_size(path) for path in paths]
    workers = min(os.cpu_count() or 1, len(paths))
    if workers < 2 or sum(sizes) < _ALONE:
        for path, size in zip(paths, sizes, strict=True):
            yield file_facts(str(path), wanted)
            advance(size)
        return
    for facts, size in _pooled(paths, sizes, workers, wanted):
        yield facts
        advance(size)


def _pooled(
    paths: Sequence[Path], sizes: Sequence[int], workers: int, wanted: Wanted
) -> Iterator[tuple[FileFacts, int]]:
    with processes(workers) as pool:
        batches = _batched(paths, sizes, workers * _BATCHES)
        jobs = [pool.submit(_encoded, [str(paths[n]) for n in batch], wanted) for batch in batches]
        for job, batch in zip(jobs, batches, strict=True):
            answer = job.result()
            found = _DECODER.decode(answer) if isinstance(answer, bytes) else answer
            yield from zip(found, (sizes[n] for n in batch), strict=True)


_DECODER = msgspec.msgpack.Decoder(list[FileFacts])


def _encoded(paths: list[str], wanted: Wanted) -> bytes | list[FileFacts]:
    found = [file_facts(path, wanted) for path in paths]
    try:
        return msgspec.msgpack.encode(found)
    except UNPACKABLE:
        return found


UNPACKABLE = (UnicodeEncodeError, OverflowError)
"""Half a surrogate pair, a file's name that is no text, a giant number: such facts travel as they
are, which takes longer."""


def _batched(paths: Sequence[Path], sizes: Sequence[int], count: int) -> list[range]:
    """Neighbouring files in about equal shares of bytes."""
    share = sum(sizes) / count
    batches, start, held = [], 0, 0
    for n, size in enumerate(sizes):
        held += size
        if held >= share or n == len(paths) - 1:
            batches.append(range(start, n + 1))
            start, held = n + 1, 0
    return batches


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
