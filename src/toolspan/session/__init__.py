"""A session: one conversation whose calls are run and recorded. Start at `session.py`.

`agent.py` adds a model; `resume.py` continues recorded sessions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolspan.lazy import lazy_exports

if TYPE_CHECKING:
    from toolspan.session.agent import Agent, AgentLimits, TurnResult, system_prompt
    from toolspan.session.environment import AgentOptions, SessionOptions
    from toolspan.session.instructions import Instructions, load_instructions
    from toolspan.session.limits import Spending, SpendingLimits
    from toolspan.session.models import make_model
    from toolspan.session.models.base import Model
    from toolspan.session.recording import Recorder, RecorderConfig, collect_evidence
    from toolspan.session.session import Session
    from toolspan.session.single_calls import CallLines, SingleCallRunner
    from toolspan.session.subagents import AgentDefinition, SubagentConfig, SubagentLimits, Subagents


__all__ = [
    "Agent",
    "AgentDefinition",
    "AgentLimits",
    "AgentOptions",
    "CallLines",
    "Instructions",
    "Model",
    "Recorder",
    "RecorderConfig",
    "Session",
    "SessionOptions",
    "SingleCallRunner",
    "Spending",
    "SpendingLimits",
    "SubagentConfig",
    "SubagentLimits",
    "Subagents",
    "TurnResult",
    "collect_evidence",
    "load_instructions",
    "make_model",
    "system_prompt",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "Agent": "agent",
        "AgentDefinition": "subagents",
        "AgentLimits": "agent",
        "AgentOptions": "environment",
        "CallLines": "single_calls",
        "Instructions": "instructions",
        "Model": "models.base",
        "Recorder": "recording",
        "RecorderConfig": "recording",
        "Session": "session",
        "SessionOptions": "environment",
        "SingleCallRunner": "single_calls",
        "Spending": "limits",
        "SpendingLimits": "limits",
        "SubagentConfig": "subagents",
        "SubagentLimits": "subagents",
        "Subagents": "subagents",
        "TurnResult": "agent",
        "collect_evidence": "recording",
        "load_instructions": "instructions",
        "make_model": "models",
        "system_prompt": "agent",
    },
)
