"""Models that use the Gemini API, or Vertex AI, through Google's SDK.

Requests and events are translated to and from the Messages API. The SDK is an optional dependency and is imported when
a model is created. Its own retries are off, because `retry.py` handles them.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import httpx2

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
    translate_errors,
)
from toolspan.session.models.history import (
    Message,
    iter_call_ids,
    message_blocks,
    sanitize_tool_name,
    text_with_placeholders,
    unique_call_id,
)

if TYPE_CHECKING:
    from google.genai.types import GenerateContentResponse

_CONNECT_TIMEOUT = 30.0
GeminiPart = dict[str, Any]
_STOP_REASONS = {"STOP": "end_turn", "MAX_TOKENS": "max_tokens"}
_FAILED_REASONS = frozenset({"MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL", "OTHER"})
"""Reasons after which another attempt may succeed. All others are refusals."""
_FOREIGN_SIGNATURE = b"skip_thought_signature_validator"
"""The documented signature for calls that this model did not make, such as those of a resumed session."""
_ERROR_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    503: "overloaded_error",
}


def to_gemini_contents(messages: Sequence[Message], signatures: Mapping[str, bytes]) -> list[dict[str, Any]]:
    """Translate messages. `signatures` are those that calls came with."""
    contents: list[dict[str, Any]] = []
    names: dict[str, str] = {}
    for message in messages:
        role = "model" if message["role"] == "assistant" else "user"
        parts = [part for block in message_blocks(message) for part in _block_parts(block, names, signatures)]
        if parts and contents and contents[-1]["role"] == role:
            contents[-1]["parts"] += parts
        elif parts:
            contents.append({"role": role, "parts": parts})
    return contents


def _block_parts(
    block: Mapping[str, object], names: dict[str, str], signatures: Mapping[str, bytes]
) -> Iterator[GeminiPart]:
    match block:
        case {"type": "text", "text": str(text)}:
            yield {"text": text}
        case {"type": "thinking" | "redacted_thinking"}:
            return
        case {"type": "tool_use", "id": str(call_id), "name": str(name), "input": arguments}:
            names[call_id] = name
            call = {"id": call_id, "name": name, "args": arguments}
            yield {"function_call": call, "thought_signature": signatures.get(call_id, _FOREIGN_SIGNATURE)}
        case {"type": "tool_result", "tool_use_id": str(call_id)}:
            key = "error" if block.get("is_error") is True else "output"
            content = block.get("content")
            response = {key: text_with_placeholders(content)}
            yield {"function_response": {"id": call_id, "name": names.get(call_id, "unknown"), "response": response}}
            for part in content if isinstance(content, list) else ():
                if isinstance(part, Mapping) and part.get("type") == "image":
                    yield from _block_parts(part, names, signatures)
        case {"type": "image" | "document", "source": {"type": "base64", "media_type": media, "data": str(data)}}:
            yield {"inline_data": {"mime_type": media, "data": base64.b64decode(data)}}
        case _:
            yield {"text": text_with_placeholders([dict(block)])}


class GeminiModel:
    """A model accessed through the Gemini API."""

    def __init__(self, name: str, *, base_url: str | None = None, api_key: str | None = None) -> None:
        """Create a model. By default, the SDK reads the key, or the project of Vertex AI, from the environment.

        Raises:
            ImportError: the package `google-genai` is not installed.
        """
        from google import genai  # not `from google`: other packages may have made that namespace
        from google.genai import errors

        self.name = name
        self._sdk_error = errors.APIError
        # Without a client of its own, the SDK uses aiohttp if that is installed, which fails in other ways.
        self._http_client = httpx2.AsyncClient(timeout=httpx2.Timeout(_CONNECT_TIMEOUT, read=None))
        options = genai.types.HttpOptions(base_url=base_url, httpx_async_client=self._http_client)
        self._client = genai.Client(api_key=api_key, http_options=options)
        self._signatures: dict[str, bytes] = {}
        """The signatures of calls, by call id. The API expects them back; transcripts of clients have no place for
        them."""

    async def stream(self, request: ModelRequest) -> ModelStream:
        """Stream the reply, translating the API's chunks."""
        config: dict[str, Any] = {"max_output_tokens": request.max_tokens}
        if request.system:
            config["system_instruction"] = request.system
        if request.tools:
            config["automatic_function_calling"] = {"disable": True}
            config["tools"] = [{"function_declarations": [_declare(tool) for tool in request.tools]}]
        with self._translate_errors():
            chunks = await self._client.aio.models.generate_content_stream(
                model=request.model or self.name,
                contents=to_gemini_contents(request.messages, self._signatures),  # type: ignore[arg-type] # as dicts
                config=config,  # type: ignore[arg-type] # as a dict
            )
        reader = _GeminiStreamReader(set(iter_call_ids(request.messages)), self._signatures)
        while True:
            with self._translate_errors():
                chunk = await anext(chunks, None)
            if chunk is None:
                break
            for event in reader.read_chunk(chunk):
                yield event
        for event in reader.finish_stream():
            yield event

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aio.aclose()
        await self._http_client.aclose()

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            with translate_errors(_NoError):
                yield
        except self._sdk_error as error:
            message, status = str(error.message or error), int(error.code or 500)
            headers = {}
            if (delay := _retry_delay(error.details)) is not None:
                headers["retry-after"] = delay
            kind = _ERROR_KINDS.get(status, "api_error")
            raise failure_from_status(status, message, kind=kind, headers=headers) from error


class _NoError(Exception):
    """An error that the SDK does not raise: only those of its transport are translated in common."""


class _GeminiStreamReader:
    """A reader that translates stream chunks and assembles blocks from them."""

    def __init__(self, used_ids: set[str], signatures: dict[str, bytes]) -> None:
        self._used_ids = used_ids
        self._signatures = signatures
        self._has_begun = False
        self._has_calls = False
        self._text: list[str] = []
        self._reason: str | None = None
        self._reason_text = ""

    def read_chunk(self, chunk: GenerateContentResponse) -> Iterator[ModelEvent]:
        """Translate an API chunk."""
        if not self._has_begun:
            self._has_begun = True
            yield ReplyBegan(unique_call_id(chunk.response_id, ()), chunk.model_version or "unknown", chunk.response_id)
        if chunk.usage_metadata is not None:
            yield Usage(_token_counts(chunk.usage_metadata.model_dump()))
        if chunk.prompt_feedback is not None and chunk.prompt_feedback.block_reason is not None:
            self._reason = str(chunk.prompt_feedback.block_reason.value)
        for candidate in (chunk.candidates or ())[:1]:
            for part in (candidate.content.parts if candidate.content else None) or ():
                yield from self._read_part(part)
            if candidate.finish_reason is not None:
                self._reason = str(candidate.finish_reason.value)
                self._reason_text = candidate.finish_message or ""

    def finish_stream(self) -> Iterator[ModelEvent]:
        """Yield the events that end the stream. Raise ModelFailed if the reply is not complete."""
        if self._reason is None:
            raise interrupted_stream_failure()
        if self._reason in _FAILED_REASONS:
            text = f"the model ended its reply with {self._reason}: {self._reason_text}".rstrip(": ")
            raise ModelFailed(text, kind=self._reason.lower(), retry=True)
        yield from self._close_text()
        reason = _STOP_REASONS.get(self._reason, "refusal")
        yield ReplyStopped("tool_use" if reason == "end_turn" and self._has_calls else reason)

    def _read_part(self, part: Any) -> Iterator[ModelEvent]:
        if part.text and part.thought:
            yield ThinkingDelta(part.text)
        elif part.text:
            self._text.append(part.text)
            yield TextDelta(part.text)
        elif part.function_call is not None:
            yield from self._close_text()
            self._has_calls = True
            call_id = unique_call_id(part.function_call.id, self._used_ids)
            self._used_ids.add(call_id)
            if part.thought_signature:
                self._signatures[call_id] = part.thought_signature
            name, arguments = sanitize_tool_name(part.function_call.name), dict(part.function_call.args or {})
            yield CallBegan(call_id, name)
            yield InputDelta(call_id, json.dumps(arguments, separators=(",", ":"), ensure_ascii=False))
            yield BlockDone({"type": "tool_use", "id": call_id, "name": name, "input": arguments})

    def _close_text(self) -> Iterator[ModelEvent]:
        text, self._text = "".join(self._text), []
        if text:
            yield BlockDone({"type": "text", "text": text})


def _declare(tool: Mapping[str, object]) -> dict[str, object]:
    schema = tool.get("input_schema", {"type": "object"})
    return {"name": tool["name"], "description": tool.get("description", ""), "parameters_json_schema": schema}


def _token_counts(usage: Mapping[str, Any]) -> dict[str, object]:
    """Translate token counts. Thoughts count as output, and tokens read from a cache separately."""
    cached = usage.get("cached_content_token_count") or 0
    prompt = (usage.get("prompt_token_count") or 0) + (usage.get("tool_use_prompt_token_count") or 0)
    return {
        "input_tokens": max(0, prompt - cached),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": (usage.get("candidates_token_count") or 0) + (usage.get("thoughts_token_count") or 0),
    }


def _retry_delay(details: object) -> str | None:
    """Return the number of seconds that an error says to wait."""
    inner = details.get("error") if isinstance(details, Mapping) else None
    with suppress(AttributeError, TypeError):
        for detail in inner.get("details", ()):  # type: ignore[union-attr] # anything may be in it
            if str(detail.get("@type", "")).endswith("google.rpc.RetryInfo"):
                return str(detail["retryDelay"]).removesuffix("s")
    return None
