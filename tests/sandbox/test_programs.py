"""Programs that toolspan itself runs outside the sandbox are not those that a command can put on the PATH."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sandbox.conftest import REPOSITORY
from tests.session.role_models import Play, troupe
from toolspan import Sandbox
from toolspan.testing import use
from toolspan.tools.ripgrep import find_ripgrep

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("bubblewrap")]

SEARCH = """
import sys

import anyio
from toolspan import Permissions, Sandbox, Session
from toolspan.runtime.profiles import profile
from toolspan.session import SingleCallRunner
from toolspan.tools import grep_tool

async def main():
    sandbox = Sandbox() if sys.argv[1] == "True" else None
    tools = [grep_tool(profile("2.1.327"))]
    async with Session(tools=tools, sandbox=sandbox, permissions=Permissions.allow_all(), transcript=None) as session:
        result = await SingleCallRunner(session).run_call("Grep", {"pattern": "needle"})
        print(result.finished.content)

anyio.run(main)
"""


def plant(folder: Path, name: str, real: Path) -> Path:
    """Put a program into the project that leaves a mark, and return the mark."""
    mark = folder / "mark"
    (folder / "bin").mkdir()
    (folder / "bin" / name).write_text(f'#!/bin/sh\ntouch {mark}\nexec {real} "$@"\n')
    (folder / "bin" / name).chmod(0o755)
    return mark


@pytest.mark.parametrize("is_inside", [True, False])
@pytest.mark.parametrize("entry", ["{folder}/bin", "{outside}/link", "bin"])
async def test_git_for_worktrees_is_not_one_in_the_project(
    folder: Path, user_folder: Path, monkeypatch: pytest.MonkeyPatch, entry: str, is_inside: bool
) -> None:
    for arguments in (["init", "-q"], ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm1", "--allow-empty"]):
        subprocess.run(["git", *arguments], cwd=folder, check=True)
    mark = plant(folder, "git", Path(shutil.which("git") or "git"))
    (user_folder / "link").symlink_to(folder / "bin")
    monkeypatch.setenv("PATH", f"{entry.format(folder=folder, outside=user_folder)}:{os.environ['PATH']}")
    call = use("Agent", description="Left", prompt="Left", run_in_background=False, isolation="worktree")
    sandbox = Sandbox() if is_inside else None
    async with troupe(folder, Play({"Main": [[call]]}), sandbox=sandbox) as agent:
        await agent.prompt("Main")
        (span,) = agent.session.spans

    assert span.state == "succeeded"
    assert mark.exists() is not is_inside


@pytest.mark.parametrize("is_inside", [True, False])
def test_ripgrep_is_not_one_in_the_project(folder: Path, user_folder: Path, is_inside: bool) -> None:
    (folder / "haystack").write_text("needle\n")
    programs = user_folder / "programs"
    programs.mkdir()
    (programs / "rg").symlink_to(find_ripgrep(os.environ["PATH"]))
    mark = plant(folder, "rg", programs / "rg")
    python = os.path.realpath(sys.executable)  # outside the virtual environment, which has its own ripgrep
    libraries = [str(REPOSITORY / "src"), *(path for path in sys.path if "site-packages" in path)]
    env = {**os.environ, "PATH": f"{folder}/bin:{programs}:/usr/bin:/bin", "PYTHONPATH": ":".join(libraries)}
    command = [python, "-c", SEARCH, str(is_inside)]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)

    assert "haystack" in done.stdout, done.stderr
    assert mark.exists() is not is_inside
