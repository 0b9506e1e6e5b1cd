"""Spans to answers, one folder per question: time, flow, files, search.

Beside them `live.py` (what goes on now) and `overview.py` (a week at a glance). Everything here is
a function from values to values; only `search` starts processes, and only the bodies that a
question needs are read again.
"""

from __future__ import annotations
