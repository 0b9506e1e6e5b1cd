"""`toolspan run`: an agent, whole. Start at `run.py`."""

from toolspan.cli.run.run import command

__all__ = ["command"]
