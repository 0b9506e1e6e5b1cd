"""The requests, streams and errors of the Gemini API and of Bedrock's Converse API, for `ModelServer`.

Both are translated to and from the Messages API, as the public documentation of the two APIs describes them.
"""

from __future__ import annotations

import base64
import struct
from binascii import crc32
from collections.abc import Iterator, Mapping
from typing import Any, cast

import msgspec

from toolspan.session.models.history import Block, Message
from toolspan.session.models.scripted import CONNECTION_DROPPED, ApiError, RenderedReply, ScriptedFailure, fail

PIECE_LENGTH = 12
"""The number of characters per delta, small enough that most strings need several."""
_SIGNATURE = base64.b64encode(b"signature of a call").decode()
_IMAGE: Block = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}


def split_text(text: str) -> Iterator[str]:
    """Yield the pieces in which a text is streamed."""
    for start in range(0, len(text), PIECE_LENGTH):
        yield text[start : start + PIECE_LENGTH]


def reply_blocks(reply: RenderedReply) -> list[Block]:
    """Return the blocks of a reply."""
    return cast("list[Block]", reply.message["content"])


def encode_event(body: Message) -> bytes:
    """Encode a server-sent event without a name."""
    return b"data: " + msgspec.json.encode(body) + b"\n\n"


# Gemini

_GEMINI_REASONS = {"max_tokens": "MAX_TOKENS", "refusal": "SAFETY"}
_GEMINI_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
}


def from_gemini_request(body: dict[str, Any], model: str) -> Message:
    """Convert a request. Raise ApiError if a call has no signature, as the API does."""
    messages: list[Message] = []
    for content in body["contents"]:
        role = "assistant" if content.get("role") == "model" else "user"
        messages.append({"role": role, "content": [_from_gemini_part(part) for part in content["parts"]]})
    system = "\n".join(part["text"] for part in (body.get("systemInstruction") or {}).get("parts", ()))
    declared = [item for tool in body.get("tools") or () for item in tool.get("functionDeclarations", ())]
    tools = [
        {"name": item["name"], "input_schema": item.get("parametersJsonSchema", {"type": "object"})}
        for item in declared
    ]
    max_tokens = (body.get("generationConfig") or {}).get("maxOutputTokens")
    return {"model": model, "max_tokens": max_tokens, "system": system, "messages": messages, "tools": tools,
            "stream": True}  # fmt: skip


def _from_gemini_part(part: dict[str, Any]) -> Block:
    match part:
        case {"functionCall": {"name": name, "id": call_id, **rest}}:
            if not part.get("thoughtSignature"):
                raise ApiError(fail(400, message=f"Function call `{name}` is missing a thought_signature"))
            return {"type": "tool_use", "id": call_id, "name": name, "input": rest.get("args") or {}}
        case {"functionResponse": {"id": call_id, "response": response}}:
            content = str(response.get("output", response.get("error", "")))
            return {"type": "tool_result", "tool_use_id": call_id, "content": content, "is_error": "error" in response}
        case {"inlineData": _}:
            return dict(_IMAGE)
        case _:
            return {"type": "text", "text": part["text"]}


def encode_gemini_stream(reply: RenderedReply) -> Iterator[bytes]:
    """Encode a streamed reply. A failure ends with an error, a dropped connection without a finish reason."""
    head = {"modelVersion": reply.message["model"], "responseId": reply.message["id"]}

    def encode_parts(*parts: Mapping[str, object], **fields: object) -> bytes:
        candidate = {"content": {"role": "model", "parts": list(parts)}, "index": 0, **fields}
        return encode_event({"candidates": [candidate], **head})

    is_cut = reply.truncated_input is not None  # then the last block is a call, which this API never sends in part
    for block in reply_blocks(reply)[: -1 if is_cut else None]:
        match block:
            case {"type": "text", "text": str(text)}:
                yield from (encode_parts({"text": piece}) for piece in split_text(text))
            case {"type": "thinking", "thinking": str(text)}:
                yield from (encode_parts({"text": piece, "thought": True}) for piece in split_text(text))
            case {"type": "tool_use"}:
                call = {"id": block["id"], "name": block["name"], "args": block["input"]}
                yield encode_parts({"functionCall": call, "thoughtSignature": _SIGNATURE})
            case _:
                pass
    if reply.failure is not None:
        if reply.failure.type != CONNECTION_DROPPED:
            yield encode_event(gemini_error_body(reply.failure))
        return
    usage = cast("dict[str, int]", reply.message["usage"])
    prompt, output = usage["input_tokens"], usage["output_tokens"]
    counts = {"promptTokenCount": prompt, "candidatesTokenCount": output, "totalTokenCount": prompt + output}
    reason = _GEMINI_REASONS.get(str(reply.message["stop_reason"]), "STOP")
    end = {"content": {"role": "model", "parts": []}, "finishReason": reason, "index": 0}
    if is_cut and reason == "STOP":
        text = f"Malformed function call: {reply.truncated_input}"
        end |= {"finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": text}
    yield encode_event({"candidates": [end], "usageMetadata": counts, **head})


def gemini_error_body(failure: ScriptedFailure) -> Message:
    """Return the body of an error."""
    error: Message = {"code": failure.status, "message": failure.message}
    error["status"] = _GEMINI_STATUSES.get(failure.status, "UNAVAILABLE")
    if failure.retry_after is not None:
        delay = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{failure.retry_after:g}s"}
        error["details"] = [delay]
    return {"error": error}


# Bedrock

_BEDROCK_REASONS = {"refusal": "content_filtered"}
_BEDROCK_ERRORS = {
    400: "ValidationException",
    401: "UnrecognizedClientException",
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    429: "ThrottlingException",
    500: "InternalServerException",
}


def from_bedrock_request(body: dict[str, Any], model: str) -> Message:
    """Convert a request. Raise ApiError if it has calls and no tools, as the API does."""
    messages: list[Message] = [
        {"role": message["role"], "content": [_from_bedrock_block(block) for block in message["content"]]}
        for message in body["messages"]
    ]
    specs = [tool["toolSpec"] for tool in (body.get("toolConfig") or {}).get("tools", ())]
    kinds = {key for message in body["messages"] for block in message["content"] for key in block}
    if not specs and kinds & {"toolUse", "toolResult"}:
        text = "The toolConfig field must be defined when using toolUse and toolResult content blocks."
        raise ApiError(fail(400, message=text))
    tools = [{"name": spec["name"], "input_schema": spec["inputSchema"]["json"]} for spec in specs]
    system = "\n".join(block["text"] for block in body.get("system") or ())
    max_tokens = (body.get("inferenceConfig") or {}).get("maxTokens")
    return {"model": model, "max_tokens": max_tokens, "system": system, "messages": messages, "tools": tools,
            "stream": True}  # fmt: skip


def _from_bedrock_block(block: dict[str, Any]) -> Block:
    match block:
        case {"toolUse": {"toolUseId": call_id, "name": name, "input": arguments}}:
            return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}
        case {"toolResult": {"toolUseId": call_id, "content": content, **rest}}:
            parts = [_from_bedrock_block(part) for part in content]
            is_error = rest.get("status") == "error"
            return {"type": "tool_result", "tool_use_id": call_id, "content": parts, "is_error": is_error}
        case {"reasoningContent": {"reasoningText": {"text": text, "signature": signature}}}:
            return {"type": "thinking", "thinking": text, "signature": signature}
        case {"image": _}:
            return dict(_IMAGE)
        case _:
            return {"type": "text", "text": block["text"]}


def encode_bedrock_stream(reply: RenderedReply) -> Iterator[bytes]:
    """Encode a streamed reply. A failure ends with an exception, a dropped connection without a stop."""
    yield _encode_frame("messageStart", {"role": "assistant"})
    blocks = reply_blocks(reply)
    for index, block in enumerate(blocks):
        if block["type"] == "tool_use":
            start = {"toolUse": {"toolUseId": block["id"], "name": block["name"]}}
            yield _encode_frame("contentBlockStart", {"contentBlockIndex": index, "start": start})
        truncated = reply.truncated_input if index == len(blocks) - 1 else None
        for delta in _bedrock_deltas(block, truncated):
            yield _encode_frame("contentBlockDelta", {"contentBlockIndex": index, "delta": delta})
        yield _encode_frame("contentBlockStop", {"contentBlockIndex": index})
    if reply.failure is not None:
        if reply.failure.type != CONNECTION_DROPPED:
            code = bedrock_error_code(reply.failure)
            yield _encode_frame(code[0].lower() + code[1:], bedrock_error_body(reply.failure), kind="exception")
        return
    reason = str(reply.message["stop_reason"])
    yield _encode_frame("messageStop", {"stopReason": _BEDROCK_REASONS.get(reason, reason)})
    usage = cast("dict[str, int]", reply.message["usage"])
    prompt, output = usage["input_tokens"], usage["output_tokens"]
    counts = {"inputTokens": prompt, "outputTokens": output, "totalTokens": prompt + output}
    yield _encode_frame("metadata", {"usage": counts, "metrics": {"latencyMs": 1}})


def _bedrock_deltas(block: Block, truncated_input: str | None) -> Iterator[Mapping[str, object]]:
    match block:
        case {"type": "text", "text": str(text)}:
            yield from ({"text": piece} for piece in split_text(text))
        case {"type": "thinking", "thinking": str(text), "signature": signature}:
            yield from ({"reasoningContent": {"text": piece}} for piece in split_text(text))
            yield {"reasoningContent": {"signature": signature}}
        case {"type": "tool_use", "input": arguments}:
            text = msgspec.json.encode(arguments).decode() if truncated_input is None else truncated_input
            yield from ({"toolUse": {"input": piece}} for piece in split_text(text))
        case _:
            pass


def bedrock_error_code(failure: ScriptedFailure) -> str:
    """Return the name of an error."""
    return _BEDROCK_ERRORS.get(failure.status, "ServiceUnavailableException")


def bedrock_error_body(failure: ScriptedFailure) -> Message:
    """Return the body of an error. Its name is in a header."""
    return {"message": failure.message}


def _encode_frame(name: str, body: Mapping[str, object], kind: str = "event") -> bytes:
    """Encode a message of the event stream: lengths, headers, payload and checksums."""
    fields = {":message-type": kind, f":{kind}-type": name, ":content-type": "application/json"}
    headers = b"".join(
        struct.pack(f">B{len(key)}sBH{len(value)}s", len(key), key.encode(), 7, len(value), value.encode())
        for key, value in fields.items()
    )
    payload = msgspec.json.encode(body)
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    frame = prelude + struct.pack(">I", crc32(prelude)) + headers + payload
    return frame + struct.pack(">I", crc32(frame))
