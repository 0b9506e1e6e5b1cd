"""Fit outputs into the conversation: write large ones to a file, and replace content that the API or
JSON does not allow.
"""

from __future__ import annotations

import binascii
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from toolspan.types.events import Content
from toolspan.types.ids import CallId

PREVIEW_CHARS = 2_000
ERROR_LIMIT = 10_000


def utf16_length(text: str) -> int:
    """Return the length in UTF-16 code units, in which the clients count."""
    return len(text) if text.isascii() or max(text) <= "\uffff" else len(text.encode("utf-16-le", "surrogatepass")) // 2


def utf16_head(text: str, limit: int) -> str:
    """Return the first `limit` UTF-16 code units, without half a character at the end."""
    if len(text) <= limit // 2 or text.isascii():
        return text[:limit]
    return text[:limit].encode("utf-16-le", "surrogatepass")[: 2 * limit].decode("utf-16-le", "ignore")


def utf16_tail(text: str, limit: int) -> str:
    """Return the last `limit` UTF-16 code units, without half a character at the beginning."""
    return utf16_head(text[::-1], limit)[::-1]


class SpilledText(NamedTuple):
    """The text for the model, and the file with the full text, or None if the file could not be written."""

    text: str
    path: Path | None


def spill_text(
    text: str, folder: Path, call_id: CallId, *, suffix: str = ".txt", limit: int = ERROR_LIMIT
) -> SpilledText:
    """Write text to a file, and return a preview of at most `limit` characters together with the path."""
    path = folder / f"{safe_file_name(call_id)}{suffix}"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        preview = truncate_middle(text, min(limit, ERROR_LIMIT))
        return SpilledText(f"{preview}\n[The full output could not be saved: {error}]", None)
    return SpilledText(spill_notice(text, utf16_length(text), path, min(limit, PREVIEW_CHARS)), path)


def spill_notice(text: str, size: int, path: Path, limit: int = PREVIEW_CHARS) -> str:
    """Return the notice that replaces a spilled output, with a preview of `text`."""
    part = "2KB" if limit == PREVIEW_CHARS else f"{limit} characters"
    return (
        f"<persisted-output>\nOutput too large ({format_size(size)})."
        f" Full output saved to: {path}\n\n"
        f"Preview (first {part}):\n{text_preview(text, limit)}\n...\n</persisted-output>"
    )


def text_preview(text: str, limit: int = PREVIEW_CHARS) -> str:
    """Return the first `limit` UTF-16 code units, cut at a line end if there is one in the second half."""
    head = utf16_head(text, limit)
    cut = head.rfind("\n")
    return head[:cut] if cut > 0 and utf16_length(head[:cut]) > limit // 2 else head


def format_size(size: int) -> str:
    """Format a size in bytes, such as `106.3KB`."""
    if size < 1024 * 1024:
        return f"{size / 1024:.1f}".removesuffix(".0") + "KB"
    return f"{size / 1024 / 1024:.1f}".removesuffix(".0") + "MB"


def truncate_middle(text: str, limit: int) -> str:
    """Cut the middle out of text that is longer than `limit` UTF-16 code units."""
    length = utf16_length(text)
    if length <= limit:
        return text
    head, tail = utf16_head(text, limit // 2), utf16_tail(text, limit // 2)
    removed = length - utf16_length(head) - utf16_length(tail)
    return f"{head}\n\n... [{removed} characters truncated] ...\n\n{tail}"


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


_MEDIA_TYPES = {
    "image": frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"}),
    "document": frozenset({"application/pdf"}),
}
"""The media types that the API accepts as base64."""
_MAX_BASE64_CHARS = 5 << 20
_SNIFFED_BYTES = 64


class UnfitOutputError(Exception):
    """Raised if an output cannot be sent to a model. The message contains the reason."""


def sanitize_content(content: object) -> Content:
    """Return content that the API accepts; empty if it is only whitespace.

    Raises:
        UnfitOutputError: the content is neither text nor a list of blocks that a result may contain.
    """
    if isinstance(content, str):
        return sanitize_text(content) if content.strip() else ""
    if not isinstance(content, Sequence):
        raise UnfitOutputError(f"a result must be a string or a list of blocks, not {type(content).__name__}")
    blocks = [_sanitize_block(block) for block in content]
    return [block for block in blocks if block["type"] != "text" or str(block["text"]).strip()]


def _sanitize_block(block: object) -> dict[str, object]:
    if not isinstance(block, Mapping):
        raise UnfitOutputError(f"a block must be an object, not {type(block).__name__}")
    kind = block.get("type")
    needed = _REQUIRED_BLOCK_KEYS.get(kind) if isinstance(kind, str) else None
    if needed is None:
        raise UnfitOutputError(f"a result cannot contain a block of type {kind!r}")
    missing = sorted(needed - block.keys())
    if missing:
        raise UnfitOutputError(f"a block of type {kind} needs {', '.join(missing)}")
    if kind == "text" and not isinstance(block["text"], str):
        raise UnfitOutputError("the text of a text block must be a string")
    sanitized = sanitize_json(block)
    if not isinstance(sanitized, dict):
        raise UnfitOutputError("a block must be an object")
    if kind in _MEDIA_TYPES:
        reason = _source_fault(str(kind), sanitized["source"])
        if reason is not None:  # one bad image would make the API refuse the whole request
            return {"type": "text", "text": f"[{kind} omitted: {reason}]"}
    return sanitized


def _source_fault(kind: str, source: object) -> str | None:
    """Return the reason why the API would reject the source of an image or document, or None if it is valid."""
    if not isinstance(source, dict):
        return "its source must be an object"
    match source.get("type"):
        case "base64":
            return _base64_fault(kind, source)
        case "url":
            url = source.get("url")
            if isinstance(url, str) and url.startswith(("https://", "http://")):
                return None
            return f"its URL must begin with https://, and {str(url)[:100]!r} does not; give the data as base64 instead"
        case "file":
            return None if isinstance(source.get("file_id"), str) else "its source needs a file_id"
        case "text" | "content" if kind == "document":
            return None
        case other:
            return f"its source must have the type base64, url or file, not {other!r}"


def _base64_fault(kind: str, source: dict[str, object]) -> str | None:
    media_type, data = source.get("media_type"), source.get("data")
    if media_type not in _MEDIA_TYPES[kind]:
        accepted = ", ".join(sorted(_MEDIA_TYPES[kind]))
        return f"{media_type} is not a type that models accept; convert it to one of {accepted}, or give it as text"
    if not isinstance(data, str) or not data:
        return "its data is empty"
    if data.startswith("data:"):
        return "its data must be base64 alone, without the data: prefix"
    try:
        start = binascii.a2b_base64(data, strict_mode=True)[:_SNIFFED_BYTES]
    except (binascii.Error, ValueError) as error:
        return f"its data is not valid base64 ({error})"
    if kind == "image" and (start.lstrip(b"\xef\xbb\xbf\t\n\r ").startswith((b"<svg", b"<?xml"))):
        return f"its data is an SVG drawing, not {media_type}; convert it to PNG, or give it as text"
    if len(data) > _MAX_BASE64_CHARS and kind == "image":
        return f"it has {format_size(len(data))} of base64, and models accept 5MB; scale it down"
    return None


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
