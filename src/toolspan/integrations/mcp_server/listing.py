"""How MCP clients see a tool."""

from __future__ import annotations

from mcp_types import Tool as Listed
from mcp_types import ToolAnnotations

from toolspan.runtime.tool import Tool, ToolHints


def tool_listing(tool: Tool, *, structured: bool) -> Listed:
    """Return a tool's listing for clients. `structured` adds its output schema."""
    hints = tool.hints or ToolHints(
        tool.name,
        read_only=tool.read_only,
        destructive=not tool.read_only,
        idempotent=tool.idempotent,
        open_world=tool.name.startswith("mcp__"),
    )
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
