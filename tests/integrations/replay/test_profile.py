"""Replay imitates the client version that behaves like the recorded one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import toolspan
from tests.requirement import requirement
from toolspan.integrations.replay import Replay, open_scratch
from toolspan.testing import TranscriptBuilder


def recorded_by(version: str, folder: Path) -> Path:
    session = TranscriptBuilder(version="2.0.65")
    session.prompt("Go.")
    session.result(session.call("Read", {"file_path": "/project/a.txt"}, id="a"), "1\tone")
    path = session.write(folder / "session.jsonl")
    path.write_text(path.read_text(encoding="utf-8").replace("2.0.65", version), encoding="utf-8")
    return path


@requirement("replay.profile")
@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.2.9", "2.0.65"),
        ("1.0.128", "2.0.65"),
        ("2.0.5", "2.0.65"),
        ("2.0.65", "2.0.65"),
        ("2.0.76", "2.0.65"),
        ("2.1.7", "2.0.65"),
        ("2.1.79", "2.0.65"),
        ("2.1.80", "2.1.80"),
        ("2.1.100-beta.2", "2.1.80"),
        ("2.1.196", "2.1.80"),
        ("2.1.200", "2.1.197"),
        ("2.1.400", "2.1.325"),
        ("3.0.0", "2.1.325"),
        ("unknown", "2.1.325"),
    ],
)
def test_version_is_replayed_with_the_newest_profile_that_is_not_newer(
    version: str, expected: str, tmp_path: Path
) -> None:
    path = recorded_by(version, tmp_path)
    with open_scratch(None) as scratch:
        assert Replay([toolspan.read(path)], scratch).profile.name == expected


@requirement("replay.profile")
def test_replay_prints_the_version_it_imitates(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "toolspan", "replay", str(recorded_by("2.1.7", tmp_path))]
    done = subprocess.run(program, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert "client 2.0.65, recorded by 2.1.7" in done.stdout
