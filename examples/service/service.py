"""A web service in which each user has an agent with a folder of its own.

    export TOOLSPAN_MODEL=anthropic:claude-sonnet-4-5 AGENT_TOKENS='{"a-long-secret": "ann"}'
    uvicorn --factory service:create_app

`POST /prompt` with `{"prompt": "..."}` runs a turn and answers with JSON lines while it runs: calls, questions and,
last, how the turn ended. `POST /questions/ID` with `{"allow": true}` answers a question. Sessions are kept in a store,
so that any instance of the service continues them, also after a crash.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from toolspan import Agent, Allow, Ask, Deny, Permissions, Rules, Sandbox, Session, ToolspanError
from toolspan.runtime import PermissionRequest
from toolspan.session import AgentLimits, Model, SpendingLimits, make_model, system_prompt
from toolspan.tools import preview_request
from toolspan.types import Finished

RULES = Rules(allow=["Bash(make:*)", "Bash(git status)"], deny=["Bash(git push:*)"])
SANDBOX = Sandbox(auto_allow=False)
"""Commands see only the user's folder; those without a rule ask nevertheless."""
LIMITS = AgentLimits(
    turns=50,
    turn=SpendingLimits(cost=1.0, seconds=600),
    session=SpendingLimits(cost=20.0, tokens=20_000_000),
)
QUESTION_SECONDS = 300
"""The time after which a question that nobody answers counts as denied."""
Row = dict[str, object]


@dataclass(frozen=True, slots=True)
class Question:
    """A call that waits for its user's permission."""

    user: str
    answer: asyncio.Future[bool]


class AgentService:
    """The agents of all users, one turn at a time for each user."""

    def __init__(self, root: Path, store: str, model: Model, tokens: Mapping[str, str]) -> None:
        self.root = root
        self.store = store
        self.model = model
        self.tokens = tokens
        self.questions: dict[str, Question] = {}
        self.turns: dict[str, asyncio.Task[None]] = {}

    def authenticate(self, request: Request) -> str:
        """Return the user to whom the token of a request belongs."""
        sent = request.headers.get("Authorization", "").removeprefix("Bearer ").encode()
        for token, user in self.tokens.items():
            if secrets.compare_digest(sent, token.encode()):
                return user
        raise HTTPException(401, "unknown token")

    async def prompt(self, request: Request) -> Response:
        """Run a turn of the user's agent, and stream what happens."""
        user = self.authenticate(request)
        text = await read_field(request, "prompt", str)
        if user in self.turns:
            raise HTTPException(409, "the previous prompt is still running")
        return StreamingResponse(self.start_turn(user, text, request), media_type="application/x-ndjson")

    async def answer(self, request: Request) -> Response:
        """Answer a question of the user's agent."""
        user = self.authenticate(request)
        allow = await read_field(request, "allow", bool)
        question = self.questions.get(request.path_params["id"])
        if question is None or question.user != user or question.answer.done():
            raise HTTPException(404, "no such question")
        question.answer.set_result(allow)
        return JSONResponse({"allowed": allow})

    def start_turn(self, user: str, prompt: str, request: Request) -> AsyncIterator[bytes]:
        """Start a turn and return its rows. If the user disconnects, its calls are stopped and recorded."""
        rows: asyncio.Queue[Row | None] = asyncio.Queue()
        turn = self.turns[user] = asyncio.create_task(self.run_turn(user, prompt, rows.put_nowait))
        gone = asyncio.create_task(wait_for_disconnect(request))
        gone.add_done_callback(lambda _: turn.cancel())

        def end(_: object) -> None:
            gone.cancel()
            del self.turns[user]
            rows.put_nowait(None)

        turn.add_done_callback(end)
        return stream_rows(rows)

    async def run_turn(self, user: str, prompt: str, send: Callable[[Row], None]) -> None:
        """Continue the user's session with a prompt."""
        folder = self.root / user
        folder.mkdir(parents=True, exist_ok=True)

        async def approve(request: PermissionRequest, _ask: Ask) -> Allow | Deny:
            return await self.ask_user(user, request, send)

        def on_event(event: object) -> None:
            if isinstance(event, Finished):
                send(
                    {
                        "type": "call",
                        "tool": event.span.tool,
                        "target": event.span.call.target,
                        "state": event.span.state,
                    }
                )

        try:
            async with await Session.resume_async(
                folder,
                store=self.store,
                permissions=Permissions(RULES, approver=approve),
                sandbox=SANDBOX,
                model=self.model.name,
                direct=[on_event],
            ) as session:
                agent = Agent(session, self.model, system=system_prompt(folder), limits=LIMITS)
                ended = await agent.prompt(prompt)
                send({
                    "type": "end", "reason": ended.reason, "error": ended.error, "text": ended.text,
                    "cost": ended.cost, "session": session.session_id,
                })  # fmt: skip
        except (ToolspanError, ValueError) as error:  # another instance runs the session, or the store is down
            send({"type": "end", "reason": "error", "error": str(error)})

    async def ask_user(self, user: str, request: PermissionRequest, send: Callable[[Row], None]) -> Allow | Deny:
        """Send a question to the user's page, and wait for the answer."""
        question = Question(user, asyncio.get_running_loop().create_future())
        key = secrets.token_urlsafe(8)
        self.questions[key] = question
        try:
            send({"type": "question", "id": key, "tool": request.tool, "text": preview_request(request).text})
            allowed = await asyncio.wait_for(question.answer, QUESTION_SECONDS)
        except TimeoutError:
            return Deny("Nobody has answered. Continue without this call.", "user_reject")
        finally:
            del self.questions[key]
        return Allow(None, "user_temporary") if allowed else Deny("The user said no.", "user_reject")


async def stream_rows(rows: asyncio.Queue[Row | None]) -> AsyncIterator[bytes]:
    """Yield rows as JSON lines until the first None."""
    while (row := await rows.get()) is not None:
        yield json.dumps(row).encode() + b"\n"


async def wait_for_disconnect(request: Request) -> None:
    """Return when the client has gone, which a turn that waits for an answer would not notice."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def read_field(request: Request, name: str, kind: type) -> object:
    """Return a field of a JSON body, or answer 400."""
    try:
        value = (await request.json())[name]
    except (ValueError, LookupError, TypeError):
        value = None
    if not isinstance(value, kind) or value == "":
        raise HTTPException(400, f"the body must be a JSON object with {name!r}")
    return value


def create_app(service: AgentService | None = None) -> Starlette:
    """Return the application, by default configured by environment variables."""
    if service is None:
        root = Path(os.environ.get("AGENT_FOLDER", "agents")).absolute()
        service = AgentService(
            root=root,
            store=os.environ.get("AGENT_STORE", f"sqlite://{root}.db"),
            model=make_model(os.environ["TOOLSPAN_MODEL"]),
            tokens=json.loads(os.environ["AGENT_TOKENS"]),
        )

    @asynccontextmanager
    async def close_model(_app: Starlette) -> AsyncIterator[None]:
        yield
        await service.model.close()

    routes = [
        Route("/prompt", service.prompt, methods=["POST"]),
        Route("/questions/{id}", service.answer, methods=["POST"]),
    ]
    return Starlette(routes=routes, lifespan=close_model)
