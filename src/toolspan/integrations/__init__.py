"""Integrations with MCP, OpenTelemetry, other agent loops and Claude Code's hooks.

Each module imports its library on demand; most libraries are extras of the package.
"""

from __future__ import annotations
