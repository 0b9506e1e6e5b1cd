"""Examine a transcript for `toolspan doctor`: list all findings and check whether its lines survive re-encoding.

Slower than reading, because every byte is examined twice: once for calls and problems, once line by line.
Start at `check`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, structs

from toolspan.errors import SourceError, ToolspanError
from toolspan.formats.base import RepairResult
from toolspan.formats.checks import make_finding
from toolspan.formats.registry import FORMAT_NAMES, all_formats, detect_client, get_format, parse_file_name
from toolspan.formats.source import Source, is_remote, source_for_path
from toolspan.reading.transcript import read
from toolspan.types.ids import SourceLocation
from toolspan.types.session import Acceptance, Finding
from toolspan.types.span import LineCounts, Span

_WORST_FIRST: tuple[Acceptance, ...] = ("refuses", "loses", "skips", "unknown", "accepts")


class DiagnosticReport(Struct, frozen=True, kw_only=True):
    """The findings for one transcript."""

    file: str
    counts: LineCounts
    entries: dict[str, int]
    calls: int
    findings: list[Finding]
    roundtrip_equal: int | None
    """Number of lines that are equal as JSON after re-encoding; None if not checked."""

    @property
    def is_healthy(self) -> bool:
        """True if nothing needs repair and the client loads the whole conversation."""
        errors = any(finding.severity == "error" for finding in self.findings)
        return not errors and self.acceptance not in ("loses", "refuses")

    @property
    def acceptance(self) -> Acceptance:
        """The client's reaction to the file: the most severe of its reactions to the findings."""
        acceptances = {finding.acceptance for finding in self.findings if finding.severity != "info"}
        return next((acceptance for acceptance in _WORST_FIRST if acceptance in acceptances), "accepts")


def check(source: Path | str | Source, *, roundtrip: bool = False) -> DiagnosticReport:
    """Examine a transcript and, with `roundtrip`, check that its lines survive re-encoding.

    Raises:
        SourceError: the file cannot be opened or read.
    """
    transcript = read(source)
    line_checker = transcript.reader.make_line_checker(transcript.spans, roundtrip=roundtrip)
    with suppress(SourceError):  # reading has already reported it as a finding
        for line in transcript.lines():
            line_checker.check_line(line)
    is_unknown = detect_client(transcript.source) == "unknown"
    findings = [
        *([make_finding("no_transcript", SourceLocation(transcript.file, 1, 0, 0), "")] if is_unknown else []),
        *_merge_odd_types(transcript.findings),
        *line_checker.findings(),
        *_check_calls(transcript.spans),
        *transcript.reader.check(transcript.spans),
    ]
    counts = transcript.counts
    return DiagnosticReport(
        file=transcript.file,
        counts=structs.replace(counts, malformed=counts.malformed + line_checker.not_utf8_count),
        entries=dict(line_checker.type_counts),
        calls=sum(1 for span in transcript.spans if span.state != "orphan_result"),
        findings=findings,
        roundtrip_equal=line_checker.equal_count if roundtrip else None,
    )


def _merge_odd_types(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Yield findings, merging those that report odd values with the same explanation."""
    odd: Counter[str] = Counter(f.explanation for f in findings if f.code == "odd_type")
    seen: set[str] = set()
    for finding in findings:
        if finding.code != "odd_type":
            yield finding
        elif finding.explanation not in seen:
            seen.add(finding.explanation)
            yield structs.replace(finding, count=odd[finding.explanation])


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


def repair(path: Path, *, write: bool = True) -> RepairResult:
    """Write a repaired copy of a damaged session. With `write=False`, only return the changes.

    Raises:
        SourceError: the session cannot be read.
        ToolspanError: the file is not a session, or its format cannot be repaired.
        OSError: the copy cannot be written.
    """
    if write and is_remote(path):
        raise ToolspanError(f"{path}: repair writes a copy beside the session; download it first, or add --dry-run")
    client = detect_client(source_for_path(path))
    transcript_format = get_format(client) if client in FORMAT_NAMES else None
    if transcript_format is None or not transcript_format.is_repairable or parse_file_name(path).role == "agent":
        titles = " and ".join(each.title for each in all_formats() if each.is_repairable)
        raise ToolspanError(f"{path}: only sessions of {titles} can be repaired")
    return transcript_format.repair(path, write=write)
