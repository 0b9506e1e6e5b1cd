"""Run the turns of a session as steps of a DBOS workflow, in one PostgreSQL database. Run it again after a crash.

    pip install dbos
    python examples/durable_turns.py postgresql://user@host/database --crash
    python examples/durable_turns.py postgresql://user@host/database

DBOS remembers which turns are done, toolspan which calls of the current turn are. A step that is repeated finds its
prompt in the session, gets a result for the call that the crash interrupted, and continues. No call is run again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
from pathlib import Path

from dbos import DBOS, SetWorkflowID

from toolspan import Permissions, Session, tool
from toolspan.errors import InUse, NotFound
from toolspan.session import Agent
from toolspan.testing import ScriptedModel, last_result_texts, say, use

CONVERSATION = "3f0d2f6e-51f1-4c6b-9b1c-6b6f3a1d7c55"
INVOICES = (1, 2, 3)
arguments = argparse.ArgumentParser()
arguments.add_argument("database")
arguments.add_argument("--crash", action="store_true", help="End this process in the middle of the second payment.")
options = arguments.parse_args()
ledger = Path("payments.txt")


@tool()
def pay(invoice: int) -> str:
    """Pay an invoice. Never call this twice for one invoice."""
    with ledger.open("a") as file:
        file.write(f"{invoice}\n")
    if options.crash and invoice == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"Paid invoice {invoice}."


@tool(read_only=True)
def paid_invoices() -> str:
    """List the paid invoices."""
    return ledger.read_text() if ledger.exists() else "none"


def decide(messages):
    """Stand in for a model: pay, and look at the ledger if it is not known whether that worked."""
    results = last_result_texts(messages)
    prompt = next(block["text"] for block in messages[-1]["content"]) if not results else ""
    if prompt:
        return use("pay", invoice=int(prompt.split()[-1]))
    if results[-1].startswith("Paid"):
        return say(results[-1])
    if results[-1][:1].isdigit():
        return say(f"Already paid: {', '.join(results[-1].split())}.")
    print("the call before the crash:", results[-1])
    return use("paid_invoices")


async def open_session():
    """Resume the session, on whichever host this runs, or begin it."""
    settings = {"tools": [pay, paid_invoices], "permissions": Permissions.allow_all(), "lease_seconds": 3}
    try:
        return await Session.resume_async(session=CONVERSATION, store=options.database, **settings)
    except NotFound:
        return Session(session_id=CONVERSATION, store=options.database, **settings)


# The lease of a host that died ends after its seconds; until then, the session is in use.
@DBOS.step(retries_allowed=True, max_attempts=10, interval_seconds=1, backoff_rate=1,
           should_retry=lambda error: isinstance(error, InUse))  # fmt: skip
async def run_turn(step: str, prompt: str) -> str:
    """Run a turn, or what is left of it. The prompt has the id of the step, so that a repetition recognises it."""
    marker = f"(step {step})"
    async with await open_session() as session:
        agent = Agent(session, ScriptedModel([], then=decide))
        if marker not in json.dumps(session.messages):
            prompt_blocks = [{"type": "text", "text": prompt}, {"type": "text", "text": marker}]
            return (await agent.prompt(prompt_blocks)).text
        if session.messages[-1]["role"] == "assistant":  # the turn ended, and DBOS did not learn about it
            return session.messages[-1]["content"][-1]["text"]
        return (await agent.run_started_turn()).text


@DBOS.workflow()
async def pay_all() -> list[str]:
    """Run a turn for each invoice."""
    return [await run_turn(f"{DBOS.workflow_id}-{number}", f"Pay invoice {number}") for number in INVOICES]


async def main():
    DBOS(config={"name": "payments", "system_database_url": options.database, "application_version": "1",
                 "log_level": "ERROR"})  # fmt: skip
    DBOS.launch()  # continues what a crash has interrupted
    with SetWorkflowID(CONVERSATION):
        handle = await DBOS.start_workflow_async(pay_all)
    for text in await handle.get_result():
        print(text)
    DBOS.destroy()


asyncio.run(main())
