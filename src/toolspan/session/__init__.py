"""A session: a runner and a recorder that share one conversation. Start at `session.py`.

`agent.py` adds a model that speaks in it, `resumed.py` goes on with what was recorded.
"""

from __future__ import annotations

from toolspan.session.agent import Agent, AgentLimits, TurnResult
from toolspan.session.notifications import CallLines
from toolspan.session.resume import resume_arguments
from toolspan.session.session import Session

__all__ = ["Agent", "AgentLimits", "CallLines", "Session", "TurnResult", "resume_arguments"]
