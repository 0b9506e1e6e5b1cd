"""Integrations with MCP, OpenTelemetry, other agent frameworks and Claude Code's hooks.

Each module imports its library on demand; most libraries are optional extras of the package.
"""

from __future__ import annotations
