"""From a request to a result: tools, queue, pipeline, cancellation, recovery.

Start at `pipeline.py` (the life of one call), then `runner.py` (a batch of them).
"""

from __future__ import annotations
