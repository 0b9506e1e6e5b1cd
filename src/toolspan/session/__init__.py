"""A session: a runner and a recorder that share one conversation. Start at `session.py`."""

from toolspan.session.session import Session

__all__ = ["Session"]
