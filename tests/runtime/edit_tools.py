"""Edit tools with the inputs of the real ones and another effect."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from toolspan.runtime.tool import Tool, tool

Act = Callable[[Path], Awaitable[str]]


def editor(name: str, act: Act, timeout: float = 0.001) -> Tool:
    @tool(name=name, timeout=timeout)
    async def edit(
        file_path: str,
        edits: list[dict[str, object]] | None = None,
        old_string: str = "",
        new_string: str = "",
        replace_all: bool = False,
    ) -> str:
        """Do nothing to the file."""
        return await act(Path(file_path))

    return edit
