"""Sessions in other forms: a page, JSON, CSV, Markdown, traces; whole, redacted, or bones alone.

In: transcripts. Out: text. Every format gets a `Story` (`story.py`), whose records have already
passed a `Veil` (`veil.py`): what a veil takes away, no format can write. Start at `story.py`.
"""

from __future__ import annotations
