"""`toolspan demo`: a short session, run, recorded and read. Start at `demo.py`."""

from toolspan.cli.demo.demo import command

__all__ = ["command"]
