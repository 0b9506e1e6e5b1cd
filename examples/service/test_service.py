"""The service with a scripted model, a real server and real requests."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
import service
import uvicorn
from service import AgentService, create_app

from toolspan.session import AgentLimits
from toolspan.testing import ScriptedModel, say, use

pytestmark = pytest.mark.anyio
Row = dict[str, object]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def serve(folder: Path, steps: list[object]) -> AsyncIterator[tuple[httpx2.AsyncClient, ScriptedModel]]:
    """Serve the application on a free port, and yield a client of the user ann."""
    model = ScriptedModel(steps)
    tokens = {"secret-a": "ann", "secret-b": "bob"}
    agents = AgentService(folder / "agents", f"sqlite://{folder}/sessions.db", model, tokens)
    server = uvicorn.Server(uvicorn.Config(create_app(agents), log_level="critical", lifespan="on"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        running = asyncio.create_task(server.serve(sockets=[listener]))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        headers = {"Authorization": "Bearer secret-a"}
        async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=None, trust_env=False) as client:
            yield client, model
        server.should_exit = True
        await running


async def run(
    client: httpx2.AsyncClient, prompt: str, answer: Callable[[Row], bool] = lambda _: True, **options: object
) -> list[Row]:
    """Send a prompt, answer the questions, and return all rows."""
    rows: list[Row] = []
    async with client.stream("POST", "/prompt", json={"prompt": prompt}, **options) as response:
        assert response.status_code == 200
        async for line in response.aiter_lines():
            rows.append(json.loads(line))
            if rows[-1]["type"] == "question":
                await client.post(f"/questions/{rows[-1]['id']}", json={"allow": answer(rows[-1])}, **options)
    return rows


async def test_allowed_calls_run_and_others_ask_the_user(tmp_path: Path) -> None:
    steps = [use("Bash", command=command) for command in ("git status", "touch made", "rm made", "git push")]
    async with serve(tmp_path, [*steps, say("Done.")]) as (client, _):
        rows = await run(client, "Go.", answer=lambda row: row["text"] == "touch made")

    assert [row["text"] for row in rows if row["type"] == "question"] == ["touch made", "rm made"]
    assert [row["state"] for row in rows if row["type"] == "call"][1:] == ["succeeded", "denied", "denied"]
    assert (rows[-1]["reason"], rows[-1]["text"]) == ("completed", "Done.")
    assert (tmp_path / "agents" / "ann" / "made").exists()


async def test_session_continues_in_another_instance(tmp_path: Path) -> None:
    async with serve(tmp_path, [say("One.")]) as (client, _):
        first = await run(client, "First.")
    async with serve(tmp_path, [say("Two.")]) as (client, model):
        second = await run(client, "Second.")

    assert first[-1]["session"] == second[-1]["session"]
    assert len(model.requests[0]["messages"]) == 3  # type: ignore[arg-type]


async def test_users_have_their_own_sessions_and_questions(tmp_path: Path) -> None:
    asked: list[int] = []
    bob = {"Authorization": "Bearer secret-b"}
    async with serve(tmp_path, [use("Bash", command="touch made"), say("Done."), say("Hello.")]) as (client, _):
        async with client.stream("POST", "/prompt", json={"prompt": "Go."}) as response:
            async for line in response.aiter_lines():
                row = json.loads(line)
                if row["type"] == "question":
                    path = f"/questions/{row['id']}"
                    asked.append((await client.post(path, json={"allow": True}, headers=bob)).status_code)
                    asked.append((await client.post("/prompt", json={"prompt": "Again."})).status_code)
                    asked.append((await client.post(path, json={"allow": False})).status_code)
        other = await run(client, "Hello?", headers=bob)

    assert asked == [404, 409, 200]
    assert other[-1]["session"] != row["session"]
    assert not (tmp_path / "agents" / "ann" / "made").exists()


async def test_user_who_disconnects_stops_the_calls_and_can_continue(tmp_path: Path) -> None:
    async with serve(tmp_path, [use("Bash", command="touch made"), say("I am back.")]) as (client, _):
        async with client.stream("POST", "/prompt", json={"prompt": "Go."}) as response:
            await anext(response.aiter_lines())
        while (response := await client.post("/prompt", json={"prompt": "Hello?"})).status_code == 409:
            pass  # the calls of the first turn are still being stopped
        rows = [json.loads(line) for line in response.text.splitlines()]

    assert rows[-1]["text"] == "I am back."
    assert not (tmp_path / "agents" / "ann" / "made").exists()


async def test_limit_ends_the_turn_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "LIMITS", AgentLimits(turns=1))
    async with serve(tmp_path, [use("Bash", command="git status")]) as (client, _):
        rows = await run(client, "Go.")

    assert rows[-1]["reason"] == "max_turns"
    assert "limit" in str(rows[-1]["error"])


@pytest.mark.parametrize("body", [b"", b"[]", b'{"prompt": ""}', b'{"prompt": 1}'])
async def test_bad_requests_are_refused(tmp_path: Path, body: bytes) -> None:
    async with serve(tmp_path, []) as (client, _):
        wrong = await client.post("/prompt", content=body)
        stranger = await client.post("/prompt", json={"prompt": "Go."}, headers={"Authorization": "Bearer nobody"})

    assert (wrong.status_code, stranger.status_code) == (400, 401)
