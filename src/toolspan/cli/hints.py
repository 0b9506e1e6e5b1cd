"""Decide whether the last lines of an answer suggest further commands and name the time zone."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from toolspan.reading.cache import default_folder

_FIRST_DAYS = 7 * 86_400


def hints_enabled() -> bool:
    """Return whether to print hints: during the first week, or as $TOOLSPAN_HINTS says (0 or 1).

    The first use is the time of a file in the cache folder. Without one, hints are printed.
    """
    if setting := os.environ.get("TOOLSPAN_HINTS"):
        return setting != "0"
    folder = default_folder()
    if folder is None:
        return True
    marker = folder / "first-use"
    with suppress(OSError):
        if not marker.exists():
            folder.mkdir(parents=True, exist_ok=True)
            marker.touch()
        return time.time() - marker.stat().st_mtime < _FIRST_DAYS
    return True
