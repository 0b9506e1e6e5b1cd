"""Files as tools see them: bytes safely read, texts exactly kept, contents replaced whole or not.

What the file tools share. Errors come out as `ToolError`, in the words that clients use. Knows
nothing of tools, calls or what a conversation has seen. Start at `load.py`, then `text.py` and
`swap.py`.
"""

from __future__ import annotations
