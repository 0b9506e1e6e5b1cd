"""When Claude Code deletes sessions: `Archive.retention`, for `toolspan`, `toolspan doctor` and `toolspan keep`.

At its start, the client deletes transcripts that have not been written to for `cleanupPeriodDays`, 30 by default.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from msgspec import Struct, field

from toolspan.archive.clock import now
from toolspan.archive.keep.kept import KeptArchive
from toolspan.formats.registry import recorded_format
from toolspan.formats.source import read_small_json
from toolspan.reading.discovery import find_transcripts

DEFAULT_DAYS = 30
_SOON = timedelta(days=7)
_MAX_SETTINGS_BYTES = 1 << 20


class Retention(Struct, frozen=True, kw_only=True):
    """How long the client keeps sessions, and which it deletes soon."""

    days: float
    """The value of `cleanupPeriodDays`."""
    is_default: bool
    settings: str
    """The file that sets the days, or that can."""
    sessions: int
    oldest: str | None
    """The time of the last change of the session that is deleted first."""
    soon: int
    """The number of sessions that the client deletes within a week, unless they are used again."""
    first: str | None
    """The time from which the client may delete the first of them."""
    keeps: bool
    """True if `toolspan keep` has kept sessions in its default folder."""

    @property
    def advice(self) -> str | None:
        """A sentence about what is deleted soon and what helps; None if nothing is."""
        if not self.soon:
            return None
        what = "1 session" if self.soon == 1 else f"{self.soon:,} sessions"
        help_text = "toolspan keep keeps them" if not self.keeps else "run toolspan keep to keep the latest state"
        return (
            f"Claude Code deletes {what} within a week, {self.days:g} days after the last change; {help_text}, "
            f"or set cleanupPeriodDays in {self.settings}"
        )


class _Settings(Struct, frozen=True):
    days: float | None = field(default=None, name="cleanupPeriodDays")


def find_retention() -> Retention | None:
    """Return when Claude Code deletes sessions of this user; None if there are none."""
    client = recorded_format()
    root = client.roots()[0]
    if not root.is_dir():
        return None
    user_file = client.home() / "settings.json"
    days, settings = None, user_file
    for path in (_managed_file(), user_file):
        found = read_small_json(path, _Settings, _MAX_SETTINGS_BYTES)
        if found is not None and found.days is not None and days is None:
            days, settings = found.days, path
    period = DEFAULT_DAYS if days is None else days
    times = sorted(file.modified for file in find_transcripts(root) if file.name.role == "session")
    limit = (now() + _SOON - timedelta(days=period)).timestamp()
    soon = sum(time < limit for time in times)
    oldest = datetime.fromtimestamp(times[0], UTC) if times else None
    return Retention(
        days=period,
        is_default=days is None,
        settings=str(settings),
        sessions=len(times),
        oldest=oldest.isoformat() if oldest else None,
        soon=soon,
        first=(oldest + timedelta(days=period)).isoformat() if oldest and soon else None,
        keeps=KeptArchive().exists,
    )


def _managed_file() -> Path:
    if sys.platform == "darwin":
        return Path("/Library/Application Support/ClaudeCode/managed-settings.json")
    if os.name == "nt":
        return Path("C:/Program Files/ClaudeCode/managed-settings.json")
    return Path("/etc/claude-code/managed-settings.json")
