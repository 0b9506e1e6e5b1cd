"""Hostile command lines, run for real in a scratch repository: none has an effect without a question."""

from __future__ import annotations

import json
import os
import subprocess
import tomllib
from collections import Counter
from importlib import resources
from pathlib import Path

import pytest

from tests.fork_server import run_toolspan

pytestmark = pytest.mark.usefixtures("fork_server")

_ENTRIES = tomllib.loads(Path(__file__).with_name("hostile.toml").read_text(encoding="utf-8"))
_CLASSES = {name: entry["lines"] for name, entry in _ENTRIES.items() if "deny" not in entry}
_HOSTILE_NAMES = ["-delete", "-exec", "--pre=sh", "-oout", "plain.txt"]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository with a nested one, hostile file names, links and a secret."""
    project = tmp_path / "project"
    for folder in ("src/deep", "docs", "globs", "sub", "nested", "secrets"):
        (project / folder).mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    for name in _HOSTILE_NAMES:
        (project / "globs" / name).touch()
    for name in ("a.txt", "b.txt", "data.json", "src/a.py", ".env", "secrets/key.pem", "../outside/o.txt"):
        (project / name).write_text("{}\n", encoding="utf-8")
    script = project / "run.sh"
    script.write_text("#!/bin/sh\ntouch ran\n", encoding="utf-8")
    script.chmod(0o755)
    (project / "link_out").symlink_to(tmp_path / "outside")
    (project / "link_env").symlink_to(".env")
    for repository in (project, project / "nested"):
        subprocess.run(["git", "init", "-q", str(repository)], check=True)
    config = ["git", "-C", str(project / "nested"), "config", "core.fsmonitor", f"touch {tmp_path}/ran; false"]
    subprocess.run(config, check=True)
    return project


def lines_that_ran(lines: list[str], repository: Path, mode: str = "default") -> list[str]:
    """Pass the lines to `toolspan exec` and return those that were not refused."""
    calls = [
        {"type": "tool_use", "id": f"toolu_{at}", "name": "Bash", "input": {"command": line, "description": "x"}}
        for at, line in enumerate(lines)
    ]
    messages = [json.dumps({"type": "assistant", "message": {"content": [call]}}) for call in calls]
    run = run_toolspan(
        *("exec", "--transcript", "none", "--permission-mode", mode),
        stdin="\n".join(messages) + "\n",
        cwd=repository,
        env={**os.environ, "HOME": str(repository.parent)},
    )
    assert run.returncode == 0, run.stderr
    results = [json.loads(line) for line in run.stdout.splitlines()]
    refused = {result["tool_use_id"] for result in results if result.get("state") in ("denied", "invalid")}
    return [line for call, line in zip(calls, lines, strict=True) if call["id"] not in refused]


def all_files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_sample_of_every_class_of_hostile_lines_is_asked_about(repository: Path) -> None:
    before = all_files(repository.parent)

    assert lines_that_ran([line for lines in _CLASSES.values() for line in lines[:2]], repository) == []
    assert all_files(repository.parent) == before


@pytest.mark.slow
def test_every_hostile_line_is_asked_about(repository: Path) -> None:
    before = all_files(repository.parent)

    assert lines_that_ran([line for lines in _CLASSES.values() for line in lines], repository) == []
    assert all_files(repository.parent) == before


@pytest.mark.parametrize("name", [name for name, entry in _ENTRIES.items() if len(entry) > 1])
def test_rules_and_modes_do_not_cover_hostile_uses(name: str, repository: Path) -> None:
    entry = _ENTRIES[name]
    rules = {"allow": entry.get("rules", []), "deny": entry.get("deny", [])}
    settings = repository.parent / ".claude/settings.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"permissions": rules}), encoding="utf-8")
    before = all_files(repository.parent)

    assert lines_that_ran([*entry["lines"], "pwd"], repository, entry.get("mode", "default")) == ["pwd"]
    assert all_files(repository.parent) == before


def test_there_are_many_hostile_lines_of_many_kinds() -> None:
    assert len(_CLASSES) >= 25
    assert len({line for lines in _CLASSES.values() for line in lines}) >= 600


def test_the_tables_give_every_option_one_meaning() -> None:
    kinds = ("flags", "values", "counts", "formats", "pairs", "reads", "optional")
    repeated = []
    for path in sorted(resources.files("toolspan.shell").joinpath("tables").iterdir(), key=str):
        if not path.name.endswith(".toml") or path.name in ("exits.toml", "variables.toml"):
            continue
        for name, fields in tomllib.loads(path.read_text(encoding="utf-8")).items():
            options = Counter(option for kind in kinds for option in str(fields.get(kind, "")).split())
            repeated += [f"{name} {option}" for option, count in options.items() if count > 1]
    assert repeated == []
