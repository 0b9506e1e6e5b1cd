"""Models of Amazon Bedrock, through the Converse API of boto3.

Requests and events are translated to and from the Messages API. boto3 has no asynchronous interface, so it waits for
events in threads. It is an optional dependency and is imported when a model is created. Its own retries are off,
because `retry.py` handles them.
"""

from __future__ import annotations

import base64
import os
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import anyio.to_thread

from toolspan.session.models.base import (
    BlockDone,
    CallBegan,
    InputDelta,
    ModelEvent,
    ModelFailed,
    ModelRequest,
    ModelStream,
    ReplyBegan,
    ReplyStopped,
    TextDelta,
    ThinkingDelta,
    Usage,
    failure_from_status,
    interrupted_stream_failure,
)
from toolspan.session.models.history import (
    Message,
    iter_call_ids,
    message_blocks,
    parse_call_input,
    sanitize_tool_name,
    text_with_placeholders,
    unique_call_id,
)

BedrockBlock = dict[str, Any]
_T = TypeVar("_T")
_READ_TIMEOUT = 600
"""The seconds after which boto3 gives up. `RetryOptions.idle_timeout_s` ends a silent stream before."""
_IMAGE_FORMATS = {"image/png": "png", "image/jpeg": "jpeg", "image/gif": "gif", "image/webp": "webp"}
_STOP_REASONS = {"guardrail_intervened": "refusal", "content_filtered": "refusal"}
_ERRORS = {
    "ThrottlingException": (429, "rate_limit_error"),
    "ServiceQuotaExceededException": (429, "rate_limit_error"),
    "ModelNotReadyException": (429, "overloaded_error"),
    "ModelTimeoutException": (504, "timeout_error"),
    "ModelStreamErrorException": (500, "api_error"),
    "InternalServerException": (500, "api_error"),
    "ServiceUnavailableException": (503, "overloaded_error"),
    "ValidationException": (400, "invalid_request_error"),
    "AccessDeniedException": (403, "permission_error"),
    "ResourceNotFoundException": (404, "not_found_error"),
    "ExpiredTokenException": (401, "authentication_error"),
    "UnrecognizedClientException": (401, "authentication_error"),
}
"""The status and kind of errors. Those within a stream begin with a small letter and have no status."""


def to_bedrock_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Translate messages. Consecutive ones of a role become one."""
    translated: list[dict[str, Any]] = []
    for message in messages:
        role = "assistant" if message["role"] == "assistant" else "user"
        blocks = [piece for block in message_blocks(message) for piece in _translate_block(block)]
        if blocks and translated and translated[-1]["role"] == role:
            translated[-1]["content"] += blocks
        elif blocks:
            translated.append({"role": role, "content": blocks})
    return translated


def _translate_block(block: Mapping[str, object]) -> Iterator[BedrockBlock]:
    match block:
        case {"type": "text", "text": str(text)}:
            if text.strip():
                yield {"text": text}
        case {"type": "thinking", "thinking": str(text), "signature": str(signature)}:
            yield {"reasoningContent": {"reasoningText": {"text": text, "signature": signature}}}
        case {"type": "thinking" | "redacted_thinking"}:
            return
        case {"type": "tool_use", "id": call_id, "name": name, "input": arguments}:
            yield {"toolUse": {"toolUseId": call_id, "name": name, "input": arguments}}
        case {"type": "tool_result", "tool_use_id": call_id}:
            content = [piece for part in message_blocks(block) for piece in _translate_block(part)]
            status = "error" if block.get("is_error") is True else "success"
            yield {"toolResult": {"toolUseId": call_id, "content": content or [{"text": "(empty)"}], "status": status}}
        case {"type": "image", "source": {"type": "base64", "media_type": str(media), "data": str(data)}} if (
            media in _IMAGE_FORMATS
        ):
            yield {"image": {"format": _IMAGE_FORMATS[media], "source": {"bytes": base64.b64decode(data)}}}
        case _:
            yield {"text": text_with_placeholders([dict(block)])}


class BedrockModel:
    """A model accessed through the Converse API."""

    def __init__(self, name: str, *, base_url: str | None = None) -> None:
        """Create a model. boto3 finds the region and the credentials, as all programs that use it do.

        Raises:
            ImportError: the package `boto3` is not installed.
            ModelFailed: there is no region.
        """
        import boto3
        import urllib3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError, ClientError

        self.name = name
        self._service_error = ClientError
        self._transport_errors = (BotoCoreError, urllib3.exceptions.HTTPError, OSError)
        config = Config(retries={"total_max_attempts": 1}, read_timeout=_READ_TIMEOUT)
        try:
            region = os.environ.get("AWS_REGION")  # all SDKs of AWS but boto3 read it
            self._client: Any = boto3.client(
                "bedrock-runtime", region_name=region, endpoint_url=base_url, config=config
            )
        except BotoCoreError as error:
            raise ModelFailed(f"Bedrock is not configured: {error}", kind="setup") from error

    async def stream(self, request: ModelRequest) -> ModelStream:
        """Stream the reply, translating the API's events."""
        options: dict[str, Any] = {"inferenceConfig": {"maxTokens": request.max_tokens}}
        if request.system:
            options["system"] = [{"text": request.system}]
        if tools := _declare_tools(request):
            options["toolConfig"] = {"tools": tools}
        model, messages = request.model or self.name, to_bedrock_messages(request.messages)
        response = await self._wait_for(
            lambda: self._client.converse_stream(modelId=model, messages=messages, **options)
        )
        request_id = response["ResponseMetadata"].get("RequestId")
        reader = _BedrockStreamReader(set(iter_call_ids(request.messages)))
        yield ReplyBegan(f"msg_bdrk_{uuid.uuid4().hex[:24]}", model, request_id)
        stream = response["stream"]
        events = iter(stream)
        try:
            while (event := await self._wait_for(lambda: next(events, None))) is not None:
                for model_event in reader.read_event(event):
                    yield model_event
        finally:
            stream.close()  # a thread that still waits for an event ends then
        if reader.stop_reason is None:
            raise interrupted_stream_failure()
        yield ReplyStopped(reader.stop_reason)

    async def close(self) -> None:
        """Close the connections."""
        self._client.close()

    async def _wait_for(self, function: Callable[[], _T]) -> _T:
        """Call a function in a thread, which is left alone if nobody waits any more."""
        with self._translate_errors():
            return await anyio.to_thread.run_sync(function, abandon_on_cancel=True)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except self._service_error as error:
            details = error.response.get("Error", {})
            code, message = str(details.get("Code", "")), str(details.get("Message") or error)
            metadata = error.response.get("ResponseMetadata", {})
            known_status, kind = _ERRORS.get(code[:1].upper() + code[1:], (500, "api_error"))
            status = metadata.get("HTTPStatusCode", known_status)
            status = known_status if status == 200 else status  # of the stream in which the error arrived
            raise failure_from_status(status, message, kind=kind, headers=metadata.get("HTTPHeaders")) from error
        except self._transport_errors as error:
            retry = type(error).__name__ not in ("NoCredentialsError", "NoRegionError", "PartialCredentialsError")
            message = f"no connection to the model: {error}" if retry else f"Bedrock is not configured: {error}"
            raise ModelFailed(message, kind="connection" if retry else "setup", retry=retry) from error


class _BedrockStreamReader:
    """A reader that translates stream events and assembles blocks from them."""

    def __init__(self, used_ids: set[str]) -> None:
        self.stop_reason: str | None = None
        self._used_ids = used_ids
        self._call: tuple[str, str] | None = None
        """The id and the name of the current call."""
        self._pieces: defaultdict[str, list[str]] = defaultdict(list)

    def read_event(self, event: Mapping[str, Any]) -> Iterator[ModelEvent]:
        """Translate an API event."""
        match event:
            case {"contentBlockStart": {"start": {"toolUse": {"toolUseId": sent_id, "name": name}}}}:
                call_id = unique_call_id(sent_id, self._used_ids)
                self._used_ids.add(call_id)
                self._call = (call_id, sanitize_tool_name(name))
                yield CallBegan(*self._call)
            case {"contentBlockDelta": {"delta": delta}}:
                yield from self._read_delta(delta)
            case {"contentBlockStop": _}:
                yield from self._close_block()
            case {"messageStop": {"stopReason": str(reason)}}:
                self.stop_reason = _STOP_REASONS.get(reason, reason)
            case {"metadata": {"usage": usage}}:
                yield Usage(
                    {
                        "input_tokens": usage.get("inputTokens", 0),
                        "cache_creation_input_tokens": usage.get("cacheWriteInputTokens", 0),
                        "cache_read_input_tokens": usage.get("cacheReadInputTokens", 0),
                        "output_tokens": usage.get("outputTokens", 0),
                    }
                )
            case _:
                pass

    def _read_delta(self, delta: Mapping[str, Any]) -> Iterator[ModelEvent]:
        match delta:
            case {"text": str(text)}:
                self._pieces["text"].append(text)
                yield TextDelta(text)
            case {"toolUse": {"input": str(text)}} if self._call is not None:
                self._pieces["input"].append(text)
                yield InputDelta(self._call[0], text)
            case {"reasoningContent": {"text": str(text)}}:
                self._pieces["thinking"].append(text)
                yield ThinkingDelta(text)
            case {"reasoningContent": {"signature": str(text)}}:
                self._pieces["signature"].append(text)
            case _:
                pass

    def _close_block(self) -> Iterator[ModelEvent]:
        texts = {key: "".join(pieces) for key, pieces in self._pieces.items()}
        call, self._call = self._call, None
        self._pieces.clear()
        if call is not None:
            arguments = parse_call_input(texts.get("input", ""))
            yield BlockDone({"type": "tool_use", "id": call[0], "name": call[1], "input": arguments})
        elif texts.get("text"):
            yield BlockDone({"type": "text", "text": texts["text"]})
        elif texts.get("signature"):  # thoughts without one cannot be sent back
            thinking = texts.get("thinking", "")
            yield BlockDone({"type": "thinking", "thinking": thinking, "signature": texts["signature"]})


def _declare_tools(request: ModelRequest) -> list[BedrockBlock]:
    """Translate the tools. The API requires some if the messages contain calls."""
    tools = list(request.tools)
    if not tools:
        blocks = [block for message in request.messages for block in message_blocks(message)]
        names = {str(block["name"]) for block in blocks if block.get("type") == "tool_use"}
        tools = [{"name": name} for name in sorted(names)]
    specs = []
    for tool in tools:
        spec = {"name": tool["name"], "inputSchema": {"json": tool.get("input_schema", {"type": "object"})}}
        if tool.get("description"):
            spec["description"] = tool["description"]
        specs.append({"toolSpec": spec})
    return specs
