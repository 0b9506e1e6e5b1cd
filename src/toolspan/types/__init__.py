"""Frozen values shared by the running and the reading half: calls, results, spans, states, decisions.

They do no I/O. Start at `span.py`, then `state.py` and `error_kinds.py`.
"""

from __future__ import annotations
