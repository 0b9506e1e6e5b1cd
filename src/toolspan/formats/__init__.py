"""Transcript formats: bytes to records and back. Field names of clients occur here and nowhere else.

`base.py` defines the interface of a format, `registry.py` lists the formats; each client has its own folder. Shared by
all: `source.py` reads bytes, `jsonl.py` splits them into lines, `decoding.py` and `lines.py` decode those. `blocks.py`
is for agent loops without toolspan's runtime.
"""

from __future__ import annotations
