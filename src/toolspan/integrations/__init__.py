"""Integrations with MCP, OpenTelemetry, other agent frameworks and Claude Code's hooks.

Each module imports its library on demand; most libraries are optional extras.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolspan.lazy import lazy_exports

if TYPE_CHECKING:
    from toolspan.integrations.langgraph import ToolspanNode
    from toolspan.integrations.mcp_client.servers import McpServers, prompt_tool_approver
    from toolspan.integrations.opentelemetry import OtelSink
    from toolspan.integrations.pydantic_ai import ToolspanToolset


__all__ = [
    "McpServers",
    "OtelSink",
    "ToolspanNode",
    "ToolspanToolset",
    "prompt_tool_approver",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "McpServers": "mcp_client.servers",
        "OtelSink": "opentelemetry",
        "ToolspanNode": "langgraph",
        "ToolspanToolset": "pydantic_ai",
        "prompt_tool_approver": "mcp_client.servers",
    },
)
