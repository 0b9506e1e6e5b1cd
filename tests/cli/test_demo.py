"""`toolspan demo` runs, records and reads real calls."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import toolspan
from tests.fork_server import run_toolspan

pytestmark = pytest.mark.usefixtures("fork_server")


def test_demo_runs_real_tools_and_its_transcript_agrees(tmp_path: Path) -> None:
    result = run_toolspan("demo", "--json", "--folder", tmp_path)
    assert result.returncode == 0, result.stderr
    output = json.loads(result.stdout)
    read = toolspan.read(output["transcript"])

    assert [(call["tool"], call["state"]) for call in output["calls"]][3:] == [
        ("Bash", "failed"),
        ("Edit", "succeeded"),
        ("Bash", "succeeded"),
        ("Bash", "blocked_by_hook"),
        ("Bash", "denied"),
    ]
    assert {call["id"]: call["state"] for call in output["calls"]} == {span.id: span.state for span in read.spans}
    assert "Hello" in (tmp_path / "project" / "greet.py").read_text(encoding="utf-8")


def test_demo_explains_its_steps(tmp_path: Path) -> None:
    result = run_toolspan("demo", "--folder", tmp_path)

    assert result.returncode == 0, result.stderr
    for text in ("Edit  greet.py", "Recorded in", "toolspan show", "blocked by hook"):
        assert text in result.stdout


def test_what_the_demo_says_to_type_works_in_an_ordinary_terminal(tmp_path: Path) -> None:
    result = run_toolspan("demo", env={**os.environ, "TMPDIR": str(tmp_path), "COLUMNS": "80"})
    (folder,) = tmp_path.glob("toolspan-demo-*")
    shown = [line.removeprefix("$ ") for line in result.stdout.splitlines() if line.startswith("$ ")]

    assert [line.endswith(f" {folder}") for line in shown] == [True, True]
    assert f"rm -r {folder}" in result.stdout
    assert run_toolspan("errors", folder).stdout.startswith("3 of 8 calls were unsuccessful")


def test_the_demo_never_suggests_removing_a_folder_of_the_user(tmp_path: Path) -> None:
    assert "rm -r" not in run_toolspan("demo", "--folder", tmp_path).stdout.partition("Next\n")[2]
