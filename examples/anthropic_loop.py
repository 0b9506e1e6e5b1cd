"""An agent loop of your own with the `anthropic` SDK: you call the model, toolspan runs its calls.

Needs the extra `anthropic` and ANTHROPIC_API_KEY. Run it in the folder to work on:

    python anthropic_loop.py "Why does the build fail?"
"""

from __future__ import annotations

import asyncio
import os
import sys

import anthropic

from toolspan import Permissions, Rules, Session, coding_tools

MODEL = os.environ.get("MODEL", "claude-sonnet-4-5")


async def main(prompt: str) -> None:
    client = anthropic.AsyncAnthropic()
    permissions = Permissions(Rules(allow=["Bash(make:*)"]), mode="acceptEdits")
    async with Session(tools=coding_tools(), permissions=permissions) as session:
        session.say(prompt)
        while True:
            reply = await client.messages.create(
                model=MODEL,
                max_tokens=8_000,
                system="You are a careful engineer. Be brief.",
                messages=session.messages,
                tools=session.schemas(),
            )
            if not await session.run(reply):  # queue, validate, hooks, permission, run, record
                break
        print(*(block.text for block in reply.content if block.type == "text"))
        for span in session.spans:
            print(f"{span.tool} {span.state}", file=sys.stderr)


asyncio.run(main(" ".join(sys.argv[1:]) or "What is in this folder?"))
