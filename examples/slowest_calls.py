"""Print the ten slowest calls of a folder, each counted once however often it was copied.

Usage: python slowest_calls.py [FOLDER]
"""

from __future__ import annotations

import sys
from datetime import timedelta

import toolspan

history = toolspan.history(sys.argv[1] if len(sys.argv) > 1 else None)
slowest = sorted(history.spans, key=lambda span: span.duration or timedelta(0), reverse=True)
for span in slowest[:10]:
    print(f"{span.duration or '?'!s:>16}  {span.state:<15} {span.tool}: {span.call.target}")
