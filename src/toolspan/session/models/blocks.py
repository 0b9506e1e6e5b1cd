"""Blocks of a reply, mended so that every server takes them back.

In: what a model streamed. Out: blocks with an input that is an object, ids and names of the
characters that servers allow, each id once. Pure but for new ids.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import aclosing

import msgspec

from toolspan.runtime.schema.issues import unparsed_input
from toolspan.session.models.base import (
    BlockDone,
    CallBegan,
    InputDelta,
    Model,
    ModelEvent,
    ModelRequest,
    ModelStream,
    Retrying,
)
from toolspan.session.models.history import Block, Message, message_blocks

_FORBIDDEN = re.compile(r"[^a-zA-Z0-9_-]")
_MAX_NAME_LENGTH = 128


def make_call_block(call_id: str, name: str, text: str) -> Block:
    """A call whose input came as this text."""
    return {"type": "tool_use", "id": call_id, "name": name, "input": parse_call_input(text)}


def parse_call_input(text: str) -> dict[str, object]:
    """The input that a text stands for; one that is no object is kept as it came."""
    if not text.strip():
        return {}
    try:
        arguments: dict[str, object] = msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return dict(unparsed_input(text))
    return arguments


def unique_call_id(proposed: str | None, used_ids: Container[str]) -> str:
    """An id that servers take and that nobody has: the wanted one if it is such."""
    cleaned = _FORBIDDEN.sub("_", proposed or "")
    if cleaned and cleaned not in used_ids:
        return cleaned
    return f"call_{uuid.uuid4().hex[:24]}"


def sanitize_tool_name(proposed: str | None) -> str:
    """A name that servers take; no tool has it if it was mended."""
    return _FORBIDDEN.sub("_", proposed or "")[:_MAX_NAME_LENGTH] or "unnamed"


def iter_call_ids(messages: Iterable[Message]) -> Iterator[str]:
    """The ids of all calls of a conversation."""
    for message in messages:
        for block in message_blocks(message):
            if block.get("type") == "tool_use":
                yield str(block.get("id"))


def text_with_placeholders(content: object) -> str:
    """The words of a message or a result; pictures and documents become notes."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "\n".join(_block_text(block) for block in blocks if isinstance(block, Mapping))


def _block_text(block: Mapping[str, object]) -> str:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "image" | "document" as kind, "source": {"media_type": str(media)}}:
            return f"[{kind}, {media}: not shown to this model]"
        case {"type": str(kind)}:
            return f"[{kind}: not shown to this model]"
        case _:
            return ""


async def repair_tool_calls(model: Model, request: ModelRequest) -> ModelStream:
    """The reply to a request, as it comes.

    Raises:
        ModelFailed: there will be no reply, or no more of it.
    """
    repair = _CallIdRepair(request.messages)
    async with aclosing(model.stream(request)) as events:
        async for event in events:
            yield repair.repair_event(event)


class _CallIdRepair:
    """What the calls of a conversation are called."""

    def __init__(self, messages: Iterable[Message]) -> None:
        self._used_ids = set(iter_call_ids(messages))
        self._open_calls: dict[str, str] = {}
        """Calls that still come in: what they are called, by the model's own word."""

    def repair_event(self, event: ModelEvent) -> ModelEvent:
        """The event with ids and names that can be sent back."""
        match event:
            case CallBegan(sent_id, tool) if sent_id and tool:
                self._open_calls[sent_id] = new_id = self._assign_id(sent_id)
                return CallBegan(new_id, sanitize_tool_name(tool))
            case InputDelta(sent_id, text) if sent_id in self._open_calls:
                return InputDelta(self._open_calls[sent_id], text)
            case BlockDone({"type": "tool_use", "id": str(sent_id), "name": str(tool)} as block) if sent_id and tool:
                new_id = self._open_calls.pop(sent_id, "") or self._assign_id(sent_id)
                return BlockDone({**block, "id": new_id, "name": sanitize_tool_name(tool)})
            case Retrying():
                self._used_ids -= set(self._open_calls.values())
                self._open_calls.clear()
            case _:
                pass
        return event

    def _assign_id(self, sent_id: str) -> str:
        new_id = unique_call_id(sent_id, self._used_ids)
        self._used_ids.add(new_id)
        return new_id
