"""Check lines one by one for drift, UTF-8 and re-encoding; each format says how its lines are decoded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import Generic, TypeVar

from toolspan.formats import json_repair
from toolspan.formats.decoding import DECODE_ERRORS
from toolspan.formats.findings import make_finding
from toolspan.formats.jsonl import JsonLine
from toolspan.types.finding import Finding
from toolspan.types.ids import SourceLocation
from toolspan.types.span import Span

V = TypeVar("V")

_DRIFT_SIZE_LIMIT = 16 << 20
"""Longer lines are not searched for drift: decoding them takes several times their size in memory."""


class LineChecker(ABC, Generic[V]):
    """Checks the lines of one file, decoded as `V`."""

    def __init__(self, file: str, spans: Sequence[Span], *, roundtrip: bool) -> None:
        self._file = file
        self._roundtrip = roundtrip
        self._tools = {span.id: span.tool for span in spans}
        self._occurrences: dict[tuple[str, str], tuple[SourceLocation, int]] = {}
        self.type_counts: Counter[str] = Counter()
        self.equal_count = 0
        self.not_utf8_count = 0

    @abstractmethod
    def _decode_view(self, data: bytes) -> V:
        """Return the typed view of a line that is one JSON object."""

    @abstractmethod
    def _line_type(self, view: V) -> str:
        """Return the type under which a line is counted."""

    @abstractmethod
    def _encode_view(self, view: V, data: bytes) -> bytes:
        """Encode the view over the line it was decoded from."""

    @abstractmethod
    def _check_drift(self, view: V, fields: dict[str, object], line: JsonLine) -> None:
        """Add a finding for each type, field, input or result that is not described yet."""

    def check_line(self, line: JsonLine) -> None:
        """Check the next line."""
        if line.length > _DRIFT_SIZE_LIMIT and not self._roundtrip:
            return
        try:
            value = json_repair.decode_document(line.data)
        except ValueError:
            self._check_undecodable(line)
            return
        if not isinstance(value, dict):
            return
        view = self._decode_view(line.data)
        self.type_counts[self._line_type(view)] += 1
        if not _is_utf8(line.data):
            self.not_utf8_count += 1
            self._add_finding("invalid_utf8", "", line)
            return
        if self._roundtrip:
            self._compare_reencoded(view, line)
        self._check_drift(view, value, line)

    def findings(self) -> list[Finding]:
        """Return each finding once, with its number of occurrences."""
        return [
            make_finding(code, place, detail, times)
            for (code, detail), (place, times) in self._occurrences.items()
        ]  # fmt: skip

    def _check_undecodable(self, line: JsonLine) -> None:
        """Report a line that the reader accepted because only a skipped string is not UTF-8."""
        if not line.data or _is_utf8(line.data):
            return
        try:
            self._decode_view(line.data)
        except (*DECODE_ERRORS, ValueError):
            return
        self.not_utf8_count += 1
        self._add_finding("invalid_utf8", "", line)

    def _compare_reencoded(self, view: V, line: JsonLine) -> None:
        try:
            same = json_repair.is_same_json(self._encode_view(view, line.data), line.data)
        except ValueError:  # nested too deeply to be encoded
            same = False
        if same:
            self.equal_count += 1
        else:
            self._add_finding("roundtrip", "", line)

    def _add_finding(self, code: str, detail: str, line: JsonLine) -> None:
        place, times = self._occurrences.get((code, detail), (None, 0))
        first = place or SourceLocation(self._file, line.number, line.offset, line.length)
        self._occurrences[code, detail] = (first, times + 1)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
