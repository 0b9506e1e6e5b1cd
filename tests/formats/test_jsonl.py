"""Bytes to lines: offsets, numbers, limits, and files that cannot be read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolspan.errors import SourceError
from toolspan.formats import jsonl, zstd
from toolspan.formats.jsonl import JsonLine, read_chunks, read_lines
from toolspan.formats.source import BytesSource, FileSource, Source, ZstSource, source_for_path

LINES = b'{"a":1}\n\n{"b":"\xc3\xa9"}\r\n{"c":3}\n'
bytes_with_newlines = st.lists(st.sampled_from([b"\n", b"a", b"\r", b"\0", b"bc"])).map(b"".join)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(jsonl, "CHUNK_SIZE", 8)
    return 8


def written(folder: Path, data: bytes, name: str = "t.jsonl") -> Source:
    path = folder / name
    path.write_bytes(data)
    return source_for_path(path)


def compressed(*frames: bytes) -> bytes:
    return b"".join(zstd.compress(frame) for frame in frames)


def split(data: bytes) -> list[JsonLine]:
    items = []
    offset = 0
    for number, piece in enumerate(data.split(b"\n"), start=1):
        ended = offset + len(piece) < len(data)
        if piece or ended:
            items.append(JsonLine(number, offset, len(piece), piece, ended))
        offset += len(piece) + 1
    return items


def test_lines_have_their_numbers_and_offsets(tmp_path: Path) -> None:
    assert list(read_lines(written(tmp_path, LINES))) == [
        JsonLine(1, 0, 7, b'{"a":1}'),
        JsonLine(2, 8, 0, b""),
        JsonLine(3, 9, 11, '{"b":"é"}\r'.encode()),
        JsonLine(4, 21, 7, b'{"c":3}'),
    ]


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.zst"])
def test_range_of_a_line_gives_its_bytes(tmp_path: Path, name: str) -> None:
    source = written(tmp_path, compressed(LINES) if name.endswith(".zst") else LINES, name)

    for line in read_lines(source):
        assert source.read(line.offset, line.length) == line.data


def test_last_line_without_newline_has_not_ended(tmp_path: Path) -> None:
    lines = list(read_lines(written(tmp_path, b'{"a":1}\n{"b"')))

    assert [(line.data, line.has_newline) for line in lines] == [(b'{"a":1}', True), (b'{"b"', False)]


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\u0085", "\v", "\f", "\x1c", "\r"])
def test_line_separator_inside_a_string_does_not_split(tmp_path: Path, mark: str) -> None:
    line = f'{{"text":"one{mark}two"}}'.encode()

    assert [result.data for result in read_lines(written(tmp_path, line + b"\n" + line))] == [line, line]


def test_empty_file_has_neither_chunks_nor_lines(tmp_path: Path) -> None:
    assert list(read_chunks(written(tmp_path, b""))) == []


def test_line_over_the_limit_has_no_bytes(tmp_path: Path, small_chunks: int) -> None:
    source = written(tmp_path, b"one\n" + b"x" * 50 + b"\nthree\n\nfive\n")

    lines = list(read_lines(source, limit=20))

    assert lines == [
        JsonLine(1, 0, 3, b"one"),
        JsonLine(2, 4, 50, b""),
        JsonLine(3, 55, 5, b"three"),
        JsonLine(4, 61, 0, b""),
        JsonLine(5, 62, 4, b"five"),
    ]
    assert [line.is_oversized for line in lines] == [False, True, False, False, False]


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.zst"])
def test_reading_can_start_at_any_line(tmp_path: Path, name: str) -> None:
    source = written(tmp_path, compressed(LINES) if name.endswith(".zst") else LINES, name)
    whole = list(read_lines(source))

    for n, line in enumerate(whole):
        assert list(read_lines(source, offset=line.offset, number=line.number)) == whole[n:]


def test_reading_past_the_end_finds_nothing(tmp_path: Path) -> None:
    assert list(read_lines(written(tmp_path, LINES), offset=len(LINES) + 5, number=9)) == []


def test_chunks_contain_complete_lines_and_join_to_the_file(tmp_path: Path, small_chunks: int) -> None:
    pieces, sizes, lines = [], [], []
    for chunk in read_chunks(written(tmp_path, LINES + b"torn")):
        pieces.append(bytes(chunk.data[chunk.start : chunk.end]))
        sizes.append(chunk.source_length)
        lines += [line.data for line in chunk.iter_lines(1)]

    assert b"".join(pieces) == LINES + b"torn"
    assert all(piece.endswith(b"\n") for piece in pieces[:-1])
    assert sum(sizes) == len(LINES + b"torn")
    assert lines == [line.data for line in split(LINES + b"torn")]


@given(data=bytes_with_newlines | st.binary(), chunk=st.integers(1, 9))
def test_chunk_size_does_not_change_the_lines(data: bytes, chunk: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "CHUNK_SIZE", chunk)
        lines = list(read_lines(BytesSource(data)))

    assert lines == split(data)
    assert b"".join(line.data + b"\n" * line.has_newline for line in lines) == data


@given(data=bytes_with_newlines, chunk=st.integers(1, 4), limit=st.integers(4, 9))
def test_limit_changes_only_the_bytes_of_long_lines(data: bytes, chunk: int, limit: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "CHUNK_SIZE", chunk)
        lines = list(read_lines(BytesSource(data), limit=limit))

    assert lines == [
        JsonLine(line.number, line.offset, line.length, line.data if line.length <= limit else b"", line.has_newline)
        for line in split(data)
    ]


@given(data=bytes_with_newlines, chunk=st.integers(1, 9), which=st.integers(min_value=0))
def test_reading_from_a_line_gives_the_remaining_lines(data: bytes, chunk: int, which: int) -> None:
    whole = split(data)
    n = which % (len(whole) + 1)
    rest = whole[n:]
    offset = rest[0].offset if rest else len(data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "CHUNK_SIZE", chunk)
        result = list(read_lines(BytesSource(data), offset=offset, number=n + 1))

    assert result == rest


def test_compressed_file_reads_like_the_plain_one(tmp_path: Path) -> None:
    source = written(tmp_path, compressed(LINES), "t.jsonl.zst")

    assert isinstance(source, ZstSource)
    assert list(read_lines(source)) == split(LINES)


def test_compressed_file_with_several_frames_is_read_to_its_end(tmp_path: Path) -> None:
    source = written(tmp_path, compressed(LINES[:5], b"", LINES[5:], LINES), "t.jsonl.zst")

    assert list(read_lines(source)) == split(LINES + LINES)
    assert source.read(len(LINES), 7) == b'{"a":1}'


def test_compressed_line_longer_than_several_chunks_is_complete(tmp_path: Path) -> None:
    data = b"{}\n" + b"x" * (3 * jsonl.CHUNK_SIZE) + b"\n{}\n"

    assert list(read_lines(written(tmp_path, compressed(data), "t.jsonl.zst"))) == split(data)


@pytest.mark.parametrize(
    "data",
    [b"this is not Zstandard", compressed(LINES) + b"tail", compressed(LINES)[:-3]],
    ids=["another format", "something after it", "cut short"],
)
def test_damaged_compressed_data_is_an_error_with_the_file_name(tmp_path: Path, data: bytes) -> None:
    source = written(tmp_path, data, "broken.jsonl.zst")

    with pytest.raises(SourceError, match=r"broken\.jsonl\.zst: .*Zstandard"):
        list(read_lines(source))
    with pytest.raises(SourceError, match=r"broken\.jsonl\.zst: .*Zstandard"):
        source.read(5, 1 << 20)


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.zst"])
@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("missing", "missing.*: No such file or directory"),
        ("folder", "folder.*: Is a directory"),
        ("loop", "loop.*: .*symbolic links"),
        ("a\0b", "null byte"),
    ],
)
def test_source_that_cannot_be_opened_is_an_error_with_its_name(
    tmp_path: Path, name: str, suffix: str, error: str
) -> None:
    (tmp_path / f"folder{suffix}").mkdir()
    (tmp_path / f"loop{suffix}").symlink_to(f"loop{suffix}")
    source = source_for_path(tmp_path / f"{name}{suffix}")

    with pytest.raises(SourceError, match=error):
        list(read_lines(source))
    with pytest.raises(SourceError, match=error):
        source.read(0, 1)


@pytest.mark.skipif(os.geteuid() == 0, reason="file permissions do not apply to root")
def test_unreadable_file_is_an_error_with_the_reason(tmp_path: Path) -> None:
    source = written(tmp_path, LINES, "locked.jsonl")
    (tmp_path / "locked.jsonl").chmod(stat.S_IWUSR)

    with pytest.raises(SourceError, match=r"locked\.jsonl: Permission denied"):
        list(read_lines(source))


def test_path_given_as_text_is_named_as_given(tmp_path: Path) -> None:
    path = str(tmp_path / "t.jsonl")

    assert source_for_path(path).name == path
    assert isinstance(source_for_path(path), FileSource)


def test_range_past_the_end_is_shorter(tmp_path: Path) -> None:
    for source in (
        written(tmp_path, b"abcdef"),
        written(tmp_path, compressed(b"abcdef"), "t.zst"),
        BytesSource(b"abcdef"),
    ):
        assert source.read(4, 10) == b"ef"
        assert source.read(9, 10) == b""
