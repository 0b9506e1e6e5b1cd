"""Fit outputs into the conversation: write large ones to a file, and replace content that the API or
JSON does not allow.
"""

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
    """The text for the model, and the file with the full text, or None if the file could not be written."""

    text: str
    path: Path | None


def spill_text(
    text: str, folder: Path, call_id: CallId, *, suffix: str = ".txt", limit: int = ERROR_LIMIT
) -> SpilledText:
    """Write text to a file, and return a preview of at most `limit` characters together with the path."""
    path = folder / f"{safe_file_name(call_id)}{suffix}"
    data = text.encode()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_bytes(data)
    except OSError as error:
        return SpilledText(truncate_middle(text, min(limit, ERROR_LIMIT)) + f"\n[Not kept whole: {error}]", None)
    return SpilledText(spill_notice(text, len(data), path, min(limit, PREVIEW_CHARS)), path)


def spill_notice(text: str, size: int, path: Path, limit: int = PREVIEW_CHARS) -> str:
    """Return the notice that replaces a spilled output, with a preview of `text`."""
    part = "2KB" if limit == PREVIEW_CHARS else f"{limit} characters"
    return (
        f"<persisted-output>\nOutput too large ({format_size(size)})."
        f" Full output saved to: {path}\n\n"
        f"Preview (first {part}):\n{text_preview(text, limit)}\n...\n</persisted-output>"
    )


def text_preview(text: str, limit: int = PREVIEW_CHARS) -> str:
    """Return the first `limit` characters, cut at a line end if there is one in the second half."""
    head = text[:limit]
    cut = head.rfind("\n")
    return head[:cut] if cut > limit // 2 else head


def format_size(size: int) -> str:
    """Format a size in bytes, such as `106.3KB`."""
    if size < 1024 * 1024:
        return f"{size / 1024:.1f}".removesuffix(".0") + "KB"
    return f"{size / 1024 / 1024:.1f}".removesuffix(".0") + "MB"


def truncate_middle(text: str, limit: int) -> str:
    """Cut the middle out of text that is longer than `limit`."""
    if len(text) <= limit:
        return text
    half = limit // 2
    removed = len(text) - 2 * half
    return f"{text[:half]}\n\n... [{removed} characters truncated] ...\n\n{text[-half:]}"


def safe_file_name(call_id: CallId) -> str:
    """Return a file name for an id, without characters that could lead outside the folder."""
    safe = "".join(c if c.isalnum() or c in "_-" else "_" for c in call_id)
    return safe[:120] or "call"


_REQUIRED_BLOCK_KEYS = {
    "text": frozenset({"text"}),
    "image": frozenset({"source"}),
    "document": frozenset({"source"}),
    "search_result": frozenset({"source", "title", "content"}),
    "tool_reference": frozenset({"tool_name"}),
}
"""The required keys for each type of block that a result may contain."""


class UnfitOutputError(Exception):
    """Raised if an output cannot be sent to a model. The message gives the reason."""


def sanitize_content(content: object) -> Content:
    """Return content that the API accepts; empty if it is only whitespace.

    Raises:
        UnfitOutputError: the content is neither text nor a list of blocks that a result may contain.
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
    """Return the text as a plain `str`, with surrogate pairs joined and lone surrogates replaced with U+FFFD."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return str.__str__(text)  # also converts an instance of a subclass


def sanitize_json(value: object) -> object:
    """Return the value in a form that JSON can represent.

    Raises:
        UnfitOutputError: part of the value cannot be represented in JSON.
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
