"""Outputs too large for the conversation: the whole goes to a file, the model gets its head."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from toolspan.types.events import Content
from toolspan.types.ids import CallId

PREVIEW_CHARS = 2_000
ERROR_LIMIT = 10_000


class SpilledText(NamedTuple):
    """What the model gets instead, and where the whole is; no path when it could not be kept."""

    text: str
    path: Path | None


def spill_text(
    text: str, folder: Path, call_id: CallId, *, suffix: str = ".txt", limit: int = ERROR_LIMIT
) -> SpilledText:
    """Keep the whole in a file, and give the frame that says where it is.

    `most` is how many characters of the text may stay, if that is less than usual.
    """
    path = folder / f"{safe_file_name(call_id)}{suffix}"
    data = text.encode()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_bytes(data)
    except OSError as error:
        return SpilledText(truncate_middle(text, min(limit, ERROR_LIMIT)) + f"\n[Not kept whole: {error}]", None)
    return SpilledText(spill_notice(text, len(data), path, min(limit, PREVIEW_CHARS)), path)


def spill_notice(text: str, size: int, path: Path, limit: int = PREVIEW_CHARS) -> str:
    """How a spilled output is announced."""
    part = "2KB" if limit == PREVIEW_CHARS else f"{limit} characters"
    return (
        f"<persisted-output>\nOutput too large ({format_size(size)})."
        f" Full output saved to: {path}\n\n"
        f"Preview (first {part}):\n{text_preview(text, limit)}\n...\n</persisted-output>"
    )


def text_preview(text: str, limit: int = PREVIEW_CHARS) -> str:
    """The beginning of a text, up to a line end when there is one in its second half."""
    head = text[:limit]
    cut = head.rfind("\n")
    return head[:cut] if cut > limit // 2 else head


def format_size(size: int) -> str:
    """A size in words: `106.3KB`."""
    if size < 1024 * 1024:
        return f"{size / 1024:.1f}".removesuffix(".0") + "KB"
    return f"{size / 1024 / 1024:.1f}".removesuffix(".0") + "MB"


def truncate_middle(text: str, limit: int) -> str:
    """The first and last part of a text that is over the limit."""
    if len(text) <= limit:
        return text
    half = limit // 2
    removed = len(text) - 2 * half
    return f"{text[:half]}\n\n... [{removed} characters truncated] ...\n\n{text[-half:]}"


def safe_file_name(call_id: CallId) -> str:
    """The id, with nothing in it that could lead out of the folder."""
    safe = "".join(c if c.isalnum() or c in "_-" else "_" for c in call_id)
    return safe[:120] or "call"


_REQUIRED_BLOCK_KEYS = {
    "text": frozenset({"text"}),
    "image": frozenset({"source"}),
    "document": frozenset({"source"}),
    "search_result": frozenset({"source", "title", "content"}),
    "tool_reference": frozenset({"tool_name"}),
}
"""The kinds of block a result may hold, and the keys each must have."""


class UnfitOutputError(Exception):
    """An output that no conversation can hold; the message says what is wrong with it."""


def sanitize_content(content: object) -> Content:
    """Content the API takes; empty when there is nothing in it.

    Raises:
        Unfit: it is neither text nor a list of blocks that a result may hold.
    """
    if isinstance(content, str):
        return sanitize_text(content) if content.strip() else ""
    if not isinstance(content, Sequence):
        raise UnfitOutputError(f"a result is a text or a list of blocks, not {type(content).__name__}")
    blocks = [_sanitize_block(block) for block in content]
    return [block for block in blocks if block["type"] != "text" or str(block["text"]).strip()]


def _sanitize_block(block: object) -> dict[str, object]:
    if not isinstance(block, Mapping):
        raise UnfitOutputError(f"a block is an object, not {type(block).__name__}")
    kind = block.get("type")
    needed = _REQUIRED_BLOCK_KEYS.get(kind) if isinstance(kind, str) else None
    if needed is None:
        raise UnfitOutputError(f"a result cannot hold a block of type {kind!r}")
    missing = sorted(needed - block.keys())
    if missing:
        raise UnfitOutputError(f"a block of type {kind} needs {', '.join(missing)}")
    if kind == "text" and not isinstance(block["text"], str):
        raise UnfitOutputError("the text of a text block is a string")
    sanitized = sanitize_json(block)
    if not isinstance(sanitized, dict):
        raise UnfitOutputError("a block is an object")
    return sanitized


def sanitize_text(text: str) -> str:
    """The text as a plain string, U+FFFD in it for each half of a pair that UTF-8 cannot hold.

    Two halves that belong together are joined.
    """
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return str.__str__(text)  # plain, also when it was of a class of its own


def sanitize_json(value: object) -> object:
    """The value as JSON can hold it.

    Raises:
        Unfit: something in it has no JSON form.
    """
    match value:
        case str():
            return sanitize_text(value)
        case None | bool():
            return value
        case int():
            return int(value)
        case float():
            return float(value) if math.isfinite(value) else None
        case Mapping():
            return {sanitize_text(str(key)): sanitize_json(inner) for key, inner in value.items()}
        case bytes() | bytearray() | memoryview():
            raise UnfitOutputError("bytes have no JSON form; give text, or base64 in an image block")
        case list() | tuple():
            return [sanitize_json(inner) for inner in value]
        case _:
            raise UnfitOutputError(f"a {type(value).__name__} has no JSON form")
