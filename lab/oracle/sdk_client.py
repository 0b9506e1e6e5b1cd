"""Run one prompt with the real client through the Agent SDK, with a store of toolspan.

    python -m lab.oracle.sdk_client URL CLI SESSION PROMPT

SESSION is resumed; with `-`, a new one is started. Prints the id of the session.
"""

from __future__ import annotations

import sys

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query

from toolspan import open_store


async def main(*arguments: str) -> None:
    """Run the prompt and print the id of the session."""
    url, cli, session, prompt = arguments
    store = open_store(url)
    options = ClaudeAgentOptions(
        session_store=store,
        resume=None if session == "-" else session,
        cli_path=cli,
        allowed_tools=["Bash"],
        model="claude-sonnet-4-5",
    )
    async for message in query(prompt=prompt, options=options):
        if isinstance(message, ResultMessage):
            sys.stdout.write(message.session_id + "\n")
    store.close()


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
