"""Writes that somebody tries to lead elsewhere."""

import os
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from tests.requirement import requirement
from toolspan.disk.folder import opened
from toolspan.disk.load import load
from toolspan.disk.swap import swap
from toolspan.errors import ToolError

TRIES = 300


@requirement("disk.no-detour")
def test_a_link_on_the_way_to_a_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real" / "inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")

    with opened(tmp_path / "real" / "inner") as folder:
        assert os.path.samestat(os.fstat(folder), (tmp_path / "real" / "inner").stat())
    with pytest.raises(ToolError), opened(tmp_path / "link" / "inner"):
        pass


@requirement("disk.no-detour")
def test_who_swaps_a_folder_for_a_link_during_a_write_does_not_lead_it_elsewhere(
    tmp_path: Path,
) -> None:
    inside, outside, aside = tmp_path / "in", tmp_path / "out", tmp_path / "aside"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "file").write_text("old", encoding="utf-8")
    target = inside.resolve() / "file"
    over = threading.Event()

    def meddle() -> None:
        while not over.is_set():
            with suppress(OSError):
                inside.rename(aside)
                inside.symlink_to(outside)
                inside.unlink()
                aside.rename(inside)

    meddler = threading.Thread(target=meddle)
    meddler.start()
    try:
        for number in range(TRIES):
            with suppress(ToolError, OSError):
                here = load(target, 1_000)
                swap(target, f"new {number}".encode(), here.stamp)
    finally:
        over.set()
        meddler.join()

    # A link that stands when the write begins is the owner's wish; what is checked is never lost.
    assert {path.name for path in outside.iterdir()} == {"file"}
    assert not [path for path in (aside, inside) for path in path.glob(".toolspan-*")]
