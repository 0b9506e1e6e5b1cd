"""Transcript formats: bytes to records and back. Field names of clients occur here and nowhere else.

`base.py` defines the interface of a format, `registry.py` lists the formats; each client has its own folder. Shared by
all: `source.py` reads bytes, `jsonl.py` splits them into lines, `decoding.py` and `lines.py` decode those. `blocks.py`
is for agent loops without toolspan's runtime.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolspan.lazy import lazy_exports

if TYPE_CHECKING:
    from toolspan.formats.base import TranscriptFormat
    from toolspan.formats.registry import all_formats, get_format
    from toolspan.formats.source import BytesSource, FileSource


__all__ = [
    "BytesSource",
    "FileSource",
    "TranscriptFormat",
    "all_formats",
    "get_format",
]

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
