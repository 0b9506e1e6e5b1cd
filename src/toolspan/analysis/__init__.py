"""Answer questions about transcripts: errors, statistics, time, flows, file history, search, live sessions.

Most modules are pure functions on rows and spans. Only `search` starts a process (ripgrep), and only the
bodies that a question needs are read again.
"""

from __future__ import annotations
