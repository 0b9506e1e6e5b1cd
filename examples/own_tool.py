"""A tool of your own: schema from the signature, words from the docstring, errors to read."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from toolspan import Runner, ToolContext, ToolError, tool


@tool(concurrent=True, read_only=True)
def changelog(version: str, ctx: ToolContext) -> str:
    """Return the changelog section of one version.

    Args:
        version: For example 1.4.0.
    """
    text = (ctx.cwd / "CHANGELOG.md").read_text(encoding="utf-8")
    _, found, rest = text.partition(f"## {version}\n")
    if not found:
        raise ToolError(f"No section for {version}")  # the model reads this and continues
    return rest.partition("\n## ")[0]


async def main(folder: Path) -> None:
    (folder / "CHANGELOG.md").write_text("## 1.1\nFaster.\n\n## 1.0\nFirst.\n", encoding="utf-8")
    calls = [
        {"type": "tool_use", "id": "a", "name": "changelog", "input": {"version": "1.1"}},
        {"type": "tool_use", "id": "b", "name": "changelog", "input": {"version": "9.9"}},
        {"type": "tool_use", "id": "c", "name": "changelog", "input": {"number": 1}},
    ]
    for result in await Runner([changelog], cwd=folder).run(calls):
        print(result.text)


with TemporaryDirectory() as scratch:
    print(changelog.schema())
    asyncio.run(main(Path(scratch)))
