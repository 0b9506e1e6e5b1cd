"""Convert a server's result to content for the model and the transcript.

Audio, other binary data and oversized output are saved to files.
"""

from __future__ import annotations

import base64
import binascii
import json
import mimetypes
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from toolspan.integrations.mcp_client.config import sanitize_name
from toolspan.runtime.output_limits import spill_text
from toolspan.runtime.profiles import McpValues
from toolspan.runtime.tool import Output, ToolFailure
from toolspan.types.ids import CallId

Block = dict[str, object]

IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
"""Image types that a model can read."""
_FILE_SUFFIXES = {
    "audio/wav": ".wav",
    "audio/mpeg": ".mp3",
    "audio/ogg": ".ogg",
    "image/webp": ".webp",
    "image/jpeg": ".jpg",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultContext:
    """The server, tool and folder to which a result belongs."""

    server: str
    call_id: CallId
    folder: Path
    values: McpValues
    inline_limit: int | None


def convert_result(answer: Mapping[str, object], result_context: ResultContext) -> Output | ToolFailure:
    """Convert a result to an `Output`, or to a `ToolFailure` if the tool reported an error."""
    blocks = _content_blocks(answer.get("content"))
    if answer.get("isError") is True:
        return ToolFailure(error_text(blocks, result_context.values))
    if answer.get("resultType") == "input_required":
        return ToolFailure(f"{result_context.server} asks for input, and nobody can give it here", "mcp_error")
    structured = answer.get("structuredContent")
    if structured is not None:
        text = compact_json(structured)
        return _limit_output(Output(content=text, structured=text), text, ".txt", answer, result_context)
    content = [converted for block in blocks for converted in _convert_block(block, result_context)]
    pretty = json.dumps(content, indent=2, ensure_ascii=False)
    return _limit_output(Output(content=content, structured=content), pretty, ".json", answer, result_context)


def error_text(blocks: Sequence[Mapping[str, object]], values: McpValues) -> str:
    """Return the text of an error result: all text blocks or only the first, depending on the profile."""
    texts = [str(block["text"]) for block in blocks if isinstance(block.get("text"), str)]
    return "\n".join(texts if values.joins_errors else texts[:1])


def compact_json(value: object) -> str:
    """Encode a value as JSON without spaces."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def save_binary(data: bytes, kind: str, result_context: ResultContext) -> Path:
    """Save bytes to a new file.

    Raises:
        OSError: the file cannot be written.
    """
    result_context.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    suffix = _FILE_SUFFIXES.get(kind) or mimetypes.guess_extension(kind) or ".bin"
    stamp = f"{time.time_ns() // 1_000_000}-{secrets.token_hex(3)}"
    path = result_context.folder / f"mcp-{sanitize_name(result_context.server)}-blob-{stamp}{suffix}"
    path.write_bytes(data)
    return path


def binary_text(encoded: object, kind: str, result_context: ResultContext) -> str:
    """Save binary data and return the text that replaces it, which states its type and file."""
    data = decode_base64(encoded)
    if data is None:
        return f"Binary content ({kind}) that is not valid base64"
    description = f"Binary content ({kind}, {len(data)} bytes)"
    try:
        return f"{description} saved to {save_binary(data, kind, result_context)}"
    except OSError as error:
        return f"{description} could not be saved: {error}"


def decode_base64(encoded: object) -> bytes | None:
    """Decode base64, or return None if it is invalid."""
    try:
        return base64.b64decode(encoded, validate=True) if isinstance(encoded, str) else None
    except (binascii.Error, ValueError):
        return None


def _content_blocks(content: object) -> list[Mapping[str, object]]:
    return [block for block in content if isinstance(block, Mapping)] if isinstance(content, list) else []


def _limit_output(
    output: Output, text: str, suffix: str, answer: Mapping[str, object], result_context: ResultContext
) -> Output:
    """Replace text that is too long with a reference to a file."""
    metadata = _result_metadata(answer, result_context.values)
    limit = result_context.inline_limit
    if limit is None or len(text) <= limit:
        return replace(output, beside=metadata)
    spilled = spill_text(text, result_context.folder, result_context.call_id, suffix=suffix)
    return replace(output, content=spilled.text, persisted=spilled.path, beside=metadata)


def _result_metadata(answer: Mapping[str, object], values: McpValues) -> dict[str, object] | None:
    """Return the result metadata that is recorded for hosts."""
    meta: dict[str, object] = {}
    if answer.get("structuredContent") is not None:
        meta["structuredContent"] = answer["structuredContent"]
    links = [
        _link_fields(block) for block in _content_blocks(answer.get("content")) if _has_type(block, "resource_link")
    ]
    if links:
        meta["resourceLinks"] = links
    selected = {key: value for key, value in meta.items() if key in values.meta}
    return {"mcpMeta": selected} if selected else None


def _link_fields(block: Mapping[str, object]) -> Block:
    return {key: value for key, value in block.items() if key != "type"}


def _has_type(block: Mapping[str, object], kind: str) -> bool:
    return block.get("type") == kind


def _text_block(text: str) -> Block:
    return {"type": "text", "text": text}


def _convert_block(block: Mapping[str, object], result_context: ResultContext) -> list[Block]:
    """Convert a protocol block to content blocks."""
    match block:
        case {"type": "text", "text": str() as text}:
            return [_text_block(text)]
        case {"type": "image"}:
            return _image_blocks(block.get("data"), _mime_type(block, "image/png"), "Image", result_context)
        case {"type": "audio"} if result_context.values.saves_binary:
            description = binary_text(block.get("data"), _mime_type(block, "audio/wav"), result_context)
            return [_text_block(f"[Audio from {result_context.server}] {description}")]
        case {"type": "resource", "resource": Mapping() as resource}:
            return _resource_blocks(resource, result_context)
        case {"type": "resource_link"}:
            return [_text_block(_link_text(block))]
        case _:
            return []


def _image_blocks(encoded: object, kind: str, noun: str, result_context: ResultContext) -> list[Block]:
    data = decode_base64(encoded)
    if data is None or kind not in IMAGE_TYPES:
        if not result_context.values.saves_binary:
            return []
        return [_text_block(f"[{noun} from {result_context.server}] {binary_text(encoded, kind, result_context)}")]
    source = {"type": "base64", "media_type": kind, "data": encoded}
    blocks: list[Block] = [{"type": "image", "source": source}]
    if result_context.values.names_images:
        try:
            blocks.append(_text_block(f"[Image: source: {save_binary(data, kind, result_context)}]"))
        except OSError:
            return blocks  # the conversation contains the text as well
    return blocks


def _resource_blocks(resource: Mapping[str, object], result_context: ResultContext) -> list[Block]:
    head = f"[Resource from {result_context.server} at {resource.get('uri')}] "
    text = resource.get("text")
    if isinstance(text, str):
        return [_text_block(head + text)]
    kind = _mime_type(resource, "application/octet-stream")
    if kind in IMAGE_TYPES and decode_base64(resource.get("blob")) is not None:
        return [_text_block(head), *_image_blocks(resource.get("blob"), kind, "Image", result_context)]
    if not result_context.values.saves_binary:
        return []
    return [_text_block(head + binary_text(resource.get("blob"), kind, result_context))]


def _link_text(block: Mapping[str, object]) -> str:
    text = f"[Resource link: {block.get('name')}] {block.get('uri')}"
    description = block.get("description")
    return f"{text} ({description})" if isinstance(description, str) and description else text


def _mime_type(block: Mapping[str, object], default: str) -> str:
    kind = block.get("mimeType")
    return kind.partition(";")[0].strip().lower() if isinstance(kind, str) and kind else default
