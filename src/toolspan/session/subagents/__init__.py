"""Subagent definitions, sessions and worktrees. Start at `subagents.py`."""

from __future__ import annotations

from toolspan.session.subagents.definitions import (
    AgentDefinition,
    SubagentConfig,
    SubagentLimits,
    load_agent_definitions,
)
from toolspan.session.subagents.subagents import Subagents

__all__ = ["AgentDefinition", "SubagentConfig", "SubagentLimits", "Subagents", "load_agent_definitions"]
