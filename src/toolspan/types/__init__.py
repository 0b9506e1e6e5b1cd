"""Frozen values shared by running and reading: calls, results, spans, states, decisions.

They do no I/O. Start at `span.py`, then `state.py` and `error_kinds.py`.
"""

from __future__ import annotations
