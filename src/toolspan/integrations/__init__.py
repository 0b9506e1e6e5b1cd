"""Integrations with MCP, OpenTelemetry, other agent frameworks and Claude Code's hooks.

Each module imports its library on demand; most libraries are optional extras.
"""

from __future__ import annotations

from toolspan.lazy import lazy_exports

TYPE_CHECKING = False  # perf: as in lazy.py, for hooks
if TYPE_CHECKING:
    from toolspan.integrations.git_blame import blame_commit, blame_file
    from toolspan.integrations.history.tools import history_tools
    from toolspan.integrations.known_error_index import describe_known_error
    from toolspan.integrations.langgraph import ToolspanNode
    from toolspan.integrations.mcp_client.logins import LoginPrompt
    from toolspan.integrations.mcp_client.servers import McpServers, prompt_tool_approver
    from toolspan.integrations.opentelemetry import OtelSink
    from toolspan.integrations.pydantic_ai import ToolspanToolset
    from toolspan.integrations.settings_session import ApproverSetup, SettingsOptions
    from toolspan.integrations.web_approver import WebApprover


__all__ = [
    "ApproverSetup",
    "LoginPrompt",
    "McpServers",
    "OtelSink",
    "SettingsOptions",
    "ToolspanNode",
    "ToolspanToolset",
    "WebApprover",
    "blame_commit",
    "blame_file",
    "describe_known_error",
    "history_tools",
    "prompt_tool_approver",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "ApproverSetup": "settings_session",
        "LoginPrompt": "mcp_client.logins",
        "McpServers": "mcp_client.servers",
        "OtelSink": "opentelemetry",
        "SettingsOptions": "settings_session",
        "ToolspanNode": "langgraph",
        "ToolspanToolset": "pydantic_ai",
        "WebApprover": "web_approver",
        "blame_commit": "git_blame",
        "blame_file": "git_blame",
        "describe_known_error": "known_error_index",
        "history_tools": "history.tools",
        "prompt_tool_approver": "mcp_client.servers",
    },
)
