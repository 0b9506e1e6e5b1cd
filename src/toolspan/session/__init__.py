"""A session: one conversation whose calls are run and recorded. Start at `session.py`.

`agent.py` adds a model; `resume.py` continues recorded sessions.
"""

from __future__ import annotations

from toolspan.session.agent import Agent, AgentLimits, TurnResult
from toolspan.session.call_lines import CallLines
from toolspan.session.session import Session

__all__ = ["Agent", "AgentLimits", "CallLines", "Session", "TurnResult"]
