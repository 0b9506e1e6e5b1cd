"""A local HTTP server that answers requests of four APIs from a script: Messages, chat completions, Gemini, Bedrock.

`python -m toolspan.testing.model_server SCRIPT` serves a script file. Start at `ModelServer._respond`.
"""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast
from urllib.parse import unquote

import anyio
import click
import h11
import msgspec
from anyio import BrokenResourceError, ClosedResourceError, EndOfStream, move_on_after
from anyio.abc import ByteStream, SocketAttribute
from anyio.from_thread import start_blocking_portal

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
from toolspan.testing.model_forms import (
    bedrock_error_body,
    bedrock_error_code,
    encode_bedrock_stream,
    encode_event,
    encode_gemini_stream,
    from_bedrock_request,
    from_gemini_request,
    gemini_error_body,
    reply_blocks,
    split_text,
)

DISCONNECTED = (BrokenResourceError, ClosedResourceError, EndOfStream, h11.LocalProtocolError)
"""Exceptions raised when the client has closed the connection."""

_MAX_BODY = 32 * 1024 * 1024
_MAX_HEAD = 65_536
_RECEIVE_SIZE = 65_536
_SHUTDOWN_TIMEOUT = 2
_EXTRA_PHRASES = {529: b"Overloaded"}


class MalformedRequest(Exception):  # noqa: N818 - reads as a noun where it is caught
    """Raised if the received bytes are not a valid request; the connection must be closed."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, kw_only=True)
class HttpRequest:
    """One request, with lower-case header names and a path without the query."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True, kw_only=True)
class HttpResponse:
    """One response, complete or in pieces."""

    status: int
    body: bytes | Iterable[bytes]
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


class HttpConnection:
    """The server side of one HTTP/1.1 connection."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_HEAD)

    async def iter_requests(self) -> AsyncIterator[HttpRequest]:
        """Yield requests until the client disconnects or asks to close."""
        while (request := await self.read_request()) is not None:
            yield request
            if self._protocol.our_state is h11.MUST_CLOSE:
                return
            self._protocol.start_next_cycle()

    async def read_request(self) -> HttpRequest | None:
        """Return the next request, or None if the client has disconnected."""
        head: h11.Request | None = None
        body = bytearray()
        while True:
            try:
                event = self._protocol.next_event()
            except h11.RemoteProtocolError as error:
                raise MalformedRequest(error.error_status_hint, str(error)) from error
            match event:
                case h11.NEED_DATA:
                    await self._receive_data()
                case h11.Request() as head:
                    if int(dict(head.headers).get(b"content-length", b"0")) > _MAX_BODY:
                        raise MalformedRequest(413, "Request exceeds the maximum size")
                case h11.Data(data=data):
                    body += data
                    if len(body) > _MAX_BODY:
                        raise MalformedRequest(413, "Request exceeds the maximum size")
                case h11.EndOfMessage() if head is not None:
                    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
                    path = head.target.decode("latin-1").partition("?")[0]
                    return HttpRequest(method=head.method.decode(), path=path, headers=headers, body=bytes(body))
                case _:
                    return None

    async def _receive_data(self) -> None:
        if self._protocol.they_are_waiting_for_100_continue:
            await self._send(h11.InformationalResponse(status_code=100, headers=[]))
        try:
            self._protocol.receive_data(await self._stream.receive(_RECEIVE_SIZE))
        except EndOfStream:
            self._protocol.receive_data(b"")

    async def send_response(self, response: HttpResponse, request: HttpRequest | None = None) -> None:
        """Send a response to a request, or to bytes that are not a valid request."""
        headers = {"content-type": response.content_type, **response.headers}
        if isinstance(response.body, bytes):
            headers["content-length"] = str(len(response.body))
        if self._protocol.their_state is h11.ERROR:
            headers["connection"] = "close"
        await self._send(
            h11.Response(
                status_code=response.status,
                headers=[(name.encode(), value.encode()) for name, value in headers.items()],
                reason=_EXTRA_PHRASES.get(response.status) or HTTPStatus(response.status).phrase.encode(),
            )
        )
        if request is None or request.method != "HEAD":
            for piece in [response.body] if isinstance(response.body, bytes) else response.body:
                await self._send(h11.Data(data=piece))
        await self._send(h11.EndOfMessage())

    async def shut_down(self) -> None:
        """Stop sending and drain the input, because unread input would reset the connection."""
        await self._stream.send_eof()
        with move_on_after(_SHUTDOWN_TIMEOUT):
            async for _ in self._stream:
                pass

    async def _send(self, event: h11.Event) -> None:
        if data := self._protocol.send(event):
            await self._stream.send(data)


_EMPTY_CONTENT: dict[object, Block] = {
    "text": {"text": ""},
    "thinking": {"thinking": "", "signature": ""},
    "tool_use": {"input": {}},
    "server_tool_use": {"input": {}},
}
"""The initial content of blocks that are streamed in deltas; other blocks are sent whole."""


def _encode_stream(reply: RenderedReply) -> Iterator[bytes]:
    """Encode a streamed reply. A failure ends with an `error` event, a dropped connection with no last event."""
    for event in _stream_events(reply):
        yield f"event: {event['type']}\n".encode() + encode_event(event)


def _stream_events(reply: RenderedReply) -> Iterator[Message]:
    message = reply.message
    usage = cast("Message", message["usage"])
    head = {key: value for key, value in message.items() if key != "stop_details"}
    head |= {"content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    yield {"type": "message_start", "message": head}
    blocks = reply_blocks(reply)
    for index, block in enumerate(blocks):
        started = {**block, **_EMPTY_CONTENT.get(block["type"], {})}
        if "citations" in block:
            started["citations"] = []
        yield {"type": "content_block_start", "index": index, "content_block": started}
        for delta in _block_deltas(block, reply.truncated_input if index == len(blocks) - 1 else None):
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
        if index == 0:
            yield {"type": "ping"}
    if reply.failure:
        if reply.failure.type != CONNECTION_DROPPED:
            yield error_body(reply.failure)
        return
    delta = {key: message[key] for key in ("stop_reason", "stop_sequence", "stop_details") if key in message}
    yield {"type": "message_delta", "delta": delta, "usage": usage}
    yield {"type": "message_stop"}


def _block_deltas(block: Block, truncated_input: str | None) -> Iterator[Message]:
    match block:
        case {"type": "text", "text": str(text)}:
            for piece in split_text(text):
                yield {"type": "text_delta", "text": piece}
            for citation in cast("list[object]", block.get("citations", [])):
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


_FINISH_REASONS = {"end_turn": "stop", "max_tokens": "length", "refusal": "content_filter", "tool_use": "tool_calls"}


def _from_chat_request(body: Message) -> Message:
    """Convert a chat completions request to a Messages API request."""
    system: list[str] = []
    messages: list[Message] = []
    for message in cast("list[Message]", body["messages"]):
        match message:
            case {"role": "system" | "developer", "content": str(text)}:
                system.append(text)
                continue
            case {"role": "assistant"}:
                role, blocks = "assistant", _assistant_blocks(message)
            case {"role": "tool", "tool_call_id": call_id, "content": content}:
                role, blocks = "user", [{"type": "tool_result", "tool_use_id": call_id, "content": content}]
            case {"content": str(text)}:
                role, blocks = "user", [{"type": "text", "text": text}]
            case {"content": list(parts)}:
                role, blocks = "user", [_content_block(part) for part in parts]
            case _:
                messages.append(dict(message))
                continue
        last = messages[-1] if messages else {}
        last_content = last.get("content")
        if role == last.get("role") == "user" and isinstance(last_content, list):
            last_content += blocks
        else:
            messages.append({"role": role, "content": blocks})
    tools = body.get("tools")
    schemas = [_tool_schema(tool) for tool in tools] if isinstance(tools, list) else []
    return {**body, "system": "\n".join(system), "messages": messages, "tools": schemas}


def _assistant_blocks(message: Message) -> list[Block]:
    content = message.get("content")
    blocks: list[Block] = [{"type": "text", "text": content}] if content else []
    for call in cast("list[dict[str, Any]]", message.get("tool_calls") or []):
        function = call["function"]
        arguments = msgspec.json.decode(function["arguments"])
        blocks.append({"type": "tool_use", "id": call["id"], "name": function["name"], "input": arguments})
    return blocks


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


def _chat_completion(reply: RenderedReply) -> Message:
    """Return a reply as a chat completion."""
    texts = [str(block["text"]) for block in reply_blocks(reply) if block["type"] == "text"]
    message: Message = {"role": "assistant", "content": "".join(texts) or None}
    calls = [
        {"id": block["id"], "type": "function", "function": {"name": block["name"], "arguments": arguments}}
        for block, arguments in _chat_calls(reply)
    ]
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "finish_reason": _finish_reason(reply)}
    return {**_chat_head(reply, "chat.completion"), "choices": [choice], "usage": _chat_usage(reply)}


def _encode_chat_stream(reply: RenderedReply) -> Iterator[bytes]:
    """Encode a streamed reply. A failure ends with an error, a dropped connection without a final chunk."""
    head = _chat_head(reply, "chat.completion.chunk")
    for delta in _chat_deltas(reply):
        yield encode_event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    if reply.failure is not None:
        if reply.failure.type != CONNECTION_DROPPED:
            yield encode_event(_chat_error_body(reply.failure))
        return
    yield encode_event({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": _finish_reason(reply)}]})
    yield encode_event({**head, "choices": [], "usage": _chat_usage(reply)})
    yield b"data: [DONE]\n\n"


def _chat_deltas(reply: RenderedReply) -> Iterator[Message]:
    yield {"role": "assistant", "content": ""}
    for block in reply_blocks(reply):
        for kind, key in (("text", "content"), ("thinking", "reasoning_content")):
            if block["type"] == kind:
                for piece in split_text(str(block[kind])):
                    yield {key: piece}
    for n, (block, arguments) in enumerate(_chat_calls(reply)):
        function = {"name": block["name"], "arguments": ""}
        yield {"tool_calls": [{"id": block["id"], "type": "function", "function": function, "index": n}]}
        for piece in split_text(arguments):
            yield {"tool_calls": [{"index": n, "function": {"arguments": piece}}]}


def _chat_calls(reply: RenderedReply) -> list[tuple[Block, str]]:
    """Return the calls in a reply with their arguments; those of the last call may be truncated."""
    blocks = [block for block in reply_blocks(reply) if block["type"] == "tool_use"]
    arguments = [msgspec.json.encode(block["input"]).decode() for block in blocks]
    if blocks and reply.truncated_input is not None:
        arguments[-1] = reply.truncated_input
    return list(zip(blocks, arguments, strict=True))


def _chat_head(reply: RenderedReply, kind: str) -> Message:
    return {"id": reply.message["id"], "object": kind, "created": 0, "model": reply.message["model"]}


def _finish_reason(reply: RenderedReply) -> str:
    return _FINISH_REASONS.get(str(reply.message["stop_reason"]), "stop")


def _chat_usage(reply: RenderedReply) -> Message:
    counts = cast("dict[str, int]", reply.message["usage"])
    prompt, completion = counts["input_tokens"], counts["output_tokens"]
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _chat_error_body(failure: ScriptedFailure) -> Message:
    return {"error": {"message": failure.message, "type": failure.type, "code": None}}


@dataclass(frozen=True, kw_only=True)
class _ApiForm:
    """One API that the server offers: how it is requested, and the form of its answers."""

    path: re.Pattern[str]
    read_request: Callable[[HttpRequest, str], Message]
    """Returns the request as a request of the Messages API. The second argument is the model in the path, if any."""
    encode_stream: Callable[[RenderedReply], Iterator[bytes]]
    encode_reply: Callable[[RenderedReply], Message] | None = None
    """Encodes a reply that is not streamed; None if the API streams all."""
    error_body: Callable[[ScriptedFailure], Message] = error_body
    error_headers: Callable[[ScriptedFailure], Mapping[str, str]] = lambda _: {}
    stream_type: str = "text/event-stream"


def _read_messages_request(request: HttpRequest, _model: str) -> Message:
    if "anthropic-version" not in request.headers:
        raise ApiError(fail(400, message="anthropic-version: header is required"))
    return _parse_request_body(request, model=str, max_tokens=int, messages=list)


_MESSAGES_FORM = _ApiForm(
    path=re.compile("/v1/messages"),
    read_request=_read_messages_request,
    encode_stream=_encode_stream,
    encode_reply=lambda reply: reply.message,
)
_FORMS = (
    _MESSAGES_FORM,
    _ApiForm(
        path=re.compile("/v1/chat/completions"),
        read_request=lambda request, _: _from_chat_request(_parse_request_body(request, model=str, messages=list)),
        encode_stream=_encode_chat_stream,
        encode_reply=_chat_completion,
        error_body=_chat_error_body,
    ),
    _ApiForm(
        path=re.compile("/v1(?:beta)?/models/([^/]+):streamGenerateContent"),
        read_request=lambda request, model: from_gemini_request(_parse_request_body(request, contents=list), model),
        encode_stream=encode_gemini_stream,
        error_body=gemini_error_body,
    ),
    _ApiForm(
        path=re.compile("/model/([^/]+)/converse-stream"),
        read_request=lambda request, model: from_bedrock_request(_parse_request_body(request, messages=list), model),
        encode_stream=encode_bedrock_stream,
        error_body=bedrock_error_body,
        error_headers=lambda failure: {"x-amzn-errortype": bedrock_error_code(failure)},
        stream_type="application/vnd.amazon.eventstream",
    ),
)
_COUNT_PATH = "/v1/messages/count_tokens"
_MODELS_PATH = "/v1/models"
_KEY_HEADERS = frozenset({"x-api-key", "x-goog-api-key", "authorization"})
_MODEL_LIST: Message = {
    "data": [
        {
            "type": "model",
            "id": MODEL_NAME,
            "display_name": "Scripted",
            "created_at": "2025-01-01T00:00:00Z",
            "lifecycle": "active",
        }
    ],
    "has_more": False,
    "first_id": MODEL_NAME,
    "last_id": MODEL_NAME,
}


class ModelServer:
    """A server for a scripted model, active while its context is open (`async with` or `with`).

    `async with` serves in the current event loop, so a step of the script may wait for the test;
    `with` serves in a thread. An exception from a step becomes an error response and is raised
    again when the context ends.
    """

    def __init__(self, model: ScriptedModel, *, port: int = 0) -> None:
        """Serve `model`; port 0 selects a free port."""
        self.model = model
        self._port = port
        self._ids = SeededIds("requests")
        self._script_error: Exception | None = None
        self._serve_context: AbstractAsyncContextManager[None] | None = None
        self._thread_stack = ExitStack()

    @property
    def url(self) -> str:
        """The base URL for clients."""
        return f"http://127.0.0.1:{self._port}"

    async def __aenter__(self) -> Self:
        self._serve_context = self._serve_connections()
        await self._serve_context.__aenter__()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # Keep the error of the body as it is; a task group would wrap it.
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
        with suppress(*DISCONNECTED):
            async with stream:
                try:
                    async for request in connection.iter_requests():
                        await connection.send_response(await self._respond(request), request)
                except MalformedRequest as error:
                    await connection.send_response(self._error_response(fail(error.status, message=str(error))))
                    await connection.shut_down()

    async def _respond(self, request: HttpRequest) -> HttpResponse:
        matches = ((form, form.path.fullmatch(unquote(request.path))) for form in _FORMS)
        form, match = next(((form, match) for form, match in matches if match), (_MESSAGES_FORM, None))
        try:
            _check_request(request, is_form=match is not None)
            if request.path == _MODELS_PATH:
                return self._build_response(200, _MODEL_LIST)
            if request.path == _COUNT_PATH:
                body = _parse_request_body(request, model=str, messages=list)
                validated_messages(body)
                return self._build_response(200, {"input_tokens": count_tokens(body)})
            model = match[1] if match is not None and match.re.groups else ""
            return await self._create_reply(form.read_request(request, model), form)
        except ApiError as error:
            if error.type == CONNECTION_DROPPED:
                raise BrokenResourceError from error
            return self._error_response(error.failure, form)

    async def _create_reply(self, body: Message, form: _ApiForm) -> HttpResponse:
        try:
            reply = await self.model.render_reply(body)
        except ApiError:
            raise
        except Exception as error:  # noqa: BLE001 - every exception of a step becomes a response
            self._script_error = self._script_error or error
            exhausted = isinstance(error, ScriptExhausted)
            message = str(error) if exhausted else f"A step of the script raised {error!r}"
            failure = fail(400, "script_exhausted" if exhausted else "script_error", message)
            response = self._error_response(failure, form)
            # Clients must not retry.
            return replace(response, headers={**response.headers, "x-should-retry": "false"})
        if body.get("stream") is True or form.encode_reply is None:
            encoded = _until_dropped(form.encode_stream(reply), reply)
            return self._build_response(200, encoded, content_type=form.stream_type)
        if reply.failure:
            raise ApiError(reply.failure)
        return self._build_response(200, form.encode_reply(reply))

    def _error_response(self, failure: ScriptedFailure, form: _ApiForm = _MESSAGES_FORM) -> HttpResponse:
        body = form.error_body(failure)
        response = self._build_response(failure.status, body)
        body["request_id"] = response.headers["request-id"]
        headers = {**response.headers, **form.error_headers(failure)}
        if failure.retry_after is not None:
            headers["retry-after"] = f"{failure.retry_after:g}"
        return replace(response, body=msgspec.json.encode(body), headers=headers)

    def _build_response(
        self, status: int, body: Message | Iterator[bytes], content_type: str = "application/json"
    ) -> HttpResponse:
        return HttpResponse(
            status=status,
            body=msgspec.json.encode(body) if isinstance(body, dict) else body,
            content_type=content_type,
            headers={"request-id": self._ids.next_token("req_011", 21)},
        )


def _check_request(request: HttpRequest, *, is_form: bool) -> None:
    """Check the path, method and headers as the API does."""
    if not is_form and request.path not in (_COUNT_PATH, _MODELS_PATH):
        raise ApiError(fail(404, message="Not Found"))
    if request.method not in (("GET", "HEAD") if request.path == _MODELS_PATH else ("POST",)):
        raise ApiError(fail(405, "invalid_request_error", "Method Not Allowed"))
    if not _KEY_HEADERS & request.headers.keys():
        raise ApiError(fail(401, message="x-api-key header is required"))
    if not is_form and "anthropic-version" not in request.headers:
        raise ApiError(fail(400, message="anthropic-version: header is required"))


def _parse_request_body(request: HttpRequest, **required: type) -> Message:
    """Return the JSON object in a request after checking its required fields."""
    try:
        body = msgspec.json.decode(request.body, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        message = f"The request body is not valid JSON: {error}"
        raise ApiError(fail(400, message=message)) from error
    for key, kind in required.items():
        if key not in body:
            raise ApiError(fail(400, message=f"{key}: Field required"))
        if type(body[key]) is not kind:
            raise ApiError(fail(400, message=f"{key}: Input should be a valid {kind.__name__}"))
    return body


def _until_dropped(lines: Iterator[bytes], reply: RenderedReply) -> Iterator[bytes]:
    """Yield the lines, then raise BrokenResourceError if the script drops the connection."""
    yield from lines
    if reply.failure and reply.failure.type == CONNECTION_DROPPED:
        raise BrokenResourceError


@click.command()
@click.argument("script", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--port", default=0, show_default=True, help="Port on 127.0.0.1; 0 selects a free port.")
@click.option("--then", metavar="TEXT", help="The reply after the end of the script.")
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
