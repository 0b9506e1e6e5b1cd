"""A session: a runner and a recorder that share one conversation. Start at `session.py`.

`agent.py` adds a model that speaks in it, `resumed.py` goes on with what was recorded.
"""

from toolspan.session.agent import Agent, Ended, Limits
from toolspan.session.lines import CallLines
from toolspan.session.resumed import resumed
from toolspan.session.session import Session

__all__ = ["Agent", "CallLines", "Ended", "Limits", "Session", "resumed"]
