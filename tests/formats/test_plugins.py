"""A package adds a format through an entry point."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from toolspan.testing import TranscriptBuilder

EXAMPLE = Path(__file__).parents[2] / "examples" / "format_package"


def install(folder: Path, location: str = "my_format:NotebookAgentFormat") -> dict[str, str]:
    """Write what an installer writes for the example, and return the environment that finds it."""
    info = folder / "toolspan_notebook_agent-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toolspan-notebook-agent\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[toolspan.formats]\nnotebook-agent = {location}\n")
    (folder / "my_format").symlink_to(EXAMPLE / "my_format")
    return os.environ | {"PYTHONPATH": str(folder), "HOME": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}


def run(env: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments], env=env, capture_output=True, encoding="utf-8", check=False
    )


def test_installed_format_passes_the_contract_and_its_sessions_are_read(tmp_path: Path) -> None:
    env = install(tmp_path / "site")
    options = ("-q", "-p", "no:cacheprovider", "-c", os.devnull, f"--rootdir={tmp_path}")

    checked = run(env, "pytest", *options, str(EXAMPLE / "test_my_format.py"))
    assert checked.returncode == 0, checked.stdout + checked.stderr

    session = tmp_path / "sessions" / "notebook-7.jsonl"
    session.parent.mkdir()
    session.write_text('{"notebook":"7","step":"call","call":"c1","tool":"run","input":{"line":"make"}}\n')
    listed = run(env, "toolspan", "calls", "--client", "notebook-agent", str(session.parent))
    assert "make" in listed.stdout
    assert "never_answered" in listed.stdout


def test_format_that_cannot_be_loaded_is_named_and_the_others_still_work(tmp_path: Path) -> None:
    env = install(tmp_path / "site", "no_such_module:Format")
    TranscriptBuilder().prompt("go").write(tmp_path / "session.jsonl")

    listed = run(env, "toolspan", "calls", str(tmp_path / "session.jsonl"))

    assert listed.returncode == 0
    assert "no_such_module:Format" in listed.stderr
