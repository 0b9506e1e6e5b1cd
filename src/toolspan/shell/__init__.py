"""Static analysis of bash command lines.

Start at `programs.py` (the programs in a line), then `wrappers.py` (the programs that those run in
turn), `readonly.py` (lines that change nothing) and `arguments.py` (the files that programs read
and change).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolspan.lazy import lazy_exports

if TYPE_CHECKING:
    from toolspan.shell.programs import find_programs
    from toolspan.shell.readonly import is_read_only
    from toolspan.shell.wrappers import expand_wrappers


__all__ = [
    "expand_wrappers",
    "find_programs",
    "is_read_only",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "expand_wrappers": "wrappers",
        "find_programs": "programs",
        "is_read_only": "readonly",
    },
)
