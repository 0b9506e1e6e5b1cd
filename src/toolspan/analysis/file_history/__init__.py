"""The changes that calls made to files, and the content of a file at any time. Start at `archive.py`."""

from __future__ import annotations
