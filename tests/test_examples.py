"""Examples and the Python in the documentation run, on the sample archive."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.spoken import COMPARED
from toolspan.sample import archive

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
BLOCKS = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in PAGES
    if page.name not in COMPARED  # run by tests/docs
    for number, block in enumerate(BLOCK.findall(page.read_text(encoding="utf-8")), 1)
]
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


@pytest.mark.parametrize("block", BLOCKS)
def test_python_in_the_documentation_runs(block: str, tmp_path: Path) -> None:
    assert run("-c", block, home=tmp_path) != ""


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "examples").glob("*.py")))
def test_examples_run(name: str) -> None:
    assert run(ROOT / "examples" / f"{name}.py", *ARGUMENTS[name]) != ""
