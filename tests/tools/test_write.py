"""Write: new files, new contents, and the protection of existing ones."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.requirement import requirement
from tests.tools.files import CURRENT, ToolCaller, failed, kind, record, refusal

pytestmark = pytest.mark.anyio

UNREAD = refusal("File has not been read yet. Read it first before writing to it.")
STALE = refusal(
    "File has been modified since read, either by the user or by a linter. Read it again before attempting to write it."
)


@requirement("write-tool.creates")
async def test_new_file_is_created_with_its_folders(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "a.txt"

    finished = await ToolCaller(tmp_path).write(path, "a\r\nb\n")

    assert path.read_bytes() == b"a\r\nb\n"
    assert finished.content == f"File created successfully at: {path}{CURRENT}"
    assert record(finished) == {
        "type": "create",
        "filePath": str(path),
        "content": "a\r\nb\n",
        "structuredPatch": [],
        "originalFile": None,
        "userModified": False,
    }


@requirement("write-tool.creates")
async def test_a_new_file_gets_the_mode_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        await ToolCaller(tmp_path).write("a.txt", "")
    finally:
        os.umask(before)

    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == 0o640


@requirement("write-tool.replaces")
async def test_a_file_that_was_read_gets_its_new_content(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo\n", encoding="utf-8")
    session = ToolCaller(tmp_path, "2.0.65")
    await session.read(path)

    finished = await session.write(path, "one\n2\n")

    assert path.read_text(encoding="utf-8") == "one\n2\n"
    assert finished.content == (
        f"The file {path} has been updated. Here's the result of running `cat -n` on a snippet of"
        " the edited file:\n     1→one\n     2→2\n     3→"
    )
    hunk = {"oldStart": 1, "oldLines": 2, "newStart": 1, "newLines": 2}
    assert record(finished) == {
        "type": "update",
        "filePath": str(path),
        "content": "one\n2\n",
        "structuredPatch": [{**hunk, "lines": [" one", "-two", "+2"]}],
        "originalFile": "one\ntwo\n",
    }


@requirement("write-tool.replaces")
async def test_a_written_file_can_be_written_again_without_a_read(tmp_path: Path) -> None:
    session = ToolCaller(tmp_path)

    contents = [(await session.write("a.txt", text)).content for text in ("a", "b", "b")]

    updated = f"The file a.txt has been updated successfully.{CURRENT}"
    assert contents == [f"File created successfully at: a.txt{CURRENT}", updated, updated]


@requirement("write-tool.read-first")
@pytest.mark.parametrize(
    ("version", "model", "refused"),
    [
        ("seed", None, True),
        ("2.0.65", None, True),
        ("2.0.65", "claude-opus-5-5", True),
        ("2.1.327", "claude-sonnet-4-5-20250929", True),
        ("2.1.327", "claude-opus-5-5", False),
        ("2.1.327", None, False),
    ],
)
async def test_an_unread_file_is_kept_if_the_client_and_model_require_it(
    tmp_path: Path, version: str, model: str | None, *, refused: bool
) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"old")

    finished = await ToolCaller(tmp_path, version, model).write(path, "new")

    assert path.read_bytes() == (b"old" if refused else b"new")
    assert (finished.content == UNREAD) == refused
    assert kind(finished) == ("read_required" if refused else None)


@pytest.mark.parametrize("version", ["2.0.65", "2.1.327"])
async def test_a_file_that_changed_since_it_was_read_is_kept(tmp_path: Path, version: str) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"old")
    before = path.stat()
    session = ToolCaller(tmp_path, version)
    await session.read(path)
    path.write_bytes(b"NEW")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    assert (await session.write(path, "mine")).content == STALE
    assert path.read_bytes() == b"NEW"


async def test_a_file_that_was_only_touched_has_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"old")
    session = ToolCaller(tmp_path, "2.0.65")
    await session.read(path)
    os.utime(path, (1, 1))

    assert not failed(await session.write(path, "mine"))


async def test_mode_and_encoding_of_a_file_stay(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffa\r\nb\r\n".encode("utf-16-le"))
    path.chmod(0o750)
    session = ToolCaller(tmp_path)
    await session.read(path)

    await session.write(path, "é\nb\n")

    assert path.read_bytes() == "\ufeffé\nb\n".encode("utf-16-le")
    assert stat.S_IMODE(path.stat().st_mode) == 0o750


async def test_a_link_stays_and_its_target_is_written(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    target = tmp_path / "folder" / "a.txt"
    target.write_bytes(b"old")
    (tmp_path / "link").symlink_to(target)
    (tmp_path / "new-link").symlink_to("folder/new.txt")
    session = ToolCaller(tmp_path)
    await session.read(target)

    await session.write("link", "new")
    await session.write("new-link", "made")

    assert (tmp_path / "link").is_symlink()
    assert target.read_bytes() == b"new"
    assert (tmp_path / "new-link").is_symlink()
    assert (tmp_path / "folder" / "new.txt").read_bytes() == b"made"


async def test_a_folder_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()

    new = await ToolCaller(tmp_path).write("d", "x")
    old = await ToolCaller(tmp_path, "2.0.65").write("d", "x")

    assert str(new.content).startswith("<tool_use_error>d is a directory, not a file.")
    assert old.content == UNREAD


async def test_pipes_and_devices_are_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    session = ToolCaller(tmp_path)

    for path in (tmp_path / "pipe", Path("/dev/null"), Path("/dev/zero")):
        assert failed(await session.write(path, "x"))
        assert not path.is_file()


async def test_a_file_in_place_of_a_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a").touch()

    finished = await ToolCaller(tmp_path).write("a/b.txt", "x")

    assert "Error calling tool (Write): ENOTDIR: not a directory, stat " in str(finished.content)
    assert kind(finished) == "not_found"


@pytest.mark.skipif(os.geteuid() == 0, reason="file permissions do not apply to root")
async def test_a_folder_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)

    finished = await ToolCaller(tmp_path).write(tmp_path / "d" / "a.txt", "x")

    assert finished.content == f"EACCES: permission denied, mkdir '{tmp_path / 'd'}'"
    assert kind(finished) == "permission_os"


@contextmanager
def full_disk(after: int) -> Iterator[None]:
    """Limit the size of files in this process."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (after, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_a_write_to_a_full_disk_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"old")
    session = ToolCaller(tmp_path)
    await session.read(path)

    with full_disk(after=10_000):
        update = await session.write(path, "x" * 100_000)
        create = await session.write("new.txt", "x" * 100_000)

    assert str(update.content) == f"EFBIG: file too large, write '{path}'"
    assert failed(create)
    assert path.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


async def test_lone_surrogates_in_a_content_are_replaced(tmp_path: Path) -> None:
    await ToolCaller(tmp_path).write("a.txt", "a\ud800b")

    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "a\ufffdb"


async def test_2_0_65_keeps_the_most_common_line_ending(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"a\r\nb\r\nc\n")
    session = ToolCaller(tmp_path, "2.0.65")
    await session.read(path)

    await session.write(path, "x\ny\n")

    assert path.read_bytes() == b"x\r\ny\r\n"


async def test_2_0_65_replaces_a_link_that_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "missing").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    session = ToolCaller(tmp_path, "2.0.65")

    for name in ("missing", "loop"):
        finished = await session.write(tmp_path / name, "x\n")
        assert not failed(finished), finished.content
        assert not (tmp_path / name).is_symlink()
        assert (tmp_path / name).read_text(encoding="utf-8") == "x\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["loop", "missing"]


@requirement("write-tool.read-first")
async def test_an_existing_notebook_must_always_be_read_first(tmp_path: Path) -> None:
    session = ToolCaller(tmp_path)
    (tmp_path / "a.ipynb").write_text("{}", encoding="utf-8")

    assert "has not been read yet" in str((await session.write("a.ipynb", "x")).content)
    assert not failed(await session.write("new.ipynb", "x"))


async def test_2_0_65_reports_a_name_that_is_too_long_when_it_writes(tmp_path: Path) -> None:
    finished = await ToolCaller(tmp_path, "2.0.65").write(tmp_path / ("x" * 300), "a")

    assert str(finished.content).startswith("ENAMETOOLONG: name too long")
