"""A host in a process of its own that runs calls of a session in a store.

    python -m tests.stores.killed_host URL PROJECT SESSION

prints `inside` when the call `hang` has started, and then waits to be killed.
"""

from __future__ import annotations

import sys

import anyio

from toolspan import Permissions, Session, tool


@tool(concurrent=True)
async def hang() -> str:
    """Wait to be killed."""
    sys.stdout.write("inside\n")
    sys.stdout.flush()
    await anyio.sleep_forever()
    return ""


@tool(concurrent=True)
async def quick() -> str:
    """Return at once."""
    return "quick result"


async def main(*arguments: str) -> None:
    url, project, session_id = arguments
    async with Session(
        cwd=project,
        tools=[hang, quick],
        permissions=Permissions.allow_all(),
        store=url,
        session_id=session_id,
        lease_seconds=1.5,
    ) as session:
        session.say("Go.")
        calls: list[dict[str, object]] = [
            {"type": "tool_use", "id": f"toolu_{name}", "name": name, "input": {}} for name in ("quick", "hang")
        ]
        await session.run({"role": "assistant", "content": calls})


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
