"""Read the lines of a transcript in file order: decode, count, and recover damaged lines.

Formats extend `TranscriptReader`. Start at `TranscriptReader.add_chunk`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import Struct, structs

from toolspan.errors import SourceError
from toolspan.formats import json_repair
from toolspan.formats.base import SessionFacts, TranscriptContent
from toolspan.formats.checks import make_finding
from toolspan.formats.decoding import DECODE_ERRORS, TypedDecoder
from toolspan.formats.jsonl import JsonLine, LineChunk, read_chunks, read_lines, split_document
from toolspan.formats.pairing import Branches, CallPairing
from toolspan.formats.registry import get_format, narrow_foreign_input
from toolspan.formats.source import Source
from toolspan.types.ids import LINE_BIT, OFFSET_BIT, CallId, SourceLocation
from toolspan.types.session import Finding, Message, SessionInfo
from toolspan.types.span import Call, LineCounts, Span

if TYPE_CHECKING:
    from toolspan.types.inputs import ToolInput

T = TypeVar("T", bound=Struct)
V = TypeVar("V", bound=Struct)


class TranscriptReader(ABC, Generic[T]):
    """Reader for one file, chunk by chunk, or for the items of a JSON document treated as lines.

    Problems in the content become findings and never raise.
    """

    decoder: TypedDecoder[T]
    pairing: CallPairing[Any]
    session_info: SessionFacts

    def __init__(self, source: Source, *, document_key: str | None = None, nested_key: str | None = None) -> None:
        self.source = source
        self.findings: list[Finding] = []
        self.excerpt: list[JsonLine] | None = None
        """The only lines to reread; None for all."""
        self._file = source.name
        self._document_key = document_key
        """The key of the item list, if the file is a JSON document."""
        self._nested_key = nested_key
        """The key of a list of documents within the document."""
        self._document_pieces: list[bytes] = []
        self._next_number = 1
        self._line_count = 0
        self._blank_count = 0
        self._malformed_count = 0
        self._recovered_count = 0

    @abstractmethod
    def _process(self, decoded: Sequence[T], places: Sequence[int], number: int) -> None:
        """Process consecutive decoded lines and their packed locations; `number` is the first line number."""

    def _process_document_fields(self, fields: T) -> None:
        """Process the fields of a document other than its items."""

    @abstractmethod
    def line_type(self, view: T) -> str:
        """Return the type under which a line is counted."""

    @abstractmethod
    def find_drift(
        self, view: T, fields: dict[str, object], line: JsonLine, tools: Mapping[CallId, str]
    ) -> Iterator[tuple[str, str]]:
        """Yield a finding code and a detail for each type, field, input or result that is not described."""

    @property
    def role(self) -> str | None:
        """The type of the subagent that wrote the file, if the file records it."""
        return None

    @abstractmethod
    def branches(self) -> Branches:
        """Return the branch of every line."""

    @abstractmethod
    def messages(self) -> Iterator[Message]:
        """Read the messages between the calls by rereading the file."""

    def messages_in(self, lines: Sequence[tuple[int, bytes]]) -> Iterator[Message]:
        """Yield at least the messages in `lines`, which are pairs of offset and bytes; used by `search`."""
        return self.messages()

    def read_content(self, info: SessionInfo, spans: Sequence[Span]) -> TranscriptContent:
        """Return calls and messages for a timeline, in one more pass over the file.

        A subagent's file may begin with a copy of its parent's history, which is omitted.
        """
        agent_id = info.agent_id
        return TranscriptContent(
            file=self.source.name,
            agent_id=agent_id,
            spans=[span for span in spans if agent_id is None or span.call.agent_id == agent_id],
            messages=[message for message in self.messages() if agent_id is None or message.agent_id == agent_id],
            branches=self.branches(),
            role=self.role,
        )

    def check(self, spans: Sequence[Span]) -> Iterator[Finding]:
        """Yield findings that are specific to this format, such as broken parent links."""
        return iter(())

    @property
    def counts(self) -> LineCounts:
        """The line counts so far."""
        return LineCounts(
            lines=self._line_count,
            blank=self._blank_count,
            malformed=self._malformed_count,
            recovered=self._recovered_count,
        )

    @property
    def next_line(self) -> int:
        """The number of the next line."""
        return self._next_number

    def add_chunk(self, chunk: LineChunk) -> None:
        """Read the next lines, all at once or, if any of them is damaged or unusual, one by one."""
        start = chunk.start
        if self._document_key is not None:
            self._document_pieces.append(memoryview(chunk.data)[start : chunk.end].tobytes())
            return
        number = self._next_number
        whole_chunk = self._decode_chunk(chunk)
        if whole_chunk is None:
            if not chunk.skipped_length and (data := memoryview(chunk.data)[start : chunk.end].tobytes()).isspace():
                lines = data.count(b"\n") + (not data.endswith(b"\n"))
                self._blank_count += lines
                self._next_number += lines
                return
            for line in chunk.iter_lines(number):
                self.add_line(line)
                self._next_number = line.number + 1
            return
        decoded, ends = whole_chunk
        self._process_chunk(decoded, chunk, ends)
        self._line_count += len(decoded)
        self._next_number += len(decoded)

    def _decode_chunk(self, chunk: LineChunk) -> tuple[list[T], list[int]] | None:
        """Decode lines at once, with the ends of the lines, or return None if any is damaged or unusual."""
        if chunk.end - chunk.start > chunk.limit or chunk.skipped_length:
            return None
        return self.decoder.decode_many(chunk.data, chunk.start, chunk.end)

    def _process_chunk(self, decoded: Sequence[T], chunk: LineChunk, ends: Sequence[int]) -> None:
        """Process the lines of a chunk, which end at `ends`."""
        self._process(decoded, pack_places(chunk, ends, self._next_number), self._next_number)

    def add_line(self, line: JsonLine) -> None:
        """Decode and process the next line, or recover what is valid in it."""
        try:
            decoded, odd = self.decoder.decode(line.data)
        except ValueError:
            self._recover_line(line)
            return
        self._line_count += 1
        place = self._location_of(line)
        if odd:
            self._add_finding("odd_type", place, f"unexpected type of {', '.join(odd[:5])}")
        self._process((decoded,), (place.packed,), line.number)

    def finish(self) -> None:
        """Finish reading at the end of the file; a document is split only here."""
        if self._document_key is None:
            return
        document = split_document(b"".join(self._document_pieces), self._document_key, self._nested_key)
        self._document_pieces.clear()
        fields = {key: json_repair.decode_readable(value) for key, value in document.fields.items()}
        with suppress(ValueError):  # nested too deeply
            self._process_document_fields(self.decoder.decode(json_repair.encode_document(fields)).entry)
        for line in document.lines:
            self.add_line(line)
        if not document.is_complete:
            self._malformed_count += 1
            self._add_finding("torn_last_line", SourceLocation(self._file, len(document.lines) + 1, 0, 0), "")

    def handle_source_error(self, error: SourceError) -> None:
        """Record that the rest of the file cannot be read.

        Raises:
            SourceError: nothing has been read yet.
        """
        if not self._line_count:
            raise error
        self._add_finding("unreadable_rest", SourceLocation(self._file, self._line_count, 0, 0), str(error))

    def lines(self) -> Iterator[JsonLine]:
        """Reread the lines of the file, or the items of a document."""
        if self.excerpt is not None:
            return iter(self.excerpt)
        if self._document_key is None:
            return read_lines(self.source)
        with self.source.open() as stream:
            return iter(split_document(stream.read(), self._document_key, self._nested_key).lines)

    def records(self) -> Iterator[tuple[T, SourceLocation]]:
        """Reread all records with their locations, including those recovered from damaged lines."""
        begun = False
        try:
            if self.excerpt is None and self._document_key is None:
                number = 1
                for chunk in read_chunks(self.source):
                    begun = True
                    number = yield from self.chunk_records(chunk, number)
                return
            for line in self.lines():
                begun = True
                yield from self._line_records(line)
        except SourceError:
            if not begun:
                raise

    def chunk_records(self, chunk: LineChunk, number: int) -> Generator[tuple[T, SourceLocation], None, int]:
        """Yield the records in a chunk whose first line is `number`; return the number of the line after it."""
        whole_chunk = self._decode_chunk(chunk)
        if whole_chunk is not None:
            decoded, ends = whole_chunk
            for record, place in zip(decoded, pack_places(chunk, ends, number), strict=True):
                yield record, SourceLocation.unpack(self._file, place)
            return number + len(decoded)
        for line in chunk.iter_lines(number):
            yield from self._line_records(line)
            number = line.number + 1
        return number

    def _line_records(self, line: JsonLine) -> Iterator[tuple[T, SourceLocation]]:
        for record, offset, length in self._decode_documents(line):
            yield record, SourceLocation(self._file, line.number, line.offset + offset, length)

    def make_line_checker(self, spans: Sequence[Span], *, roundtrip: bool) -> LineChecker[T]:
        """Return a checker for drift, UTF-8 errors and re-encoding differences in the file's lines."""
        return LineChecker(self, spans, roundtrip=roundtrip)

    def _decode_documents(self, line: JsonLine) -> list[tuple[T, int, int]]:
        """Return the records on a line, each with its offset and length."""
        decode = self.decoder.decode
        try:
            return [(decode(line.data).entry, 0, line.length)]
        except ValueError:
            pieces = json_repair.recover_objects(line.data).pieces
            return [(decode(piece.data).entry, piece.offset, piece.length) for piece in pieces]

    def _recover_line(self, line: JsonLine) -> None:
        """Recover the objects in a line that is not exactly one JSON object."""
        if not line.is_oversized and not line.data.strip():
            self._blank_count += 1
            return
        self._line_count += 1
        self._malformed_count += 1
        if line.is_oversized:
            self._add_finding("line_too_long", self._location_of(line), f"{line.length:,} bytes")
            return
        recovered = json_repair.recover_objects(line.data)
        code = recovered.reason if line.has_newline or recovered.pieces else "torn_last_line"
        count = len(recovered.pieces)
        self._add_finding(code, self._location_of(line), f"{count} {'entry' if count == 1 else 'entries'} recovered")
        if code == "invalid_utf8" and not count:  # also with U+FFFD in place of the bytes, the line is not JSON
            self.findings[-1] = structs.replace(self.findings[-1], acceptance="skips")
        for piece in recovered.pieces:
            self._recovered_count += 1
            place = SourceLocation(self._file, line.number, line.offset + piece.offset, piece.length)
            self._process((self.decoder.decode(piece.data).entry,), (place.packed,), line.number)

    def _location_of(self, line: JsonLine) -> SourceLocation:
        return SourceLocation(self._file, line.number, line.offset, line.length)

    def _add_finding(self, code: str, place: SourceLocation, detail: str) -> None:
        self.findings.append(make_finding(code, place, detail))


def pack_places(chunk: LineChunk, ends: Sequence[int], number: int, indexes: Sequence[int] | None = None) -> list[int]:
    """Return the packed locations of the lines of a chunk, or of those with the given indexes.

    The lines end at `ends`, and the first one has the given number.
    """
    before = chunk.offset - chunk.start + 1
    lasts = [chunk.start - 1, *ends]
    lines: Iterable[tuple[int, int, int]] = zip(count(number), lasts, ends, strict=False)
    if indexes is not None:
        lines = [(number + n, lasts[n], ends[n]) for n in indexes]
    return [n << LINE_BIT | before + last << OFFSET_BIT | end - last - 1 for n, last, end in lines]


_DRIFT_SIZE_LIMIT = 16 << 20
"""The length above which lines are not checked for drift, because decoding takes several times the memory."""


class LineChecker(Generic[T]):
    """Checker for the lines of one file."""

    def __init__(self, reader: TranscriptReader[T], spans: Sequence[Span], *, roundtrip: bool) -> None:
        self._reader = reader
        self._roundtrip = roundtrip
        self._tools = {span.id: span.tool for span in spans}
        self._occurrences: dict[tuple[str, str], tuple[SourceLocation, int]] = {}
        self.type_counts: Counter[str] = Counter()
        self.equal_count = 0
        self.not_utf8_count = 0

    def check_line(self, line: JsonLine) -> None:
        """Check the next line."""
        if line.length > _DRIFT_SIZE_LIMIT and not self._roundtrip:
            return
        decoder = self._reader.decoder
        try:
            fields = json_repair.decode_document(line.data)
        except ValueError:
            if line.data and not _is_utf8(line.data):
                with suppress(*DECODE_ERRORS, ValueError):  # valid if only skipped strings are not UTF-8
                    decoder.decode(line.data)
                    self.not_utf8_count += 1
                    self._add_finding("invalid_utf8", "", line)
            return
        if not isinstance(fields, dict):
            return
        view = decoder.decode(line.data).entry
        self.type_counts[self._reader.line_type(view)] += 1
        if not _is_utf8(line.data):
            self.not_utf8_count += 1
            self._add_finding("invalid_utf8", "", line)
            return
        if self._roundtrip:
            try:
                same = json_repair.is_same_json(decoder.encode(view, line.data), line.data)
            except ValueError:  # nested too deeply to be encoded
                same = False
            self.equal_count += same
            if not same:
                self._add_finding("roundtrip", "", line)
        for code, detail in self._reader.find_drift(view, fields, line, self._tools):
            self._add_finding(code, detail, line)

    def findings(self) -> list[Finding]:
        """Return each finding once, with its number of occurrences."""
        return [make_finding(code, place, detail, n) for (code, detail), (place, n) in self._occurrences.items()]

    def _add_finding(self, code: str, detail: str, line: JsonLine) -> None:
        place, times = self._occurrences.get((code, detail), (None, 0))
        first = place or SourceLocation(self._reader.source.name, line.number, line.offset, line.length)
        self._occurrences[code, detail] = (first, times + 1)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


class LineBodyStore(ABC):
    """Reader for the inputs and results in one file, on demand."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.name = source.name

    @abstractmethod
    def raw_input(self, call: Call) -> bytes:
        """Return the input as JSON."""

    def arguments(self, call: Call) -> dict[str, object]:
        """Return the decoded input, or an empty dict if it is not an object."""
        from toolspan.types.inputs import decode_json_object

        return decode_json_object(self.raw_input(call))

    def typed_input(self, call: Call) -> ToolInput:
        """Return the input as its tool's type; models also call tools that belong to other clients."""
        from toolspan.types.inputs import UnknownInput

        data = self.raw_input(call)
        tool_input = get_format(call.client).narrow_input(call.tool, data)
        return narrow_foreign_input(call.tool, data) if isinstance(tool_input, UnknownInput) else tool_input

    def _reread(self, place: SourceLocation, decoder: TypedDecoder[V]) -> V:
        """Reread the record at a location, or the first object if the line is damaged."""
        data = self.source.read(place.offset, place.length)
        try:
            return decoder.decode(data).entry
        except ValueError:
            pieces = json_repair.recover_objects(data).pieces
        if not pieces:
            raise SourceError(f"{place}: the line has changed since it was read")
        return decoder.decode(pieces[0].data).entry


def missing_call_error(place: SourceLocation, call_id: str) -> SourceError:
    """Return the error for a line that no longer contains the expected call."""
    return SourceError(f"{place}: {call_id} is no longer there")
