"""Call Bash through a runner."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import cast

import anyio
import psutil

from toolspan.runtime.background import CommandTask
from toolspan.runtime.context import Workspace
from toolspan.runtime.process import ProcessSupervisor
from toolspan.runtime.profiles import profile
from toolspan.runtime.runner import Runner
from toolspan.tools import bash_tool
from toolspan.types.events import Finished, LiveEvent, Progressed
from toolspan.types.ids import SessionId

SESSION = SessionId("6f3b9a52-0d8e-4c71-9f60-2f4d1f3f7a10")


class Terminal:
    """A runner with the shell of a client version, in a folder."""

    def __init__(self, project: Path, folder: Path, version: str, more: Mapping[str, str]) -> None:
        client = profile(version)
        environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": str(project), **more}
        self.events: list[LiveEvent] = []
        self.printed = anyio.Event()
        """Some command has printed something."""
        self.workspace = Workspace(
            project=project, supervisor=ProcessSupervisor(), folder=folder, environment=environment, session_id=SESSION
        )
        self.tool = bash_tool(client)
        self.runner = Runner([self.tool], cwd=project, profile=client, workspace=self.workspace, direct=[self._take])
        self._ids = count()

    def _take(self, event: LiveEvent) -> None:
        self.events.append(event)
        if isinstance(event, Progressed):
            self.printed.set()

    async def run(self, command: str, **more: object) -> Finished:
        return (await self.runner.finish([self.block(command, **more)]))[0]

    async def text(self, command: str, **more: object) -> str:
        return str((await self.run(command, **more)).content)

    def block(self, command: str, **more: object) -> dict[str, object]:
        tool_input = {"command": command, **more}
        return {"type": "tool_use", "id": f"toolu_{next(self._ids)}", "name": "Bash", "input": tool_input}

    def task(self, finished: Finished) -> CommandTask:
        result = finished.span.result
        assert result is not None
        assert result.background_task is not None
        task = self.workspace.tasks.get(result.background_task)
        assert isinstance(task, CommandTask)
        return task


@asynccontextmanager
async def terminal(tmp_path: Path, version: str = "2.1.327", **environment: str) -> AsyncIterator[Terminal]:
    project = tmp_path / "project"
    project.mkdir(exist_ok=True)
    opened = Terminal(project, tmp_path / "session", version, environment)
    async with opened.runner:
        yield opened


def record(finished: Finished) -> dict[str, object]:
    """Return the structured result of a successful call."""
    assert isinstance(finished.structured, dict)
    return cast("dict[str, object]", finished.structured)


def lives(pid: int) -> bool:
    """Return True if the process exists and is not a zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
