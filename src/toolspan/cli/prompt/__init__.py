"""The person at the terminal is asked: for consent, and what a tool wants to know.

Start at `approver.py`.
"""

from __future__ import annotations
