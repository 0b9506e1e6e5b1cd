"""A scripted model behind the doors of two APIs, on the loopback interface.

In: HTTP requests of any client of the Messages API or of chat completions. Out: what the scripted
model says, whole or streamed, and the APIs' error bodies. It knows their paths and headers; what is
said is `llm/scripted.py`'s business, how it is streamed `model_stream.py`'s and `openai_api.py`'s,
bytes on the wire `http11.py`'s. Read `ModelServer._answer` first.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import anyio
import click
import msgspec
from anyio import BrokenResourceError, ClosedResourceError, DelimiterNotFound, IncompleteRead, move_on_after
from anyio.abc import ByteStream, SocketAttribute
from anyio.from_thread import start_blocking_portal
from anyio.streams.buffered import BufferedByteReceiveStream

from toolspan.session.models.history import Block, Message
from toolspan.session.models.scripted import (
    CONNECTION_DROPPED,
    MODEL_NAME,
    ApiError,
    RenderedReply,
    ScriptedFailure,
    ScriptedModel,
    ScriptExhausted,
    SeededIds,
    count_tokens,
    error_body,
    fail,
    load_script,
    say,
    validated_messages,
)

DISCONNECTED = (BrokenResourceError, ClosedResourceError, IncompleteRead)
"""What is raised when the other side has left."""

_MAX_HEAD = 65_536
_MAX_BODY = 32 * 1024 * 1024
_SHUTDOWN_TIMEOUT = 2
"""Seconds to wait for a client to stop talking."""
_EXTRA_PHRASES = {529: "Overloaded"}


class MalformedRequest(Exception):  # noqa: N818 - reads as a noun where it is caught
    """What came is not a request that can be read; the connection cannot go on."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, kw_only=True)
class HttpRequest:
    """One request; header names are in lower case."""

    method: str
    path: str
    """Without its query."""
    headers: Mapping[str, str]
    body: bytes = b""
    version: str = "HTTP/1.1"

    @property
    def keeps_alive(self) -> bool:
        """Whether the client means to ask again."""
        connection = self.headers.get("connection", "").lower()
        return connection == "keep-alive" if self.version == "HTTP/1.0" else connection != "close"


@dataclass(frozen=True, kw_only=True)
class HttpResponse:
    """One answer, whole or in pieces."""

    status: int
    body: bytes | Iterable[bytes]
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


class HttpConnection:
    """One client."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._reader = BufferedByteReceiveStream(stream)

    async def iter_requests(self) -> AsyncIterator[HttpRequest]:
        """Requests until the client leaves or wants no more.

        Raises:
            Malformed: what came cannot be read.
        """
        while True:
            try:
                request = await self.read_request()
            except DISCONNECTED:
                return
            yield request
            if not request.keeps_alive:
                return

    async def read_request(self) -> HttpRequest:
        """The next request."""
        head = await self._read_until(b"\r\n\r\n", "The head of the request is too long")
        first, *lines = head.decode("latin-1").lstrip("\r\n").split("\r\n")
        match first.split(" "):
            case [method, target, "HTTP/1.0" | "HTTP/1.1" as version]:
                headers = dict(_parse_header(line) for line in lines)
            case _:
                raise MalformedRequest(400, f"Expected an HTTP/1.1 request line, not {first[:80]!r}")
        if headers.get("expect", "").lower() == "100-continue":
            await self._stream.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        return HttpRequest(
            method=method,
            path=target.partition("?")[0],
            headers=headers,
            body=await self._read_body(headers),
            version=version,
        )

    async def send_response(self, response: HttpResponse, request: HttpRequest | None = None) -> None:
        """Answer a request; None stands for one that could not be read."""
        keep_alive = request is not None and request.keeps_alive
        chunked = request is not None and request.version == "HTTP/1.1"
        headers = {"content-type": response.content_type, **response.headers}
        if isinstance(response.body, bytes):
            headers["content-length"] = str(len(response.body))
        elif chunked:
            headers["transfer-encoding"] = "chunked"
        if not keep_alive:
            headers["connection"] = "close"
        await self._stream.send(_response_head(response.status, headers))
        if request is None or request.method != "HEAD":
            await self._send_body(response.body, in_chunks=chunked)

    async def shut_down(self) -> None:
        """Leave in a way that the last answer arrives: bytes left unread would revoke it."""
        await self._stream.send_eof()
        with move_on_after(_SHUTDOWN_TIMEOUT):
            async for _ in self._stream:
                pass

    async def _send_body(self, body: bytes | Iterable[bytes], *, in_chunks: bool) -> None:
        if isinstance(body, bytes):
            await self._stream.send(body)
            return
        for piece in body:
            await self._stream.send(b"%x\r\n%b\r\n" % (len(piece), piece) if in_chunks else piece)
        if in_chunks:
            await self._stream.send(b"0\r\n\r\n")

    async def _read_body(self, headers: Mapping[str, str]) -> bytes:
        if "chunked" in headers.get("transfer-encoding", "").lower():
            return await self._read_chunks()
        length = _parse_length(headers.get("content-length", "0"), 10)
        return await self._reader.receive_exactly(length) if length else b""

    async def _read_chunks(self) -> bytes:
        body = bytearray()
        while size := _parse_length((await self._read_line()).partition(";")[0].strip(), 16):
            _check_length(len(body) + size)
            body += await self._reader.receive_exactly(size)
            await self._read_line()
        while await self._read_line():
            pass  # trailers
        return bytes(body)

    async def _read_line(self) -> str:
        return (await self._read_until(b"\r\n", "A line of the request is too long")).decode("latin-1")

    async def _read_until(self, end: bytes, message: str) -> bytes:
        try:
            return await self._reader.receive_until(end, _MAX_HEAD)
        except DelimiterNotFound as error:
            raise MalformedRequest(431, message) from error


def _parse_header(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon or not name.strip():
        raise MalformedRequest(400, f"Expected a header, not {line[:80]!r}")
    return name.strip().lower(), value.strip()


def _parse_length(text: str, base: int) -> int:
    if not text.isascii() or not text.isalnum():
        raise MalformedRequest(400, f"Expected the length of the body, not {text[:80]!r}")
    try:
        return _check_length(int(text, base))
    except ValueError as error:
        raise MalformedRequest(400, f"Expected the length of the body, not {text[:80]!r}") from error


def _check_length(length: int) -> int:
    if length > _MAX_BODY:
        raise MalformedRequest(413, "Request exceeds the maximum size")
    return length


def _response_head(status: int, headers: Mapping[str, str]) -> bytes:
    is_standard = status in HTTPStatus.__members__.values()
    phrase = HTTPStatus(status).phrase if is_standard else _EXTRA_PHRASES.get(status, "")
    lines = [f"HTTP/1.1 {status} {phrase}", *(f"{name}: {text}" for name, text in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


StreamEvent = dict[str, object]

_PIECE_LENGTH = 12
"""Characters per delta: short enough that most texts come in several."""
_EMPTY_CONTENT: dict[object, Block] = {
    "text": {"text": ""},
    "thinking": {"thinking": "", "signature": ""},
    "tool_use": {"input": {}},
    "server_tool_use": {"input": {}},
}
"""How a block starts whose content comes in deltas; other blocks come whole."""


def iter_stream_events(reply: RenderedReply) -> Iterator[StreamEvent]:
    """Every event of a streamed reply; one that fails ends with an `error` event.

    One whose connection is lost just has no end.
    """
    message = reply.message
    usage = message["usage"]
    final_usage = dict(usage) if isinstance(usage, Mapping) else {}
    initial_fields: StreamEvent = {"content": [], "stop_reason": None, "usage": {**final_usage, "output_tokens": 1}}
    started = {key: value for key, value in message.items() if key != "stop_details"}
    yield {"type": "message_start", "message": {**started, **initial_fields}}
    content = message["content"]
    blocks: list[Block] = content if isinstance(content, list) else []
    for index, block in enumerate(blocks):
        last = index == len(blocks) - 1
        yield from _block_stream_events(index, block, reply.truncated_input if last else None)
        if index == 0:
            yield {"type": "ping"}
    if reply.failure:
        if reply.failure.type != CONNECTION_DROPPED:
            yield error_body(reply.failure)
        return
    delta_keys = ("stop_reason", "stop_sequence", "stop_details")
    delta = {key: message[key] for key in delta_keys if key in message}
    yield {"type": "message_delta", "delta": delta, "usage": final_usage}
    yield {"type": "message_stop"}


def _block_stream_events(index: int, block: Block, truncated_input: str | None) -> Iterator[StreamEvent]:
    started = {**block, **_EMPTY_CONTENT.get(block["type"], {})}
    if "citations" in block:
        started["citations"] = []
    yield {"type": "content_block_start", "index": index, "content_block": started}
    for delta in _block_deltas(block, truncated_input):
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def _block_deltas(block: Block, truncated_input: str | None) -> Iterator[StreamEvent]:
    match block:
        case {"type": "text", "text": str(text)}:
            for piece in split_text(text):
                yield {"type": "text_delta", "text": piece}
            citations = block.get("citations")
            for citation in citations if isinstance(citations, list) else ():
                yield {"type": "citations_delta", "citation": citation}
        case {"type": "thinking", "thinking": str(text), "signature": signature}:
            for piece in split_text(text):
                yield {"type": "thinking_delta", "thinking": piece}
            yield {"type": "signature_delta", "signature": signature}
        case {"type": "tool_use" | "server_tool_use", "input": arguments}:
            text = msgspec.json.encode(arguments).decode() if truncated_input is None else truncated_input
            for piece in ("", *split_text(text)):  # the API's first piece is empty
                yield {"type": "input_json_delta", "partial_json": piece}
        case _:
            pass


def split_text(text: str) -> Iterator[str]:
    """A text in the pieces that it streams in."""
    for start in range(0, len(text), _PIECE_LENGTH):
        yield text[start : start + _PIECE_LENGTH]


_FINISH_REASONS = {"end_turn": "stop", "max_tokens": "length", "refusal": "content_filter", "tool_use": "tool_calls"}


def from_chat_request(body: Message) -> Message:
    """The request as the Messages API would have got it."""
    system: list[str] = []
    messages: list[Message] = []
    chat_messages = body.get("messages")
    for message in chat_messages if isinstance(chat_messages, list) else ():
        match message:
            case {"role": "system" | "developer", "content": str(text)}:
                system.append(text)
            case {"role": "assistant"}:
                messages.append({"role": "assistant", "content": _assistant_blocks(message)})
            case {"role": "tool", "tool_call_id": call_id, "content": content}:
                _append_user_block(messages, {"type": "tool_result", "tool_use_id": call_id, "content": content})
            case {"content": str(text)}:
                _append_user_block(messages, {"type": "text", "text": text})
            case {"content": list(parts)}:
                for part in parts:
                    _append_user_block(messages, _content_block(part))
            case _:
                messages.append(dict(message))
    tools = body.get("tools")
    return {
        **body,
        "system": "\n".join(system),
        "messages": messages,
        "tools": [_tool_schema(tool) for tool in tools] if isinstance(tools, list) else [],
    }


def chat_completion(reply: RenderedReply) -> Message:
    """A whole reply."""
    message = reply.message
    texts = [str(block["text"]) for block in _reply_blocks(reply) if block["type"] == "text"]
    calls = [_chat_call(n, block, reply) for n, block in _numbered_calls(reply)]
    chat_message: Message = {"role": "assistant", "content": "".join(texts) or None}
    if calls:
        chat_message["tool_calls"] = calls
    return {
        **_chat_head(reply, "chat.completion"),
        "choices": [{"index": 0, "message": chat_message, "finish_reason": _finish_reason(message)}],
        "usage": _chat_usage(message),
    }


def iter_chat_chunks(reply: RenderedReply) -> Iterator[bytes]:
    """A reply as it streams; one that fails ends with an error, a lost one with nothing."""
    for delta in _chat_deltas(reply):
        yield _encode_event(_chat_chunk(reply, delta))
    if reply.failure is not None:
        if reply.failure.type != CONNECTION_DROPPED:
            yield _encode_event(chat_error_body(reply.failure))
        return
    yield _encode_event(_chat_chunk(reply, {}, _finish_reason(reply.message)))
    usage: Message = {"choices": [], "usage": _chat_usage(reply.message)}
    yield _encode_event({**_chat_head(reply, "chat.completion.chunk"), **usage})
    yield b"data: [DONE]\n\n"


def chat_error_body(failure: ScriptedFailure) -> Message:
    """The JSON the API answers with."""
    return {"error": {"message": failure.message, "type": failure.type, "code": None}}


def _chat_deltas(reply: RenderedReply) -> Iterator[Message]:
    yield {"role": "assistant", "content": ""}
    for block in _reply_blocks(reply):
        if block["type"] == "text":
            for piece in split_text(str(block["text"])):
                yield {"content": piece}
        elif block["type"] == "thinking":
            for piece in split_text(str(block["thinking"])):
                yield {"reasoning_content": piece}
    for n, block in _numbered_calls(reply):
        call = _chat_call(n, block, reply)
        function = call["function"]
        arguments = str(function["arguments"]) if isinstance(function, dict) else ""
        first_part = {**call, "index": n, "function": {"name": block["name"], "arguments": ""}}
        yield {"tool_calls": [first_part]}
        for piece in split_text(arguments):
            yield {"tool_calls": [{"index": n, "function": {"arguments": piece}}]}


def _chat_call(n: int, block: Block, reply: RenderedReply) -> Message:
    """A call; the last one's arguments may be torn."""
    last = n == len([*_numbered_calls(reply)]) - 1
    full_input = msgspec.json.encode(block["input"]).decode()
    arguments = reply.truncated_input if last and reply.truncated_input is not None else full_input
    function = {"name": block["name"], "arguments": arguments}
    return {"id": block["id"], "type": "function", "function": function}


def _numbered_calls(reply: RenderedReply) -> Iterator[tuple[int, Block]]:
    yield from enumerate(block for block in _reply_blocks(reply) if block["type"] == "tool_use")


def _reply_blocks(reply: RenderedReply) -> list[Block]:
    content = reply.message["content"]
    return content if isinstance(content, list) else []


def _chat_chunk(reply: RenderedReply, delta: Message, reason: str | None = None) -> Message:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return {**_chat_head(reply, "chat.completion.chunk"), "choices": [choice]}


def _chat_head(reply: RenderedReply, kind: str) -> Message:
    message = reply.message
    return {"id": message["id"], "object": kind, "created": 0, "model": message["model"]}


def _finish_reason(message: Message) -> str:
    return _FINISH_REASONS.get(str(message["stop_reason"]), "stop")


def _chat_usage(message: Message) -> Message:
    usage = message["usage"]
    counts = usage if isinstance(usage, Mapping) else {}
    input_tokens, output_tokens = int(counts["input_tokens"]), int(counts["output_tokens"])
    return {
        "prompt_tokens": input_tokens,
        "completion_tokens": output_tokens,
        "total_tokens": input_tokens + output_tokens,
    }


def _assistant_blocks(message: Message) -> list[Block]:
    blocks: list[Block] = []
    if message.get("content"):
        blocks.append({"type": "text", "text": message["content"]})
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call["function"]
        arguments = msgspec.json.decode(function["arguments"])
        block = {"type": "tool_use", "id": call["id"], "name": function["name"], "input": arguments}
        blocks.append(block)
    return blocks


def _append_user_block(messages: list[Message], block: Block) -> None:
    """Neighbours of one role are one message."""
    last = messages[-1] if messages else None
    if last is not None and last["role"] == "user" and isinstance(last["content"], list):
        last["content"].append(block)
    else:
        messages.append({"role": "user", "content": [block]})


def _content_block(part: object) -> Block:
    match part:
        case {"type": "text", "text": str(text)}:
            return {"type": "text", "text": text}
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            return {"type": "image", "source": {"type": "url", "url": url}}
        case _:
            return {"type": "unknown"}


def _tool_schema(tool: object) -> object:
    match tool:
        case {"type": "function", "function": {"name": name, "parameters": schema}}:
            return {"name": name, "input_schema": schema}
        case _:
            return tool


def _encode_event(body: Message) -> bytes:
    return b"data: " + msgspec.json.encode(body) + b"\n\n"


_MESSAGES_PATH = "/v1/messages"
_CHAT_PATH = "/v1/chat/completions"
_COUNT_PATH = "/v1/messages/count_tokens"
_MODELS_PATH = "/v1/models"
_ALLOWED_METHODS = {
    _MESSAGES_PATH: ("POST",),
    _CHAT_PATH: ("POST",),
    _COUNT_PATH: ("POST",),
    _MODELS_PATH: ("GET", "HEAD"),
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
        self._ids = SeededIds("requests")
        self._script_error: Exception | None = None
        self._serve_context: AbstractAsyncContextManager[None] | None = None
        self._thread_stack = ExitStack()

    @property
    def url(self) -> str:
        """What clients take as base URL."""
        return f"http://127.0.0.1:{self._port}"

    async def __aenter__(self) -> Self:
        self._serve_context = self._serve_connections()
        await self._serve_context.__aenter__()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # The body's own error stays as it is: a task group would wrap it.
        if self._serve_context:
            await self._serve_context.__aexit__(None, None, None)
        if self._script_error and error:
            error.add_note(f"The script of the model raised {self._script_error!r}")
        elif self._script_error:
            raise self._script_error

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            portal = stack.enter_context(start_blocking_portal())
            stack.enter_context(portal.wrap_async_context_manager(self))
            self._thread_stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread_stack.__exit__(kind, error, trace)

    @asynccontextmanager
    async def _serve_connections(self) -> AsyncIterator[None]:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=self._port)
        async with listener, anyio.create_task_group() as tasks:
            self._port = listener.extra(SocketAttribute.local_port)
            tasks.start_soon(listener.serve, self._handle_stream)
            yield
            tasks.cancel_scope.cancel()

    async def _handle_stream(self, stream: ByteStream) -> None:
        connection = HttpConnection(stream)
        with suppress(*DISCONNECTED):  # nobody is left to tell
            async with stream:
                await self._handle_requests(connection)

    async def _handle_requests(self, connection: HttpConnection) -> None:
        try:
            async for request in connection.iter_requests():
                await connection.send_response(await self._respond(request), request)
        except MalformedRequest as error:
            await connection.send_response(self._error_response(fail(error.status, message=str(error))))
            await connection.shut_down()

    async def _respond(self, request: HttpRequest) -> HttpResponse:
        try:
            _check_request(request)
            if request.path == _MESSAGES_PATH:
                return await self._create_reply(
                    _parse_request_body(request, model=str, max_tokens=int), _MESSAGES_ENCODING
                )
            if request.path == _CHAT_PATH:
                return await self._create_reply(
                    from_chat_request(_parse_request_body(request, model=str)), _CHAT_ENCODING
                )
            if request.path == _COUNT_PATH:
                return self._ok_response(_token_count(_parse_request_body(request, model=str)))
            return self._ok_response(_model_list())
        except ApiError as error:
            if error.type == CONNECTION_DROPPED:
                raise BrokenResourceError from error
            return self._error_response(error.failure, chat=request.path == _CHAT_PATH)

    async def _create_reply(self, body: Message, api: _ReplyEncoding) -> HttpResponse:
        try:
            reply = await self.model.render_reply(body)
        except ApiError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a step raises, the client gets an answer
            return self._script_error_response(error)
        if body.get("stream") is True:
            lines = _until_dropped(api.encode_stream(reply), reply)
            return self._build_response(200, lines, content_type="text/event-stream")
        if reply.failure:
            raise ApiError(reply.failure)
        return self._ok_response(api.encode_whole(reply))

    def _script_error_response(self, error: Exception) -> HttpResponse:
        """The script itself is at fault; asking again would not help."""
        self._script_error = self._script_error or error
        exhausted = isinstance(error, ScriptExhausted)
        message = str(error) if exhausted else f"A step of the script raised {error!r}"
        failure = fail(400, "script_exhausted" if exhausted else "script_error", message)
        response = self._error_response(failure)
        return replace(response, headers={**response.headers, "x-should-retry": "false"})

    def _error_response(self, failure: ScriptedFailure, *, chat: bool = False) -> HttpResponse:
        body = chat_error_body(failure) if chat else error_body(failure)
        response = self._build_response(failure.status, body)
        body["request_id"] = response.headers["request-id"]
        headers = dict(response.headers)
        if failure.retry_after is not None:
            headers["retry-after"] = f"{failure.retry_after:g}"
        return replace(response, body=msgspec.json.encode(body), headers=headers)

    def _ok_response(self, body: Message) -> HttpResponse:
        return self._build_response(200, body)

    def _build_response(
        self, status: int, body: Message | Iterator[bytes], content_type: str = "application/json"
    ) -> HttpResponse:
        return HttpResponse(
            status=status,
            body=msgspec.json.encode(body) if isinstance(body, dict) else body,
            content_type=content_type,
            headers={"request-id": self._ids.next_token("req_011", 21)},
        )


def _check_request(request: HttpRequest) -> None:
    """Let in what the API lets in.

    Raises:
        ApiError: no such path or method, no key, no version.
    """
    allowed = _ALLOWED_METHODS.get(request.path)
    if allowed is None:
        raise ApiError(fail(404, message="Not Found"))
    if request.method not in allowed:
        raise ApiError(fail(405, "invalid_request_error", "Method Not Allowed"))
    if not {"x-api-key", "authorization"} & request.headers.keys():
        raise ApiError(fail(401, message="x-api-key header is required"))
    if request.path != _CHAT_PATH and "anthropic-version" not in request.headers:
        raise ApiError(fail(400, message="anthropic-version: header is required"))


def _parse_request_body(request: HttpRequest, **required: type) -> Message:
    """The JSON object of a request, with its required fields."""
    try:
        body = msgspec.json.decode(request.body, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        message = f"The request body is not valid JSON: {error}"
        raise ApiError(fail(400, message=message)) from error
    for key, kind in (*required.items(), ("messages", list)):
        if key not in body:
            raise ApiError(fail(400, message=f"{key}: Field required"))
        if type(body[key]) is not kind:
            raise ApiError(fail(400, message=f"{key}: Input should be a valid {kind.__name__}"))
    return body


def _token_count(body: Message) -> Message:
    validated_messages(body)
    return {"input_tokens": count_tokens(body)}


def _model_list() -> Message:
    entry = {
        "type": "model",
        "id": MODEL_NAME,
        "display_name": "Scripted",
        "created_at": "2025-01-01T00:00:00Z",
        "lifecycle": "active",
    }
    return {"data": [entry], "has_more": False, "first_id": MODEL_NAME, "last_id": MODEL_NAME}


def _event_stream(reply: RenderedReply) -> Iterator[bytes]:
    for event in iter_stream_events(reply):
        yield (f"event: {event['type']}\n".encode() + b"data: " + msgspec.json.encode(event) + b"\n\n")


def _until_dropped(lines: Iterator[bytes], reply: RenderedReply) -> Iterator[bytes]:
    """The lines; where the connection is lost, what a lost connection is to who sends.

    Raises:
        BrokenResourceError: it is lost.
    """
    yield from lines
    if reply.failure and reply.failure.type == CONNECTION_DROPPED:
        raise BrokenResourceError


class _ReplyEncoding(NamedTuple):
    """How an API says a reply."""

    encode_stream: Callable[[RenderedReply], Iterator[bytes]]
    encode_whole: Callable[[RenderedReply], Message]


_MESSAGES_ENCODING = _ReplyEncoding(_event_stream, lambda spoken: spoken.message)
_CHAT_ENCODING = _ReplyEncoding(iter_chat_chunks, chat_completion)


@click.command()
@click.argument("script", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--port", default=0, show_default=True, help="Port on 127.0.0.1; 0 is any free one.")
@click.option("--then", metavar="TEXT", help="What to say when the script is at its end.")
def main(script: Path, port: int, then: str | None) -> None:
    """Serve SCRIPT, a JSON list of replies, as the Messages API."""
    try:
        steps = load_script(script.read_bytes())
    except ValueError as error:
        raise click.ClickException(f"{script}: {error}") from error
    model = ScriptedModel(steps, then=say(then) if then else None)
    try:
        anyio.run(_serve_until_signal, ModelServer(model, port=port))
    except ScriptExhausted as error:
        raise click.ClickException(str(error)) from error


async def _serve_until_signal(server: ModelServer) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with server:
            sys.stdout.write(f"{server.url}\n")
            sys.stdout.flush()
            async for _ in signals:
                return


if __name__ == "__main__":
    main()
