"""Blocks of a reply, mended so that every server takes them back.

In: what a model streamed. Out: blocks with an input that is an object, ids and names of the
characters that servers allow, each id once. Pure but for new ids.
"""

import re
import uuid
from collections.abc import Container, Iterable, Iterator, Mapping

import msgspec

from toolspan.llm.history import Block, Message, blocks_of
from toolspan.schema.explain import unparsed

_ODD = re.compile(r"[^a-zA-Z0-9_-]")
_NAME_LENGTH = 128


def call_block(call_id: str, name: str, text: str) -> Block:
    """A call whose input came as this text."""
    return {"type": "tool_use", "id": call_id, "name": name, "input": parsed(text)}


def parsed(text: str) -> dict[str, object]:
    """The input that a text stands for; one that is no object is kept as it came."""
    if not text.strip():
        return {}
    try:
        found: dict[str, object] = msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return dict(unparsed(text))
    return found


def call_id(wanted: str | None, taken: Container[str]) -> str:
    """An id that servers take and that nobody has: the wanted one if it is such."""
    cleaned = _ODD.sub("_", wanted or "")
    if cleaned and cleaned not in taken:
        return cleaned
    return f"call_{uuid.uuid4().hex[:24]}"


def tool_name(wanted: str | None) -> str:
    """A name that servers take; no tool has it if it was mended."""
    return _ODD.sub("_", wanted or "")[:_NAME_LENGTH] or "unnamed"


def call_ids(messages: Iterable[Message]) -> Iterator[str]:
    """The ids of all calls of a conversation."""
    for message in messages:
        for block in blocks_of(message):
            if block.get("type") == "tool_use":
                yield str(block.get("id"))


def text_of(content: object) -> str:
    """The words of a message or a result; pictures and documents become notes."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "\n".join(_words(block) for block in blocks if isinstance(block, Mapping))


def _words(block: Mapping[str, object]) -> str:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "image" | "document" as kind, "source": {"media_type": str(media)}}:
            return f"[{kind}, {media}: not shown to this model]"
        case {"type": str(kind)}:
            return f"[{kind}: not shown to this model]"
        case _:
            return ""
