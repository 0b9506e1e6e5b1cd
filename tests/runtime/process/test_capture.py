"""The bytes that a capture keeps, for any chunks."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from tests.requirement import requirement
from toolspan.runtime.process import Capture, Spill


@requirement("process.bounded-memory")
@given(st.lists(st.binary(max_size=30)), st.integers(2, 50))
def test_capture_keeps_both_ends_and_its_file_keeps_everything(pieces: list[bytes], limit: int) -> None:
    whole = b"".join(pieces)
    with TemporaryDirectory() as folder:
        capture = Capture(limit, Spill(lambda: Path(folder) / "all"))
        for piece in pieces:
            capture.add(piece)
        capture.finish()
        capture.add(b"too late")
        spilled = None if capture.path is None else capture.path.read_bytes()

    fits = len(whole) <= limit
    tail = limit - limit // 2
    assert capture.total == len(whole)
    assert capture.dropped == (0 if fits else len(whole) - limit)
    assert capture.head == (whole if fits else whole[: limit // 2])
    assert capture.tail == (b"" if fits else whole[-tail:])
    assert capture.data == (whole if fits else whole[: limit // 2] + whole[-tail:])
    assert spilled == (None if fits else whole)
