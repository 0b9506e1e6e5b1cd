"""Check, count, apply, revert, format and verify hunks and diffs, without I/O.

Start at `apply.py`; `make.py` computes hunks, and `codex_patch.py` handles Codex patches.
"""

from __future__ import annotations

from toolspan.diffs.apply import Fits, Mismatch, NoBase, PatchError, Verification, apply, revert, verify
from toolspan.diffs.hunks import ChangeCount, added_removed, problems
from toolspan.diffs.unified import DiffKind, unified

__all__ = [
    "ChangeCount", "DiffKind", "Fits", "Mismatch", "NoBase", "PatchError", "Verification", "added_removed",
    "apply", "problems", "revert", "unified", "verify",
]  # fmt: skip
