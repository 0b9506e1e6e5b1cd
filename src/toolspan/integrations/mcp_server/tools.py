"""Convert tools and results to MCP: schemas, annotations, structured output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from mcp_types import (
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    TextContent,
    ToolAnnotations,
)
from mcp_types import Tool as Listed

from toolspan.runtime.tool import Tool, ToolHints
from toolspan.session.single_calls import SingleCallResult


def tool_listing(tool: Tool, *, structured: bool) -> Listed:
    """Return the listing of a tool for clients; `structured` adds its output schema."""
    hints = tool.hints or _default_hints(tool)
    return Listed(
        name=tool.name,
        title=hints.title,
        description=tool.description,
        input_schema=dict(tool.input_schema),
        output_schema=dict(tool.output_schema) if structured and tool.output_schema is not None else None,
        annotations=ToolAnnotations(
            title=hints.title,
            read_only_hint=hints.read_only,
            destructive_hint=hints.destructive,
            idempotent_hint=hints.read_only or hints.idempotent,
            open_world_hint=hints.open_world,
        ),
    )


def _default_hints(tool: Tool) -> ToolHints:
    return ToolHints(
        tool.name,
        read_only=tool.read_only,
        destructive=not tool.read_only,
        idempotent=tool.idempotent,
        open_world=tool.name.startswith("mcp__"),
    )


NO_APPROVER_NOTE = (
    "(toolspan: nobody could be asked. Whoever starts this server can allow it: --allowed-tools,"
    " --permission-mode, or a rule in the settings.)"
)


def call_tool_result(
    answer: SingleCallResult, tool: Tool | None, *, structured: bool, unanswered: bool = False
) -> CallToolResult:
    """Convert the result of a tool; `unanswered` means that a permission question was not answered."""
    finished = answer.finished
    content = [content_block for block in answer.all_blocks() for content_block in _content_blocks(block)]
    if unanswered or finished.span.error_kind == "not_granted":
        content.append(TextContent(text=NO_APPROVER_NOTE))
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
        content = _join_texts(content)
    result = CallToolResult(content=content, is_error=answer.is_error, _meta=meta)
    if structured and not answer.is_error:
        result.structured_content = _structured_value(tool, finished.structured)
    return result


def _join_texts(content: list[ContentBlock]) -> list[ContentBlock]:
    """Join all texts, because some clients (Claude Code up to 2.1.80) read only the first text of an error."""
    texts = [block.text for block in content if isinstance(block, TextContent)]
    others = [block for block in content if not isinstance(block, TextContent)]
    return [TextContent(text="\n".join(texts)), *others]


def _structured_value(tool: Tool | None, value: object) -> dict[str, object] | None:
    """Return the structured result if it matches the tool's output schema."""
    if not isinstance(value, dict):
        return None
    schema = None if tool is None else tool.output_schema
    fits = schema is None or Draft202012Validator(schema).is_valid(value)
    return value if fits else None


def _content_blocks(block: Mapping[str, object]) -> Iterator[ContentBlock]:
    match block:
        case {"type": "text", "text": str(text)}:
            yield TextContent(text=text)
        case {"type": "image", "source": {"type": "base64", "media_type": str(kind), "data": str(data)}}:
            yield ImageContent(data=data, mime_type=kind)
        case {"type": "document", "source": {"media_type": str(kind), "data": str(data)}}:
            resource = BlobResourceContents(uri="toolspan:document", mime_type=kind, blob=data)
            yield EmbeddedResource(resource=resource)
        case {"type": kind}:
            yield TextContent(text=f"[a block of type {kind}, which cannot be shown here]")
        case _:
            return
