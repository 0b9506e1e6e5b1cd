"""What goes back to the model, made safe: no result can break a conversation.

The Messages API refuses empty text blocks, unknown block kinds and pictures in error results, and
JSON cannot hold lone surrogates. In: whatever a tool gave. Out: content the API takes.
"""

import math
from collections.abc import Mapping, Sequence

from toolspan.model.live import Content

_BLOCKS = {
    "text": frozenset({"text"}),
    "image": frozenset({"source"}),
    "document": frozenset({"source"}),
    "search_result": frozenset({"source", "title", "content"}),
    "tool_reference": frozenset({"tool_name"}),
}
"""The kinds of block a result may hold, and the keys each must have."""


class Unfit(Exception):  # noqa: N818 - never leaves the runner
    """An output that no conversation can hold; the message says what is wrong with it."""


def fit_content(content: object) -> Content:
    """Content the API takes; empty when there is nothing in it.

    Raises:
        Unfit: it is neither text nor a list of blocks that a result may hold.
    """
    if isinstance(content, str):
        return clean(content) if content.strip() else ""
    if not isinstance(content, Sequence):
        raise Unfit(f"a result is a text or a list of blocks, not {type(content).__name__}")
    blocks = [_fit_block(block) for block in content]
    return [block for block in blocks if block["type"] != "text" or str(block["text"]).strip()]


def _fit_block(block: object) -> dict[str, object]:
    if not isinstance(block, Mapping):
        raise Unfit(f"a block is an object, not {type(block).__name__}")
    kind = block.get("type")
    needed = _BLOCKS.get(kind) if isinstance(kind, str) else None
    if needed is None:
        raise Unfit(f"a result cannot hold a block of type {kind!r}")
    missing = sorted(needed - block.keys())
    if missing:
        raise Unfit(f"a block of type {kind} needs {', '.join(missing)}")
    if kind == "text" and not isinstance(block["text"], str):
        raise Unfit("the text of a text block is a string")
    fitted = fit_json(block)
    if not isinstance(fitted, dict):
        raise Unfit("a block is an object")
    return fitted


def clean(text: str) -> str:
    """The text as a plain string, U+FFFD in it for each half of a pair that UTF-8 cannot hold.

    Two halves that belong together are joined.
    """
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return str.__str__(text)  # plain, also when it was of a class of its own


def fit_json(value: object) -> object:
    """The value as JSON can hold it.

    Raises:
        Unfit: something in it has no JSON form.
    """
    match value:
        case str():
            return clean(value)
        case None | bool():
            return value
        case int():
            return int(value)
        case float():
            return float(value) if math.isfinite(value) else None
        case Mapping():
            return {clean(str(key)): fit_json(inner) for key, inner in value.items()}
        case bytes() | bytearray() | memoryview():
            raise Unfit("bytes have no JSON form; give text, or base64 in an image block")
        case list() | tuple():
            return [fit_json(inner) for inner in value]
        case _:
            raise Unfit(f"a {type(value).__name__} has no JSON form")
