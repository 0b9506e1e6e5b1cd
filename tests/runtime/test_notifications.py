"""Notifications about finished background work."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from tests.requirement import requirement
from tests.runtime.test_background_tasks import started
from toolspan.runtime.background import AgentReport, AgentTask, BackgroundTasks, format_notification
from toolspan.runtime.process import ProcessSupervisor
from toolspan.runtime.profiles import profile
from toolspan.types.ids import CallId

pytestmark = pytest.mark.anyio
NOW = profile("2.1.327")


def agent(name: str = "a1") -> AgentTask:
    return AgentTask(id=name, call_id=CallId("toolu_2"), description="Count", path=Path("/t/a1.output"))


def line(text: str, tag: str) -> str:
    return text.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]


@requirement("tasks.notifications")
@pytest.mark.parametrize(
    ("script", "status", "summary"),
    [
        ("true", "completed", 'Background command "true" completed (exit code 0)'),
        ("exit 4", "failed", 'Background command "exit 4" failed with exit code 4'),
    ],
)
async def test_finished_command_is_announced_with_its_exit_code(
    script: str, status: str, summary: str, tmp_path: Path
) -> None:
    async with ProcessSupervisor() as custody:
        tasks = BackgroundTasks()
        tasks.add(task := await started(custody, tmp_path, script))
        await tasks.wait_any()
        (news,) = tasks.take_finished()

    assert news is task
    assert tasks.take_finished() == ()  # once
    text = format_notification(news, NOW)
    assert (line(text, "status"), line(text, "summary")) == (status, summary)
    assert (line(text, "task-id"), line(text, "tool-use-id")) == (task.id, "toolu_1")
    assert line(text, "output-file") == str(task.path)


@requirement("tasks.notifications")
async def test_stopped_command_is_announced_only_on_request(tmp_path: Path) -> None:
    async with ProcessSupervisor() as custody:
        tasks = BackgroundTasks()
        tasks.add(task := await started(custody, tmp_path, "exec sleep 60"))
        task.description = "Wait a while"
        running = format_notification(task, NOW)
        await task.stop()
        assert tasks.take_finished() == ()
        stopped = format_notification(task, NOW)

    assert line(running, "summary") == 'Background command "Wait a while" is running'
    assert line(stopped, "summary") == 'Background command "Wait a while" was stopped'
    assert line(stopped, "status") == "killed"
    assert task.exit_code in (143, 137)  # terminated or killed


@requirement("subagents.background")
async def test_agent_is_announced_with_its_report_or_its_failure() -> None:
    completed, failed, killed = agent("a1"), agent("a2"), agent("a3")
    completed.report = AgentReport(text="Three.", tokens=700, calls=2, duration_ms=1499.6)
    failed.report = AgentReport(text="", error="no server")
    assert [item.status for item in (completed, failed, killed)] == ["running"] * 3
    for item in (completed, failed, killed):
        item.finished.set()

    assert [item.status for item in (completed, failed, killed)] == ["completed", "failed", "killed"]
    assert [item.exit_code for item in (completed, failed)] == [None, None]
    output = format_notification(completed, NOW)
    assert line(output, "summary") == 'Agent "Count" finished'
    assert line(output, "result") == "Three."
    assert "<tool_uses>2</tool_uses><duration_ms>1500</duration_ms>" in line(output, "usage")
    assert ("<note>" in output) == NOW.agents.framed
    assert line(format_notification(failed, NOW), "summary") == 'Agent "Count" failed: no server'
    assert "<result>" not in format_notification(failed, NOW)


@requirement("subagents.background")
@pytest.mark.parametrize("version", ["2.0.65", "2.1.327"])
async def test_token_count_has_the_name_of_the_version(version: str) -> None:
    values = profile(version).agents
    completed = agent()
    completed.report = AgentReport(text="Three.", tokens=700)
    completed.finished.set()

    output = format_notification(completed, profile(version))

    assert f"<{'subagent_tokens' if values.framed else 'total_tokens'}>700<" in output
    assert ("<note>" in output) == values.framed


@requirement("subagents.background")
async def test_stopped_agent_is_cancelled_and_awaited() -> None:
    task, inside = agent(), anyio.Event()

    async def work() -> None:
        with task.scope:
            inside.set()
            await anyio.sleep_forever()
        task.finished.set()

    async with anyio.create_task_group() as group:
        group.start_soon(work)
        await inside.wait()
        await task.stop()
        assert task.finished.is_set()
        await task.stop()  # once more changes nothing

    assert (task.status, task.stopped) == ("killed", True)


@requirement("subagents.background")
async def test_finished_agent_is_not_stopped() -> None:
    task = agent()
    task.report = AgentReport(text="Three.")
    task.finished.set()

    await task.stop()

    assert (task.status, task.stopped) == ("completed", False)


@requirement("tasks.notifications")
async def test_wait_ends_with_the_first_task_and_at_once_without_any() -> None:
    tasks, slow, quick = BackgroundTasks(), agent("a1"), agent("a2")
    await tasks.wait_any()
    tasks.add(slow)
    tasks.add(quick)
    assert [item.id for item in tasks.running] == ["a1", "a2"]
    async with anyio.create_task_group() as group:
        group.start_soon(tasks.wait_any)
        await anyio.wait_all_tasks_blocked()
        quick.report = AgentReport(text="")
        quick.finished.set()

    assert [item.id for item in tasks.running] == ["a1"]
    assert [item.id for item in tasks.take_finished()] == ["a2"]
    tasks.forget("a2")
    tasks.forget("a2")
    assert (len(tasks), tasks.get("a2"), tasks.get("a1")) == (1, None, slow)
