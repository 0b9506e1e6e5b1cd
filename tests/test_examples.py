"""Examples and the Python in the documentation run, on the sample archive."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, Block, programs
from tests.fork_server import run_python
from tests.optional import MISSING
from toolspan.reading.sample import archive
from toolspan.testing import ModelServer, ScriptedModel, say, use

pytestmark = pytest.mark.usefixtures("fork_server")

PROGRAMS = programs()
NOT_INSTALLED = re.compile(r"(?:No module named '|needs )([\w.]+)'?(?:, which is not installed|$)", re.MULTILINE)
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
    done = run_python(*arguments, cwd=home, env=os.environ if home is None else {**os.environ, "HOME": str(home)})
    if (missing := NOT_INSTALLED.search(done.stderr)) and missing[1] in MISSING:
        pytest.skip(f"needs {missing[1]}")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("block", PROGRAMS, ids=lambda block: block.name)
def test_python_in_the_documentation_runs(block: Block, tmp_path: Path) -> None:
    printed = run("-c", block.text, home=tmp_path)

    assert [output for output in PROGRAMS[block] if output.text.strip() not in printed] == []


def test_users_import_from_packages_only() -> None:
    deeper = re.compile(r"^\s*(?:from|import) (toolspan\.\w+\.[\w.]+)", re.MULTILINE)
    sources = {block.name: block.text for block in PROGRAMS}
    sources |= {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "examples").glob("*.py")}

    assert {name: modules for name, text in sources.items() if (modules := deeper.findall(text))} == {}


@pytest.mark.parametrize(
    "name", sorted(path.stem for path in (ROOT / "examples").glob("*.py") if path.stem in ARGUMENTS)
)
def test_examples_run(name: str) -> None:
    assert run(ROOT / "examples" / f"{name}.py", *ARGUMENTS[name]) != ""


def test_the_loop_with_the_anthropic_sdk_runs_calls_and_records_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "Makefile").write_text("check:\n\t@echo two failures\n", encoding="utf-8")
    model = ScriptedModel([[say("I look."), use("Bash", command="make check")], say("Two tests fail.")])
    with ModelServer(model) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "unused")
        printed = run(ROOT / "examples" / "anthropic_loop.py", "Why?", home=tmp_path)

    assert printed == "Two tests fail.\n"
    (transcript,) = (tmp_path / ".claude").rglob("*.jsonl")
    assert "two failures" in transcript.read_text(encoding="utf-8")
