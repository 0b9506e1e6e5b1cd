"""Input schemas for tools.

`derive.py` creates them from signatures, `check.py` checks inputs against declared schemas, and
`issues.py` describes invalid inputs in a client version's format.
"""

from __future__ import annotations
