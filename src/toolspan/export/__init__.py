"""Export sessions as HTML, JSON, CSV, Markdown or traces: in full, redacted or anonymized.

Every format writes the records of a `SessionExport` (`session_export.py`), which are already redacted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolspan.lazy import lazy_exports

if TYPE_CHECKING:
    from toolspan.export.anonymize import Anonymizer
    from toolspan.export.convert import Handoff, convert_session, summarize_session
    from toolspan.export.html import render_transcripts
    from toolspan.export.session_export import SessionExport, load_writer


__all__ = [
    "Anonymizer", "Handoff", "SessionExport", "convert_session", "load_writer", "render_transcripts",
    "summarize_session",
]  # fmt: skip

__getattr__ = lazy_exports(
    __name__,
    {
        "Anonymizer": "anonymize",
        "Handoff": "convert",
        "SessionExport": "session_export",
        "convert_session": "convert",
        "load_writer": "session_export",
        "render_transcripts": "html",
        "summarize_session": "convert",
    },
)
