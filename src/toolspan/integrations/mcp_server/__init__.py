"""An MCP server that offers toolspan's tools.

Start at `service.py`; `transport.py` is the stdio transport.
"""

from __future__ import annotations

from toolspan.integrations.mcp_server.service import serve
from toolspan.integrations.mcp_server.transport import StdioTransport, private_stdio

__all__ = ["StdioTransport", "private_stdio", "serve"]
