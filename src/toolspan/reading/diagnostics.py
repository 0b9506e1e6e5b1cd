"""A transcript's health: every finding, what the client would make of it, and the round trip.

In: a source. Out: a `Checkup`. Slower than reading, because it looks at every byte twice: once for
calls and damage, once line by line for drift, UTF-8 and re-encoding. Read `check` first.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

from msgspec import Struct

from toolspan.diffs import Fits, Mismatch, NoBase, verify
from toolspan.errors import SourceError
from toolspan.formats import json_repair
from toolspan.formats.claude import records
from toolspan.formats.claude.narrow import input_drift, result_drift
from toolspan.formats.claude.paths import is_inside_folder, parse_file_name, session_folder
from toolspan.formats.claude.records import unknown_keys
from toolspan.formats.claude.results import EditResult, MultiEditResult, WriteResult
from toolspan.formats.codex import records as codex
from toolspan.formats.codex import records as codex_keys
from toolspan.formats.codex import results
from toolspan.formats.codex.calls import call_arguments
from toolspan.formats.decoding import DECODE_ERRORS
from toolspan.formats.detect import detect_dialect
from toolspan.formats.jsonl import JsonLine
from toolspan.formats.source import Source
from toolspan.reading.finding_codes import make_finding
from toolspan.reading.transcript import Transcript, read
from toolspan.types.finding import Acceptance, Finding
from toolspan.types.ids import SourceLocation
from toolspan.types.span import LineCounts, Span

V = TypeVar("V", records.Entry, codex.RolloutRecord)

_DRIFT_SIZE_LIMIT = 16 << 20
"""Lines longer than this are not searched for drift."""


def make_line_checker(
    transcript: Transcript, *, roundtrip: bool
) -> LineChecker[records.Entry] | LineChecker[codex.RolloutRecord]:
    """What looks at the lines of a transcript, by its dialect."""
    if transcript.dialect == "codex":
        return CodexLineChecker(transcript, roundtrip=roundtrip)
    return ClaudeLineChecker(transcript, roundtrip=roundtrip)


class LineChecker(ABC, Generic[V]):
    """Looks at lines one by one."""

    def __init__(self, transcript: Transcript, *, roundtrip: bool) -> None:
        self._file = transcript.file
        self._roundtrip = roundtrip
        self._tools = {span.id: span.tool for span in transcript.spans}
        self._occurrences: dict[tuple[str, str], tuple[SourceLocation, int]] = {}
        self.type_counts: Counter[str] = Counter()
        self.equal_count = 0
        self.not_utf8_count = 0

    def check_line(self, line: JsonLine) -> None:
        """The next line."""
        if line.length > _DRIFT_SIZE_LIMIT and not self._roundtrip:
            return  # decoding all of it takes several times its size
        try:
            value = json_repair.decode_document(line.data)
        except ValueError:
            self._check_unreadable(line)
            return
        if not isinstance(value, dict):
            return
        view = self._decode_view(line.data)
        self.type_counts[self._line_type(view)] += 1
        if not is_utf8(line.data):
            self.not_utf8_count += 1
            self._add_finding("invalid_utf8", "", line)
            return
        if self._roundtrip:
            self._compare_reencoded(view, line)
        self._check_drift(view, value, line)

    @abstractmethod
    def _decode_view(self, data: bytes) -> V:
        """The typed view of a line that is one JSON object."""

    @abstractmethod
    def _line_type(self, view: V) -> str:
        """The type under which a line is counted."""

    @abstractmethod
    def _encode_view(self, view: V, data: bytes) -> bytes:
        """The line written anew."""

    @abstractmethod
    def _check_drift(self, view: V, fields: dict[str, object], line: JsonLine) -> None:
        """What nobody has described yet."""

    def _check_unreadable(self, line: JsonLine) -> None:
        """Reading told of it already, unless only a skipped string is not UTF-8."""
        if not line.data or is_utf8(line.data):
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
        except ValueError:  # nested too deeply to be written again
            same = False
        if same:
            self.equal_count += 1
        else:
            self._add_finding("roundtrip", "", line)

    def _add_finding(self, code: str, detail: str, line: JsonLine) -> None:
        place, times = self._occurrences.get((code, detail), (None, 0))
        first = place or SourceLocation(self._file, line.number, line.offset, line.length)
        self._occurrences[code, detail] = (first, times + 1)

    def findings(self) -> list[Finding]:
        """What was found, each thing once, with how often it was."""
        return [make_finding(code, place, detail, times)
                for (code, detail), (place, times) in self._occurrences.items()]  # fmt: skip


class ClaudeLineChecker(LineChecker[records.Entry]):
    """Lines of Claude Code."""

    def _decode_view(self, data: bytes) -> records.Entry:
        return records.decode_entry(data).entry

    def _line_type(self, view: records.Entry) -> str:
        return view.type

    def _encode_view(self, view: records.Entry, data: bytes) -> bytes:
        return records.encode_entry(view, data)

    def _check_drift(self, view: records.Entry, fields: dict[str, object], line: JsonLine) -> None:
        if not view.is_known:
            self._add_finding("unknown_type", view.type or "no type", line)
        for key in unknown_keys(fields):
            self._add_finding("unknown_field", key, line)
        for tool, input_json in _called_tools(fields):
            for path in input_drift(tool, input_json):
                self._add_finding("unknown_input", f"{tool}: {path}", line)
        structured = fields.get("toolUseResult", fields.get("tool_use_result"))
        if structured is None or view.type != "user":
            return
        for tool in self._answered_tools(view):
            for path in result_drift(tool, records.decode_bodies(line.data).structured or b"null"):
                self._add_finding("unknown_result", f"{tool}: {path}", line)

    def _answered_tools(self, view: records.Entry) -> Iterator[str]:
        content = view.message.content if view.message else None
        if isinstance(content, list):
            blocks = [block for block in content if block.type == "tool_result"]
            if len(blocks) == 1 and blocks[0].tool_use_id:
                tool = self._tools.get(blocks[0].tool_use_id)
                if tool:  # an orphan's shape says nothing
                    yield tool


def _called_tools(fields: dict[str, object]) -> Iterator[tuple[str, bytes]]:
    """The tools a line asks for, and the inputs it gives them."""
    message = fields.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") == "tool_use":
            with suppress(ValueError):  # nested too deeply to be written again
                yield (str(block.get("name") or "no tool"), json_repair.encode_document(block.get("input")))


class CodexLineChecker(LineChecker[codex.RolloutRecord]):
    """Lines of Codex."""

    def _decode_view(self, data: bytes) -> codex.RolloutRecord:
        return codex.decode_record(data).entry

    def _line_type(self, view: codex.RolloutRecord) -> str:
        return view.kind

    def _encode_view(self, view: codex.RolloutRecord, data: bytes) -> bytes:
        return codex.encode_record(view, data)

    def _check_drift(self, view: codex.RolloutRecord, fields: dict[str, object], line: JsonLine) -> None:
        if not view.is_known:
            self._add_finding("unknown_type", view.kind or "no type", line)
        for key in codex_keys.unknown_keys(view, fields):
            self._add_finding("unknown_field", key, line)
        for item in codex.extract_calls(view.item):
            tool = codex.item_tool_name(item)
            for path in results.input_drift(tool, call_arguments(item)):
                self._add_finding("unknown_input", f"{tool}: {path}", line)


def is_utf8(data: bytes) -> bool:
    """Whether bytes are text."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_WORST_FIRST: tuple[Acceptance, ...] = ("refuses", "loses", "skips", "unknown", "accepts")


class DiagnosticReport(Struct, frozen=True, kw_only=True):
    """What is wrong with a transcript."""

    file: str
    counts: LineCounts
    entries: dict[str, int]
    """Entries by type."""
    calls: int
    findings: list[Finding]
    roundtrip_equal: int | None
    """Lines whose re-encoding equals the original as JSON; None when that was not asked."""

    @property
    def is_healthy(self) -> bool:
        """Nothing is wrong that needs mending, and the client keeps the whole conversation."""
        errors = any(finding.severity == "error" for finding in self.findings)
        return not errors and self.client_acceptance not in ("loses", "refuses")

    @property
    def client_acceptance(self) -> Acceptance:
        """What the client makes of the whole file: the worst it makes of any finding."""
        acceptances = {finding.client for finding in self.findings if finding.severity != "info"}
        return next((acceptance for acceptance in _WORST_FIRST if acceptance in acceptances), "accepts")


def check(source: Path | str | Source, *, roundtrip: bool = False) -> DiagnosticReport:
    """Everything that is wrong with a transcript.

    Raises:
        SourceError: the file cannot be opened or read.
    """
    transcript = read(source)
    line_checker = make_line_checker(transcript, roundtrip=roundtrip)
    with suppress(SourceError):  # reading has told of it already
        for line in transcript.lines():
            line_checker.check_line(line)
    findings = [
        *_check_dialect(transcript),
        *_merge_odd_types(transcript.findings),
        *line_checker.findings(),
        *_check_calls(transcript.spans),
        *_check_tree(transcript),
        *_check_session(transcript),
        *_check_sidecars(transcript),
        *_check_patches(transcript.spans),
    ]
    counts = transcript.counts
    return DiagnosticReport(
        file=transcript.file,
        counts=LineCounts(
            lines=counts.lines,
            blank=counts.blank,
            malformed=counts.malformed + line_checker.not_utf8_count,
            recovered=counts.recovered,
        ),
        entries=dict(line_checker.type_counts),
        calls=sum(1 for span in transcript.spans if span.state != "orphan_result"),
        findings=findings,
        roundtrip_equal=line_checker.equal_count if roundtrip else None,
    )


def _file_exists(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name no file system takes
        return False


def _merge_odd_types(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Damage one by one, but odd values only once per kind."""
    odd: Counter[str] = Counter(f.explanation for f in findings if f.code == "odd_type")
    seen: set[str] = set()
    for finding in findings:
        if finding.code != "odd_type":
            yield finding
        elif finding.explanation not in seen:
            seen.add(finding.explanation)
            yield Finding(
                code=finding.code, severity=finding.severity, place=finding.place,
                explanation=finding.explanation, client=finding.client, count=odd[finding.explanation],
            )  # fmt: skip


def _check_dialect(transcript: Transcript) -> Iterator[Finding]:
    if detect_dialect(transcript.source) == "unknown":
        yield make_finding("no_transcript", SourceLocation(transcript.file, 1, 0, 0), "")


def _check_calls(spans: Sequence[Span]) -> Iterator[Finding]:
    copies: dict[str, list[SourceLocation]] = {}
    for span in spans:
        if span.state == "orphan_result" and span.result:
            yield make_finding("orphan_result", span.result.place, span.id)
        elif span.result is None and not span.deferred:
            yield make_finding("unanswered_call", span.call.place, f"{span.tool} {span.id}")
        for copy in span.copies:
            copies.setdefault(f"duplicate_{copy.what}", []).append(copy.place)
    for code, places in copies.items():
        yield make_finding(code, places[0], "", len(places))


def _check_tree(transcript: Transcript) -> Iterator[Finding]:
    tree, file = transcript.tree, transcript.file
    for code, lines in (
        ("duplicate_uuid", tree.duplicate_lines()),
        ("missing_parent", tree.missing_parents()),
        ("parent_cycle", tree.cycle_lines()),
    ):
        if lines:
            yield make_finding(code, SourceLocation(file, lines[0], 0, 0), "", len(lines))


def _check_session(transcript: Transcript) -> Iterator[Finding]:
    """Lines that name another session; files whose name is no session's are not asked."""
    stem = parse_file_name(Path(transcript.file)).stem
    if not _UUID.fullmatch(stem):
        return
    foreign_places = [place for entry, place in transcript.entries() if entry.session_id not in (None, stem)]
    if foreign_places:
        yield make_finding("foreign_session", foreign_places[0], "", len(foreign_places))


def _check_patches(spans: Sequence[Span]) -> Iterator[Finding]:
    """Recorded patches that do not fit the content recorded beside them, by reason."""
    places_by_reason: dict[str, list[SourceLocation]] = {}
    for span in spans:
        changes = span.call.kind in ("edit", "write") and span.call.dialect == "claude"
        if changes and span.result and span.state == "succeeded":
            outcome = _verify_patch(span.result.structured)
            if isinstance(outcome, Mismatch):
                reason = outcome.reason.partition(". ")[0]
                places_by_reason.setdefault(reason, []).append(span.result.place)
    for reason, places in places_by_reason.items():
        yield make_finding("patch_mismatch", places[0], reason[:160], len(places))


def _verify_patch(change: object) -> Fits | NoBase | Mismatch:
    match change:
        case WriteResult():
            return verify(change.structured_patch, change.original_file, change.content)
        case EditResult():
            return verify(change.structured_patch, change.original_file, None)
        case MultiEditResult():
            before = change.original_file_contents or change.original_file
            return verify(change.structured_patch, before, None)
        case _:
            return NoBase()


def _check_sidecars(transcript: Transcript) -> Iterator[Finding]:
    """Spilled outputs are looked for only in the session's own folder."""
    main = Path(transcript.file)
    name = parse_file_name(main)
    folder = session_folder(main)
    if name.role == "agent" and name.session_id:
        folder = next((p for p in main.parents if p.name == name.session_id), folder)
    for span in transcript.spans:
        recorded_path = span.result.persisted_path if span.result else None
        if not recorded_path or span.result is None:
            continue
        sidecar = folder / "tool-results" / Path(recorded_path).name
        is_inside = is_inside_folder(Path(recorded_path), folder) or Path(recorded_path).parent.name == "tool-results"
        if not is_inside:
            yield make_finding("outside_path", span.result.place, recorded_path[:200])
        elif not _file_exists(sidecar):
            yield make_finding("missing_sidecar", span.result.place, Path(recorded_path).name)
