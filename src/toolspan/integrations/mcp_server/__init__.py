"""Toolspan as a server for other agents. `service.py` answers, `pipe.py` is the wire."""

from __future__ import annotations

from toolspan.integrations.mcp_server.service import serve
from toolspan.integrations.mcp_server.transport import StdioTransport, private_stdio

__all__ = ["StdioTransport", "private_stdio", "serve"]
