"""The nouns: calls, results, spans, states, error kinds, decisions, events, findings.

Frozen values that know neither files nor tools; both halves, running and reading, speak in them.
Start at `span.py`, then `state.py` and `kind.py`.
"""

from __future__ import annotations
