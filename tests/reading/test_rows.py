"""Rows of calls as columns."""

from __future__ import annotations

import msgspec

from toolspan.reading import sample
from toolspan.reading.facts import scan_file
from toolspan.reading.rows import CallRow, column_types, columns_to_rows, rows_to_columns


def test_columns_return_the_rows_that_they_were_made_from() -> None:
    files = [scan_file(str(path)).calls for path in sorted(sample.archive().rglob("*.jsonl"))]
    decoder = msgspec.msgpack.Decoder(column_types(CallRow))

    assert any(row.hooks for rows in files for row in rows)
    for rows in (*files, [files[0][0]] * 3, []):
        data = msgspec.msgpack.encode(rows_to_columns(rows, CallRow))
        assert columns_to_rows(decoder.decode(data), CallRow) == rows
