"""Call any built-in tools through a runner."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

from toolspan.runtime.context import Workspace
from toolspan.runtime.permissions.decide import Approver, Policy
from toolspan.runtime.process import ProcessSupervisor
from toolspan.runtime.profiles import profile
from toolspan.runtime.runner import Runner
from toolspan.runtime.tool import Tool
from toolspan.types.events import Finished
from toolspan.types.ids import SessionId

SESSION = SessionId("b1f9e2de-61b0-4b38-9b2f-5a3cb8a6a001")


class Toolbox:
    """A runner with some tools and the profile of a client version, in a folder."""

    def __init__(
        self,
        folder: Path,
        tools: Sequence[Tool],
        *,
        version: str = "2.1.327",
        approver: Approver | None = None,
        fallback: Policy | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.project = folder / "project"
        self.project.mkdir(exist_ok=True)
        home = {"PATH": os.environ["PATH"], "HOME": str(folder / "home")}
        self.workspace = Workspace(
            project=self.project,
            supervisor=ProcessSupervisor(),
            folder=folder / "session",
            environment={**home, **(environment or {})},
            session_id=SESSION,
        )
        self.runner = Runner(
            tools,
            cwd=self.project,
            profile=profile(version),
            workspace=self.workspace,
            approver=approver,
            fallback=fallback,
        )
        self._ids = count()

    async def call(self, tool: str, **fields: object) -> Finished:
        block = {"type": "tool_use", "id": f"toolu_{next(self._ids)}", "name": tool, "input": fields}
        return (await self.runner.finish([block]))[0]


@asynccontextmanager
async def open_toolbox(toolbox: Toolbox) -> AsyncIterator[Toolbox]:
    async with toolbox.runner:
        yield toolbox


def background(finished: Finished) -> str:
    result = finished.span.result
    assert result is not None
    assert result.background_task is not None
    return result.background_task
