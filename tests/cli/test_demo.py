"""`toolspan demo` runs, records and reads real calls."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import toolspan
from tests.fork_server import run_toolspan
from tests.requirement import requirement

pytestmark = pytest.mark.usefixtures("fork_server")


@requirement("demo.circle")
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


@requirement("demo.circle")
def test_demo_explains_its_steps(tmp_path: Path) -> None:
    result = run_toolspan("demo", "--folder", tmp_path)

    assert result.returncode == 0, result.stderr
    for text in ("Edit  greet.py", "Recorded in", "toolspan show", "blocked by hook"):
        assert text in result.stdout
