"""Sessions in PostgreSQL that toolspan and the real client, through the Agent SDK, continue in turn."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
from tests.stores.servers import find_postgres, prepare_postgres

from lab.oracle.compare import HistoryItem, read_messages
from lab.oracle.installed_client import ROOT, InstalledClient
from lab.oracle.mcp_scenarios import expect
from toolspan import Permissions, Session
from toolspan.session import Agent
from toolspan.testing import ScriptedModel, say, use

Scenario = Callable[[InstalledClient], Iterator[str]]


def store_resumed_by_client(client: InstalledClient) -> Iterator[str]:
    """toolspan records a session, and the client resumes it through the SDK."""
    with _start_postgres() as url:
        recorded = anyio.run(_prompt, client, url, None, "Count the lanterns.", "echo seven lanterns")
        yield from _resume_with_client(client, url, recorded.session_id, "first", "echo eight boats")
        yield from _resume_with_toolspan(client, url, recorded.session_id)


def store_resumed_by_toolspan(client: InstalledClient) -> Iterator[str]:
    """The client records a session through the SDK, toolspan resumes it, then the client again."""
    with _start_postgres() as url:
        yield from _resume_with_client(client, url, "-", "first", "echo eight boats")
        session = _session_of(client)
        yield from _resume_with_toolspan(client, url, session)
        yield from _resume_with_client(client, url, session, "second", "echo nine nets")


@contextmanager
def _start_postgres() -> Iterator[str]:
    """Start a server inside the namespace."""
    if find_postgres() is None:
        raise RuntimeError("PostgreSQL is not installed (Debian: postgresql)")
    os.environ["XDG_STATE_HOME"] = "/tmp/state"
    server = prepare_postgres(Path("/tmp/server"))
    server.start()
    try:
        yield server.url
    finally:
        server.stop()


def _resume_with_client(client: InstalledClient, url: str, session: str, script: str, command: str) -> Iterator[str]:
    """Run a prompt with the client, and compare the request that it sends with what is recorded."""
    recorded = [] if session == "-" else read_messages(_resume(client, url, session).messages)
    client.scenario.turn({"tool": "Bash", "input": {"command": command, "description": "count"}}, key=script)
    client.scenario.turn(f"I saw {command.removeprefix('echo ')}.", key=script)
    server = client.scenario.ensure_server()
    arguments = [url, str(client.home / "bin/claude"), session, f"Continue [[s:{script}]]"]
    variables = (
        f"PYTHONPATH={ROOT}/src:{ROOT} ANTHROPIC_BASE_URL=http://127.0.0.1:{server.port}"
        " CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 DISABLE_AUTOUPDATER=1"
    )
    run = client.run_command(f"{variables} {sys.executable} -m lab.oracle.sdk_client {shlex.join(arguments)}")
    yield from expect(f"the SDK ({run.output[-600:]})", run.code, 0)
    client.write_file("session", run.out.strip())
    if session != "-":
        yield from expect("the id of the resumed session", run.out.strip(), session)
    requests = client.requests(script)
    sent = read_messages(requests[0]) if requests else []
    for item in recorded:
        yield from expect(f"{item!r} is sent"[:300], _is_sent(item, sent), True)
    yield from expect("the call's result is sent", command.removeprefix("echo ") in json.dumps(requests[1:]), True)


def _is_sent(item: HistoryItem, sent: list[HistoryItem]) -> bool:
    """Return whether a client has sent an item. It generates reminders anew, and adds them to results."""
    kind, content = item
    if isinstance(content, tuple) and kind == "result":
        return any(other[0] == kind and _begins_with(other[1], content) for other in sent)
    return item in sent or str(content).startswith("<system-reminder>")


def _begins_with(result: Any, recorded: tuple[Any, ...]) -> bool:
    call, text, is_error = recorded
    return (result[0], result[2]) == (call, is_error) and str(result[1]).startswith(str(text))


def _session_of(client: InstalledClient) -> str:
    return (client.home / "session").read_text(encoding="utf-8")


def _resume_with_toolspan(client: InstalledClient, url: str, session: str) -> Iterator[str]:
    """Resume with toolspan, look for the client's turn, and add a turn."""
    messages = json.dumps(_resume(client, url, session).messages)
    for part in ("Continue [[s:first]]", "echo eight boats", '"content": "eight boats"', "I saw eight boats."):
        yield from expect(f"toolspan's messages have {part!r}", part in messages, True)
    anyio.run(_prompt, client, url, session, "And the oars?", "echo ten oars")


def _resume(client: InstalledClient, url: str, session: str) -> Session:
    resumed: Session = anyio.run(_prompt, client, url, session, None, "")
    return resumed


async def _prompt(client: InstalledClient, url: str, session: str | None, prompt: str | None, command: str) -> Session:
    """Open a session with toolspan, and run a prompt in it."""
    permissions = Permissions.allow_all()
    if session is None:
        opened = Session(cwd=client.cwd, store=url, permissions=permissions)
    else:
        opened = Session.resume(client.cwd, session=session, store=url, permissions=permissions)
    async with opened:
        if prompt is not None:
            model = ScriptedModel([use("Bash", command=command), say(f"I found {command.removeprefix('echo ')}.")])
            await Agent(opened, model).prompt(prompt)
    return opened


SCENARIOS: tuple[Scenario, ...] = (store_resumed_by_client, store_resumed_by_toolspan)
