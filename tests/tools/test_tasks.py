"""TaskCreate, TaskUpdate, TaskGet and TaskList: the list, its files, and concurrent writers."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.fork_server import PYTHON
from tests.requirement import requirement
from tests.tools.client import SESSION, Client, client, refusal
from toolspan.errors import ToolError
from toolspan.tools.task_list import TaskStore

pytestmark = pytest.mark.anyio

TOOLS = ("TaskCreate", "TaskUpdate", "TaskGet", "TaskList")


def task_folder(home: Path) -> Path:
    return home / ".claude" / "tasks" / SESSION


async def create_tasks(session: Client, *subjects: str) -> None:
    for subject in subjects:
        await session.call("TaskCreate", subject=subject, description=f"do {subject}")


@requirement("task-tools.list")
async def test_tasks_are_created_shown_changed_and_deleted(tmp_path: Path) -> None:
    async with client(tmp_path, *TOOLS) as session:
        assert await session.text("TaskList") == "No tasks found"
        first = await session.call("TaskCreate", subject="First", description="do first")
        await create_tasks(session, "Second")
        moved = await session.call("TaskUpdate", taskId="1", status="in_progress")
        linked = await session.call("TaskUpdate", taskId="2", addBlockedBy=["1", "9"], owner="me")
        details = await session.text("TaskGet", taskId="2")
        listed = await session.text("TaskList")
        await session.call("TaskUpdate", taskId="1", status="completed")
        unblocked = await session.call("TaskList")
        deleted = await session.call("TaskUpdate", taskId="1", status="deleted")
        rest = await session.text("TaskGet", taskId="2")

    assert first.content == "Task #1 created successfully: First"
    assert first.structured == {"task": {"id": "1", "subject": "First", "description": "do first"}}
    assert moved.content == "Updated task #1 status"
    assert moved.structured == {
        "success": True,
        "taskId": "1",
        "updatedFields": ["status"],
        "statusChange": {"from": "pending", "to": "in_progress"},
    }
    assert linked.content == "Updated task #2 owner, blockedBy"
    assert details == "Task #2: Second\nStatus: pending\nDescription: do Second\nBlocked by: #1"
    assert listed == "#1 [in_progress] First\n#2 [pending] Second (me) [blocked by #1]"
    assert unblocked.structured == {
        "tasks": [
            {"id": "1", "subject": "First", "status": "completed", "blockedBy": []},
            {"id": "2", "subject": "Second", "status": "pending", "owner": "me", "blockedBy": []},
        ]
    }
    assert deleted.content == "Updated task #1 deleted"
    assert rest == "Task #2: Second\nStatus: pending\nDescription: do Second"


@requirement("task-tools.list")
async def test_only_what_changes_counts_as_updated(tmp_path: Path) -> None:
    async with client(tmp_path, *TOOLS) as session:
        await create_tasks(session, "a", "b")
        same = await session.call("TaskUpdate", taskId="1", subject="a", status="pending")
        text = await session.text("TaskUpdate", taskId="1", subject="A", activeForm="x")
        blocks = await session.text("TaskUpdate", taskId="1", addBlocks=["2"])
        repeated = await session.text("TaskUpdate", taskId="1", addBlocks=["2"])
        await session.call("TaskUpdate", taskId="1", metadata={"k": 1, "l": 2})
        notes = await session.text("TaskUpdate", taskId="1", metadata={"k": None})

    assert same.content == "Updated task #1 "
    assert same.structured == {"success": True, "taskId": "1", "updatedFields": []}
    assert (text, blocks) == ("Updated task #1 subject, activeForm", "Updated task #1 blocks")
    assert (repeated, notes) == ("Updated task #1 ", "Updated task #1 metadata")


@requirement("task-tools.unknown")
async def test_an_unknown_task_number_is_reported(tmp_path: Path) -> None:
    (tmp_path / ".home" / ".claude").mkdir(parents=True)
    secret = tmp_path / ".home" / ".claude" / "x.json"
    secret.write_text("{}", encoding="utf-8")
    async with client(tmp_path, *TOOLS) as session:
        got = await session.call("TaskGet", taskId="99")
        updated = await session.call("TaskUpdate", taskId="../../x", status="deleted")
        number = await session.text("TaskGet", taskId=2)

    assert (got.content, got.structured) == ("Task not found", {"task": None})
    assert updated.structured == {"success": False, "taskId": "../../x", "updatedFields": [], "error": "Task not found"}
    assert "type is expected as `string` but provided as `number`" in number
    assert secret.exists()


@requirement("task-tools.files")
async def test_each_task_is_a_file_as_the_client_writes_it(tmp_path: Path) -> None:
    async with client(tmp_path, *TOOLS) as session:
        await session.call("TaskCreate", subject="é", description="d", metadata={"k": None})
        await session.call("TaskUpdate", taskId="1", owner="me")

    path = task_folder(tmp_path / ".home") / "1.json"
    assert path.read_text(encoding="utf-8") == (
        '{\n  "id": "1",\n  "subject": "é",\n  "description": "d",\n  "owner": "me",\n'
        '  "status": "pending",\n  "blocks": [],\n  "blockedBy": [],\n'
        '  "metadata": {\n    "k": null\n  }\n}'
    )


@requirement("task-tools.files")
async def test_foreign_keys_are_kept_and_broken_files_are_skipped(tmp_path: Path) -> None:
    folder = task_folder(tmp_path / ".home")
    folder.mkdir(parents=True)
    foreign = {"id": "3", "subject": "theirs", "status": "pending", "colour": ["red"]}
    (folder / "3.json").write_text(json.dumps(foreign), encoding="utf-8")
    (folder / "4.json").write_text("{torn", encoding="utf-8")
    (folder / "notes.txt").write_text("x", encoding="utf-8")
    async with client(tmp_path, *TOOLS) as session:
        await session.call("TaskUpdate", taskId="3", status="completed")
        created = await session.text("TaskCreate", subject="ours", description="")
        listed = await session.text("TaskList")

    assert json.loads((folder / "3.json").read_bytes())["colour"] == ["red"]
    assert created == "Task #5 created successfully: ours"
    assert listed == "#3 [completed] theirs\n#5 [pending] ours"
    assert (folder / "4.json").read_text(encoding="utf-8") == "{torn"


@requirement("task-tools.files")
async def test_a_task_number_is_never_reused(tmp_path: Path) -> None:
    async with client(tmp_path, *TOOLS) as session:
        await create_tasks(session, "a", "b")
        await session.call("TaskUpdate", taskId="2", status="deleted")
        await session.call("TaskUpdate", taskId="1", status="deleted")
        created = await session.text("TaskCreate", subject="c", description="")

    assert created == "Task #3 created successfully: c"


@pytest.mark.usefixtures("fork_server")
def test_several_processes_create_and_link_tasks_without_losing_any(tmp_path: Path) -> None:
    work = """
import sys
from pathlib import Path
from toolspan.tools.task_list import TaskStore, apply_task_update

store = TaskStore(Path(sys.argv[1]))
sys.stdin.read()  # all begin together
for number in range(8):
    task = store.create({"subject": sys.argv[2], "status": "pending", "blocks": [],
                         "blockedBy": []})
    with store.transaction() as transaction:
        apply_task_update(transaction, transaction.get("1") or task, {"addBlocks": [task.id]})
"""
    store = TaskStore(tmp_path)
    store.create({"subject": "first", "blocks": [], "blockedBy": []})
    writers = [
        subprocess.Popen([*PYTHON, "-c", work, str(tmp_path), str(nth)], stdin=subprocess.PIPE) for nth in range(4)
    ]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.close()
    assert [writer.wait() for writer in writers] == [0] * 4

    tasks = store.read_tasks()
    assert [task.id for task in tasks] == [str(number) for number in range(1, 34)]
    assert sorted(tasks[0].blocks, key=int) == [task.id for task in tasks[1:]]
    assert all(task.blocked_by == ["1"] for task in tasks[1:])


@pytest.mark.usefixtures("fork_server")
def test_a_change_made_without_the_lock_is_not_overwritten(tmp_path: Path) -> None:
    store = TaskStore(tmp_path)
    store.create({"subject": "ours", "blocks": [], "blockedBy": []})
    concurrent_change = json.dumps({"id": "1", "subject": "theirs, and longer"})
    with store.transaction() as change:
        task = change.get("1")
        assert task is not None
        (tmp_path / "1.json").write_text(concurrent_change, encoding="utf-8")
        with pytest.raises(ToolError):
            change.put(task.with_fields({"subject": "again ours"}))

    assert [item.subject for item in store.read_tasks()] == ["theirs, and longer"]


@requirement("task-tools.offered")
async def test_the_task_list_is_offered_depending_on_client_and_model(tmp_path: Path) -> None:
    async def answer(version: str, model: str | None = None) -> str:
        async with client(tmp_path, version=version, model=model) as session:
            return await session.text("TaskCreate", subject="s", description="d")

    assert (await answer("2.1.327", "claude-sonnet-4-5")).endswith("created successfully: s")
    assert (await answer("2.1.327")).startswith("<tool_use_error>Error: No such tool available: TaskCreate. ")
    assert await answer("2.0.65") == refusal("Error: No such tool available: TaskCreate")
