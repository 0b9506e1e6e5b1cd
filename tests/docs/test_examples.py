"""The example programs run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from toolspan.reading.sample import archive
from toolspan.testing import ModelServer, ScriptedModel, say, use

EXAMPLES = Path(__file__).parents[2] / "examples"


def run_example(name: str, *arguments: str, home: Path, **variables: str) -> str:
    environment = os.environ | {"HOME": str(home), "PYTHONPATH": os.pathsep.join(sys.path), **variables}
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    ran = subprocess.run(command, check=False, cwd=home, env=environment, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.parametrize(
    "name", sorted(path.name for path in EXAMPLES.glob("*.py") if path.name != "anthropic_loop.py")
)
def test_an_example_prints_its_answer(name: str, tmp_path: Path) -> None:
    shutil.copytree(archive() / "claude", tmp_path / ".claude")
    transcripts = sorted(str(path) for path in (tmp_path / ".claude").rglob("*.jsonl"))
    arguments = transcripts[:1] if name == "changed_files.py" else []

    run_example(name, *arguments, home=tmp_path, CLAUDE_CONFIG_DIR=str(tmp_path / ".claude"))


def test_the_loop_with_the_anthropic_sdk_runs_calls_and_records_them(tmp_path: Path) -> None:
    pytest.importorskip("anthropic")
    (tmp_path / "Makefile").write_text("check:\n\t@echo two failures\n", encoding="utf-8")
    model = ScriptedModel([[say("I look."), use("Bash", command="make check")], say("Two tests fail.")])
    with ModelServer(model) as server:
        printed = run_example(
            "anthropic_loop.py", "Why?", home=tmp_path, ANTHROPIC_BASE_URL=server.url, ANTHROPIC_API_KEY="unused"
        )

    assert printed == "Two tests fail.\n"
    (transcript,) = (tmp_path / ".claude").rglob("*.jsonl")
    assert "two failures" in transcript.read_text(encoding="utf-8")
