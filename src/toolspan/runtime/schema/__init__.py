"""Input schemas of tools: `derive.py` makes them from signatures, `check.py` checks inputs against declared ones.

`issues.py` describes what is wrong with an input, in the words of a client version.
"""

from __future__ import annotations
