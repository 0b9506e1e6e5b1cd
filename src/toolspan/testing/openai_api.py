"""The scripted model in the words of the chat completions API.

In: a request of that API, and what the scripted model says in the words of its own. Out: the same
request in those words, so that it is judged like any other, and the reply as chunks or whole. Pure;
`model_api.py` serves it. Read `asked_of`, then `chunks`.
"""

from collections.abc import Iterator, Mapping

import msgspec

from toolspan.llm.history import Block, Message
from toolspan.llm.script import DROPPED, Failure
from toolspan.llm.scripted import Spoken
from toolspan.testing.model_stream import pieces

_REASONS = {
    "end_turn": "stop",
    "max_tokens": "length",
    "refusal": "content_filter",
    "tool_use": "tool_calls",
}


def asked_of(body: Message) -> Message:
    """The request as the Messages API would have got it."""
    system: list[str] = []
    messages: list[Message] = []
    given = body.get("messages")
    for message in given if isinstance(given, list) else ():
        match message:
            case {"role": "system" | "developer", "content": str(text)}:
                system.append(text)
            case {"role": "assistant"}:
                messages.append({"role": "assistant", "content": _assistant(message)})
            case {"role": "tool", "tool_call_id": call_id, "content": content}:
                _add(messages, {"type": "tool_result", "tool_use_id": call_id, "content": content})
            case {"content": str(text)}:
                _add(messages, {"type": "text", "text": text})
            case {"content": list(parts)}:
                for part in parts:
                    _add(messages, _part(part))
            case _:
                messages.append(dict(message))
    tools = body.get("tools")
    return {
        **body,
        "system": "\n".join(system),
        "messages": messages,
        "tools": [_tool(tool) for tool in tools] if isinstance(tools, list) else [],
    }


def completion(spoken: Spoken) -> Message:
    """A whole reply."""
    message = spoken.message
    texts = [str(block["text"]) for block in _content(spoken) if block["type"] == "text"]
    calls = [_call(n, block, spoken) for n, block in _calls(spoken)]
    told: Message = {"role": "assistant", "content": "".join(texts) or None}
    if calls:
        told["tool_calls"] = calls
    return {
        **_head(spoken, "chat.completion"),
        "choices": [{"index": 0, "message": told, "finish_reason": _reason(message)}],
        "usage": _usage(message),
    }


def chunks(spoken: Spoken) -> Iterator[bytes]:
    """A reply as it streams; one that fails ends with an error, a lost one with nothing."""
    for delta in _deltas(spoken):
        yield _line(_chunk(spoken, delta))
    if spoken.failure is not None:
        if spoken.failure.type != DROPPED:
            yield _line(error_body(spoken.failure))
        return
    yield _line(_chunk(spoken, {}, _reason(spoken.message)))
    usage: Message = {"choices": [], "usage": _usage(spoken.message)}
    yield _line({**_head(spoken, "chat.completion.chunk"), **usage})
    yield b"data: [DONE]\n\n"


def error_body(failure: Failure) -> Message:
    """The JSON the API answers with."""
    return {"error": {"message": failure.message, "type": failure.type, "code": None}}


def _deltas(spoken: Spoken) -> Iterator[Message]:
    yield {"role": "assistant", "content": ""}
    for block in _content(spoken):
        if block["type"] == "text":
            for piece in pieces(str(block["text"])):
                yield {"content": piece}
        elif block["type"] == "thinking":
            for piece in pieces(str(block["thinking"])):
                yield {"reasoning_content": piece}
    for n, block in _calls(spoken):
        call = _call(n, block, spoken)
        function = call["function"]
        arguments = str(function["arguments"]) if isinstance(function, dict) else ""
        begun = {**call, "index": n, "function": {"name": block["name"], "arguments": ""}}
        yield {"tool_calls": [begun]}
        for piece in pieces(arguments):
            yield {"tool_calls": [{"index": n, "function": {"arguments": piece}}]}


def _call(n: int, block: Block, spoken: Spoken) -> Message:
    """A call; the last one's arguments may be torn."""
    last = n == len([*_calls(spoken)]) - 1
    whole = msgspec.json.encode(block["input"]).decode()
    arguments = spoken.torn if last and spoken.torn is not None else whole
    function = {"name": block["name"], "arguments": arguments}
    return {"id": block["id"], "type": "function", "function": function}


def _calls(spoken: Spoken) -> Iterator[tuple[int, Block]]:
    yield from enumerate(block for block in _content(spoken) if block["type"] == "tool_use")


def _content(spoken: Spoken) -> list[Block]:
    content = spoken.message["content"]
    return content if isinstance(content, list) else []


def _chunk(spoken: Spoken, delta: Message, reason: str | None = None) -> Message:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return {**_head(spoken, "chat.completion.chunk"), "choices": [choice]}


def _head(spoken: Spoken, kind: str) -> Message:
    message = spoken.message
    return {"id": message["id"], "object": kind, "created": 0, "model": message["model"]}


def _reason(message: Message) -> str:
    return _REASONS.get(str(message["stop_reason"]), "stop")


def _usage(message: Message) -> Message:
    usage = message["usage"]
    told = usage if isinstance(usage, Mapping) else {}
    given, made = int(told["input_tokens"]), int(told["output_tokens"])
    return {"prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made}


def _assistant(message: Message) -> list[Block]:
    blocks: list[Block] = []
    if message.get("content"):
        blocks.append({"type": "text", "text": message["content"]})
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call["function"]
        given = msgspec.json.decode(function["arguments"])
        block = {"type": "tool_use", "id": call["id"], "name": function["name"], "input": given}
        blocks.append(block)
    return blocks


def _add(messages: list[Message], block: Block) -> None:
    """Neighbours of one role are one message."""
    last = messages[-1] if messages else None
    if last is not None and last["role"] == "user" and isinstance(last["content"], list):
        last["content"].append(block)
    else:
        messages.append({"role": "user", "content": [block]})


def _part(part: object) -> Block:
    match part:
        case {"type": "text", "text": str(text)}:
            return {"type": "text", "text": text}
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            return {"type": "image", "source": {"type": "url", "url": url}}
        case _:
            return {"type": "unknown"}


def _tool(tool: object) -> object:
    match tool:
        case {"type": "function", "function": {"name": name, "parameters": schema}}:
            return {"name": name, "input_schema": schema}
        case _:
            return tool


def _line(body: Message) -> bytes:
    return b"data: " + msgspec.json.encode(body) + b"\n\n"
