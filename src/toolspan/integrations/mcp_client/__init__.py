"""MCP servers as tools.

Start at `client.py` (`McpServers`), then `server.py` (one server's life), `link.py` (one
connection), `results.py` (what the model is told). The SDK is loaded with the first connection.
"""

from __future__ import annotations

from toolspan.integrations.mcp_client.approver import prompt_tool_approver
from toolspan.integrations.mcp_client.config import BadServers
from toolspan.integrations.mcp_client.server import Health
from toolspan.integrations.mcp_client.servers import McpServers

__all__ = ["BadServers", "Health", "McpServers", "prompt_tool_approver"]
