"""Answers of tools about tasks, skills and notebooks in which the client versions differ."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.tools.client import client, fill
from toolspan.runtime.permissions.modes import Mode, Permissions
from toolspan.runtime.permissions.rules import Rules

pytestmark = pytest.mark.anyio
_CELLS: list[dict[str, object]] = [
    {"cell_type": "code", "source": "a", "metadata": {}, "outputs": [], "execution_count": None}
]


async def test_a_new_task_accepts_other_names_for_its_texts(tmp_path: Path) -> None:
    async with client(tmp_path, "TaskCreate", "TaskUpdate", "TaskList") as session:
        titled = await session.record("TaskCreate", title="T", description="d")
        described = await session.record("TaskCreate", subject="S", content="c")
        several = await session.text("TaskCreate", subject="S", tasks=[])
        renamed = await session.text("TaskUpdate", task_id="1", active_form="Doing")
        await session.call("TaskUpdate", taskId="1", owner="")
        listed = await session.record("TaskList")

    assert titled["task"] == {"id": "1", "subject": "T", "description": "d"}
    assert described["task"] == {"id": "2", "subject": "S", "description": "c"}
    assert "An unexpected parameter `tasks` was provided" in several
    assert renamed == "Updated task #1 activeForm"
    assert [task.get("owner") for task in listed["tasks"]] == ["", None]


async def test_unknown_fields_of_a_new_task_are_dropped_only_beside_two_texts(tmp_path: Path) -> None:
    async with client(tmp_path, "TaskCreate") as session:
        complete = await session.record("TaskCreate", subject="S", description="d", bogus=1, prompt="p", activeForm=5)
        blank = await session.text("TaskCreate", subject="S", description=" ", bogus=1)
        untitled = await session.record("TaskCreate", title="", description="d")
        agent = await session.text("TaskCreate", description="d", prompt="p")

    assert complete["task"] == {"id": "1", "subject": "S", "description": "d"}
    assert "An unexpected parameter `bogus` was provided" in blank
    assert untitled["task"] == {"id": "2", "subject": "d", "description": "d"}
    assert "An unexpected parameter `prompt` was provided" in agent


async def test_the_type_of_free_fields_is_named_as_the_validator_names_it(tmp_path: Path) -> None:
    async with client(tmp_path, "TaskUpdate") as session:
        wrong = await session.text("TaskUpdate", taskId="1", metadata=5)

    assert "The parameter `metadata` type is expected as `record` but provided as `number`" in wrong


async def test_todos_without_text_or_state_are_reported_as_the_oldest_client_does(tmp_path: Path) -> None:
    async with client(tmp_path, "TodoWrite", version="2.0.65") as session:
        empty = await session.text("TodoWrite", todos=[{"content": "", "status": "pending", "activeForm": "A"}])
        stateless = await session.text("TodoWrite", todos=[{"content": "a", "status": None, "activeForm": "A"}])

    assert '"message": "Content cannot be empty"' in empty
    choices = "'pending' | 'in_progress' | 'completed'"
    assert f"The parameter `todos[0].status` type is expected as `{choices}` but provided as `null`" in stateless


async def test_an_unknown_skill_is_answered_with_a_similar_one(tmp_path: Path) -> None:
    fill(tmp_path, {".claude/skills/greet/SKILL.md": "Say hello.\n"})
    async with client(tmp_path, "Skill") as session:
        near, far = await session.text("Skill", skill="gret"), await session.text("Skill", skill="GREET")
    async with client(tmp_path, "Skill", version="2.0.65") as session:
        old = await session.text("Skill", skill="gret")
        loose = await session.text("Skill", skill="greet", args=5, bogus=1)

    assert near == "<tool_use_error>Unknown skill: gret. Did you mean greet?</tool_use_error>"
    assert far == "<tool_use_error>Unknown skill: GREET</tool_use_error>"
    assert old == "<tool_use_error>Unknown skill: gret</tool_use_error>"
    assert loose == "Launching skill: greet"


@pytest.mark.parametrize("mode", ["default", "plan", "dontAsk"])
@pytest.mark.parametrize(
    ("head", "runs"),
    [
        ("name: x\ndescription: y\nmodel: opus", True), ("description: y\ncontext: fork", True), (None, True),
        ("allowed-tools: Read", False), ("'disallowed-tools': Bash", False), ("paths: src/**", False),
        ('"\\x68ooks": {}', False), ("\n" * 20_000, True),
        ("hooks:\n  Stop:\n    - hooks:\n        - {type: command, command: 'true'}", False),
    ],
)  # fmt: skip
async def test_a_skill_that_only_adds_text_needs_no_permission(
    tmp_path: Path, head: str | None, runs: bool, mode: Mode
) -> None:
    fill(tmp_path, {".claude/skills/x/SKILL.md": "Hello." if head is None else f"---\n{head}\n---\nHello."})
    async with client(tmp_path, "Skill", permissions=Permissions(mode=mode)) as session:
        answer = await session.text("Skill", skill="x")
    async with client(tmp_path, "Skill", version="2.0.65", permissions=Permissions(mode=mode)) as session:
        old = await session.text("Skill", skill="x")

    assert (answer == "Launching skill: x") is runs
    assert old != "Launching skill: x"


async def test_a_skill_with_a_command_or_behind_a_link_needs_permission(tmp_path: Path) -> None:
    fill(tmp_path, {".claude/skills/command/SKILL.md": "Today is !`date`.", "secret.txt": "secret"})
    (tmp_path / ".claude/skills/link").mkdir()
    (tmp_path / ".claude/skills/link/SKILL.md").symlink_to(tmp_path / "secret.txt")
    async with client(tmp_path, "Skill", permissions=Permissions()) as session:
        answers = [await session.text("Skill", skill=name) for name in ("command", "link")]

    assert not any(answer.startswith("Launching") for answer in answers)


@pytest.mark.parametrize("rules", [Rules(ask=["Skill"]), Rules(ask=["Skill(x)"]), Rules(deny=["Skill(x)"])])
async def test_a_rule_takes_precedence_over_the_content_of_a_skill(tmp_path: Path, rules: Rules) -> None:
    fill(tmp_path, {".claude/skills/x/SKILL.md": "Hello."})
    async with client(tmp_path, "Skill", permissions=Permissions(rules)) as session:
        assert not (await session.text("Skill", skill="x")).startswith("Launching")


async def test_the_oldest_client_marks_errors_of_background_commands(tmp_path: Path) -> None:
    async with client(tmp_path, "Bash", "TaskOutput", "KillShell", version="2.0.65") as session:
        started = await session.record("Bash", command="printf out; printf err >&2; exit 3", run_in_background=True)
        failed = await session.record("TaskOutput", task_id=started["backgroundTaskId"])
        waiting = await session.record("Bash", command="sleep 60", run_in_background=True)
        await session.call("KillShell", shell_id=waiting["backgroundTaskId"])
        killed = await session.record("TaskOutput", task_id=waiting["backgroundTaskId"])
        missing = await session.text("TaskOutput", bogus=1)

    assert (failed["task"]["output"], failed["task"]["exitCode"]) == ("out[stderr] err", 3)
    assert (killed["task"]["status"], killed["task"]["exitCode"]) == ("killed", None)
    assert missing == "<tool_use_error>Task ID is required</tool_use_error>"


async def test_the_oldest_client_does_not_name_cells_of_formats_without_ids(tmp_path: Path) -> None:
    document = {"cells": _CELLS, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}
    fill(tmp_path, {"n.ipynb": json.dumps(document, indent=1)})
    edit = {"notebook_path": f"{tmp_path}/n.ipynb", "new_source": "b", "cell_id": "cell-0"}
    async with client(tmp_path, "NotebookEdit", "Read", version="2.0.65") as session:
        old = await session.text("NotebookEdit", **edit)
        slash = await session.text("NotebookEdit", **{**edit, "notebook_path": f"{tmp_path}/n.ipynb/"})
    async with client(tmp_path, "NotebookEdit", "Read") as session:
        await session.call("Read", file_path=f"{tmp_path}/n.ipynb")
        new = await session.text("NotebookEdit", **edit)

    assert old == "Updated cell undefined with b"
    assert slash == "<tool_use_error>Notebook file does not exist.</tool_use_error>"
    assert new == "Updated cell cell-0 with b"
