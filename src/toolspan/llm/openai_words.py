"""A conversation of the Messages API in the words of chat completions.

In: messages, tools and token counts of the one API. Out: those of the other. Pictures in results
have no place there and become notes; thinking is left out. Pure. Read `chat_messages` first.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from toolspan.llm.blocks import text_of
from toolspan.llm.history import Message, blocks_of
from toolspan.llm.model import Request

Chat = dict[str, object]


def chat_messages(request: Request) -> list[Chat]:
    """The messages, the system's words first."""
    told: list[Chat] = [{"role": "system", "content": request.system}] if request.system else []
    for message in request.messages:
        told += _assistant(message) if message["role"] == "assistant" else _user(message)
    return told


def chat_tools(tools: Sequence[Mapping[str, object]]) -> list[Chat]:
    """The tools as functions."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool["name"],
                "description": tool.get("description", ""),
                "parameters": tool.get("input_schema", {"type": "object"}),
            },
        }
        for tool in tools
    ]


def tokens_of(usage: Mapping[str, object]) -> dict[str, object]:
    """Token counts; what was read from a cache is counted apart."""
    details = usage.get("prompt_tokens_details")
    cached = _number(details.get("cached_tokens")) if isinstance(details, Mapping) else 0
    return {
        "input_tokens": max(0, _number(usage.get("prompt_tokens")) - cached),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": _number(usage.get("completion_tokens")),
    }


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _assistant(message: Message) -> Iterator[Chat]:
    blocks = blocks_of(message)
    text = "".join(str(block["text"]) for block in blocks if block.get("type") == "text")
    calls = [_call(block) for block in blocks if block.get("type") == "tool_use"]
    told: Chat = {"role": "assistant", "content": text or None}
    if calls:
        told["tool_calls"] = calls
    if text or calls:
        yield told


def _call(block: Mapping[str, object]) -> Chat:
    arguments = msgspec.json.encode(block.get("input")).decode()
    return {
        "id": block["id"],
        "type": "function",
        "function": {"name": block["name"], "arguments": arguments},
    }


def _user(message: Message) -> Iterator[Chat]:
    """Results first, one message each; then what was said beside them."""
    parts: list[Chat] = []
    for block in blocks_of(message):
        if block.get("type") == "tool_result":
            yield _result(block)
        else:
            parts += _part(block)
    if parts and all(part["type"] == "text" for part in parts):
        yield {"role": "user", "content": "\n\n".join(str(part["text"]) for part in parts)}
    elif parts:
        yield {"role": "user", "content": parts}


def _result(block: Mapping[str, object]) -> Chat:
    words = text_of(block.get("content"))
    if block.get("is_error") is True:
        words = f"Error: {words}"
    return {"role": "tool", "tool_call_id": block["tool_use_id"], "content": words}


def _part(block: Mapping[str, object]) -> Iterator[Chat]:
    match block:
        case {"type": "text", "text": str(text)}:
            yield {"type": "text", "text": text}
        case {"type": "image", "source": {"type": "base64", "media_type": media, "data": data}}:
            yield {"type": "image_url", "image_url": {"url": f"data:{media};base64,{data}"}}
        case {"type": "image", "source": {"type": "url", "url": url}}:
            yield {"type": "image_url", "image_url": {"url": url}}
        case _:
            yield {"type": "text", "text": text_of([dict(block)])}
