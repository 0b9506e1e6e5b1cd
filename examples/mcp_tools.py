"""The tools of an MCP server beside your own: connected, called, watched, ended."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from toolspan import McpServers, Runner

SERVER = '''
from mcp.server.mcpserver import MCPServer

server = MCPServer("sums")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


server.run()
'''


async def main(folder: Path) -> None:
    (folder / "sums.py").write_text(SERVER, encoding="utf-8")
    config = {"mcpServers": {"sums": {"command": sys.executable, "args": ["sums.py"]}}}
    call = {"type": "tool_use", "id": "a", "name": "mcp__sums__add", "input": {"a": 1, "b": 2}}
    async with McpServers(config, cwd=folder) as servers:
        print(servers.tools())
        for result in await Runner(servers.tools(), cwd=folder).run([call]):
            print(result.text)
        for name, health in servers.health.items():
            print(name, health.state, health.calls, dict(health.errors), health.p95 is not None)


with TemporaryDirectory() as scratch:
    asyncio.run(main(Path(scratch)))
