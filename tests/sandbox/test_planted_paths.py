"""Paths that commands can replace show nothing outside, and programs outside run nothing that commands have planted."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.sandbox.test_later_files import make_repository, planted_in
from tests.sandbox.test_races import start_exchange
from tests.sandbox.test_sandbox import open_project
from toolspan import Sandbox

pytestmark = pytest.mark.usefixtures("bubblewrap")
IDENTITY = "-c user.name=t -c user.email=t@t"


@pytest.fixture
def home(user_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home folder with a document, which is on no list of secrets."""
    home = user_folder / "home"
    (home / "Documents").mkdir(parents=True)
    (home / "Documents/letter").write_text("secret-text")
    monkeypatch.setenv("HOME", str(home))
    yield home


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("variable", "value", "link"),
    [
        ("PATH", "{project}/.venv/bin:/usr/bin:/bin", ".venv/bin"),
        ("PATH", "{project}/.venv/bin:/usr/bin:/bin", ".venv/lib"),
        ("PATH", "{home}/tools/bin:/usr/bin:/bin", "tools/bin"),
        ("VIRTUAL_ENV", "{project}/env", "env"),
        ("JAVA_HOME", "{project}/jdk", "jdk"),
        ("GOPATH", "{project}/go", "go"),
    ],
)
async def test_a_link_in_place_of_a_shown_folder_of_the_project_shows_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, link: str
) -> None:
    project = home / "project"
    project.mkdir()
    (home / "tools").symlink_to("project/tools")
    monkeypatch.setenv(variable, value.format(project=project, home=home))
    async with open_project(project, Sandbox(strict=True)) as session:
        await session.bash(f"mkdir -p {link}; rmdir {link}; ln -s {home}/Documents {link}; ls -l {link}")
        finished = await session.bash(f"cat {home}/Documents/letter {link}/letter")

    assert "secret-text" not in str(finished.content)
    assert (project / link / "letter").read_text() == "secret-text"  # the link works


@pytest.mark.anyio
async def test_a_folder_on_the_path_exchanged_with_a_link_shows_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = home / "project"
    project.mkdir()
    monkeypatch.setenv("PATH", f"{project}/tools:/usr/bin:/bin")
    async with open_project(project, Sandbox(strict=True)) as session:
        await start_exchange(session, project, f"{project}/tools", home / "Documents")
        results = [await session.bash(f"cat {home}/Documents/letter; echo ran") for _ in range(20)]
        (project / "stop").touch()

    assert [result for result in results if "secret-text" in str(result.content)] == []
    assert any("ran" in str(result.content) for result in results)


@pytest.mark.anyio
async def test_a_link_in_place_of_a_readable_folder_of_the_project_shows_nothing(home: Path) -> None:
    project = home / "project"
    (project / "data").mkdir(parents=True)
    async with open_project(project, Sandbox(strict=True, allow_read=["data"])) as session:
        await session.bash(f"rmdir data; ln -s {home}/Documents data")
        finished = await session.bash(f"cat {home}/Documents/letter data/letter")

    assert "secret-text" not in str(finished.content)
    assert (project / "data/letter").exists()


def run_exec(
    project: Path, home: Path, commands: list[str], settings: Mapping[str, object], *options: str
) -> list[dict[str, object]]:
    """Run commands in a strict sandbox with the settings of a user, and return the results."""
    (home / ".claude").mkdir(exist_ok=True)
    (home / ".claude/settings.json").write_text(json.dumps(settings))
    blocks = [
        {"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {"command": command}}
        for number, command in enumerate(commands)
    ]
    done = subprocess.run(
        [sys.executable, "-m", "toolspan", "exec", "--sandbox", "--transcript", "none", *options],
        input="".join(json.dumps({"content": [block]}) + "\n" for block in blocks),
        cwd=project,
        env={**os.environ, "HOME": str(home), "TOOLSPAN_NO_CACHE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def hook_before(command: str) -> Mapping[str, object]:
    return {"hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": command}]}]}}


def script(mark: Path) -> str:
    return shlex.quote(f"#!/bin/sh\ntouch {mark}\n")


@pytest.mark.parametrize(
    ("hook", "plant"),
    [
        ("./guard", "mkdir sub; echo {script} > sub/guard; chmod +x sub/guard; cd sub"),
        ("git status", "git init -q sub; echo {script} > sub/run; chmod +x sub/run; "
                       "sed -i '$a fsmonitor = ./run' sub/.g*t/config; cd sub"),
        ("python3 $CLAUDE_PROJECT_DIR/scripts/guard.py", "echo 'open(\"{mark}\", \"w\")' > scripts/json.py"),
        ("python3 -B scripts/guard.py", "mv scripts old; cp -r old scripts; "
                                        "echo 'open(\"{mark}\", \"w\")' > scripts/json.py"),
    ],
    ids=["relative", "repository", "module", "folder"],
)  # fmt: skip
def test_a_hook_runs_nothing_that_a_command_planted(folder: Path, home: Path, hook: str, plant: str) -> None:
    mark = home / "mark"
    (folder / "guard").write_text("#!/bin/sh\nexit 0\n")
    (folder / "guard").chmod(0o755)
    (folder / "scripts").mkdir()
    (folder / "scripts/guard.py").write_text("import json\n")
    make_repository(folder)
    command = plant.format(script=script(mark), mark=mark)

    results = run_exec(folder, home, [command, "true"], hook_before(hook))

    assert [result["state"] for result in results[1:]] == ["succeeded"]
    assert not mark.exists()
    subprocess.run(["/bin/bash", "-c", f"{command}; {hook}"], cwd=folder, check=False,
                   env={**os.environ, "CLAUDE_PROJECT_DIR": str(folder)}, capture_output=True)  # fmt: skip
    assert mark.exists()  # the attempt works without a sandbox


def test_the_script_of_a_server_is_read_only(folder: Path, home: Path) -> None:
    (folder / "tools").mkdir()
    (folder / "tools/server.py").write_text("")
    (folder / "data.db").write_text("")
    servers = {"s": {"command": sys.executable, "args": ["tools/server.py", "--data", "data.db"]}}
    (home / "servers.json").write_text(json.dumps({"mcpServers": servers}))
    command = "echo x > data.db; for name in server.py json.py; do echo x > tools/$name; done"

    run_exec(folder, home, [command], {}, "--mcp-config", str(home / "servers.json"))

    assert [path.name for path in (folder / "tools").iterdir()] == ["server.py"]
    assert (folder / "tools/server.py").read_text() == ""
    assert (folder / "data.db").read_text() == "x\n"  # an argument is not a script


@pytest.mark.anyio
async def test_missing_settings_of_a_linked_worktree_cannot_be_created(folder: Path, user_folder: Path) -> None:
    make_repository(folder, "[extensions]\n\tworktreeConfig = true\n")
    tree = user_folder / "tree"
    subprocess.run(f"git {IDENTITY} commit -q --allow-empty -m x; git worktree add -q {tree}", shell=True, cwd=folder,
                   check=True, stderr=subprocess.DEVNULL)  # fmt: skip
    async with open_project(folder) as project:
        finished = await project.bash("python3 -c \"open('.g' 'it/worktrees/tree/config.worktree', 'w').write('x')\"")

    assert finished.span.error_kind == "sandbox_denied"
    assert not (folder / ".git/worktrees/tree/config.worktree").read_text()


@pytest.mark.anyio
async def test_commands_that_git_runs_when_a_rebase_continues_are_told(folder: Path) -> None:
    make_repository(folder)
    async with open_project(folder) as project:
        finished = await project.bash(
            "python3 -c \"import os; os.mkdir('.g' 'it/rebase-merge');"
            " open('.g' 'it/rebase-merge/git-rebase-todo', 'w').write('exec ./x')\""
        )

    assert planted_in(project, finished, folder) == [".git/rebase-merge/git-rebase-todo"]


def test_folders_that_are_nested_too_deeply_do_not_crash_the_end_of_a_session(
    folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nest = 'import os\nos.chdir("/tmp")\nfor _ in range(1500): os.mkdir("d"); os.chdir("d")'
    (folder / "nest.py").write_text(nest)
    temporary = home / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))

    (result,) = run_exec(folder, home, ["python3 nest.py"], {})

    subprocess.run(["rm", "-rf", str(temporary)], check=True)  # Python cannot remove them

    assert result["state"] == "succeeded"
