"""A server's answer as the model reads it, and as it is recorded.

In: the result of a call, as the server gave it. Out: an `Output`, or a `Failure` when the tool
reported an error. What a conversation cannot hold (sound, other files) is saved beside it; what is
too much for one too.
"""

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

from toolspan.ids import CallId
from toolspan.mcp.naming import plain
from toolspan.profile import McpValues
from toolspan.run.limits import spill
from toolspan.run.tool import Failure, Output

Block = dict[str, object]

PICTURES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
"""What a model can look at."""
_ENDINGS = {
    "audio/wav": ".wav",
    "audio/mpeg": ".mp3",
    "audio/ogg": ".ogg",
    "image/webp": ".webp",
    "image/jpeg": ".jpg",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """Where an answer is put into words: whose it is, and where its files go."""

    server: str
    call_id: CallId
    folder: Path
    values: McpValues
    inline_limit: int | None


def told(answer: Mapping[str, object], desk: Desk) -> Output | Failure:
    """What the model is told of an answer."""
    blocks = _blocks(answer.get("content"))
    if answer.get("isError") is True:
        return Failure(error_text(blocks, desk.values))
    if answer.get("resultType") == "input_required":
        return Failure(f"{desk.server} asks for input, and nobody can give it here", "mcp_error")
    structured = answer.get("structuredContent")
    if structured is not None:
        text = compact(structured)
        return _limited(Output(content=text, structured=text), text, ".txt", answer, desk)
    shown = [made for block in blocks for made in _shown(block, desk)]
    pretty = json.dumps(shown, indent=2, ensure_ascii=False)
    return _limited(Output(content=shown, structured=shown), pretty, ".json", answer, desk)


def error_text(blocks: Sequence[Mapping[str, object]], values: McpValues) -> str:
    """What an error result says: its texts, or the first of them."""
    texts = [str(block["text"]) for block in blocks if isinstance(block.get("text"), str)]
    return "\n".join(texts if values.joins_errors else texts[:1])


def compact(value: object) -> str:
    """JSON without spaces."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def saved(data: bytes, kind: str, desk: Desk) -> Path:
    """Keep bytes in a file of their own.

    Raises:
        OSError: they cannot be kept.
    """
    desk.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    ending = _ENDINGS.get(kind) or mimetypes.guess_extension(kind) or ".bin"
    stamp = f"{time.time_ns() // 1_000_000}-{secrets.token_hex(3)}"
    path = desk.folder / f"mcp-{plain(desk.server)}-blob-{stamp}{ending}"
    path.write_bytes(data)
    return path


def binary_words(encoded: object, kind: str, desk: Desk) -> str:
    """What is said in place of bytes: what they are, and where they are kept."""
    data = decoded(encoded)
    if data is None:
        return f"Binary content ({kind}) that is not valid base64"
    about = f"Binary content ({kind}, {len(data)} bytes)"
    try:
        return f"{about} saved to {saved(data, kind, desk)}"
    except OSError as error:
        return f"{about} could not be saved: {error}"


def decoded(encoded: object) -> bytes | None:
    """Bytes from base64; None when it is none."""
    try:
        return base64.b64decode(encoded, validate=True) if isinstance(encoded, str) else None
    except (binascii.Error, ValueError):
        return None


def _blocks(content: object) -> list[Mapping[str, object]]:
    return [one for one in content if isinstance(one, Mapping)] if isinstance(content, list) else []


def _limited(
    output: Output, text: str, ending: str, answer: Mapping[str, object], desk: Desk
) -> Output:
    """The output, with a file in place of its text when that is too long."""
    beside = _meta(answer, desk.values)
    limit = desk.inline_limit
    if limit is None or len(text) <= limit:
        return replace(output, beside=beside)
    kept = spill(text, desk.folder, desk.call_id, ending=ending)
    return replace(output, content=kept.text, persisted=kept.path, beside=beside)


def _meta(answer: Mapping[str, object], values: McpValues) -> dict[str, object] | None:
    """What hosts may want to have of an answer, beside what the model reads."""
    meta: dict[str, object] = {}
    if answer.get("structuredContent") is not None:
        meta["structuredContent"] = answer["structuredContent"]
    links = [
        _link(block) for block in _blocks(answer.get("content")) if _is(block, "resource_link")
    ]
    if links:
        meta["resourceLinks"] = links
    kept = {key: value for key, value in meta.items() if key in values.meta}
    return {"mcpMeta": kept} if kept else None


def _link(block: Mapping[str, object]) -> Block:
    return {key: value for key, value in block.items() if key != "type"}


def _is(block: Mapping[str, object], kind: str) -> bool:
    return block.get("type") == kind


def _text(text: str) -> Block:
    return {"type": "text", "text": text}


def _shown(block: Mapping[str, object], desk: Desk) -> list[Block]:
    """A block of the protocol as blocks of a conversation."""
    match block:
        case {"type": "text", "text": str() as text}:
            return [_text(text)]
        case {"type": "image"}:
            return _picture(block.get("data"), _kind(block, "image/png"), "Image", desk)
        case {"type": "audio"} if desk.values.saves_binary:
            words = binary_words(block.get("data"), _kind(block, "audio/wav"), desk)
            return [_text(f"[Audio from {desk.server}] {words}")]
        case {"type": "resource", "resource": Mapping() as resource}:
            return _resource(resource, desk)
        case {"type": "resource_link"}:
            return [_text(_link_words(block))]
        case _:
            return []


def _picture(encoded: object, kind: str, noun: str, desk: Desk) -> list[Block]:
    data = decoded(encoded)
    if data is None or kind not in PICTURES:
        if not desk.values.saves_binary:
            return []
        return [_text(f"[{noun} from {desk.server}] {binary_words(encoded, kind, desk)}")]
    source = {"type": "base64", "media_type": kind, "data": encoded}
    shown: list[Block] = [{"type": "image", "source": source}]
    if desk.values.names_images:
        try:
            shown.append(_text(f"[Image: source: {saved(data, kind, desk)}]"))
        except OSError:
            return shown  # it is in the conversation anyway
    return shown


def _resource(resource: Mapping[str, object], desk: Desk) -> list[Block]:
    head = f"[Resource from {desk.server} at {resource.get('uri')}] "
    text = resource.get("text")
    if isinstance(text, str):
        return [_text(head + text)]
    kind = _kind(resource, "application/octet-stream")
    if kind in PICTURES and decoded(resource.get("blob")) is not None:
        return [_text(head), *_picture(resource.get("blob"), kind, "Image", desk)]
    if not desk.values.saves_binary:
        return []
    return [_text(head + binary_words(resource.get("blob"), kind, desk))]


def _link_words(block: Mapping[str, object]) -> str:
    words = f"[Resource link: {block.get('name')}] {block.get('uri')}"
    about = block.get("description")
    return f"{words} ({about})" if isinstance(about, str) and about else words


def _kind(block: Mapping[str, object], default: str) -> str:
    kind = block.get("mimeType")
    return kind.partition(";")[0].strip().lower() if isinstance(kind, str) and kind else default
