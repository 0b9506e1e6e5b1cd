"""An MCP server that offers toolspan's tools and recorded sessions.

Start at `service.py`; `transport.py` is the stdio transport.
"""

from __future__ import annotations

from toolspan.integrations.mcp_server.history import serve_history
from toolspan.integrations.mcp_server.service import serve
from toolspan.integrations.mcp_server.transport import StdioTransport, private_stdio

__all__ = ["StdioTransport", "private_stdio", "serve", "serve_history"]
