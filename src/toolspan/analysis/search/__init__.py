"""Full-text search in calls and messages, without an index. Start at `find.py`."""

from __future__ import annotations
