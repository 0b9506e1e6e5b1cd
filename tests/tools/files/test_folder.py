"""Writes that a link in the way tries to redirect.

Each link is placed at a known point: after the path was resolved, or while the folder is open. The tests of links in
the way fail if O_NOFOLLOW is removed from the steps.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from toolspan.errors import ToolError
from toolspan.tools.files.atomic_replace import atomic_replace
from toolspan.tools.files.opening import open_folder
from toolspan.tools.files.safe_read import read_file


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    """A folder with a file, and a second folder outside that looks like it."""
    for folder in (tmp_path / "in" / "deep", tmp_path / "out" / "deep"):
        folder.mkdir(parents=True)
        (folder / "file").write_text("old", encoding="utf-8")
    return tmp_path.resolve() / "in"


def switch(folder: Path) -> Path:
    """Replace a folder by a link to the outside; return the link's target."""
    outside = folder.parent / "out" if folder.name == "in" else folder.parents[1] / "out" / "deep"
    folder.rename(folder.parent / "aside")
    folder.symlink_to(outside)
    return outside


def files(folder: Path) -> dict[str, str]:
    result = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_text(encoding="utf-8") for path in result}


def test_a_link_on_the_way_to_a_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real" / "inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")

    with open_folder(tmp_path / "real" / "inner") as folder:
        assert os.path.samestat(os.fstat(folder), (tmp_path / "real" / "inner").stat())
    with pytest.raises(ToolError), open_folder(tmp_path / "link" / "inner"):
        pass


@pytest.mark.parametrize("name", ["deep/new", "deep/more/new"])
@pytest.mark.parametrize("step", [lambda path: path, lambda path: path / "deep"])
def test_a_link_that_appears_on_the_way_fails_a_write_with_a_known_target(
    inside: Path, name: str, step: Callable[[Path], Path]
) -> None:
    end = inside / name
    outside = switch(step(inside))
    before = sorted(outside.rglob("*"))

    with pytest.raises(ToolError):
        atomic_replace(end, b"new", None, end)

    assert sorted(outside.rglob("*")) == before
    assert set(files(outside).values()) == {"old"}


def test_a_file_is_not_replaced_through_a_link_that_appeared_later(inside: Path) -> None:
    end = inside / "deep" / "file"
    content = read_file(end, 1_000)
    outside = switch(inside)
    os.link(inside.parent / "aside" / "deep" / "file", outside / "deep" / "same")
    (outside / "deep" / "same").replace(outside / "deep" / "file")  # equal content

    with pytest.raises(ToolError):
        atomic_replace(end, b"new", content.version, end)

    assert files(outside) == {"deep/file": "old"}


def test_an_open_folder_stays_the_same_when_its_path_changes(inside: Path) -> None:
    with open_folder(inside / "deep", make=True) as folder:
        outside = switch(inside)
        os.close(os.open("new", os.O_CREAT | os.O_WRONLY, dir_fd=folder))

    assert "new" not in files(outside / "deep")
    assert "new" in files(inside.parent / "aside" / "deep")


def test_parent_folders_are_created_unless_a_link_or_a_file_is_in_the_way(inside: Path) -> None:
    with open_folder(inside / "a" / "b", make=True) as folder:
        assert os.path.samestat(os.fstat(folder), (inside / "a" / "b").stat())
    (inside / "link").symlink_to(inside.parent / "out")

    for path in (inside / "link" / "c", inside / "deep" / "file" / "c"):
        with pytest.raises(ToolError, match="EEXIST"), open_folder(path, make=True):
            pass
    assert not (inside.parent / "out" / "c").exists()
