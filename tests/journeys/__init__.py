"""User journeys at a real terminal; `scripts/journeys.py` writes their pages."""

from __future__ import annotations
