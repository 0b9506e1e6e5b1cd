"""Transcript formats: from bytes to records and back.

Only this package knows the clients' field names. `base.py` defines the interface of a format,
`registry.py` lists the formats, and each client has its own folder. All formats share `source.py`,
which reads bytes, `jsonl.py`, which splits them into lines, and `decoding.py` and `lines.py`, which
decode the lines. `blocks.py` is for agent loops that do not use toolspan's runtime.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolspan.lazy import lazy_exports

if TYPE_CHECKING:
    from toolspan.formats.base import TranscriptFormat
    from toolspan.formats.registry import all_formats, get_format
    from toolspan.formats.source import BytesSource, FileSource


__all__ = ["BytesSource", "FileSource", "TranscriptFormat", "all_formats", "get_format"]

__getattr__ = lazy_exports(
    __name__,
    {
        "BytesSource": "source",
        "FileSource": "source",
        "TranscriptFormat": "base",
        "all_formats": "registry",
        "get_format": "registry",
    },
)
