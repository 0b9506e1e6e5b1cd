"""A runner with the tools of the chaos server."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import anyio

from toolspan.integrations.mcp_client import Health, McpServers
from toolspan.integrations.mcp_client.arguments import InputCheck
from toolspan.runtime.profiles import profile
from toolspan.runtime.runner import Runner
from toolspan.types.events import Finished, LiveEvent, Progressed

CHAOS = Path(__file__).parent / "chaos_server.py"


class ToolCaller:
    """A runner with the tools of some servers."""

    runner: Runner

    def __init__(self, servers: McpServers, log: Path) -> None:
        self.servers = servers
        self.finished: Counter[str] = Counter()
        self.progress: list[Mapping[str, object]] = []
        self._log = log
        self._ids = count()

    @property
    def health(self) -> Health:
        return self.servers.health["chaos"]

    async def call(self, tool: str, **fields: object) -> Finished:
        return (await self.calls((tool, fields)))[0]

    async def calls(self, *request: tuple[str, Mapping[str, object]]) -> list[Finished]:
        blocks = [
            {
                "type": "tool_use",
                "id": f"toolu_{next(self._ids)}",
                "name": name if "__" in name or name.endswith("Tool") else f"mcp__chaos__{name}",
                "input": dict(fields),
            }
            for name, fields in request
        ]
        return await self.runner.finish(blocks)

    def heard(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self._log.read_bytes().splitlines()]

    async def hears(self, method: str) -> dict[str, object]:
        while True:
            items = [item for item in self.heard() if item.get("method") == method]
            if items:
                return items[0]
            await anyio.lowlevel.checkpoint()

    def take(self, event: LiveEvent) -> None:
        if isinstance(event, Finished):
            self.finished[event.call_id] += 1
        if isinstance(event, Progressed) and event.kind == "mcp":
            self.progress.append(event.data)


def config(log: Path, *habits: str, **more: object) -> dict[str, object]:
    args = [str(CHAOS), str(log), *habits]
    return {"mcpServers": {"chaos": {"command": sys.executable, "args": args, **more}}}


@asynccontextmanager
async def talk(
    folder: Path,
    *habits: str,
    version: str = "2.1.327",
    env: Mapping[str, str] | None = None,
    validate: InputCheck = "none",
    servers: dict[str, object] | None = None,
) -> AsyncIterator[ToolCaller]:
    log = folder / "log"
    log.touch()
    client = profile(version)
    connected = McpServers(
        servers or config(log, *habits),
        profile=client,
        cwd=folder,
        environment={**os.environ, **(env or {})},
        validate=validate,
    )
    async with connected:
        conversation = ToolCaller(connected, log)
        runner = Runner(connected.tools(), cwd=folder, profile=client, direct=[conversation.take])
        async with runner:
            conversation.runner = runner
            yield conversation


def text(finished: Finished) -> str:
    if isinstance(finished.content, str):
        return finished.content
    return "\n".join(str(block.get("text")) for block in finished.content)
