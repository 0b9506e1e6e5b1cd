"""Prompt `toolspan acp` as an editor does, with the protocol's client library, and disconnect while a command runs.

    python -m lab.oracle.editor_client SCRIPT FILE

SCRIPT is that of the agent's model, and the command makes FILE. Prints the session's id and the agent's exit code.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from acp.helpers import text_block
from acp.schema import RequestPermissionResponse
from acp.stdio import spawn_agent_process


class Editor:
    """An editor that ignores what it is told. The agent's mode makes questions unnecessary."""

    async def session_update(self, **_: Any) -> None:
        """Ignore what happens."""

    async def request_permission(self, **_: Any) -> RequestPermissionResponse:
        """Fail: nothing is asked."""
        raise AssertionError("the agent has asked")


async def main(script: str, file: str) -> None:
    """Run a prompt, disconnect when the file exists, and wait for the end of the agent."""
    command = ["toolspan", "acp", "--model", f"scripted:{script}", "--permission-mode", "bypassPermissions"]
    async with spawn_agent_process(Editor(), *command, "--no-sandbox") as (connection, process):  # type: ignore[arg-type]
        await connection.initialize(protocol_version=1)
        session = (await connection.new_session(cwd=str(Path.cwd()))).session_id
        turn = asyncio.create_task(connection.prompt(session_id=session, prompt=[text_block("Count the lanterns.")]))
        while not Path(file).exists():
            await asyncio.sleep(0.05)
        assert process.stdin is not None
        process.stdin.close()
        code = await process.wait()
        turn.cancel()
    sys.stdout.write(f"{session} {code}\n")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
