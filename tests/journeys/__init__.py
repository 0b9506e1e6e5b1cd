"""Whole stories at a terminal; `scripts/journeys.py` writes them down."""
