"""Temporary files of sessions without a transcript."""

from __future__ import annotations

import os
import stat
import tempfile
import time
from pathlib import Path

import pytest

from toolspan import Runner, tool

pytestmark = pytest.mark.anyio


@tool
def much() -> str:
    """Say more than fits into a conversation."""
    return "much " * 100_000


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"toolspan-{os.getuid()}"


async def spilled() -> Path:
    async with Runner([much]) as runner:
        folder = runner.runner_context.workspace.results_folder
        (result,) = await runner.run({"type": "tool_use", "id": "a", "name": "much", "input": {}})
    (file,) = folder.iterdir()
    assert str(file) in result.text
    return file


def made(home: Path, letter: str, days: float, *, inside: float | None = None) -> Path:
    folder = home / (letter * 32) / "tool-results"
    folder.mkdir(parents=True)
    file = folder / "toolu_1.txt"
    file.write_text("much", encoding="utf-8")
    now = time.time()
    for path, age in ((file, inside or days), (folder, days), (folder.parent, days)):
        os.utime(path, (now - age * 24 * 3600,) * 2)
    return folder.parent


async def test_large_result_can_be_read_after_the_session_by_its_owner_only(home: Path) -> None:
    file = await spilled()

    assert file.is_relative_to(home)
    assert file.read_text(encoding="utf-8").startswith("much much")
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


async def test_folder_accessible_to_other_users_is_made_private(home: Path) -> None:
    home.mkdir()
    home.chmod(0o755)
    await spilled()

    assert stat.S_IMODE(home.stat().st_mode) == 0o700


@pytest.mark.parametrize("kind", ["link", "file"])
async def test_folder_owned_by_another_user_is_not_used(home: Path, kind: str) -> None:
    elsewhere = home.parent / "elsewhere"
    elsewhere.mkdir()
    if kind == "link":
        home.symlink_to(elsewhere)
    else:
        home.touch()
    file = await spilled()

    assert not file.is_relative_to(home)
    assert list(elsewhere.iterdir()) == []


async def test_only_files_unused_for_a_week_are_removed(home: Path) -> None:
    elsewhere = home.parent / "elsewhere"
    old = made(home, "a", 8)
    young, in_use = made(home, "b", 6), made(home, "c", 30, inside=1)
    target = made(elsewhere, "d", 30)
    link, other = home / ("e" * 32), home / "notes"
    link.symlink_to(target)
    (old / "link").symlink_to(target)
    other.mkdir()
    for path in (link, old / "link", old, other):
        os.utime(path, (time.time() - 30 * 24 * 3600,) * 2, follow_symlinks=False)
    Runner([much])

    assert not old.exists()
    assert all(path.exists() for path in (young, in_use, link, other, target / "tool-results"))


async def test_cleanup_runs_once_an_hour(home: Path) -> None:
    Runner([much])
    old = made(home, "a", 8)
    Runner([much])
    assert old.exists()

    os.utime(home / ".swept", (time.time() - 2 * 3600,) * 2)
    Runner([much])
    assert not old.exists()
