"""A scripted model behind the doors of two APIs, on the loopback interface.

In: HTTP requests of any client of the Messages API or of chat completions. Out: what the scripted
model says, whole or streamed, and the APIs' error bodies. It knows their paths and headers; what is
said is `llm/scripted.py`'s business, how it is streamed `model_stream.py`'s and `openai_api.py`'s,
bytes on the wire `http11.py`'s. Read `ModelServer._answer` first.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, suppress
from dataclasses import replace
from types import TracebackType
from typing import NamedTuple, Self

import anyio
import msgspec
from anyio import BrokenResourceError
from anyio.abc import ByteStream, SocketAttribute
from anyio.from_thread import start_blocking_portal

from toolspan.llm.history import Message
from toolspan.llm.script import DROPPED, Failure, fail
from toolspan.llm.scripted import (
    MODEL_NAME,
    ApiError,
    ScriptedModel,
    ScriptExhausted,
    Spoken,
    checked,
    count_tokens,
    error_body,
)
from toolspan.llm.seeded import Ids
from toolspan.testing.http11 import GONE, Connection, Malformed, Request, Response
from toolspan.testing.model_stream import events
from toolspan.testing.openai_api import asked_of, chunks, completion
from toolspan.testing.openai_api import error_body as chat_error

_MESSAGES = "/v1/messages"
_CHAT = "/v1/chat/completions"
_COUNT = "/v1/messages/count_tokens"
_MODELS = "/v1/models"
_METHODS = {
    _MESSAGES: ("POST",),
    _CHAT: ("POST",),
    _COUNT: ("POST",),
    _MODELS: ("GET", "HEAD"),
}


class ModelServer:
    """Serves a scripted model while its context is open, `async with` or plain `with`.

    `async with` serves in the task's own event loop, so that a step of the script may wait for
    events of the test; `with` serves in a thread. What a step raises is answered with an error
    and raised again when the context ends, so that no client can swallow it.
    """

    def __init__(self, model: ScriptedModel, *, port: int = 0) -> None:
        """Take a model; port 0 is any free one."""
        self.model = model
        self._port = port
        self._ids = Ids("requests")
        self._raised: Exception | None = None
        self._serving: AbstractAsyncContextManager[None] | None = None
        self._threaded = ExitStack()

    @property
    def url(self) -> str:
        """What clients take as base URL."""
        return f"http://127.0.0.1:{self._port}"

    async def __aenter__(self) -> Self:
        self._serving = self._serve()
        await self._serving.__aenter__()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # The body's own error stays as it is: a task group would wrap it.
        if self._serving:
            await self._serving.__aexit__(None, None, None)
        if self._raised and error:
            error.add_note(f"The script of the model raised {self._raised!r}")
        elif self._raised:
            raise self._raised

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            portal = stack.enter_context(start_blocking_portal())
            stack.enter_context(portal.wrap_async_context_manager(self))
            self._threaded = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._threaded.__exit__(kind, error, trace)

    @asynccontextmanager
    async def _serve(self) -> AsyncIterator[None]:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=self._port)
        async with listener, anyio.create_task_group() as tasks:
            self._port = listener.extra(SocketAttribute.local_port)
            tasks.start_soon(listener.serve, self._connected)
            yield
            tasks.cancel_scope.cancel()

    async def _connected(self, stream: ByteStream) -> None:
        connection = Connection(stream)
        with suppress(*GONE):  # nobody is left to tell
            async with stream:
                await self._converse(connection)

    async def _converse(self, connection: Connection) -> None:
        try:
            async for request in connection.requests():
                await connection.send(await self._answer(request), request)
        except Malformed as error:
            await connection.send(self._failed(fail(error.status, message=str(error))))
            await connection.end()

    async def _answer(self, request: Request) -> Response:
        try:
            _admit(request)
            if request.path == _MESSAGES:
                return await self._create(_body(request, model=str, max_tokens=int), _SPEAKS)
            if request.path == _CHAT:
                return await self._create(asked_of(_body(request, model=str)), _CHATS)
            if request.path == _COUNT:
                return self._found(_counted(_body(request, model=str)))
            return self._found(_models())
        except ApiError as error:
            if error.type == DROPPED:
                raise BrokenResourceError from error
            return self._failed(error.failure, chat=request.path == _CHAT)

    async def _create(self, asked: Message, voice: "_Voice") -> Response:
        try:
            spoken = await self.model.reply(asked)
        except ApiError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a step raises, the client gets an answer
            return self._broken(error)
        if asked.get("stream") is True:
            lines = _until_dropped(voice.stream(spoken), spoken)
            return self._response(200, lines, content_type="text/event-stream")
        if spoken.failure:
            raise ApiError(spoken.failure)
        return self._found(voice.whole(spoken))

    def _broken(self, error: Exception) -> Response:
        """The script itself is at fault; asking again would not help."""
        self._raised = self._raised or error
        exhausted = isinstance(error, ScriptExhausted)
        words = str(error) if exhausted else f"A step of the script raised {error!r}"
        failure = fail(400, "script_exhausted" if exhausted else "script_error", words)
        response = self._failed(failure)
        return replace(response, headers={**response.headers, "x-should-retry": "false"})

    def _failed(self, failure: Failure, *, chat: bool = False) -> Response:
        body = chat_error(failure) if chat else error_body(failure)
        response = self._response(failure.status, body)
        body["request_id"] = response.headers["request-id"]
        headers = dict(response.headers)
        if failure.retry_after is not None:
            headers["retry-after"] = f"{failure.retry_after:g}"
        return replace(response, body=msgspec.json.encode(body), headers=headers)

    def _found(self, body: Message) -> Response:
        return self._response(200, body)

    def _response(
        self, status: int, body: Message | Iterator[bytes], content_type: str = "application/json"
    ) -> Response:
        return Response(
            status=status,
            body=msgspec.json.encode(body) if isinstance(body, dict) else body,
            content_type=content_type,
            headers={"request-id": self._ids.token("req_011", 21)},
        )


def _admit(request: Request) -> None:
    """Let in what the API lets in.

    Raises:
        ApiError: no such path or method, no key, no version.
    """
    allowed = _METHODS.get(request.path)
    if allowed is None:
        raise ApiError(fail(404, message="Not Found"))
    if request.method not in allowed:
        raise ApiError(fail(405, "invalid_request_error", "Method Not Allowed"))
    if not {"x-api-key", "authorization"} & request.headers.keys():
        raise ApiError(fail(401, message="x-api-key header is required"))
    if request.path != _CHAT and "anthropic-version" not in request.headers:
        raise ApiError(fail(400, message="anthropic-version: header is required"))


def _body(request: Request, **required: type) -> Message:
    """The JSON object of a request, with its required fields."""
    try:
        body = msgspec.json.decode(request.body, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        words = f"The request body is not valid JSON: {error}"
        raise ApiError(fail(400, message=words)) from error
    for field, kind in (*required.items(), ("messages", list)):
        if field not in body:
            raise ApiError(fail(400, message=f"{field}: Field required"))
        if type(body[field]) is not kind:
            raise ApiError(fail(400, message=f"{field}: Input should be a valid {kind.__name__}"))
    return body


def _counted(asked: Message) -> Message:
    checked(asked)
    return {"input_tokens": count_tokens(asked)}


def _models() -> Message:
    entry = {
        "type": "model",
        "id": MODEL_NAME,
        "display_name": "Scripted",
        "created_at": "2025-01-01T00:00:00Z",
        "lifecycle": "active",
    }
    return {"data": [entry], "has_more": False, "first_id": MODEL_NAME, "last_id": MODEL_NAME}


def _event_stream(spoken: Spoken) -> Iterator[bytes]:
    for event in events(spoken):
        yield (
            f"event: {event['type']}\n".encode() + b"data: " + msgspec.json.encode(event) + b"\n\n"
        )


def _until_dropped(lines: Iterator[bytes], spoken: Spoken) -> Iterator[bytes]:
    """The lines; where the connection is lost, what a lost connection is to who sends.

    Raises:
        BrokenResourceError: it is lost.
    """
    yield from lines
    if spoken.failure and spoken.failure.type == DROPPED:
        raise BrokenResourceError


class _Voice(NamedTuple):
    """How an API says a reply."""

    stream: Callable[[Spoken], Iterator[bytes]]
    whole: Callable[[Spoken], Message]


_SPEAKS = _Voice(_event_stream, lambda spoken: spoken.message)
_CHATS = _Voice(chunks, completion)
