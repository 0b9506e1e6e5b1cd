"""Glob and Grep: find files by name, and by what is in them.

Both ask ripgrep, which `ripgrep.py` starts; what comes out of it is taken piece by piece and never
held whole. `where.py` knows where a search starts, `records.py` how ripgrep's output is cut.
"""

from toolspan.builtin.search.glob import glob_tool
from toolspan.builtin.search.grep import grep_tool

__all__ = ["glob_tool", "grep_tool"]
