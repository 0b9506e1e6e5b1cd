"""Reading files in parts, replacing them as a whole, and recognizing images."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.requirement import requirement
from toolspan.errors import ToolError
from toolspan.tools.files.atomic_replace import atomic_replace
from toolspan.tools.files.image import ImageInfo, read_image_info
from toolspan.tools.files.paths import resolve_path
from toolspan.tools.files.safe_read import FileVersion, LineRange, digest_bytes, read_file, read_line_range

MOST = 1 << 20
SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@SHARED
@given(
    parts=st.lists(st.sampled_from(["a", "é", "\U0001f600", "\r", "\n", "\r\n", "\udcff"])),
    skip=st.integers(-4, 12),
    count=st.none() | st.integers(0, 6),
    chunk=st.integers(1, 7),
)
def test_a_line_range_is_the_same_for_every_chunk_size(
    tmp_path: Path, parts: list[str], skip: int, count: int | None, chunk: int
) -> None:
    data = b"." + "".join(parts).encode("utf-8", "surrogateescape")
    path = tmp_path / "a.txt"
    path.write_bytes(data)

    result = read_line_range(path, LineRange(skip, count), MOST, chunk=chunk)

    lines = data.decode("utf-8", "replace").replace("\r\n", "\n").split("\n")
    first = skip if skip >= 0 else max(0, len(lines) + skip)
    expected = lines[first:] if count is None else lines[first : first + count]
    assert result.text == "\n".join(expected)
    assert (result.line_count, result.total_lines) == (len(expected), len(lines))
    assert result.has_bad_bytes == ("\udcff" in parts)
    assert result.digest == digest_bytes(data)


def test_a_file_that_is_not_as_expected_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"old")
    stamp = read_file(path).version
    path.write_bytes(b"somebody else")

    for expected in (stamp, None):
        with pytest.raises(ToolError, match="unexpectedly modified"):
            atomic_replace(path, b"mine", expected)

    assert path.read_bytes() == b"somebody else"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_a_deleted_file_is_not_created_again(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"old")
    stamp = read_file(path).version
    path.unlink()

    with pytest.raises(ToolError, match="unexpectedly modified"):
        atomic_replace(path, b"mine", stamp)

    assert [path.name for path in tmp_path.iterdir()] == []


def test_a_replacement_returns_the_version_of_the_new_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"

    first = atomic_replace(path, b"one", None)
    second = atomic_replace(path, b"three", first)

    assert second == FileVersion.from_stat(path.stat())
    assert path.read_bytes() == b"three"
    assert path.stat().st_nlink == 1


def test_a_reader_that_has_the_file_open_keeps_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"old")

    with path.open("rb") as reader:
        atomic_replace(path, b"new", read_file(path).version)
        assert reader.read() == b"old"


def test_a_read_only_file_is_replaced_and_stays_read_only(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"old")
    path.chmod(0o444)

    atomic_replace(path, b"new", read_file(path).version)

    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o444


@pytest.mark.skipif(os.geteuid() == 0, reason="file permissions do not apply to root")
def test_a_file_in_a_read_only_folder_is_written_in_place(tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir()
    path = folder / "a.txt"
    path.write_bytes(b"old and long")
    folder.chmod(0o500)

    atomic_replace(path, b"new", read_file(path).version)

    folder.chmod(0o700)
    assert path.read_bytes() == b"new"


def test_the_longest_names_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 255)

    atomic_replace(path, b"new", atomic_replace(path, b"old", None))

    assert path.read_bytes() == b"new"


@requirement("files.locations")
def test_paths_are_made_absolute_and_links_stay(tmp_path: Path) -> None:
    home = "/home/dev"

    assert resolve_path("a/../b", tmp_path) == tmp_path / "b"
    assert resolve_path("/x//y", tmp_path) == Path("/x/y")
    assert resolve_path("~/a", tmp_path, home) == Path("/home/dev/a")
    assert resolve_path("~", tmp_path, home) == Path(home)
    assert resolve_path("~a", tmp_path, home) == tmp_path / "~a"
    assert resolve_path("~/a", tmp_path) == tmp_path / "~" / "a"


@pytest.mark.parametrize(
    ("data", "result"),
    [
        (b"GIF89a\x03\x00\x02\x00", ImageInfo("image/gif", 3, 2)),
        (b"\xff\xd8\xff\xe0\x00\x04ab\xff\xff\xc0\x00\x11\x08\x00\x02\x00\x03",
         ImageInfo("image/jpeg", 3, 2)),
        (b"RIFF\0\0\0\0WEBPVP8X" + bytes(8) + b"\x02\0\0\x01\0\0", ImageInfo("image/webp", 3, 2)),
        (b"RIFF\0\0\0\0WEBPVP8L" + bytes(4) + b"\x2f\x02\x40\x00\x00", ImageInfo("image/webp", 3, 2)),
        (b"RIFF\0\0\0\0WEBPVP8 " + bytes(7) + b"\x9d\x01\x2a\x03\0\x02\0",
         ImageInfo("image/webp", 3, 2)),
        (b"RIFF\0\0\0\0WEBPxxxx", None),
        (b"", None),
    ],
)  # fmt: skip
def test_the_size_of_an_image_is_read_from_its_header(data: bytes, result: ImageInfo | None) -> None:
    assert read_image_info(data) == result


@given(
    head=st.sampled_from([b"", b"GIF89a", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", b"RIFF\0\0\0\0WEBPVP8 "]),
    rest=st.binary(),
)
def test_any_bytes_can_be_checked_for_an_image(head: bytes, rest: bytes) -> None:
    read_image_info(head + rest)
