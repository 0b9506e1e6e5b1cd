"""`--demo` answers from the sample archive, and changes neither it nor the user's own files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.command import one_row, rows, run
from toolspan.reading.sample import archive
from toolspan.testing import TranscriptBuilder


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("arguments", [("--demo", "sessions"), ("sessions", "--demo")], ids=" ".join)
def test_the_sample_replaces_the_transcripts_of_the_user(arguments: tuple[str, ...], user: Path) -> None:
    TranscriptBuilder().prompt("mine").write(user / ".claude" / "projects" / "-p" / "a1.jsonl")

    sessions = rows(run(*arguments, "--json"))

    assert len(sessions) == 10
    assert {session["project"].split("/")[2] for session in sessions} == {"mira"}
    assert len(rows(run("sessions", "--json"))) == 1


def test_ages_count_from_the_end_of_the_sample() -> None:
    assert one_row(run("--demo", "--json"))["sessions"] == 10
    assert len(rows(run("--demo", "sessions", "--since", "2d", "--json"))) == 2


def test_the_newest_session_of_the_sample_is_always_the_same() -> None:
    assert "The nightly run broke at 03:10" in run("--demo", "show", "--last").output


@pytest.mark.parametrize("command", ["show", "doctor", "repair"])
def test_a_session_of_the_sample_is_the_default(command: str) -> None:
    result = run("--demo", command, "--json", code=1 if command == "doctor" else 0)

    assert "16d9c7a2-f584-4e3b-90c1-d2b8a5e7f463" in result.stdout


def test_a_repair_changes_a_copy_of_the_sample(user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOOLSPAN_NO_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(user / "cache"))
    before = files_below(archive())

    run("--demo", "repair", "16d9c7a2")

    assert files_below(archive()) == before
    copy = files_below(user / "cache/toolspan/sample")
    assert before.items() <= copy.items()
    assert len(copy) == len(before) + 1


@pytest.mark.parametrize("command", ["run", "exec", "hook", "trust"])
def test_commands_that_read_no_transcripts_refuse_the_sample(command: str) -> None:
    assert f"`toolspan {command}` does not read" in run("--demo", command, code=2).output


def test_a_bad_time_of_now_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLSPAN_NOW", "noon")

    assert "TOOLSPAN_NOW='noon' is not a time" in run("sessions", "--since", "1d", code=2).output


def test_hints_end_after_the_first_week(user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOOLSPAN_NO_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(user / "cache"))
    hints = ("toolspan --demo show CALL shows", "Times in UTC.")

    assert all(hint in run("--demo", "calls").output for hint in hints)
    os.utime(user / "cache/toolspan/first-use", (0, 0))
    assert not any(hint in run("--demo", "calls").output for hint in hints)
    monkeypatch.setenv("TOOLSPAN_HINTS", "1")
    assert all(hint in run("--demo", "calls").output for hint in hints)


def test_hints_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLSPAN_HINTS", "0")

    output = run("--demo", "calls", "--state", "denied").output

    assert output.splitlines()[-1] == "2 calls"
