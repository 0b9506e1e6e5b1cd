"""A session: a runner and a recorder that share one conversation. Start at `session.py`.

`agent.py` adds a model that speaks in it.
"""

from toolspan.session.agent import Agent, Ended, Limits
from toolspan.session.session import Session

__all__ = ["Agent", "Ended", "Limits", "Session"]
