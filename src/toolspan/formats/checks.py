"""All finding codes, with severity, explanation and the client's reaction.

The documentation, `doctor` and the readers share this table.
"""

from __future__ import annotations

from typing import NamedTuple

from toolspan.types.ids import SourceLocation
from toolspan.types.session import Acceptance, Finding, Severity


class FindingCode(NamedTuple):
    """A finding code and its meaning."""

    severity: Severity
    explanation: str
    acceptance: Acceptance


FINDING_CODES: dict[str, FindingCode] = {
    "no_transcript": FindingCode("error", "No line of the file is a record of a known client", "refuses"),
    "torn_line": FindingCode(
        "error", "A line in the middle of the file is incomplete JSON: a write was interrupted", "skips"
    ),
    "torn_last_line": FindingCode(
        "warning", "The last line is incomplete: the client was killed or is still writing", "skips"
    ),
    "not_an_object": FindingCode("error", "The line is JSON but not an object", "skips"),
    "glued_records": FindingCode("error", "Several records are on one line: a newline is missing", "loses"),
    "nul_bytes": FindingCode("error", "The line contains NUL bytes: the disk lost a block in a crash", "skips"),
    "invalid_utf8": FindingCode("error", "The line is not valid UTF-8", "accepts"),
    "control_characters": FindingCode("error", "The line contains raw control characters inside a string", "loses"),
    "byte_order_mark": FindingCode("info", "The file begins with a byte order mark", "accepts"),
    "line_too_long": FindingCode("warning", "The line exceeds the reader's size limit and was skipped", "unknown"),
    "unreadable_rest": FindingCode(
        "error", "The end of the file cannot be read; the part before it is used", "unknown"
    ),
    "odd_type": FindingCode("warning", "A known field has a value of an unexpected type", "unknown"),
    "unknown_type": FindingCode("info", "A record has an unknown type, probably from a newer client", "accepts"),
    "unknown_field": FindingCode("info", "A record has an unknown field, probably from a newer client", "accepts"),
    "unknown_input": FindingCode(
        "info", "An input has an unknown tool or key, from a newer client or a mistake by the model", "accepts"
    ),
    "unknown_result": FindingCode(
        "info", "A structured result has an unknown shape, probably from a newer client", "accepts"
    ),
    "unanswered_call": FindingCode("error", "A call has no result", "loses"),
    "leftover_command": FindingCode(
        "info", "A command outlived the process that recorded the session; resuming the session ends it", "accepts"
    ),
    "orphan_result": FindingCode("warning", "A result has no call in this file", "accepts"),
    "duplicate_call": FindingCode("info", "A call's id occurs more than once", "accepts"),
    "duplicate_result": FindingCode("info", "A call has more than one result", "accepts"),
    "duplicate_uuid": FindingCode("warning", "Two records have the same uuid; the first one is used", "accepts"),
    "missing_parent": FindingCode(
        "warning", "A record's parent is not in the file: the chain of records is broken", "accepts"
    ),
    "parent_cycle": FindingCode("error", "The parent links form a cycle", "accepts"),
    "foreign_session": FindingCode("info", "A record belongs to a different session than the file", "accepts"),
    "outside_path": FindingCode(
        "warning", "A result refers to a file outside the session's folders, which is not opened", "unknown"
    ),
    "missing_sidecar": FindingCode("info", "A file with a long output is missing", "accepts"),
    "patch_mismatch": FindingCode("info", "A recorded patch does not match the recorded file content", "accepts"),
    "roundtrip": FindingCode("error", "Decoding and re-encoding a line does not yield equal JSON", "unknown"),
}


class ResumeBehavior(NamedTuple):
    """The client's observed behaviour when it resumes a session with this problem."""

    now: str
    """The behaviour of versions 2.1.197 and 2.1.325."""
    older: str = ""
    """The behaviour of versions 2.0.65 and 2.1.80, if different."""


def make_finding(code: str, place: SourceLocation | None, detail: str = "", count: int = 1) -> Finding:
    """Return a finding with the explanation for its code."""
    meaning = FINDING_CODES[code]
    text = f"{meaning.explanation} ({detail})" if detail else meaning.explanation
    return Finding(
        code=code, severity=meaning.severity, place=place, explanation=text, acceptance=meaning.acceptance, count=count
    )
