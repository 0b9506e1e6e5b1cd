"""Examples and the Python in the documentation run, on the sample archive."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, Block
from tests.docs.programs import programs
from toolspan.reading.sample import archive

PROGRAMS = programs()
ARGUMENTS = {
    "failed_commands": [str(archive())],
    "slowest_calls": [str(archive())],
    "changed_files": [str(next(archive().rglob("5f0c1d7e*.jsonl")))],
    "mcp_tools": [],
    "own_loop": [],
    "own_tool": [],
    "scripted_model": [],
    "telemetry": [],
}


def run(*arguments: str | Path, home: Path | None = None) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True, text=True, timeout=60, check=False,
        cwd=home,
        env=os.environ if home is None else {**os.environ, "HOME": str(home)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("block", PROGRAMS, ids=lambda block: block.name)
def test_python_in_the_documentation_runs(block: Block, tmp_path: Path) -> None:
    printed = run("-c", block.text, home=tmp_path)

    assert printed != ""
    assert [text for text in PROGRAMS[block] if text.text.strip() not in printed] == []


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "examples").glob("*.py")))
def test_examples_run(name: str) -> None:
    assert run(ROOT / "examples" / f"{name}.py", *ARGUMENTS[name]) != ""
