"""Static analysis of bash command lines.

Start at `plans.py` (what a line would do), then `syntax.py` (the programs in a line), `wrappers.py` (the programs that
those run in turn) and `arguments.py` (the files that programs read and change).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolspan.lazy import lazy_exports

if TYPE_CHECKING:
    from toolspan.shell.plans import NotUnderstood, Plan, is_read_only, plan


__all__ = [
    "NotUnderstood",
    "Plan",
    "is_read_only",
    "plan",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "NotUnderstood": "plans",
        "Plan": "plans",
        "is_read_only": "plans",
        "plan": "plans",
    },
)
