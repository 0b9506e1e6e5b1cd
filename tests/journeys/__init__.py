"""Whole stories at a terminal; `scripts/journeys.py` writes them down."""

from __future__ import annotations
