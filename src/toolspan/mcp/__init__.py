"""MCP servers as tools.

Start at `client.py` (`McpServers`), then `server.py` (one server's life), `link.py` (one
connection), `results.py` (what the model is told). The SDK is loaded with the first connection.
"""

from toolspan.mcp.approver import prompt_tool_approver
from toolspan.mcp.client import McpServers
from toolspan.mcp.config import BadServers
from toolspan.mcp.health import Health

__all__ = ["BadServers", "Health", "McpServers", "prompt_tool_approver"]
