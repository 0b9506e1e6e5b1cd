"""Input schemas of tools.

`derive.py` creates them from signatures, `check.py` checks inputs against declared schemas, and `issues.py` describes
invalid inputs in the format of a client version.
"""

from __future__ import annotations
