"""TaskOutput, TaskStop and KillShell: looking at background tasks, and stopping them."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest

from tests.requirement import requirement
from tests.tools.files import kind, record, refusal
from tests.tools.toolbox import Toolbox, background, open_toolbox
from toolspan.runtime.background import CommandTask, format_notification
from toolspan.runtime.profiles import profile
from toolspan.tools import coding_tools

pytestmark = pytest.mark.anyio

OLD = ["seed", "2.0.65"]


def make_toolbox(folder: Path, version: str) -> Toolbox:
    return Toolbox(folder, coding_tools(profile(version)), version=version)


async def start_task(tools: Toolbox, command: str) -> str:
    """Start a command in the background; return its task id."""
    return background(await tools.call("Bash", command=command, run_in_background=True))


async def wait_for_tasks(tools: Toolbox) -> None:
    """Wait until all background tasks have ended."""
    await tools.workspace.tasks.wait_any()


async def run_task(tools: Toolbox, command: str) -> str:
    """Run a command in the background to its end; return its task id."""
    task = await start_task(tools, command)
    await wait_for_tasks(tools)
    return task


@requirement("task-tools.output")
@pytest.mark.parametrize("version", OLD)
async def test_a_running_task_is_not_ready_and_its_end_is_shown(tmp_path: Path, version: str) -> None:
    async with open_toolbox(make_toolbox(tmp_path, version)) as tools:
        fifo = tools.project / "go"
        command = "echo start; mkfifo go; read x < go; echo end; exit 4"
        task = await start_task(tools, command)
        running = tools.workspace.tasks.get(task)
        assert isinstance(running, CommandTask)
        while not fifo.exists() or not running.output.total:
            await anyio.lowlevel.checkpoint()
        early = await tools.call("TaskOutput", task_id=task, block=False, timeout=1000)
        waited = await tools.call("TaskOutput", task_id=task, block=True, timeout=1)
        await anyio.to_thread.run_sync(fifo.write_bytes, b"\n")
        late = await tools.call("TaskOutput", task_id=task)

    head = f"<task_id>{task}</task_id>\n\n<task_type>local_bash</task_type>"
    assert early.content == (
        f"<retrieval_status>not_ready</retrieval_status>\n\n{head}\n\n<status>running</status>"
        "\n\n<output>\nstart\n</output>"
    )
    assert record(waited)["retrieval_status"] == "timeout"
    assert late.content == (
        f"<retrieval_status>success</retrieval_status>\n\n{head}\n\n<status>failed</status>"
        "\n\n<exit_code>4</exit_code>\n\n<output>\nstart\nend\n</output>"
    )
    assert record(late)["task"] == {
        "task_id": task,
        "task_type": "local_bash",
        "status": "failed",
        "description": command,
        "output": "start\nend\n",
        "exitCode": 4,
    }


@requirement("task-tools.output")
async def test_a_long_output_is_cut_to_its_end_with_the_path_of_the_rest(tmp_path: Path) -> None:
    async with open_toolbox(make_toolbox(tmp_path, "2.0.65")) as tools:
        task = await start_task(tools, "seq 20000; echo last")
        output = record(await tools.call("TaskOutput", task_id=task))["task"]["output"]
        path = tools.workspace.tasks_folder / f"{task}.output"

    assert len(output) < 31_000
    assert str(path) in output
    assert output.endswith("20000\nlast\n")


@requirement("task-tools.stop")
async def test_a_stopped_task_has_ended_and_is_forgotten(tmp_path: Path) -> None:
    async with open_toolbox(make_toolbox(tmp_path, "2.1.327")) as tools:
        task = await start_task(tools, "exec sleep 100")
        child = tools.workspace.tasks.get(task)
        stopped = await tools.call("TaskStop", task_id=task)
        repeated = await tools.call("KillShell", shell_id=task)
        news = tools.workspace.tasks.take_finished()

    assert record(stopped) == {
        "message": f"Successfully stopped task: {task} (exec sleep 100)",
        "task_id": task,
        "task_type": "local_bash",
        "command": "exec sleep 100",
    }
    assert json.loads(str(stopped.content)) == record(stopped)
    assert child is not None
    assert child.status == "killed"
    assert repeated.content == refusal(f"No task found with ID: {task}")
    assert news == ()


@requirement("task-tools.stop")
async def test_an_old_client_kills_shells_and_remembers_them(tmp_path: Path) -> None:
    async with open_toolbox(make_toolbox(tmp_path, "2.0.65")) as tools:
        task = await start_task(tools, "exec sleep 100")
        killed = await tools.call("KillShell", shell_id=task)
        repeated = await tools.call("KillShell", shell_id=task)
        unknown = await tools.call("KillShell", shell_id="nope")

    assert record(killed) == {"message": f"Successfully killed shell: {task} (exec sleep 100)", "shell_id": task}
    assert repeated.content == f"Shell {task} is not running, so cannot be killed (status: killed)"
    assert unknown.content == refusal("No shell found with ID: nope")


@requirement("task-tools.stop")
async def test_a_task_that_ended_cannot_be_stopped(tmp_path: Path) -> None:
    async with open_toolbox(make_toolbox(tmp_path, "2.1.327")) as tools:
        task = await run_task(tools, "true")
        ended = await tools.call("TaskStop", task_id=task)
        nothing = await tools.call("TaskStop")

    assert ended.content == refusal(f"No task found with ID: {task}")
    assert kind(nothing) == "invalid_input"


@requirement("tasks.notifications")
async def test_the_end_of_a_task_is_reported_once(tmp_path: Path) -> None:
    async with open_toolbox(make_toolbox(tmp_path, "2.1.327")) as tools:
        ran = await tools.call("Bash", command="exit 4", description="count", run_in_background=True)
        await wait_for_tasks(tools)
        (task,) = tools.workspace.tasks.take_finished()
        repeated = tools.workspace.tasks.take_finished()
        path = tools.workspace.tasks_folder / f"{task.id}.output"

    assert repeated == ()
    output = (
        f"<task-notification>\n<task-id>{task.id}</task-id>\n"
        f"<tool-use-id>{ran.call_id}</tool-use-id>\n<output-file>{path}</output-file>\n"
        "<status>failed</status>\n"
        '<summary>Background command "count" failed with exit code 4</summary>\n'
        "</task-notification>"
    )
    assert format_notification(task, profile("2.1.327")) == output


@requirement("tasks.notifications")
async def test_without_running_tasks_there_is_nothing_to_wait_for(tmp_path: Path) -> None:
    async with open_toolbox(make_toolbox(tmp_path, "2.1.327")) as tools:
        await run_task(tools, "exit 0")
        await wait_for_tasks(tools)
        (task,) = tools.workspace.tasks.take_finished()

    assert format_notification(task, profile()).count('"exit 0" completed (exit code 0)') == 1
