"""Export sessions as HTML, JSON, CSV, Markdown or traces; in full, redacted or anonymized.

Every format writes the records of a `SessionExport` (`session_export.py`), which are already redacted.
"""

from __future__ import annotations
