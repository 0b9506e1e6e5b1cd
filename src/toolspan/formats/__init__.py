"""Bytes to entries and back: the transcript formats of both clients are known here alone.

`source.py` gives bytes, `jsonl.py` cuts them into lines, `claude.py` and `codex.py` decode those,
`narrow.py` types inputs and results when somebody asks. `blocks.py` is for agent loops of one's
own. Start at `claude.py`.
"""

from __future__ import annotations
