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
    client: Acceptance


FINDING_CODES: dict[str, FindingCode] = {
    "no_transcript": FindingCode("error", "No line of the file is a record of a known client", "refuses"),
    "torn_line": FindingCode(
        "error", "A line in the middle of the file is not whole JSON: a write was cut short", "skips"
    ),
    "torn_last_line": FindingCode(
        "warning", "The last line is half written: the client was killed or still writes", "skips"
    ),
    "not_an_object": FindingCode("error", "The line is JSON but not an object", "skips"),
    "glued_records": FindingCode("error", "Two or more records are on one line: a newline was lost", "loses"),
    "nul_bytes": FindingCode("error", "The line holds NUL bytes: the disk lost a block in a crash", "skips"),
    "invalid_utf8": FindingCode("error", "The line is not valid UTF-8", "accepts"),
    "control_characters": FindingCode("error", "The line has raw control characters inside a string", "loses"),
    "byte_order_mark": FindingCode("info", "The file begins with a byte order mark", "accepts"),
    "line_too_long": FindingCode("warning", "The line is over the reader's limit and was skipped", "unknown"),
    "unreadable_rest": FindingCode("error", "The file cannot be read to its end; what came before is kept", "unknown"),
    "odd_type": FindingCode("warning", "A known field has a value of another type", "unknown"),
    "unknown_type": FindingCode("info", "A record type that is not described yet (drift)", "accepts"),
    "unknown_field": FindingCode("info", "A field that is not described yet (drift)", "accepts"),
    "unknown_input": FindingCode(
        "info", "An input whose tool or keys are not described yet (drift, or the model's slip)", "accepts"
    ),
    "unknown_result": FindingCode("info", "A structured result whose shape is not described yet (drift)", "accepts"),
    "unanswered_call": FindingCode("error", "A call has no result", "loses"),
    "orphan_result": FindingCode("warning", "A result whose call is not in the file", "accepts"),
    "duplicate_call": FindingCode("info", "A call's id occurs more than once", "accepts"),
    "duplicate_result": FindingCode("info", "A call has more than one result", "accepts"),
    "duplicate_uuid": FindingCode("warning", "Two records share a uuid; the first one counts", "accepts"),
    "missing_parent": FindingCode("warning", "A record's parent is not in the file: the chain breaks here", "accepts"),
    "parent_cycle": FindingCode("error", "The parent links form a cycle", "accepts"),
    "foreign_session": FindingCode("info", "A record names another session than the file's own", "accepts"),
    "outside_path": FindingCode(
        "warning", "A result names a file outside the session's own folders, which is not opened", "unknown"
    ),
    "missing_sidecar": FindingCode("info", "A spilled output file is gone", "accepts"),
    "patch_mismatch": FindingCode("info", "A recorded patch does not fit its own file content", "accepts"),
    "roundtrip": FindingCode("error", "A line does not re-encode to equal JSON", "unknown"),
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
        code=code, severity=meaning.severity, place=place, explanation=text, client=meaning.client, count=count
    )
