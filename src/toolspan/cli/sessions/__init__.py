"""`toolspan sessions`: which conversations there are, and which go on. Start at `sessions.py`."""

from toolspan.cli.sessions.sessions import command

__all__ = ["command"]
