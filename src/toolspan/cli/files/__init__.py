"""`toolspan files`: what calls did to files. Start at `files.py`."""

from toolspan.cli.files.files import command

__all__ = ["command"]
