"""The answer to a call in MCP's words.

In: what became of a call. Out: its blocks as MCP content, an error as such, and, where a client
wants it, the value for programs. Texts stay as they are in every other host.
"""

from collections.abc import Iterator, Mapping

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from mcp_types import (
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    TextContent,
)

from toolspan.serve.offer import OUTPUTS
from toolspan.session.lane import Answer

NOBODY = (
    "(toolspan: nobody could be asked. Whoever starts this server can allow it: --allowed-tools,"
    " --permission-mode, or a rule in the settings.)"
)


def told(answer: Answer, *, structured: bool, nobody: bool = False) -> CallToolResult:
    """A result as a client reads it; `nobody` answered a question of consent."""
    finished = answer.finished
    content = [one for block in answer.blocks() for one in _content(block)]
    if nobody or finished.span.error_kind == "not_granted":
        content.append(TextContent(text=NOBODY))
    meta: dict[str, object] = {
        "toolspan/callId": finished.call_id,
        "toolspan/state": finished.span.state,
        "toolspan/durationMs": round(finished.duration_ms, 3),
    }
    if finished.span.error_kind is not None:
        meta["toolspan/errorKind"] = finished.span.error_kind
    if finished.stop is not None:
        meta["toolspan/stop"] = finished.stop
    if answer.is_error:
        content = _in_one(content)
    result = CallToolResult(content=content, is_error=answer.is_error, _meta=meta)
    if structured and not answer.is_error:
        result.structured_content = _value(finished.span.tool, finished.structured)
    return result


def _in_one(content: list[ContentBlock]) -> list[ContentBlock]:
    """The texts in one: some clients (Claude Code until 2.1.80) read the first of an error only."""
    texts = [one.text for one in content if isinstance(one, TextContent)]
    others = [one for one in content if not isinstance(one, TextContent)]
    return [TextContent(text="\n".join(texts)), *others]


def _value(tool: str, value: object) -> dict[str, object] | None:
    """The value for programs, if it is what the tool says it gives."""
    if not isinstance(value, dict):
        return None
    schema = OUTPUTS.get(tool)
    fits = schema is None or Draft202012Validator(schema).is_valid(value)
    return value if fits else None


def _content(block: Mapping[str, object]) -> Iterator[ContentBlock]:
    match block:
        case {"type": "text", "text": str(text)}:
            yield TextContent(text=text)
        case {
            "type": "image",
            "source": {"type": "base64", "media_type": str(kind), "data": str(data)},
        }:
            yield ImageContent(data=data, mime_type=kind)
        case {"type": "document", "source": {"media_type": str(kind), "data": str(data)}}:
            held = BlobResourceContents(uri="toolspan:document", mime_type=kind, blob=data)
            yield EmbeddedResource(resource=held)
        case {"type": kind}:
            yield TextContent(text=f"[a block of type {kind}, which cannot be shown here]")
        case _:
            return
