"""A session: one conversation whose calls are run and recorded. Start at `session.py`.

`agent.py` adds a model; `resume.py` continues recorded sessions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolspan.lazy import lazy_exports

if TYPE_CHECKING:
    from toolspan.session.agent import Agent, AgentLimits, TurnResult
    from toolspan.session.models import make_model
    from toolspan.session.recording import Recorder, RecorderConfig, collect_evidence
    from toolspan.session.session import Session
    from toolspan.session.single_calls import CallLines, SingleCallRunner
    from toolspan.session.subagents import AgentDefinition, SubagentConfig, SubagentLimits, Subagents


__all__ = [
    "Agent",
    "AgentDefinition",
    "AgentLimits",
    "CallLines",
    "Recorder",
    "RecorderConfig",
    "Session",
    "SingleCallRunner",
    "SubagentConfig",
    "SubagentLimits",
    "Subagents",
    "TurnResult",
    "collect_evidence",
    "make_model",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "Agent": "agent",
        "AgentDefinition": "subagents",
        "AgentLimits": "agent",
        "CallLines": "single_calls",
        "Recorder": "recording",
        "RecorderConfig": "recording",
        "Session": "session",
        "SingleCallRunner": "single_calls",
        "SubagentConfig": "subagents",
        "SubagentLimits": "subagents",
        "Subagents": "subagents",
        "TurnResult": "agent",
        "collect_evidence": "recording",
        "make_model": "models",
    },
)
