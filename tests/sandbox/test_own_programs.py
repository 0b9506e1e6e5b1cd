"""Programs that toolspan starts itself do not run, outside the sandbox, what a command inside has planted."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox.conftest import REPOSITORY
from tests.session.role_models import Play, troupe
from toolspan import Sandbox
from toolspan.runtime.profiles import profile
from toolspan.testing import use
from toolspan.tools import bash_tool

IDENTITY = "-c user.name=t -c user.email=t@t"


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *IDENTITY.split(), *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def make_repository(folder: Path) -> None:
    git(folder, "init", "-q")
    (folder / "a.txt").write_text("alpha\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm1")


def start_isolated(prompt: str) -> dict[str, object]:
    return use("Agent", description=prompt, prompt=prompt, run_in_background=False, isolation="worktree")


def plant_script(mark: Path, path: str) -> str:
    """Return commands that write a script which leaves a mark outside the project."""
    return f"printf '#!/bin/sh\\ntouch {mark}\\n' > {path}; chmod +x {path}"


async def run_agents(
    folder: Path, parts: dict[str, list[list[dict[str, object]]]], *, is_inside: bool = True
) -> list[str]:
    """Run a session, by default in a strict sandbox, and return the texts of its results."""
    tools = [bash_tool(profile("2.1.327"))]
    sandbox = Sandbox(strict=True) if is_inside else None
    async with troupe(folder, Play(parts), tools=tools, sandbox=sandbox) as agent:
        await agent.prompt("Main")
        return [span.result.text for span in agent.session.spans if span.result is not None]


@pytest.mark.anyio
@pytest.mark.usefixtures("bubblewrap")
@pytest.mark.parametrize("is_inside", [True, False])
async def test_embedded_repository_of_a_subagent_runs_nothing_when_its_worktree_is_closed(
    folder: Path, user_folder: Path, is_inside: bool
) -> None:
    make_repository(folder)
    mark = user_folder / "mark"
    command = (
        f"git init -q sub && git {IDENTITY} -C sub commit -q --allow-empty -m x && {plant_script(mark, 'run.sh')}"
        " && git -C sub config core.fsmonitor $PWD/run.sh && git add sub"
        f" && rm -f {mark}"  # without a sandbox, the command itself has run the script
    )
    parts = {"Main": [[start_isolated("Left")]], "Left": [[use("Bash", command=command)]]}
    (text,) = await run_agents(folder, parts, is_inside=is_inside)

    assert "worktreePath" in text  # it has changes
    assert not mark.exists()
    (tree,) = (folder / ".claude" / "worktrees").glob("agent-*")
    git(tree, "status")
    assert mark.exists()  # the script works


@pytest.mark.anyio
@pytest.mark.usefixtures("bubblewrap")
async def test_repository_made_by_a_command_is_not_used_for_worktrees(folder: Path, user_folder: Path) -> None:
    mark = user_folder / "mark"
    command = (
        f"g=.g; mkdir tmp && cd tmp && git init -q && git {IDENTITY} commit -q --allow-empty -m x"
        f" && {plant_script(mark, '${g}it/hooks/post-checkout')} && cd .. && mv tmp/${{g}}it . && echo planted"
    )
    parts = {"Main": [[use("Bash", command=command)], [start_isolated("Left")]]}
    texts = await run_agents(folder, parts)

    assert texts[0].startswith("planted\n")
    assert "is not the repository in which the session started" in texts[1]
    assert not mark.exists()
    git(folder, "worktree", "add", "-q", "tree")
    assert mark.exists()  # the hook works


@pytest.mark.anyio
@pytest.mark.usefixtures("bubblewrap")
async def test_filters_run_inside_the_sandbox_and_hooks_not_at_all(folder: Path, user_folder: Path) -> None:
    make_repository(folder)
    outside, inside = user_folder / "mark", folder / ".git" / "mark"
    (folder / ".gitattributes").write_text("*.txt filter=own\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm2")
    git(folder, "config", "filter.own.smudge", f"touch {outside}; touch {inside}; cat")
    (folder / ".git" / "hooks" / "post-checkout").write_text(f"#!/bin/sh\ntouch {inside}-hook\n")
    (folder / ".git" / "hooks" / "post-checkout").chmod(0o755)
    parts = {"Main": [[start_isolated("Left")]], "Left": [[use("Bash", command="cat a.txt")]]}
    (text,) = await run_agents(folder, parts)

    assert "worktreePath" not in text
    assert (inside.exists(), outside.exists(), inside.with_name("mark-hook").exists()) == (True, False, False)
    assert git(folder, "worktree", "list").count("\n") == 0
    assert "worktree-agent" not in git(folder, "branch", "--list")
    assert not list((folder / ".claude" / "worktrees").iterdir())


STARTERS = re.compile(
    r"subprocess\.(run|Popen|call|check_call|check_output|getoutput|getstatusoutput)|os\.(system|popen|fork|forkpty"
    r"|exec\w+|spawn\w+|posix_spawnp?)|pty\.(fork|spawn)|(asyncio\.|anyio\.)(create_subprocess_\w+|run_process"
    r"|open_process)|(anyio\.)?to_process\.run_sync|Command|process\.Command|ProcessPoolExecutor|multiprocessing\.(Process|Pool)|webbrowser\.open"
    r"|click\.(edit|launch|echo_via_pager)"
)
"""The functions that start a process. `Command` describes one for `ProcessSupervisor`."""


def find_starts(source: str) -> Iterator[str]:
    """Yield the functions in a module that start processes."""
    tree = ast.parse(source)
    classes = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and STARTERS.fullmatch(name := ast.unparse(node.func)) and name not in classes:
            yield name
        elif isinstance(node, ast.ImportFrom) and node.module in ("subprocess", "pty", "multiprocessing"):
            yield f"from {node.module}"


def test_every_module_that_starts_a_process_is_in_the_table() -> None:
    package = REPOSITORY / "src" / "toolspan"
    starting = {
        ".".join(path.relative_to(package).with_suffix("").parts)
        for path in package.rglob("*.py")
        if any(find_starts(path.read_text(encoding="utf-8")))
    }
    page = (REPOSITORY / "docs" / "sandbox.md").read_text(encoding="utf-8")
    section = page.partition("## Programs that toolspan starts itself\n")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)`", section)) & {
        ".".join(path.relative_to(package).with_suffix("").parts) for path in package.rglob("*.py")
    }

    assert starting - named == set()
    assert named - starting == set()
