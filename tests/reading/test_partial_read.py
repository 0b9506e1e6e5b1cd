"""A growing file that was read in parts gives the same transcript as one that is read at once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from toolspan.reading import sample
from toolspan.reading.parallel import summarize_transcript
from toolspan.reading.transcript import PartialRead, partial_reads, read

FILES = sorted(path for path in sample.archive().rglob("*.jsonl") if path.stat().st_size > 2000)


@pytest.mark.parametrize("original", FILES, ids=lambda path: path.name[:12])
def test_a_file_read_in_parts_equals_the_whole(original: Path, tmp_path: Path) -> None:
    data = original.read_bytes()
    path = tmp_path / original.name
    path.write_bytes(b"")
    partial = PartialRead(str(path))
    for end in range(0, len(data), max(1, len(data) // 7)):  # also in the middle of lines
        path.write_bytes(data[:end])
        assert partial.catch_up()
    path.write_bytes(data)
    expected = read(path)
    token = partial_reads.set({str(path): partial})
    try:
        result = read(path)
        again = read(path)
    finally:
        partial_reads.reset(token)
    assert result.reader is not again.reader
    assert result.findings == expected.findings == again.findings
    summaries = [summarize_transcript(one, one.spans) for one in (result, expected, again)]
    assert summaries[0] == summaries[1] == summaries[2]


def test_a_file_that_was_replaced_or_rewritten_is_read_anew(tmp_path: Path) -> None:
    path, copy = tmp_path / FILES[0].name, tmp_path / "copy"
    for change in ("replaced", "truncated", "rewritten", "removed", "foreign"):
        shutil.copyfile(FILES[0], path)
        if change == "foreign":
            path.write_bytes(b'{"some": "log"}\n' * 40)
        partial = PartialRead(str(path))
        assert partial.catch_up() is (change != "foreign")
        match change:
            case "replaced":
                shutil.copyfile(FILES[0], copy)
                copy.rename(path)
            case "truncated":
                path.write_bytes(path.read_bytes()[:300])
            case "rewritten":
                path.write_bytes(path.read_bytes().replace(b"a", b"e"))
            case "removed":
                path.unlink()
            case _:
                pass
        assert partial.finish() is None, change
