"""Blocks that a server takes, made of what stands in a file.

In: the content of a message, of any quality. Out: blocks without those that no server would take
back: what is no block, texts that say nothing, calls and results that lack what makes them one.
Kinds it does not know pass. Pure.
"""

import re
from collections.abc import Iterator, Mapping

from toolspan.llm.history import Block
from toolspan.session.incoming import is_blank

_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")


def sound(content: object) -> list[Block]:
    """The blocks of a message that can be sent."""
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    return [made for one in _objects(content) if (made := _made(dict(one))) is not None]


def _objects(content: object) -> Iterator[Mapping[str, object]]:
    for one in content if isinstance(content, list) else ():
        if isinstance(one, Mapping) and isinstance(one.get("type"), str):
            yield one


def _made(block: Block) -> Block | None:
    match block["type"]:
        case "text":
            return block if isinstance(block.get("text"), str) and not is_blank(block) else None
        case "tool_use":
            return _call(block)
        case "tool_result":
            return _result(block)
        case "thinking":
            told = isinstance(block.get("thinking"), str) and isinstance(
                block.get("signature"), str
            )
            return block if told else None
        case _:
            return block


def _call(block: Block) -> Block | None:
    name, own = block.get("name"), block.get("id")
    if not (isinstance(own, str) and _ID.fullmatch(own)):
        return None
    if not (isinstance(name, str) and _NAME.fullmatch(name)):
        return None
    given = block.get("input")
    return {**block, "input": given if isinstance(given, dict) else {}}


def _result(block: Block) -> Block | None:
    if not isinstance(block.get("tool_use_id"), str):
        return None
    content = block.get("content")
    if isinstance(content, list):
        parts = sound(content)
        if any(part["type"] != "text" for part in parts):  # an error holds nothing but texts
            block.pop("is_error", None)
        return {**block, "content": parts}
    return block if isinstance(content, str | None) else {**block, "content": str(content)}
