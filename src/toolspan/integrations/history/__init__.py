"""Recorded sessions as read-only tools for agents. Start at `history_tools`."""

from __future__ import annotations

from toolspan.integrations.history.tools import history_tools

__all__ = ["history_tools"]
