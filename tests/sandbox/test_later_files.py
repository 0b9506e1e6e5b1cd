"""Commands do not change files from which other programs run code later, or the result tells that they created one."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.sandbox.conftest import REPOSITORY
from tests.sandbox.test_sandbox import Project, open_project
from toolspan.runtime.protected_files import PROTECTED_FILES, READ_ONLY_PATHS
from toolspan.types import Finished, SandboxDenied

pytestmark = pytest.mark.anyio
inside = pytest.mark.usefixtures("bubblewrap")


def make_repository(folder: Path, config: str = "") -> None:
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    with (folder / ".git/config").open("a") as file:
        file.write(config)


def planted_in(project: Project, finished: Finished, folder: Path) -> list[str]:
    """Return the planted files that both the event and the result name, relative to the project."""
    items = [item for event in project.events if isinstance(event, SandboxDenied) for item in event.violations]
    targets = [item.target for item in items if item.action == "planted"]
    assert all(target in str(finished.content) for target in targets)
    return [os.path.relpath(target, folder) for target in targets]


@inside
@pytest.mark.parametrize(
    "config",
    [
        "[include]\n\tpath = ../shared\n",
        "[include] path = ../shared\n",
        "[include]\n\tpath = ../shared # ours\n",
        '[include]\n\tpath = ../"shared"\n',
        "[include]\n\tpath = ../sha\\\nred\n",
        '[includeIf "onbranch:other"]\n\tpath = ../shared\n',
        "[include]\n\tpath = ../outer\n",
        '[includeIf "onbranch:other"]\n\tpath = ../outer\n',
        "[core] fsmonitor = ./shared\n",
        "[core]\n\teditor = sh shared\n",
        '[filter "x"]\n\tclean = "sh ./shared %f"\n',
        "[alias]\n\tx = !f() { ./shared; }; f\n",
        '[credential "https://example.com"]\n\thelper = "!./shared"\n',
    ],
)
async def test_a_file_that_the_configuration_of_git_names_is_read_only(folder: Path, config: str) -> None:
    make_repository(folder, config)
    (folder / "shared").write_text("")
    (folder / "outer").write_text("[include]\n\tpath = shared\n")
    async with open_project(folder) as project:
        written = await project.bash("$(echo sh) -c 'echo x > shared'")
        replaced = await project.bash("sh -c 'echo x > new; mv -f new shared'")

    assert (written.span.error_kind, replaced.span.state) == ("sandbox_denied", "failed")
    assert (folder / "shared").read_text() == ""


@inside
async def test_files_that_the_users_own_configuration_of_git_names_are_read_only(
    folder: Path, user_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = user_folder / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    (home / ".gitconfig").write_text("[core]\n\thooksPath = .githooks\n\tpager = tools/pager\n")
    make_repository(folder)
    (folder / "tools").mkdir()
    (folder / "tools/pager").touch()
    async with open_project(folder) as project:
        hook = await project.bash("sh -c 'echo x > .githooks/pre-commit'")
        pager = await project.bash("sh -c 'echo x > tools/pager'")
        moved = await project.bash("mv tools other")

    assert [hook.span.error_kind, pager.span.error_kind, moved.span.state] == [*["sandbox_denied"] * 2, "failed"]
    assert not (folder / ".githooks").exists()


@inside
async def test_a_change_of_the_configuration_outside_is_noticed_by_the_next_command(folder: Path) -> None:
    make_repository(folder)
    (folder / "shared").touch()
    async with open_project(folder) as project:
        assert (await project.bash("sh -c 'echo x > shared'")).span.state == "succeeded"
        subprocess.run(["git", "-C", str(folder), "config", "include.path", "../shared"], check=True)
        assert (await project.bash("sh -c 'echo y > shared'")).span.error_kind == "sandbox_denied"


@inside
@pytest.mark.parametrize("version", [2, 4])
async def test_a_repository_that_a_command_adds_to_the_index_is_told(folder: Path, version: int) -> None:
    make_repository(folder)
    for number in range(3):
        (folder / f"file-{number}").touch()
    subprocess.run(["git", "-C", str(folder), "add", "."], check=True)
    subprocess.run(["git", "-C", str(folder), "update-index", f"--index-version={version}"], check=True)
    identity = "-c user.name=a -c user.email=b"
    async with open_project(folder) as project:
        finished = await project.bash(
            f"git init -q file-1-sub && git -C file-1-sub {identity} commit -q --allow-empty -m x"
            " && git -C file-1-sub config core.fsmonitor ../run.sh; git add file-1-sub"
        )
        planted = planted_in(project, finished, folder)
        again = await project.bash("true")
        later = await project.bash("python3 -c \"open('file-1-sub/.g' 'it/config', 'w')\"")

    assert (planted, finished.span.state) == (["file-1-sub/.git"], "succeeded")
    assert "created" not in str(again.content)
    assert later.span.error_kind == "sandbox_denied"  # from now on, it is protected


@inside
@pytest.mark.parametrize(
    ("command", "planted"),
    [
        ("echo x > notes", []),
        ("python3 -c \"open('.envrc', 'w')\"", [".envrc"]),
        ("mkdir -p .github/workflows", [".github/workflows"]),
        ("ln -s notes CLAUDE.md; false", ["CLAUDE.md"]),
        ("$(echo git) init -q .", [".git"]),
        ("python3 -c \"import os; [os.mkdir(n) for n in ('objects', 'refs')]; open('HEAD', 'w')\"", ["HEAD"]),
    ],
)
async def test_a_file_that_runs_code_later_is_told_when_a_command_creates_it(
    folder: Path, command: str, planted: list[str]
) -> None:
    async with open_project(folder) as project:
        finished = await project.bash(command)

    assert planted_in(project, finished, folder) == planted
    assert finished.span.error_kind != "sandbox_denied"


@inside
async def test_a_missing_file_that_git_includes_is_told_when_a_command_creates_it(folder: Path) -> None:
    make_repository(folder, "[include]\n\tpath = ../local\n[core]\n\thooksPath = a/b\n")
    async with open_project(folder) as project:
        finished = await project.bash("echo > local; mkdir -p a/b; git status --short")

    assert sorted(planted_in(project, finished, folder)) == ["a/b", "local"]


@inside
async def test_every_protected_file_of_a_project_is_read_only(folder: Path) -> None:
    files = [f"{name}/file" if f"{name}/" in PROTECTED_FILES else name for name in READ_ONLY_PATHS]
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("old")
    script = "import os, sys\nfor name in sys.argv[1:]:\n try: open(name, 'w').write('new')\n except OSError: pass\n"
    script += " try: os.replace('new', name)\n except OSError: pass\n try: os.rename(name.split('/')[0], 'moved')\n"
    script += " except OSError: pass\n"
    (folder / "write.py").write_text(script)
    async with open_project(folder) as project:
        finished = await project.bash(f"echo new > new; python3 write.py {' '.join(files)}")

    assert finished.span.state == "succeeded"
    assert [name for name in files if (folder / name).read_text() != "old"] == []


def test_the_page_about_the_sandbox_lists_the_protected_files() -> None:
    page = (REPOSITORY / "docs/sandbox.md").read_text(encoding="utf-8")
    section = page.partition("## Files that decide what runs later")[2].partition("\n## ")[0]
    table = [line for line in section.splitlines() if line.startswith("| ") and "`" in line]
    listed = {name for line in table for name in re.findall(r"`([^`]+)`", line)}

    assert listed == {name for name, layer in PROTECTED_FILES.items() if layer != "permissions"}
