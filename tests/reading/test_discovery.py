"""Transcript files below a folder."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.cli.command import run
from toolspan.errors import SourceError
from toolspan.reading.discovery import default_roots, find_transcripts, newest_first, recency, recent_files
from toolspan.testing import TranscriptBuilder

PROJECT = "projects/-home-dev"
SESSION = f"{PROJECT}/5e0c"
FOUND = {
    f"{PROJECT}/5e0c.jsonl": ("session", "5e0c", None),
    f"{PROJECT}/7777.jsonl.zst": ("session", "7777", None),
    f"{SESSION}/subagents/agent-a1.jsonl": ("agent", "5e0c", "a1"),
    f"{SESSION}/subagents/acompact-c1.jsonl": ("agent", "5e0c", "c1"),
    f"{SESSION}/subagents/workflows/wf_1/agent-a2.jsonl": ("agent", "5e0c", "a2"),
    f"{PROJECT}/agent-0badcafe.jsonl": ("agent", None, "0badcafe"),
    "memory.jsonl": ("session", "memory", None),
}
IGNORED = (
    "history.jsonl",
    f"{SESSION}/subagents/agent-a1.meta.json",
    f"{SESSION}/subagents/workflows/wf_1/journal.jsonl",
    f"{SESSION}/workflows/wf_1.json",
    f"{SESSION}/tool-results/toolu_1.jsonl",
    f"{SESSION}/tool-results/toolu_1.txt",
    f"{PROJECT}/sessions-index.json",
    f"{PROJECT}/memory/notes.jsonl",
    f"{PROJECT}/memory/MEMORY.md",
    f"{PROJECT}/5e0c.jsonl.bak",
    "todos/1.json",
)


def laid_out(root: Path) -> Path:
    for name in (*FOUND, *IGNORED):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"{}\n")
    return root


def names(root: Path) -> list[str]:
    return [str(file.path.relative_to(root)) for file in find_transcripts(root)]


def test_every_layout_is_found_and_nothing_else(tmp_path: Path) -> None:
    result = {
        str(file.path.relative_to(tmp_path)): (file.name.role, file.name.session_id, file.name.agent_id)
        for file in find_transcripts(laid_out(tmp_path))
    }

    assert result == FOUND


def test_files_are_sorted_by_path(tmp_path: Path) -> None:
    assert names(laid_out(tmp_path)) == sorted(FOUND, key=lambda name: str(tmp_path / name))


@pytest.mark.parametrize("name", ["history.jsonl", "odd.txt"])
def test_named_file_is_read_whatever_its_name(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(b"{}\n")

    assert [(file.path, file.size) for file in find_transcripts(path)] == [(path, 3)]


def test_links_that_lead_outside_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    inside = tmp_path / "inside"
    for folder in (outside, inside):
        folder.mkdir()
        (folder / "own.jsonl").write_bytes(b"{}\n")
    (inside / "file.jsonl").symlink_to(outside / "own.jsonl")
    (inside / "folder").symlink_to(outside, target_is_directory=True)
    (inside / "up").symlink_to(inside, target_is_directory=True)
    (inside / "dangling.jsonl").symlink_to(outside / "gone")
    (inside / "twin.jsonl").symlink_to(inside / "own.jsonl")

    assert names(inside) == ["own.jsonl", "twin.jsonl"]


def test_circular_link_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "own.jsonl").touch()
    (tmp_path / "circle.jsonl").symlink_to(tmp_path / "circle.jsonl")

    assert names(tmp_path) == ["own.jsonl"]


def test_special_files_are_skipped(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "folder.jsonl").mkdir()

    assert not find_transcripts(tmp_path)


def test_side_file_that_is_not_a_regular_file_is_not_opened(tmp_path: Path) -> None:
    builder = TranscriptBuilder(session_id="s").prompt("go")
    builder.agent(builder.call("Agent", {"prompt": "p"})).prompt("p").call("Read", {"file_path": "/a"})
    builder.write(tmp_path / "s.jsonl")
    (meta,) = tmp_path.rglob("*.meta.json")
    meta.unlink()
    os.mkfifo(meta)  # opening it for reading blocks
    code = "import sys, toolspan; print(len(list(toolspan.history(sys.argv[1]).spans)))"

    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, check=True)

    assert done.stdout == b"2\n"


@pytest.mark.skipif(os.geteuid() == 0, reason="file permissions do not apply to root")
def test_unreadable_folder_hides_only_itself(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    (tmp_path / "own.jsonl").write_bytes(b"{}\n")
    closed.chmod(0)
    problems: list[str] = []
    try:
        assert [file.path.name for file in find_transcripts(tmp_path, problems.append)] == ["own.jsonl"]
        assert problems == [f"{closed}: Permission denied; this answer leaves it out"]
        with pytest.raises(SourceError):
            find_transcripts(closed)
    finally:
        closed.chmod(0o700)


@pytest.mark.parametrize("name", ["gone", "a" * 300, "a\0b"])
def test_missing_path_is_a_source_error(name: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no such file or folder"):
        find_transcripts(tmp_path / name)


def test_default_root_is_the_projects_folder_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("configured", "home/.claude"):
        (tmp_path / name / "projects").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("CODEX_HOME", raising=False)

    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "configured"))
    assert default_roots() == [tmp_path / "configured/projects"]
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", "~/.claude")
    assert default_roots() == [tmp_path / "home/.claude/projects"]
    monkeypatch.delenv("CLAUDE_CONFIG_DIR")
    assert default_roots() == [tmp_path / "home/.claude/projects"]


def test_unreadable_client_folder_is_reported_in_one_line(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 300)  # the file system takes no such name
    homes = {"CLAUDE_CONFIG_DIR": str(folder), "CODEX_HOME": str(tmp_path)}

    done = run("calls", code=2, env=homes)

    assert (done.stdout, done.stderr.count("\n")) == ("", 1)
    assert f"{folder / 'projects'}: {os.strerror(errno.ENAMETOOLONG)}" in done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="file permissions do not apply to root")
@pytest.mark.parametrize("arguments", [["calls"], ["watch", ".claude/projects"]])
def test_folder_without_permission_is_not_an_output_error(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".claude" / "projects").mkdir(parents=True)
    (tmp_path / ".claude").chmod(0)
    monkeypatch.chdir(tmp_path)

    try:
        done = run(*arguments, code=2, env={"CLAUDE_CONFIG_DIR": str(tmp_path / ".claude")})
    finally:
        (tmp_path / ".claude").chmod(0o700)

    assert ".claude" in done.stderr


def test_a_link_that_cannot_be_followed_hides_only_itself(tmp_path: Path) -> None:
    (tmp_path / "own.jsonl").write_bytes(b"{}\n")
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "own.jsonl" / "x.jsonl")  # below a file
    problems: list[str] = []

    assert [file.path.name for file in find_transcripts(tmp_path, problems.append)] == ["own.jsonl"]
    assert problems == [f"{tmp_path / 'link.jsonl'}: Not a directory; this answer leaves it out"]


def write_session(path: Path, day: int, *, modified_day: int) -> None:
    """Write a session whose last record and modification time are on days of January 2026."""
    path.write_text(f'{{"type":"user","timestamp":"2026-01-{day:02d}T12:00:00Z"}}\n')
    modified = datetime(2026, 1, modified_day, 12, tzinfo=UTC).timestamp()
    os.utime(path, (modified, modified))


@pytest.mark.parametrize("shift", [0, 7, -7, None], ids=["as written", "copied", "set back", "equal"])
def test_the_newest_session_is_found_by_its_records_whatever_the_modification_times_are(
    tmp_path: Path, shift: int | None
) -> None:
    for day in (12, 10, 14, 9, 13):
        write_session(tmp_path / f"{day}.jsonl", day, modified_day=20 if shift is None else day + shift)
    if shift is None or shift >= 0:
        write_session(tmp_path / "copy.jsonl", 11, modified_day=25)
    files = find_transcripts(tmp_path)
    assert list(newest_first(files, always_opened=0)) == sorted(files, key=recency, reverse=True)


def test_only_files_that_may_be_the_newest_are_opened(tmp_path: Path) -> None:
    for day in range(1, 10):
        write_session(tmp_path / f"{day}.jsonl", day, modified_day=day)
    files = find_transcripts(tmp_path)
    for path in tmp_path.glob("[1-6].jsonl"):
        write_session(path, 30, modified_day=30)  # not noticed, because it was listed before
    assert next(newest_first(files, always_opened=0)).path.name == "9.jsonl"


@pytest.mark.parametrize("always_opened", [0, 100])
def test_recent_files_are_those_written_or_modified_since_a_time(always_opened: int, tmp_path: Path) -> None:
    for day, modified_day in ((1, 1), (2, 28), (26, 26), (27, 27), (28, 28)):
        write_session(tmp_path / f"{day}.jsonl", day, modified_day=modified_day)
    (tmp_path / "notes.jsonl.zst").write_bytes(b"no frame")  # without any time
    os.utime(tmp_path / "notes.jsonl.zst", (0, 0))
    files = find_transcripts(tmp_path)

    recent = recent_files(files, lambda latest: latest - 86_400, always_opened=always_opened)

    assert [file.path.name for file, _ in recent] == ["2.jsonl", "27.jsonl", "28.jsonl"]
    assert [time for _, time in recent] == [recency(file)[0] for file, _ in recent]
    assert recent_files([], lambda latest: latest) == []


def test_part_of_a_listing_is_a_list_of_its_files(tmp_path: Path) -> None:
    for folder in "ab":
        (tmp_path / folder).mkdir()
        for day in range(1, 4):
            write_session(tmp_path / folder / f"{day}.jsonl", day, modified_day=day)
    files = find_transcripts(tmp_path)

    assert files[2:5] == [*files][2:5]
    assert files[-1] == [*files][-1]
