"""Run tool calls, from a request to a result.

Start at `pipeline.py` (the life of one call), then `batch.py` (the calls of one message) and `runner.py`.
"""

from __future__ import annotations
