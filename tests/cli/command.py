"""Run commands in this process, and parse their output."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from toolspan.cli.app import app
from toolspan.formats.claude.paths import project_name
from toolspan.testing import TranscriptBuilder

CWD = "/home/dev/project"
"""The working folder of built sessions."""
Env = Mapping[str, str | None]


def run(*arguments: str | Path, code: int | None = 0, env: Env | None = None) -> Result:
    """Run a command and check its exit code, unless `code` is None."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], env=env)
    assert code is None or result.exit_code == code, result.output
    return result


def home_at(root: Path | None) -> Env:
    """Return the environment that sets, or unsets, the client's folder."""
    return {"CLAUDE_CONFIG_DIR": str(root) if root else None}


def rows(result: Result | subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    """Return the objects that a command printed with --json."""
    return [json.loads(line) for line in result.stdout.splitlines()]


def one_row(completed: Result) -> dict[str, Any]:
    """Return the single object that a command printed."""
    result: dict[str, Any] = json.loads(completed.stdout)
    return result


def saved(builder: TranscriptBuilder, root: Path, cwd: str | Path = CWD) -> Path:
    """Write a session to the folder of a client."""
    folder = root / "projects" / project_name(str(cwd))
    folder.mkdir(parents=True, exist_ok=True)
    return builder.write(folder / f"{builder.session_id}.jsonl")
