"""A model's reply, whoever sent it: an SDK's object or plain JSON, made a plain message."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import msgspec

from toolspan.errors import BadCall
from toolspan.run.blocks import Asked, read_block


class Dumps(Protocol):
    """An SDK's message: pydantic models have this."""

    def model_dump(self, *, mode: str, exclude_none: bool) -> dict[str, object]:
        """The message as plain values."""
        ...


Reply = Mapping[str, object] | Dumps
"""An assistant message of the Messages API."""


def plain_reply(reply: Reply) -> dict[str, object]:
    """The message as plain values, its content a list of blocks.

    Raises:
        BadCall: it is no assistant message.
    """
    if isinstance(reply, (dict, Mapping)):  # an abstract class alone is slow to ask
        message = dict(reply)
    elif hasattr(reply, "model_dump"):
        message = reply.model_dump(mode="json", exclude_none=True)
    else:
        raise BadCall(f"a reply is an assistant message, not {type(reply).__name__}")
    inner = message.get("message")
    if message.get("type") == "assistant" and isinstance(inner, Mapping):
        message = dict(inner)
    if message.get("role", "assistant") != "assistant":
        raise BadCall(f"a reply has the role assistant, not {message.get('role')!r}")
    message["role"] = "assistant"
    message["content"] = _blocks(message.get("content"))
    return message


def _blocks(content: object) -> list[dict[str, object]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    if not isinstance(content, list):
        raise BadCall("a reply has its content as a text or a list of blocks")
    for number, block in enumerate(content):
        if not isinstance(block, (dict, Mapping)) or not isinstance(block.get("type"), str):
            raise BadCall(f"block {number} of the reply is no object with a type")
    return [_plain(block) for block in content]


class Block(NamedTuple):
    """A block of a reply, and what it asks for if it is a call."""

    body: dict[str, object]
    asked: Asked | None


def calls_checked(message: Mapping[str, object]) -> list[Block]:
    """The blocks of a plain message, whose calls can all be answered.

    Raises:
        BadCall: one cannot.
    """
    blocks = message["content"]
    if not isinstance(blocks, list):
        raise BadCall("a reply has its content as a list of blocks")
    return [
        Block(block, read_block(block) if block["type"] == "tool_use" else None) for block in blocks
    ]


def _plain(block: Mapping[str, object]) -> dict[str, object]:
    """A block without what servers send but do not take back."""
    return {
        key: msgspec.to_builtins(value) if isinstance(value, msgspec.Struct) else value
        for key, value in block.items()
        if value is not None
    }
