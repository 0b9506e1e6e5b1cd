"""Call Read, Write and Edit through a runner."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

from toolspan.runtime.context import FileStates
from toolspan.runtime.profiles import profile
from toolspan.runtime.runner import Runner, new_workspace
from toolspan.tools import edit_tool, read_tool, write_tool
from toolspan.types.events import Finished

CURRENT = " (file state is current in your context — no need to Read it back)"


class ToolCaller:
    """A runner with the file tools of a client version, in a folder."""

    def __init__(
        self, folder: Path, version: str = "2.1.327", model: str | None = None, states: FileStates | None = None
    ) -> None:
        client = profile(version, model=model)
        tools = [make(client) for make in (read_tool, write_tool, edit_tool)]
        workspace = new_workspace(folder)
        workspace.files = states or FileStates()
        self._runner = Runner(tools, cwd=folder, profile=client, workspace=workspace)
        self._ids = count()

    async def call(self, tool: str, **fields: object) -> Finished:
        return (await self._runner.finish([self.block(tool, fields)]))[0]

    async def calls(self, *blocks: Mapping[str, object]) -> list[Finished]:
        return await self._runner.finish(list(blocks))

    def block(self, tool: str, tool_input: Mapping[str, object]) -> dict[str, object]:
        number = next(self._ids)
        return {"type": "tool_use", "id": f"toolu_{number}", "name": tool, "input": dict(tool_input)}

    async def read(self, path: Path | str, **fields: object) -> Finished:
        return await self.call("Read", file_path=str(path), **fields)

    async def write(self, path: Path | str, content: str) -> Finished:
        return await self.call("Write", file_path=str(path), content=content)

    async def edit(self, path: Path | str, old: str, new: str, **fields: object) -> Finished:
        return await self.call("Edit", file_path=str(path), old_string=old, new_string=new, **fields)


def record(finished: Finished) -> Any:
    """Return the structured result."""
    return finished.structured


def failed(finished: Finished) -> bool:
    return finished.span.state == "failed"


def kind(finished: Finished) -> str | None:
    error = finished.span.error_kind
    return None if error is None else str(error)


def refusal(text: str) -> str:
    return f"<tool_use_error>{text}</tool_use_error>"
