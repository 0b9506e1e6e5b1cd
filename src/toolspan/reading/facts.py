"""The facts of one file: what questions need to know about it, without bodies.

A `FactKind` is one kind of facts, such as the calls or the requests. A `FileJob` reads one or several kinds with one
pass over the file. Facts are values, so that they can be cached and sent between processes. Start at `read_facts`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolspan.errors import SourceError
from toolspan.formats.source import to_path
from toolspan.reading.lineage import call_key
from toolspan.reading.rows import CallRow, column_types, columns_to_rows, rows_to_columns
from toolspan.types.session import Finding, SessionInfo, Tokens
from toolspan.types.span import LineCounts, Span

if TYPE_CHECKING:
    from toolspan.formats.base import ReadScope, TranscriptContent
    from toolspan.reading.timeline import AgentTimeline
    from toolspan.reading.transcript import Transcript

T = TypeVar("T")
ENCODE_ERRORS = (UnicodeEncodeError, OverflowError)
"""Errors raised for lone surrogates, undecodable file names or huge numbers. Such values are pickled,
which is slower.
"""


class FileReading:
    """One pass over a file, shared by the kinds of facts that are read from it."""

    def __init__(
        self,
        path: Path | str,
        *,
        scope: ReadScope = "all",
        keeps_spans: bool = True,
        transcript: Transcript | None = None,
    ) -> None:
        """Create a reading of a file, or of a `transcript` that has been read. Nothing is read yet.

        Without `keeps_spans`, each call is released after its row was made, which needs less memory.
        """
        self.path = to_path(path)
        self._scope = scope
        self._keeps_spans = keeps_spans
        if transcript is not None:
            self.transcript = transcript

    @cached_property
    def transcript(self) -> Transcript:
        """The transcript.

        Raises:
            SourceError: the file cannot be read, or no known client wrote it.
        """
        from toolspan.reading.transcript import read_known, read_requests  # perf: not needed for cached files

        return read_requests(self.path) if self._scope == "requests" else read_known(self.path)

    @cached_property
    def rows(self) -> list[CallRow]:
        """A row for each call."""
        transcript = self.transcript
        spans = transcript.spans if self._keeps_spans else transcript.iter_spans()
        return [transcript.make_row(span) for span in spans]

    @cached_property
    def failed_rows(self) -> list[CallRow]:
        """A row for each call that did not succeed, or that started a background command which failed later."""
        if "rows" in self.__dict__:
            return [row for row in self.rows if not _just_succeeded(row)]
        from toolspan.reading.causes import background_failure  # perf: not needed for cached files

        # perf: most calls succeed, and making their rows takes a fifth of the time of reading
        failed = (span for span in self.transcript.spans if span.state != "succeeded" or background_failure(span))
        return [self.transcript.make_row(span) for span in failed]

    @cached_property
    def content(self) -> TranscriptContent:
        """The calls and the messages between them.

        Raises:
            SourceError: the file can no longer be read.
        """
        from toolspan.reading.transcript import read_content

        return read_content(self.transcript)

    @cached_property
    def timeline(self) -> AgentTimeline:
        """The timeline of the file's own agent."""
        from toolspan.reading.timeline import build_timeline

        return build_timeline([self.content])


class Packing(Struct, Generic[T], frozen=True):
    """The form in which facts are encoded, and its conversion."""

    packed_type: Any
    pack: Callable[[T], object]
    unpack: Callable[[Any], T]


class FactKind(Struct, Generic[T], frozen=True, kw_only=True, dict=True):
    """A kind of facts about a file."""

    name: str
    """The name under which the facts are cached."""
    measure: Callable[[FileReading], T]
    """Returns the facts. May raise SourceError."""
    facts_type: type[T]
    unreadable: Callable[[str, str], T]
    """Returns the facts of a file that cannot be read, from its path and the problem."""
    scope: ReadScope = "all"
    finds_causes: bool = True
    """True if the causes of failed commands are found, which needs more modules."""
    needs_spans: bool = True
    """False if the rows of the calls are enough."""
    packing: Packing[T] | None = None
    """A smaller form in which the facts are encoded."""

    def encode(self, facts: T) -> bytes | None:
        """Encode the facts as MessagePack, or return None if that is not possible."""
        return encode_msgpack(facts if self.packing is None else self.packing.pack(facts))

    def decode(self, data: bytes) -> Any:
        """Return the encoded facts.

        Raises:
            msgspec.MsgspecError, UnicodeDecodeError: the data are corrupt.
        """
        decoded = self._decoder.decode(data)
        return decoded if self.packing is None else self.packing.unpack(decoded)

    @cached_property
    def _decoder(self) -> msgspec.msgpack.Decoder[Any]:
        return msgspec.msgpack.Decoder(self.facts_type if self.packing is None else self.packing.packed_type)


class FileJob(Struct, Generic[T], frozen=True):
    """Kinds of facts that are read together, and the function that joins them into one value per file."""

    kinds: tuple[FactKind[Any], ...]
    join: Callable[..., T]
    also: tuple[FactKind[Any], ...] = ()
    """Kinds that the same command asks for later. They are cached with the others if a file has to be read."""

    @property
    def finds_causes(self) -> bool:
        """True if one of the kinds finds the causes of failed commands."""
        return any(kind.finds_causes for kind in self.kinds)

    def with_kinds(self, kinds: Iterable[FactKind[Any]]) -> FileJob[T]:
        """Return a job with the same result that also reads other kinds of facts."""
        names, count = {kind.name for kind in self.kinds}, len(self.kinds)
        others = [kind for kind in kinds if kind.name not in names]
        return FileJob((*self.kinds, *others), lambda *facts: self.join(*facts[:count]))

    def run(self, path: Path | str) -> T:
        """Read a file. Does not raise if it is unreadable: `problem` is set instead."""
        return self.join(*read_facts(path, self.kinds))


ReadFacts = Callable[[Path | str, Sequence[FactKind[Any]]], list[Any]]
"""A function like `read_facts`."""


class FactsTuple(tuple[Any, ...]):
    """The facts of one file, one value for each kind."""

    __slots__ = ()

    @property
    def problem(self) -> str | None:
        """The reason why the file could not be read."""
        problem: str | None = self[0].problem
        return problem


def tuple_job(*kinds: FactKind[Any]) -> FileJob[FactsTuple]:
    """Return the job that reads several kinds of facts as a tuple."""
    return FileJob(kinds, lambda *facts: FactsTuple(facts))


def single_job(kind: FactKind[T]) -> FileJob[T]:
    """Return the job that reads one kind of facts."""
    return FileJob((kind,), lambda facts: facts)


def read_facts(path: Path | str, kinds: Sequence[FactKind[Any]]) -> list[Any]:
    """Return the facts of each kind, read with one pass over the file.

    Does not raise if the file is unreadable: the facts then state the problem.
    """
    scope: ReadScope = "requests" if all(kind.scope == "requests" for kind in kinds) else "all"
    reading = FileReading(path, scope=scope, keeps_spans=any(kind.needs_spans for kind in kinds))
    return measure_facts(reading, kinds)


def measure_facts(reading: FileReading, kinds: Sequence[FactKind[Any]]) -> list[Any]:
    """Return the facts of each kind from a file that is read, or has been."""
    try:
        return [kind.measure(reading) for kind in kinds]
    except SourceError as error:
        return [kind.unreadable(str(reading.path), str(error)) for kind in kinds]


def encode_msgpack(value: object) -> bytes | None:
    """Encode a value as MessagePack, or return None if that is not possible."""
    try:
        return msgspec.msgpack.encode(value)
    except ENCODE_ERRORS:
        return None


class FileSummary(Struct, frozen=True, kw_only=True, gc=False):
    """The calls, tokens and findings of one transcript, without bodies."""

    file: str
    info: SessionInfo
    counts: LineCounts
    calls: list[CallRow]
    message_tokens: dict[str, Tokens]
    findings: list[Finding]
    started: dict[str, str] = {}
    started_by: str | None = None
    """The call that started this subagent, if the side file already named it when the transcript was read."""
    last_batch: str | None = None
    """The message of the last call. While the session runs, the unanswered calls of this message are running too."""
    successes: list[tuple[str, str | None]] = []
    """Id and batch of the successful calls, if `calls` leaves them out (see `FAILURES`)."""
    problem: str | None = None
    """The reason why the file could not be read. If set, the other fields are empty."""

    @property
    def has_content(self) -> bool:
        """True if the file contains calls."""
        return bool(self.calls or self.successes)

    @property
    def call_count(self) -> int:
        """Number of calls, without orphan results."""
        return len(self.successes) + sum(row.state != "orphan_result" for row in self.calls)

    @property
    def call_keys(self) -> Iterator[str]:
        """The `call_key` of each call."""
        yield from (call_key(row.id, row.batch) for row in self.calls)
        yield from (call_key(call, batch) for call, batch in self.successes)


def summarize_transcript(transcript: Transcript, spans: Iterable[Span]) -> FileSummary:
    """Return the summary of a transcript, with a row for each of `spans`."""
    return _summarize(transcript, [transcript.make_row(span) for span in spans])


def _summarize_failures(reading: FileReading) -> FileSummary:
    rows, spans = reading.failed_rows, reading.transcript.spans
    failed = {row.id for row in rows}
    return replace(
        _summarize(reading.transcript, rows),
        message_tokens={},
        last_batch=next((span.call.message_id for span in reversed(spans) if span.branch == "active"), None),
        successes=[(span.id, span.call.message_id) for span in spans if span.id not in failed],
    )


def leave_out_successes(summary: FileSummary) -> FileSummary:
    """Return the facts `FAILURES` of a file whose facts `CALLS` are known."""
    return replace(
        summary,
        message_tokens={},
        calls=[row for row in summary.calls if not _just_succeeded(row)],
        successes=[(row.id, row.batch) for row in summary.calls if _just_succeeded(row)],
    )


def _just_succeeded(row: CallRow) -> bool:
    return row.state == "succeeded" and row.error_group is None


def _summarize(transcript: Transcript, rows: list[CallRow]) -> FileSummary:
    return FileSummary(
        file=transcript.file,
        info=transcript.info,
        counts=transcript.counts,
        calls=rows,
        message_tokens=transcript.message_tokens,
        findings=transcript.findings,
        started=transcript.agent_starters,
        started_by=transcript.agent_origin.starter_call,
        last_batch=next((row.batch for row in reversed(rows) if row.branch == "active"), None),
    )


def unreadable_summary(path: str, problem: str) -> FileSummary:
    """Return the summary of a file that cannot be read."""
    return FileSummary(
        file=path, info=SessionInfo(), counts=LineCounts(), calls=[], message_tokens={}, findings=[], problem=problem
    )


CALLS = FactKind(
    name="calls",
    measure=lambda reading: _summarize(reading.transcript, reading.rows),
    facts_type=FileSummary,
    unreadable=unreadable_summary,
    needs_spans=False,
    # The rows of a file have most values in common, and the names of their fields would take most of the space.
    packing=Packing(
        GenericAlias(tuple, (FileSummary, column_types(CallRow))),
        lambda summary: (replace(summary, calls=[]), rows_to_columns(summary.calls, CallRow)),
        lambda packed: replace(packed[0], calls=columns_to_rows(packed[1], CallRow)),
    ),
)
FAILURES = FactKind(
    name="failures",
    measure=_summarize_failures,
    facts_type=FileSummary,
    unreadable=unreadable_summary,
)
"""The same without tokens, and with rows only for calls that failed: enough for `errors`, much less than `CALLS`."""
SCAN_JOB = single_job(CALLS)


def scan_file(path: Path | str) -> FileSummary:
    """Return the summary of one file. Does not raise if the file is unreadable: `problem` is set instead."""
    summary: FileSummary = SCAN_JOB.run(path)
    return summary
