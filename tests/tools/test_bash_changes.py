"""The changes in a git working tree that the record of a command has."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.requirement import requirement
from tests.tools.terminal import record, terminal
from toolspan import Archive, Permissions, Session

pytestmark = pytest.mark.anyio

WATCH = {"CLAUDE_CODE_BASH_EDIT_DIFF": "1"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with a few files."""
    project = tmp_path / "project"
    for name, text in {
        ".git/HEAD": "ref: refs/heads/main\n", ".gitignore": "ignored/\n*.log\n", "a.txt": "one\ntwo\nthree\n",
        "c.txt": "no newline", "sub/d.txt": "d\n", "nested/.git": "gitdir: ../elsewhere\n", "nested/n.txt": "n\n",
        "ignored/i.txt": "i\n",
    }.items():  # fmt: skip
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    for n in range(7):
        (project / f"m{n}").write_text(f"{n}\n")
    return project


def hunk(old: tuple[int, int], new: tuple[int, int], *lines: str) -> dict[str, object]:
    return {"oldStart": old[0], "oldLines": old[1], "newStart": new[0], "newLines": new[1], "lines": list(lines)}


async def run_watched(project: Path, *commands: str) -> list[Any]:
    """Run commands in a shell whose changes are recorded; return what is recorded for each, with relative paths."""
    found = []
    async with terminal(project.parent, **WATCH) as shell:
        for command in commands:
            changes = record(await shell.run(command)).get("bashEditDiff")
            found.append(json.loads(json.dumps(changes).replace(f"{project}/", "")))
    return found


NOTE = "\\ No newline at end of file"


@requirement("files.command-changes")
@pytest.mark.parametrize(
    ("command", "expected"),
    [  # as recorded by Claude Code 2.1.327
        ("echo first >> a.txt",
         {"filePath": "a.txt", "hunks": [hunk((1, 3), (1, 4), " one", " two", " three", "+first")]}),
        ("echo new > new.txt", {"filePath": "new.txt", "hunks": [hunk((1, 0), (1, 1), "+new")], "created": True}),
        ("printf nonl > nonl.txt",
         {"filePath": "nonl.txt", "hunks": [hunk((1, 0), (1, 1), "+nonl", NOTE)], "created": True}),
        ("printf more >> c.txt",
         {"filePath": "c.txt", "hunks": [hunk((1, 1), (1, 1), "-no newline", NOTE, "+no newlinemore", NOTE)]}),
        ("rm sub/d.txt", {"filePath": "sub/d.txt", "hunks": [hunk((1, 1), (1, 0), "-d")], "deleted": True}),
        (": > empty.txt", {"filePath": "empty.txt", "hunks": [], "created": True}),
        ("cd sub && echo x >> d.txt", {"filePath": "sub/d.txt", "hunks": [hunk((1, 1), (1, 2), " d", "+x")]}),
    ],
)  # fmt: skip
async def test_a_changed_file_is_recorded_as_the_client_does(
    project: Path, command: str, expected: dict[str, object]
) -> None:
    changes = (await run_watched(project, command))[0]
    assert changes == {"files": [expected], "moreFiles": 0, "changedFiles": [expected["filePath"]]}


@pytest.mark.parametrize(
    "command",
    [
        "ls", "chmod +x a.txt", "touch a.txt", "echo i >> ignored/i.txt; echo l > x.log", "echo n >> nested/n.txt",
        "echo o > ../outside", "cp a.txt b.txt; rm b.txt", "echo x >> .git/HEAD",
    ],
)  # fmt: skip
async def test_nothing_is_recorded_if_no_file_of_the_working_tree_changed(project: Path, command: str) -> None:
    assert await run_watched(project, command) == [None]


@pytest.mark.parametrize(
    "command",
    ["printf '\\0' > x", "seq 1 401 > x", "printf '\\351\\n' > x", "head -c 200000 /dev/zero | tr '\\0' y > x"],
)
async def test_only_the_name_of_a_binary_or_long_file_is_recorded(project: Path, command: str) -> None:
    assert await run_watched(project, command) == [{"files": [], "moreFiles": 1, "changedFiles": ["x"]}]


async def test_the_lines_of_five_files_are_recorded(project: Path) -> None:
    (changes,) = await run_watched(project, "for n in 0 1 2 3 4 5 6; do echo y >> m$n; done")
    assert [file["filePath"] for file in changes["files"]] == ["m0", "m1", "m2", "m3", "m4"]
    assert (changes["moreFiles"], changes["changedFiles"]) == (2, [f"m{n}" for n in range(7)])


async def test_a_file_whose_content_was_not_read_is_unavailable(project: Path) -> None:
    (project / "large").write_bytes(b"z\n" * 2_000_000)
    (changes,) = await run_watched(project, "echo h >> large")
    assert changes == {"files": [], "moreFiles": 1, "changedFiles": ["large"], "unavailable": True}


async def test_each_command_has_its_own_changes_and_those_of_others_are_left_out(project: Path) -> None:
    first = await run_watched(project, "echo 1 >> a.txt")
    async with terminal(project.parent, **WATCH) as shell:
        await shell.run("echo 2 >> a.txt")
        (project / "c.txt").write_text("by hand")
        (project / "new.txt").write_text("by hand")
        changes: Any = record(await shell.run("echo 3 >> a.txt"))["bashEditDiff"]
    assert first[0]["files"][0]["hunks"][0]["lines"][-1] == "+1"
    assert changes["changedFiles"] == [str(project / "a.txt")]
    assert changes["files"][0]["hunks"][0]["lines"][-1] == "+3"


async def test_a_link_is_not_followed(project: Path) -> None:
    (project.parent / "secret").write_text("secret\n")
    command = "ln -s ../secret link; rm -r sub; ln -s .. sub; rm a.txt; ln -s ../secret a.txt"
    (changes,) = await run_watched(project, command)
    assert changes["changedFiles"] == ["a.txt", "sub/d.txt"]
    assert "secret" not in json.dumps(changes)


@pytest.mark.parametrize(
    ("version", "environment", "with_git"),
    [("2.1.327", {}, True), ("2.0.65", WATCH, True), ("2.1.327", WATCH, False)],
)
async def test_changes_are_not_recorded_in_other_modes_versions_and_folders(
    project: Path, version: str, environment: dict[str, str], with_git: bool
) -> None:
    if not with_git:
        (project / ".git").rename(project / "git")
    async with terminal(project.parent, version, **environment) as shell:
        assert "bashEditDiff" not in record(await shell.run("echo x >> a.txt"))


async def test_failed_and_background_commands_are_not_recorded(project: Path) -> None:
    async with terminal(project.parent, **WATCH) as shell:
        failed = await shell.run("echo x >> a.txt; exit 3")
        started = await shell.run("echo x >> a.txt; sleep 60", run_in_background=True)
    assert failed.span.state == "failed"
    assert "bashEditDiff" not in record(started)


@requirement("files.command-changes")
async def test_files_and_restore_know_what_a_recorded_command_wrote(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(project.parent))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    monkeypatch.delenv("CLAUDE_CODE_BASH_EDIT_DIFF", raising=False)
    calls = [
        {"type": "tool_use", "id": f"toolu_{n}", "name": "Bash", "input": {"command": command}}
        for n, command in enumerate(("sed -i s/two/2/ a.txt", "rm a.txt"))
    ]
    async with Session(cwd=project, permissions=Permissions(mode="bypassPermissions")) as session:
        for call in calls:
            await session.run({"role": "assistant", "content": [call]})

    history = Archive().file_history(str(project / "a.txt"))
    assert [(change.kind, change.call, change.added, change.removed) for change in history] == [
        ("edited", "toolu_0", 1, 1), ("deleted", "toolu_1", 0, 3),
    ]  # fmt: skip
    content = Archive().file_content(str(project / "a.txt"), before="toolu_1")
    assert content.content == "one\n2\nthree\n"
    assert not os.path.lexists(project / "a.txt")
