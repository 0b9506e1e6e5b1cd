"""A background command that replaces folders while others start does not gain access for them."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.sandbox.test_sandbox import Project, open_project
from toolspan import Permissions, Sandbox
from toolspan.runtime.background import CommandTask

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("bubblewrap")]

_EXCHANGE = """
import ctypes, os, sys
folder, target = sys.argv[1:]
os.makedirs(f"{folder}/hooks")
for name in ("HEAD", "config"):
    open(f"{folder}/{name}", "w").close()
link = folder + "-link"
os.symlink(os.path.relpath(target, os.path.dirname(folder)), link)
libc = ctypes.CDLL(None)
print("ready", flush=True)
while not os.path.exists("stop"):
    libc.renameat2(-100, folder.encode(), -100, link.encode(), 2)  # RENAME_EXCHANGE
if os.path.islink(folder):
    libc.renameat2(-100, folder.encode(), -100, link.encode(), 2)
"""
_COMMANDS = 40


async def start_exchange(project: Project, folder: Path, replaced: str, target: Path) -> None:
    (folder / "exchange.py").write_text(_EXCHANGE)
    command = f"cd {folder} && python3 exchange.py {replaced} {target}"
    started = await project.bash(command, run_in_background=True)
    assert started.span.state == "succeeded"
    (task,) = project.session.runner.runner_context.workspace.tasks
    assert isinstance(task, CommandTask)
    while "ready" not in task.output.text:
        await asyncio.sleep(0.005)


async def stop_exchange(project: Project, folder: Path) -> None:
    """Let the folder be itself again."""
    (folder / "stop").touch()
    (task,) = project.session.runner.runner_context.workspace.tasks
    await task.wait()


@pytest.mark.parametrize("replaced", [".git/modules/evil", ".git/modules/outer/evil"])
async def test_a_folder_exchanged_with_a_link_gives_no_access_to_its_target(
    folder: Path, user_folder: Path, replaced: str
) -> None:
    outside = user_folder / "outside"
    (outside / "hooks").mkdir(parents=True)
    (outside / "HEAD").touch()
    (outside / "config").write_text("key = secret-value\n")
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    sandbox = Sandbox(deny_read=[outside / "config"])
    async with open_project(folder, sandbox, Permissions.allow_all()) as project:
        await start_exchange(project, folder, replaced, outside)
        command = (
            f"sh -c 'echo x > {outside}/made'; sh -c 'echo x > {outside}/hooks/made';"
            f" cat {outside}/config {replaced}/config {replaced}-link/config; true"
        )
        results = [await project.bash(command) for _ in range(_COMMANDS)]
        await stop_exchange(project, folder)
        without_exchange = await project.bash(command)

    texts = [str(result.content) for result in (*results, without_exchange)]
    assert sorted(path.name for path in outside.rglob("*")) == ["HEAD", "config", "hooks"]
    assert [text for text in texts if "secret-value" in text] == []
    assert "cannot create" in texts[-1]  # it has run


async def test_a_current_folder_exchanged_with_a_link_gives_no_access_to_its_target(
    folder: Path, user_folder: Path
) -> None:
    outside = user_folder / "outside"
    outside.mkdir()
    (outside / "config").write_text("key = secret-value\n")
    async with open_project(folder, Sandbox(deny_read=[outside / "config"])) as project:
        await project.bash("mkdir sub && cd sub")
        assert project.session.cwd == folder / "sub"
        await start_exchange(project, folder, "sub", outside)
        results = [await project.bash("touch made; cat config; cd ..; cat sub/config; true") for _ in range(_COMMANDS)]
        await stop_exchange(project, folder)
        without_exchange = await project.bash("touch made; cat made")

    assert [path.name for path in outside.iterdir()] == ["config"]
    assert [result.content for result in results if "secret-value" in str(result.content)] == []
    assert without_exchange.span.state == "succeeded"


async def test_private_temporary_folder_replaced_with_a_link_is_not_mounted(
    folder: Path, user_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = user_folder / "outside"
    outside.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))  # `TMPDIR` names the project
    async with open_project(folder) as project:
        swap = f"cd toolspan-sandbox-* && mv tmp old && ln -s {outside} tmp"
        assert (await project.bash(swap)).span.state == "succeeded"
        finished = await project.bash("touch /tmp/made")

    assert "was replaced while the sandbox was created" in str(finished.content)
    assert list(outside.iterdir()) == []
