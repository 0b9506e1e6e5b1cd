"""`toolspan disk --delete`: only what an archive has, and what belongs to no session, is deleted."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cli.command import rows, run, saved
from toolspan import Archive
from toolspan.archive import KeptArchive
from toolspan.errors import ToolspanError
from toolspan.testing import TranscriptBuilder

KEPT, OTHER = (f"5e55101{number}-0000-4000-8000-000000000001" for number in (1, 2))
GONE = "5e551019-0000-4000-8000-000000000001"


def write_session(home: Path, name: str) -> None:
    builder = TranscriptBuilder(session_id=name, cwd="/home/dev/lamp").prompt(f"about {name}")
    call = builder.call("Task", {"prompt": "look", "description": "look", "subagent_type": "x"}, id="toolu_1")
    builder.agent(call).prompt("look").text("nothing")
    folder = saved(builder, home / ".claude", "/home/dev/lamp").with_suffix("")
    put(folder / "tool-results/long.txt", b"dark\n" * 2_000)
    put(home / ".claude/file-history" / name / "abc@v1", b"oil = 0\r\n")
    put(home / ".claude/todos" / f"{name}-agent-{name}.json", b"[]")


def put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def make_old(home: Path) -> None:
    for path in (home / ".claude").rglob("*"):
        os.utime(path, (time.time() - 3 * 86_400,) * 2, follow_symlinks=False)


def tree(home: Path) -> Mapping[str, bytes]:
    paths = sorted(path for path in (home / ".claude").rglob("*") if path.is_file())
    return {str(path.relative_to(home)): path.read_bytes() for path in paths}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user with two old sessions and what a deleted one has left."""
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    write_session(tmp_path, KEPT)
    write_session(tmp_path, OTHER)
    put(tmp_path / ".claude/file-history" / GONE / "abc@v1", b"gone")
    put(tmp_path / ".claude/file-history/mine/abc@v1", b"not of a session")
    put(tmp_path / ".claude/settings.json", b"{}")
    make_old(tmp_path)
    return tmp_path


def test_nothing_is_deleted_without_the_option_a_list_and_a_confirmation(home: Path) -> None:
    KeptArchive().keep()
    before = tree(home)
    assert "in 2 sessions that the archive has and the files of 1 session without" in run("disk").stdout

    listed = run("disk", "--delete", code=None)  # standard input is empty
    assert listed.exit_code != 0
    assert all(name in listed.stdout for name in (KEPT, OTHER, GONE))
    assert [row["deleted"] for row in rows(run("disk", "--delete", "--json"))] == [False, False, False]
    assert tree(home) == before


def test_what_is_deleted_comes_back_from_the_archive(home: Path) -> None:
    KeptArchive().keep()
    before = tree(home)
    run("disk", "--delete", "--yes")

    assert set(tree(home)) == {".claude/settings.json", ".claude/file-history/mine/abc@v1"}
    assert not list(home.glob(".claude/projects/*/*"))
    assert "Nothing can be deleted" in run("disk", "--delete", "--yes", code=None).output
    for name in (KEPT, OTHER):
        run("keep", "restore", name)
    assert {name: data for name, data in before.items() if GONE not in name} == tree(home)


def test_without_an_archive_only_orphaned_files_are_deleted(home: Path) -> None:
    before = tree(home)
    (row,) = rows(run("disk", "--delete", "--yes", "--json"))
    assert (row["reason"], row["deleted"]) == ("orphaned", True)
    assert set(before) - set(tree(home)) == {f".claude/file-history/{GONE}/abc@v1"}


def test_a_filter_leaves_everything_else(home: Path) -> None:
    KeptArchive().keep()
    before = tree(home)
    run("disk", "--delete", "--yes", "--session", KEPT[:8])
    assert {name for name in before if KEPT not in name} == set(tree(home))


@pytest.mark.parametrize("change", ["new file", "other content", "link", "recent", "damaged", "in progress"])
def test_a_session_that_is_not_surely_kept_stays(home: Path, change: str) -> None:
    archive = KeptArchive()
    archive.keep()
    backup = home / ".claude/file-history" / KEPT / "abc@v1"
    if change == "new file":
        put(backup.with_name("abc@v2"), b"new")
    elif change == "other content":
        backup.write_bytes(b"oil = 1\r\n")
    elif change == "link":
        backup.with_name("link").symlink_to(backup)
    elif change == "damaged":
        path = next(archive.folder.rglob(f"{KEPT}.jsonl.zst"))
        data = bytearray(path.read_bytes())
        data[random.Random(1).randrange(20, len(data) - 20)] ^= 1
        path.write_bytes(data)
    elif change == "in progress":
        entry = {"pid": os.getpid(), "sessionId": KEPT, "cwd": "/home/dev/lamp", "status": "idle"}
        put(home / ".claude/sessions" / f"{os.getpid()}.json", json.dumps(entry).encode())
    make_old(home)
    if change == "recent":
        os.utime(backup)
    before = tree(home)

    run("disk", "--delete", "--yes")
    assert {name for name in before if OTHER not in name and GONE not in name} == set(tree(home))


def test_a_file_that_changes_after_the_list_was_made_keeps_the_session(home: Path) -> None:
    KeptArchive().keep()
    (item,) = Archive().deletable(session=KEPT[:8])
    backup = home / ".claude/file-history" / KEPT / "abc@v1"
    backup.write_bytes(b"later")
    before = tree(home)
    with pytest.raises(ToolspanError, match="has changed"):
        item.delete()
    assert tree(home) == before


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(st.tuples(st.integers(0, 20), st.sampled_from(["grow", "rewrite", "add"])), max_size=4))
def test_no_content_that_a_session_has_is_lost(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, changes: list[tuple[int, str]]
) -> None:
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    write_session(home, KEPT)
    write_session(home, OTHER)
    KeptArchive().keep()
    files = sorted(path for path in (home / ".claude").rglob("*") if path.is_file())
    for number, change in changes:
        path = files[number % len(files)]
        if change == "add":
            put(path.with_name(f"{path.name}.more"), b"more")
        else:
            path.write_bytes((path.read_bytes() if change == "grow" else b"") + b'{"type":"system"}\n')
    make_old(home)
    before = tree(home)

    run("disk", "--delete", "--yes", code=None)
    after = tree(home)
    for name in before.keys() - after.keys():
        kept = [path for path in KeptArchive().folder.rglob("*") if path.name.removesuffix(".zst") == Path(name).name]
        assert any(_read_kept(path) == before[name] for path in kept), name


def _read_kept(path: Path) -> bytes:
    from toolspan.archive.keep.store import open_kept_file

    with open_kept_file(path, is_compressed=path.suffix == ".zst") as stream:
        return stream.read()
