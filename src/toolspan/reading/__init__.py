"""Read transcript files and return spans. Start at `transcript.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolspan.lazy import lazy_exports

if TYPE_CHECKING:
    from toolspan.reading.cache import Cache
    from toolspan.reading.diagnostics import check
    from toolspan.reading.follow import CallAppeared, CallChanged, Follower
    from toolspan.reading.history import CallTable, History, transcripts
    from toolspan.reading.rows import CallRow
    from toolspan.reading.timeline import build_timeline
    from toolspan.reading.transcript import Transcript, read


__all__ = [
    "Cache", "CallAppeared", "CallChanged", "CallRow", "CallTable", "Follower", "History", "Transcript",
    "build_timeline", "check", "read", "transcripts",
]  # fmt: skip

__getattr__ = lazy_exports(__name__, {
    "Cache": "cache", "CallAppeared": "follow", "CallChanged": "follow", "CallRow": "rows",
    "CallTable": "history", "Follower": "follow", "History": "history", "Transcript": "transcript",
    "build_timeline": "timeline", "check": "diagnostics", "read": "transcript", "transcripts": "history",
})  # fmt: skip
