"""Background tasks of a session."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.requirement import requirement
from toolspan.runtime.background import BackgroundTasks, CommandTask, new_task_id
from toolspan.runtime.process import ChildProcess, Command, ProcessSupervisor, Spill
from toolspan.types.ids import CallId

pytestmark = pytest.mark.anyio


async def started(custody: ProcessSupervisor, folder: Path, script: str) -> CommandTask:
    name = new_task_id()
    path = folder / f"{name}.output"
    child: ChildProcess = await custody.start(
        Command(
            argv=["/bin/sh", "-c", script],
            cwd=folder,
            env=dict(os.environ),
            tag=name,
            merge_streams=True,
            spill=Spill(lambda: path, from_start=True),
        )
    )
    return CommandTask(
        id=name,
        call_id=CallId("toolu_1"),
        command=script,
        description=None,
        child=child,
        output=child.stdout,
        path=path,
    )


@requirement("tasks.names")
async def test_task_has_a_short_unique_name() -> None:
    names = {new_task_id() for _ in range(1000)}

    assert len(names) == 1000
    assert all(re.fullmatch(r"b[a-z0-9]{8}", name) for name in names)


async def test_task_reports_how_it_ended(tmp_path: Path) -> None:
    async with ProcessSupervisor() as custody:
        tasks = BackgroundTasks()
        for script in ("echo a", "echo b; exit 4", "exec sleep 60"):
            tasks.add(await started(custody, tmp_path, script))
        good, bad, endless = tasks
        await good.wait()
        await bad.wait()
        assert endless.status == "running"
        await endless.stop()
        await good.stop()

    assert [task.status for task in tasks] == ["completed", "failed", "killed"]
    assert [task.path.read_text(encoding="utf-8") for task in tasks] == ["a\n", "b\n", ""]
    assert tasks.get(bad.id) is bad
    assert tasks.get("bnothing1") is None


async def test_end_of_a_session_stops_running_tasks(tmp_path: Path) -> None:
    async with ProcessSupervisor() as custody:
        tasks = BackgroundTasks()
        tasks.add(await started(custody, tmp_path, "exec sleep 60"))
        tasks.add(await started(custody, tmp_path, "exec sleep 60"))
        await tasks.stop_all()

        assert [task.status for task in tasks] == ["killed", "killed"]
        assert all(isinstance(task, CommandTask) and task.child.exit is not None for task in tasks)
