"""Call the tools of a client version through a runner."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

from toolspan.runtime.context import Workspace
from toolspan.runtime.permissions.modes import Permissions
from toolspan.runtime.process import ProcessSupervisor
from toolspan.runtime.profiles import profile
from toolspan.runtime.runner import Runner
from toolspan.tools import coding_tools
from toolspan.types.events import Finished
from toolspan.types.ids import SessionId

SESSION = SessionId("0b0c3b6e-51a1-4b77-9d3c-0d2a3f0f5f11")


class Client:
    """A runner with the tools of a client version in a folder."""

    def __init__(self, folder: Path, version: str, names: tuple[str, ...], home: Path, model: str | None,
        permissions: Permissions | None = None,
    ) -> None:  # fmt: skip
        values = profile(version, model=model)
        stack = (permissions or Permissions.allow_all()).resolve(values.refusals)
        self.workspace = Workspace(
            project=folder,
            supervisor=ProcessSupervisor(),
            folder=home / "scratch",
            environment={"PATH": os.environ["PATH"], "HOME": str(home)},
            session_id=SESSION,
        )
        self.runner = Runner(
            coding_tools(values, only=names or None), cwd=folder, profile=values, workspace=self.workspace,
            policies=stack.policies, fallback=stack.fallback,
        )  # fmt: skip
        self._ids = count()

    async def call(self, tool: str, **fields: object) -> Finished:
        """Run one call and return its result."""
        return (await self.calls((tool, fields)))[0]

    async def calls(self, *requests: tuple[str, Mapping[str, object]]) -> list[Finished]:
        """Run several calls of one message."""
        return await self.runner.finish([self.block(*call) for call in requests])

    def block(self, tool: str, tool_input: Mapping[str, object]) -> dict[str, object]:
        number = next(self._ids)
        return {"type": "tool_use", "id": f"toolu_{number}", "name": tool, "input": dict(tool_input)}

    async def text(self, tool: str, **fields: object) -> str:
        return str((await self.call(tool, **fields)).content)

    async def record(self, tool: str, **fields: object) -> Any:
        return (await self.call(tool, **fields)).structured


@asynccontextmanager
async def client(
    folder: Path, *names: str, version: str = "2.1.327", home: Path | None = None, model: str | None = None,
    permissions: Permissions | None = None,
) -> AsyncIterator[Client]:  # fmt: skip
    """Open a conversation with these tools, or with those the client offers."""
    conversation = Client(folder, version, names, home or folder / ".home", model, permissions)
    async with conversation.runner:
        yield conversation


def fill(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Create files, each ten seconds younger than the one before."""
    for nth, (name, content) in enumerate(files.items()):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        os.utime(path, (1_700_000_000 + 10 * nth,) * 2)


def refusal(text: str) -> str:
    return f"<tool_use_error>{text}</tool_use_error>"
