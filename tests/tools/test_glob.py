"""Glob: the files it finds, their order, and its errors."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.requirement import requirement
from tests.tools.client import client, fill, refusal
from toolspan.tools.glob import MAX_NAMES, FileListing

pytestmark = pytest.mark.anyio

FILES = {"src/b.py": "", "src/a.py": "", "notes.md": "", ".dot/c.py": "", "build/d.py": ""}


@requirement("glob-tool.finds")
@pytest.mark.parametrize(("version", "absolute"), [("2.1.327", False), ("2.0.65", True)])
async def test_matching_files_are_listed_oldest_first(tmp_path: Path, version: str, absolute: bool) -> None:
    fill(tmp_path, {**FILES, ".gitignore": "build\n"})
    async with client(tmp_path, "Glob", version=version) as session:
        finished = await session.call("Glob", pattern="**/*.py")

    names = ["src/b.py", "src/a.py", ".dot/c.py", "build/d.py"]
    if absolute:
        names = [str(tmp_path / name) for name in names]
    assert finished.content == "\n".join(names)
    record = finished.structured
    assert isinstance(record, dict)
    assert record.pop("durationMs") >= 0
    counts = {} if absolute else {"totalMatches": 4, "countIsComplete": True}
    assert record == {"filenames": names, "numFiles": 4, "truncated": False, **counts}


@requirement("glob-tool.finds")
async def test_a_folder_or_an_absolute_pattern_selects_the_search_root(tmp_path: Path) -> None:
    fill(tmp_path, FILES)
    async with client(tmp_path / "src", "Glob") as session:
        assert await session.text("Glob", pattern="*.py", path="../build") == str(tmp_path / "build/d.py")
        assert await session.text("Glob", pattern=f"{tmp_path}/src/*.py") == "b.py\na.py"
        assert await session.text("Glob", pattern="b.py", path="") == "b.py"
        assert await session.text("Glob", pattern="*.none") == "No files found"


@requirement("glob-tool.limit")
@pytest.mark.parametrize("version", ["2.1.327", "2.0.65"])
async def test_a_hundred_names_are_listed_and_the_rest_is_counted(tmp_path: Path, version: str) -> None:
    fill(tmp_path, {f"f{number:03}": "" for number in range(MAX_NAMES + 5)})
    async with client(tmp_path, "Glob", version=version) as session:
        finished = await session.call("Glob", pattern="*")

    *names, note = str(finished.content).split("\n")
    assert [Path(name).name for name in names] == [f"f{number:03}" for number in range(MAX_NAMES)]
    assert note.startswith(
        "(Showing 100 of 105 matching files; 5 more are not listed."
        if version == "2.1.327"
        else "(Results are truncated. Consider using a more specific path or pattern.)"
    )
    record = finished.structured
    assert isinstance(record, dict)
    assert record["truncated"] is True
    assert record.get("totalMatches") == (105 if version == "2.1.327" else None)


@requirement("glob-tool.refuses")
@pytest.mark.parametrize(("version", "wrapped", "note"), [("2.1.327", False, True), ("2.0.65", True, False)])
async def test_a_missing_folder_and_a_file_are_refused(tmp_path: Path, version: str, wrapped: bool, note: bool) -> None:
    fill(tmp_path, FILES)
    async with client(tmp_path, "Glob", version=version) as session:
        missing = await session.text("Glob", pattern="*", path="nowhere")
        file = await session.text("Glob", pattern="*", path="notes.md")

    where = f". Note: your current working directory is {tmp_path}." if note else ""
    texts = [f"Directory does not exist: nowhere{where}", "Path is not a directory: notes.md"]
    assert [missing, file] == [refusal(text) if wrapped else text for text in texts]


@requirement("glob-tool.refuses")
async def test_a_pattern_that_ripgrep_rejects_is_an_error_in_the_newest_client(tmp_path: Path) -> None:
    async with client(tmp_path, "Glob") as session:
        finished = await session.call("Glob", pattern="[")
        null = await session.call("Glob", pattern="a\0b")
    async with client(tmp_path, "Glob", version="2.0.65") as session:
        assert await session.text("Glob", pattern="[") == "No files found"

    assert str(finished.content).startswith("Search failed — ripgrep rejected the pattern")
    assert "unclosed character class" in str(finished.content)
    assert null.span.state == "failed"


async def test_odd_names_broken_links_and_pipes_are_handled(tmp_path: Path) -> None:
    fill(tmp_path, {"new\nline.txt": "", "plain.txt": ""})
    bad = os.path.join(os.fsencode(tmp_path), b"bad\xff.txt")  # noqa: PTH118 - bytes
    with open(bad, "wb"):  # noqa: PTH123 - bytes
        os.utime(bad, (1_700_001_000,) * 2)
    (tmp_path / "broken.txt").symlink_to(tmp_path / "nothing")
    os.mkfifo(tmp_path / "pipe.txt")
    async with client(tmp_path, "Glob") as session:
        record = await session.record("Glob", pattern="*.txt")

    assert record["filenames"] == ["new\nline.txt", "plain.txt", "bad\ufffd.txt"]


@requirement("glob-tool.limit")
def test_names_may_come_in_any_pieces() -> None:
    data = b"".join(b"name%d\0" % number for number in range(150))
    for size in (1, 3, 7, 1000):
        listing = FileListing(100, count_all=True)
        for at in range(0, len(data), size):
            assert listing.add_output(data[at : at + size]) is False
        assert listing.names == [b"name%d" % number for number in range(100)]
        assert listing.total == 150


@requirement("glob-tool.limit")
def test_a_client_without_counts_stops_after_one_more_name_than_it_lists() -> None:
    listing = FileListing(2, count_all=False)

    assert [listing.add_output(piece) for piece in (b"a\0b\0", b"c", b"\0")] == [False, False, True]
