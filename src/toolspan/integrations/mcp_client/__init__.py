"""A client that offers the tools of MCP servers.

Start at `servers.py` (`McpServers`), then `server.py` (one server), `connection.py` and
`tools.py`. The SDK is imported when the first connection is opened.
"""

from __future__ import annotations

from toolspan.integrations.mcp_client.config import BadServers
from toolspan.integrations.mcp_client.logins import LoginPrompt
from toolspan.integrations.mcp_client.protocol import Health
from toolspan.integrations.mcp_client.servers import McpServers, prompt_tool_approver

__all__ = ["BadServers", "Health", "LoginPrompt", "McpServers", "prompt_tool_approver"]
