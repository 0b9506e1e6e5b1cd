"""Static analysis of bash command lines.

Start at `programs.py` (the programs of a line), then `wrappers.py` (the programs that those run in turn),
`readonly.py` (lines that change nothing) and `arguments.py` (the files that programs read and change).
"""

from __future__ import annotations
