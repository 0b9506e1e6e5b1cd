"""What calls did to files, and what a file held at any time. Start at `archive.py`."""

from __future__ import annotations
