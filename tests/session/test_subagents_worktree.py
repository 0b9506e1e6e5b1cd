"""Subagents in a git worktree."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.requirement import requirement
from tests.session.role_models import Play, troupe
from toolspan.runtime.profiles import profile
from toolspan.testing import use
from toolspan.tools import bash_tool

pytestmark = pytest.mark.anyio


def git(folder: Path, *text: str) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@t", *text],
        cwd=folder, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    (folder / "inner").mkdir(parents=True)
    git(folder, "init", "-q")
    (folder / "inner" / "a.txt").write_text("alpha\n")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "one")
    return folder


def alone(prompt: str) -> dict[str, object]:
    return use("Agent", description=prompt, prompt=prompt, run_in_background=False, isolation="worktree")


@requirement("subagents.worktree")
async def test_worktree_subagent_leaves_the_repository_unchanged_and_keeps_its_changes(repository: Path) -> None:
    folder = repository / "inner"
    play = Play({"Main": [[alone("Left")]], "Left": [[use("Bash", command="echo beta > a.txt; pwd")]]})
    async with troupe(folder, play, tools=[bash_tool(profile("2.1.197"))]) as agent:
        await agent.prompt("Main")
        (span,) = agent.session.spans

    assert (folder / "a.txt").read_text() == "alpha\n"
    result = span.result
    assert result is not None
    copy = repository / ".claude" / "worktrees" / f"agent-{span.agent}"
    assert (copy / "inner" / "a.txt").read_text() == "beta\n"
    assert f"worktreePath: {copy}\nworktreeBranch: worktree-agent-{span.agent}" in result.text
    assert f"worktree-agent-{span.agent}" in git(repository, "branch", "--list")
    (about,) = folder.rglob("*.meta.json")
    assert json.loads(about.read_bytes())["worktreePath"] == str(copy)


@requirement("subagents.worktree")
async def test_unchanged_worktree_is_removed(repository: Path) -> None:
    play = Play({"Main": [[alone("Left")]], "Left": [[use("Bash", command="cat inner/a.txt")]]})
    async with troupe(repository, play, tools=[bash_tool(profile("2.1.197"))]) as agent:
        await agent.prompt("Main")
        (span,) = agent.session.spans

    assert span.result is not None
    assert "worktreePath" not in span.result.text
    assert git(repository, "worktree", "list").count("\n") == 0
    assert "worktree-agent" not in git(repository, "branch", "--list")


@requirement("subagents.worktree")
async def test_worktree_outside_a_repository_is_an_error(tmp_path: Path) -> None:
    play = Play({"Main": [[alone("Left")]]})
    async with troupe(tmp_path, play) as agent:
        await agent.prompt("Main")
        (span,) = agent.session.spans

    assert (span.state, span.error_kind) == ("failed", "invalid_input")
    assert "is in no git repository" in (span.message or "")
    assert play.spoken["Left"] == 0
