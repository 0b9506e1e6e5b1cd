"""Read: show a file.

Start at `tool.py`; `lines.py` and `media.py` know how files are shown, `refused.py` which are not.
"""

from toolspan.builtin.read.tool import read_tool

__all__ = ["read_tool"]
