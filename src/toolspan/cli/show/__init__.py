"""`toolspan show`: a session as a timeline, or one call in full. Start at `show.py`."""

from toolspan.cli.show.show import command

__all__ = ["command"]
