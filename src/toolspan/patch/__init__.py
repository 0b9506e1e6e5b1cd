"""Hunks and diffs: check, count, apply, take back, print and verify them.

Pure functions from hunks and texts to texts and values; no files. Start at `apply.py`.
"""

from toolspan.patch.apply import PatchError, apply, revert
from toolspan.patch.hunks import ChangeCount, added_removed, problems
from toolspan.patch.unified import Change, unified
from toolspan.patch.verify import Fits, Mismatch, NoBase, Verdict, verify

__all__ = [
    "Change",
    "ChangeCount",
    "Fits",
    "Mismatch",
    "NoBase",
    "PatchError",
    "Verdict",
    "added_removed",
    "apply",
    "problems",
    "revert",
    "unified",
    "verify",
]
