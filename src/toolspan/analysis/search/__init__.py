"""Words in calls and messages, found without an index. Start at `find.py`."""

from __future__ import annotations
