"""The time that ages such as `7d` count back from."""

from __future__ import annotations

import os
from datetime import UTC, datetime

from toolspan.errors import InvalidFilter

NOW_VARIABLE = "TOOLSPAN_NOW"


def now() -> datetime:
    """Return the current time in UTC, or the time in $TOOLSPAN_NOW, so that an answer can be repeated."""
    text = os.environ.get(NOW_VARIABLE)
    if not text:
        return datetime.now(UTC)
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except ValueError as error:
        raise InvalidFilter(f"{NOW_VARIABLE}={text!r} is not a time such as 2026-11-08T20:00Z") from error
