"""`toolspan disk`: the size and age of sessions and of the files beside them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.cli.command import rows, run
from toolspan import Archive
from toolspan.archive.clock import NOW_VARIABLE
from toolspan.testing import TranscriptBuilder
from toolspan.testing.codex_builder import RolloutBuilder

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def write_session(home: Path, name: str, days_ago: int, cwd: str = "/home/ada/lamp") -> Path:
    builder = TranscriptBuilder(session_id=name, cwd=cwd, start=NOW - timedelta(days=days_ago))
    builder.prompt(f"about {name}")
    return builder.write(home / "projects" / "-home-ada-lamp" / f"{name}.jsonl")


def put(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(NOW_VARIABLE, NOW.isoformat())
    for name, days_ago, cwd in (("aaa1", 2, "/home/ada/lamp"), ("bbb2", 40, "/home/ada/moth")):
        write_session(tmp_path, name, days_ago, cwd)
    return tmp_path


def test_side_files_of_a_session_count_once_and_those_of_others_not_at_all(home: Path) -> None:
    session = home / "projects" / "-home-ada-lamp" / "aaa1"
    builder = TranscriptBuilder(session_id="aaa1", cwd="/home/ada/lamp", start=NOW - timedelta(days=2))
    builder.prompt("look").agent(builder.call("Agent", {"prompt": "look"})).prompt("look")
    builder.write(session.with_suffix(".jsonl"))
    metadata = sum(path.stat().st_size for path in session.rglob("*.meta.json"))
    put(session / "tool-results" / "a.txt", 1_000)
    put(home / "file-history" / "aaa1" / "0@v1", 200)
    put(home / "todos" / "aaa1-agent-aaa1.json", 30)
    put(home / "file-history" / "ccc3" / "0@v1", 5_000)
    transcripts = [session.with_suffix(".jsonl"), *session.rglob("agent-*.jsonl")]

    lamp, moth = sorted(Archive(home / "projects").disk(), key=lambda row: row.name)

    assert (lamp.sessions, lamp.files, lamp.side_files, lamp.side_bytes) == (1, 2, 4, 1_230 + metadata)
    assert lamp.bytes == 1_230 + metadata + sum(path.stat().st_size for path in transcripts)
    assert (moth.files, moth.side_files) == (1, 0)


def test_sessions_are_grouped_by_age_since_their_last_record(home: Path) -> None:
    write_session(home, "ddd4", 800)

    assert [(row["name"], row["sessions"]) for row in rows(run("disk", home, "--by", "age", "--json"))] == [
        ("over a year", 1), ("up to 7 days", 1), ("up to 90 days", 1),
    ]  # fmt: skip
    oldest = Archive(home).disk(by="session", sort="oldest")
    assert [row.name for row in oldest] == ["ddd4", "bbb2", "aaa1"]
    assert "about ddd4" in run("disk", home, "--by", "session").stdout


def test_clients_have_rows_of_their_own_and_a_file_without_a_session_counts(home: Path) -> None:
    RolloutBuilder().prompt("hello").write(home / "sessions")
    empty = home / "projects" / "-home-ada-lamp" / "eee5.jsonl"
    empty.write_text("{}\n", encoding="utf-8")

    by_client = {row.name: row for row in Archive(home).disk(by="client")}

    assert set(by_client) == {"claude", "codex"}
    assert (by_client["claude"].sessions, by_client["claude"].files) == (2, 3)
    assert sum(row.bytes for row in by_client.values()) == sum(
        file.stat().st_size for file in home.rglob("*.jsonl") if file.is_file()
    )


def test_filters_and_wrong_groupings(home: Path) -> None:
    (row,) = Archive(home).disk(project="moth")

    assert row.name == "/home/ada/moth"
    assert "2 sessions" in run("disk", home).stdout
    assert "no project 'nosuch'" in run("disk", home, "--project", "nosuch", code=2).stderr
    assert "'planet' is not one of" in run("disk", home, "--by", "planet", code=2).stderr
