"""`--format csv`: one row per call with the fields of `CallRow`, without bodies, for spreadsheets (RFC 4180).

A redacted export has the column `redacted`: the number of values replaced in the row.

Cells that a spreadsheet would interpret as a formula are prefixed with an apostrophe, and control characters are
replaced. The JSON export keeps text unchanged.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence

from toolspan.export.json import encode_json, escape_control_chars
from toolspan.export.session_export import SessionExport
from toolspan.reading.rows import CallRow

COLUMNS = (
    *CallRow.__struct_fields__, "wait_ms", "wait_certainty", "input_chars", "result_chars", "files_changed", "problem",
)  # fmt: skip
_FORMULA_PREFIXES = ("=", "+", "-", "@", "\t", "\r")
_MAX_CELL_CHARS = 32_000
"""The maximum length of the text in a cell. Spreadsheets reject cells of more than 32,767 characters."""


def write(sessions: Iterable[SessionExport]) -> Iterator[bytes]:
    """Yield the column names and then one row for each call."""
    columns: tuple[str, ...] = ()
    for session in sessions:
        if not columns:
            columns = (*COLUMNS, "redacted") if session.redaction_notice else COLUMNS
            yield _encode_row(columns)
        for call in session.calls(bodies=False):
            wait_ms = sum(phase.end - phase.start for phase in call.phases if phase.phase == "permission")
            derived = {  # waits for permission include overlaps with other calls
                "wait_ms": None if call.wait_certainty == "unknown" else wait_ms,
                "files_changed": len(call.diffs),
            }
            values = (derived[name] if name in derived else getattr(call, name) for name in columns)
            yield _encode_row([format_cell(value) for value in values])
    if not columns:
        yield _encode_row(COLUMNS)


def format_cell(value: object) -> str:
    """Format a value as a cell that no spreadsheet evaluates. Lists are written as JSON, and long texts are cut."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or isinstance(value, int | float):
        return "" if value is None else str(value)
    text = value if isinstance(value, str) else encode_json(value).decode("utf-8", "replace")
    escaped = escape_control_chars(text)
    if len(escaped) > _MAX_CELL_CHARS:
        escaped = f"{escaped[:_MAX_CELL_CHARS]}… {len(escaped) - _MAX_CELL_CHARS:,} more characters"
    return f"'{escaped}" if text.startswith(_FORMULA_PREFIXES) or escaped.startswith(_FORMULA_PREFIXES) else escaped


def _encode_row(cells: Sequence[str]) -> bytes:
    out = io.StringIO(newline="")
    csv.writer(out).writerow(cells)
    return out.getvalue().encode("utf-8", "replace")
