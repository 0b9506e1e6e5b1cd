"""Hunks and diffs: check, count, apply, take back, print and verify them.

Pure functions from hunks and texts to texts and values; no files. Start at `apply.py`.
"""

from __future__ import annotations

from toolspan.diffs.apply import Fits, Mismatch, NoBase, PatchError, Verification, apply, revert, verify
from toolspan.diffs.hunks import ChangeCount, added_removed, problems
from toolspan.diffs.unified import DiffKind, unified

__all__ = [
    "ChangeCount",
    "DiffKind",
    "Fits",
    "Mismatch",
    "NoBase",
    "PatchError",
    "Verification",
    "added_removed",
    "apply",
    "problems",
    "revert",
    "unified",
    "verify",
]
