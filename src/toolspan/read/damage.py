"""Every finding code: how bad it is, what it means, what the client makes of it.

One table, so that the documentation, `doctor` and the reader cannot disagree.
"""

from typing import NamedTuple

from toolspan.model.finding import Acceptance, Finding, Severity
from toolspan.model.place import Place


class Meaning(NamedTuple):
    """What a code stands for."""

    severity: Severity
    explanation: str
    client: Acceptance


CODES: dict[str, Meaning] = {
    "no_transcript": Meaning(
        "error", "No line of the file is a record of Claude Code or Codex", "refuses"
    ),
    "torn_line": Meaning(
        "error",
        "A line in the middle of the file is not whole JSON: a write was cut short",
        "skips",
    ),
    "torn_last_line": Meaning(
        "warning", "The last line is half written: the client was killed or still writes", "skips"
    ),
    "not_an_object": Meaning("error", "The line is JSON but not an object", "skips"),
    "glued_records": Meaning(
        "error", "Two or more records stand on one line: a newline was lost", "loses"
    ),
    "nul_bytes": Meaning(
        "error", "The line holds NUL bytes: the disk lost a block in a crash", "skips"
    ),
    "invalid_utf8": Meaning("error", "The line is not valid UTF-8", "accepts"),
    "control_characters": Meaning(
        "error", "The line has raw control characters inside a string", "loses"
    ),
    "byte_order_mark": Meaning("info", "The file begins with a byte order mark", "accepts"),
    "line_too_long": Meaning(
        "warning", "The line is over the reader's limit and was passed over", "unknown"
    ),
    "unreadable_rest": Meaning(
        "error", "The file cannot be read to its end; what came before is kept", "unknown"
    ),
    "odd_type": Meaning("warning", "A known field has a value of another type", "unknown"),
    "unknown_type": Meaning("info", "A record type nobody has described yet (drift)", "accepts"),
    "unknown_field": Meaning("info", "A field nobody has described yet (drift)", "accepts"),
    "unknown_input": Meaning(
        "info",
        "An input whose tool or keys nobody has described yet (drift, or the model's slip)",
        "accepts",
    ),
    "unknown_result": Meaning(
        "info", "A structured result of a shape nobody has described yet (drift)", "accepts"
    ),
    "unanswered_call": Meaning("error", "A call has no result", "loses"),
    "orphan_result": Meaning("warning", "A result whose call is not in the file", "accepts"),
    "duplicate_call": Meaning("info", "A call's id occurs more than once", "accepts"),
    "duplicate_result": Meaning("info", "A call has more than one result", "accepts"),
    "duplicate_uuid": Meaning(
        "warning", "Two records share a uuid; the first one counts", "accepts"
    ),
    "missing_parent": Meaning(
        "warning", "A record's parent is not in the file: the chain breaks here", "accepts"
    ),
    "parent_cycle": Meaning("error", "The parent links run in a circle", "accepts"),
    "foreign_session": Meaning(
        "info", "A record names another session than the file's own", "accepts"
    ),
    "outside_path": Meaning(
        "warning",
        "A result names a file outside the session's own folders; it is not opened",
        "unknown",
    ),
    "missing_sidecar": Meaning("info", "A spilled output file is gone", "accepts"),
    "patch_mismatch": Meaning(
        "info", "A recorded patch does not fit its own file content", "accepts"
    ),
    "roundtrip": Meaning("error", "A line does not re-encode to equal JSON", "unknown"),
}


class OnResume(NamedTuple):
    """What the real client was seen to do with it when it went on with the session."""

    now: str
    """2.1.197 and 2.1.325."""
    older: str = ""
    """2.0.65 and 2.1.80, where that differs."""


_ONLY_BEHIND = "loses everything before the line"

ON_RESUME: dict[str, OnResume] = {
    "torn_last_line": OnResume("skips the line"),
    "torn_line": OnResume("skips the line; a call or result on it goes with its other half",
                          _ONLY_BEHIND),
    "not_an_object": OnResume("skips the line and loses nothing"),
    "glued_records": OnResume("keeps the first record on the line, loses the others",
                              _ONLY_BEHIND),
    "nul_bytes": OnResume("skips the line", _ONLY_BEHIND),
    "invalid_utf8": OnResume("reads U+FFFD in place of the bytes"),
    "control_characters": OnResume("skips the line", _ONLY_BEHIND),
    "byte_order_mark": OnResume("takes no notice", "2.0.65 loses the first line"),
    "unanswered_call": OnResume(
        "at the end of the conversation 2.1.325 answers it as interrupted, 2.1.197 leaves it out;"
        " before the end both leave it out", "leaves it out; 2.0.65 may also lose what is before"),
    "orphan_result": OnResume("leaves it out",
                              "2.0.65 sends it in the middle, and the server refuses"),
    "duplicate_result": OnResume("sends one of them", "2.0.65 sends all, and the server refuses"),
    "duplicate_uuid": OnResume("takes no notice"),
    "missing_parent": OnResume("goes on from the line before", _ONLY_BEHIND),
    "parent_cycle": OnResume("takes no notice", "2.0.65 never comes to an end"),
    "foreign_session": OnResume("goes by the file's name"),
}  # fmt: skip
"""Seen with the clients themselves; `python -m tests.oracle --defects` asks them again."""


def finding(code: str, place: Place | None, detail: str = "", count: int = 1) -> Finding:
    """A finding of a known code."""
    meaning = CODES[code]
    text = f"{meaning.explanation} ({detail})" if detail else meaning.explanation
    return Finding(
        code=code,
        severity=meaning.severity,
        place=place,
        explanation=text,
        client=meaning.client,
        count=count,
    )
