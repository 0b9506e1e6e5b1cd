"""Convert tools and results to MCP: schemas, annotations, structured output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

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

from toolspan.runtime.tool import Tool
from toolspan.session.single_calls import SingleCallResult


class _ToolHints(NamedTuple):
    title: str
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    """A repeated call changes nothing more."""
    open_world: bool = False
    """The tool may access other machines."""


_HINTS: Mapping[str, _ToolHints] = {
    "Bash": _ToolHints("Run a command", destructive=True, open_world=True),
    "Edit": _ToolHints("Edit a file", destructive=True),
    "Glob": _ToolHints("Find files by name", read_only=True),
    "Grep": _ToolHints("Search in files", read_only=True),
    "LS": _ToolHints("List a folder", read_only=True),
    "MultiEdit": _ToolHints("Edit a file in several places", destructive=True),
    "NotebookEdit": _ToolHints("Edit a notebook", destructive=True),
    "Read": _ToolHints("Read a file", read_only=True),
    "TaskOutput": _ToolHints("Output of a background command", read_only=True),
    "TaskStop": _ToolHints("Stop a background command", destructive=True, idempotent=True),
    "KillShell": _ToolHints("Stop a background command", destructive=True, idempotent=True),
    "WebFetch": _ToolHints("Fetch a page", read_only=True, open_world=True),
    "WebSearch": _ToolHints("Search the web", read_only=True, open_world=True),
    "Write": _ToolHints("Write a file", destructive=True, idempotent=True),
}

_TEXT = {"type": "string"}
_NUMBER = {"type": "number"}
_FLAG = {"type": "boolean"}
_NAMES = {"type": "array", "items": _TEXT}


def _object_schema(required: Mapping[str, object], **more: object) -> dict[str, object]:
    return {"type": "object", "properties": {**required, **more}, "required": list(required)}


OUTPUT_SCHEMAS: Mapping[str, dict[str, object]] = {
    "Bash": _object_schema({"stdout": _TEXT, "stderr": _TEXT, "interrupted": _FLAG}, backgroundTaskId=_TEXT),
    "Edit": _object_schema({"filePath": _TEXT, "oldString": _TEXT, "newString": _TEXT}),
    "Glob": _object_schema({"filenames": _NAMES, "numFiles": _NUMBER, "truncated": _FLAG}),
    "Grep": _object_schema({"mode": _TEXT, "filenames": _NAMES, "numFiles": _NUMBER}),
    "Read": _object_schema({"type": _TEXT, "file": {"type": "object"}}),
    "Write": _object_schema({"type": _TEXT, "filePath": _TEXT, "content": _TEXT}),
}
"""The keys that structured results always have; there may be more."""


def tool_listing(tool: Tool, *, structured: bool) -> Listed:
    """Return a tool as clients see it; `structured` adds its output schema."""
    return Listed(
        name=tool.name,
        title=_tool_hints(tool).title,
        description=tool.description,
        input_schema=dict(tool.input_schema),
        output_schema=OUTPUT_SCHEMAS.get(tool.name) if structured else None,
        annotations=_tool_annotations(_tool_hints(tool)),
    )


def _tool_hints(tool: Tool) -> _ToolHints:
    hints = _HINTS.get(tool.name)
    if hints is not None:
        return hints
    is_remote = tool.name.startswith("mcp__")
    read_only = tool.read_only
    return _ToolHints(tool.name, read_only, destructive=not read_only, idempotent=tool.idempotent, open_world=is_remote)


def _tool_annotations(hints: _ToolHints) -> ToolAnnotations:
    return ToolAnnotations(
        title=hints.title,
        read_only_hint=hints.read_only,
        destructive_hint=hints.destructive,
        idempotent_hint=hints.read_only or hints.idempotent,
        open_world_hint=hints.open_world,
    )


NO_APPROVER_NOTE = (
    "(toolspan: nobody could be asked. Whoever starts this server can allow it: --allowed-tools,"
    " --permission-mode, or a rule in the settings.)"
)


def call_tool_result(answer: SingleCallResult, *, structured: bool, unanswered: bool = False) -> CallToolResult:
    """Convert a result; `unanswered` means that nobody answered a permission question."""
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
        result.structured_content = _structured_value(finished.span.tool, finished.structured)
    return result


def _join_texts(content: list[ContentBlock]) -> list[ContentBlock]:
    """Join all texts, because some clients (Claude Code until 2.1.80) read only the first of an error."""
    texts = [block.text for block in content if isinstance(block, TextContent)]
    others = [block for block in content if not isinstance(block, TextContent)]
    return [TextContent(text="\n".join(texts)), *others]


def _structured_value(tool: str, value: object) -> dict[str, object] | None:
    """Return the structured result if it matches the tool's output schema."""
    if not isinstance(value, dict):
        return None
    schema = OUTPUT_SCHEMAS.get(tool)
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
