"""A reply, taken apart into the events that stream it.

In: a reply as it left the scripted model. Out: the events of the Messages API, in order; put
together again they are the reply. Pure; `model_api.py` sends them. Read `events` first.
"""

from collections.abc import Iterator, Mapping

import msgspec

from toolspan.llm.history import Block
from toolspan.llm.script import DROPPED
from toolspan.llm.scripted import Spoken, error_body

Event = dict[str, object]

_PIECE = 12
"""Characters per delta: short enough that most texts come in several."""
_EMPTIED: dict[object, Block] = {
    "text": {"text": ""},
    "thinking": {"thinking": "", "signature": ""},
    "tool_use": {"input": {}},
    "server_tool_use": {"input": {}},
}
"""How a block starts whose content comes in deltas; other blocks come whole."""


def events(spoken: Spoken) -> Iterator[Event]:
    """Every event of a streamed reply; one that fails ends with an `error` event.

    One whose connection is lost just has no end.
    """
    message = spoken.message
    usage = message["usage"]
    final = dict(usage) if isinstance(usage, Mapping) else {}
    empty: Event = {"content": [], "stop_reason": None, "usage": {**final, "output_tokens": 1}}
    started = {key: value for key, value in message.items() if key != "stop_details"}
    yield {"type": "message_start", "message": {**started, **empty}}
    content = message["content"]
    blocks: list[Block] = content if isinstance(content, list) else []
    for index, block in enumerate(blocks):
        last = index == len(blocks) - 1
        yield from _block(index, block, spoken.torn if last else None)
        if index == 0:
            yield {"type": "ping"}
    if spoken.failure:
        if spoken.failure.type != DROPPED:
            yield error_body(spoken.failure)
        return
    told = ("stop_reason", "stop_sequence", "stop_details")
    delta = {key: message[key] for key in told if key in message}
    yield {"type": "message_delta", "delta": delta, "usage": final}
    yield {"type": "message_stop"}


def _block(index: int, block: Block, torn: str | None) -> Iterator[Event]:
    started = {**block, **_EMPTIED.get(block["type"], {})}
    if "citations" in block:
        started["citations"] = []
    yield {"type": "content_block_start", "index": index, "content_block": started}
    for delta in _deltas(block, torn):
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def _deltas(block: Block, torn: str | None) -> Iterator[Event]:
    match block:
        case {"type": "text", "text": str(text)}:
            for piece in pieces(text):
                yield {"type": "text_delta", "text": piece}
            citations = block.get("citations")
            for citation in citations if isinstance(citations, list) else ():
                yield {"type": "citations_delta", "citation": citation}
        case {"type": "thinking", "thinking": str(text), "signature": signature}:
            for piece in pieces(text):
                yield {"type": "thinking_delta", "thinking": piece}
            yield {"type": "signature_delta", "signature": signature}
        case {"type": "tool_use" | "server_tool_use", "input": given}:
            text = msgspec.json.encode(given).decode() if torn is None else torn
            for piece in ("", *pieces(text)):  # the API's first piece is empty
                yield {"type": "input_json_delta", "partial_json": piece}
        case _:
            pass


def pieces(text: str) -> Iterator[str]:
    """A text in the pieces that it streams in."""
    for start in range(0, len(text), _PIECE):
        yield text[start : start + _PIECE]
