"""Transcript to spans. Start at `transcript.py`.

The package is also the function: `toolspan.read(path)` reads one file.
"""

import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolspan.read.transcript import Transcript
    from toolspan.wire.source import Source


class _Reading(ModuleType):
    """A package that can be called: importing any part of it must not hide the function."""

    def __call__(self, path: "Path | str | Source") -> "Transcript":
        """See `toolspan.read.transcript.read`."""
        from toolspan.read.transcript import read

        return read(path)


sys.modules[__name__].__class__ = _Reading
