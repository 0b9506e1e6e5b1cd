"""File changes made by calls, and the content of a file at any time. Start at `archive.py`."""

from __future__ import annotations
