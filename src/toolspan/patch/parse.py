"""Hunks out of the text of a unified diff.

In: the diff of one file, as clients record it, with or without `---` and `+++` lines. Out: hunks.
Does not ask whether they are sound; `hunks.py` does. Read `parse_hunks` first.
"""

import re

from toolspan.model.hunk import Hunk
from toolspan.patch.apply import PatchError
from toolspan.patch.hunks import ADDED, KEPT, NOTE, REMOVED

_RANGE = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")


def parse_hunks(text: str) -> tuple[Hunk, ...]:
    """The hunks of a diff; what stands before the first one is passed over.

    Raises:
        PatchError: a hunk breaks off, or holds a line that is none of a diff.
    """
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    at = 0
    found: list[Hunk] = []
    while at < len(lines):
        head = _RANGE.match(lines[at])
        at += 1
        if head is not None:
            body = _body(lines, at, *_counts(head))
            at += len(body)
            found.append(_hunk(head, body))
    return tuple(found)


def _counts(head: re.Match[str]) -> tuple[int, int]:
    return int(head[2] or 1), int(head[4] or 1)


def _body(lines: list[str], start: int, old: int, new: int) -> list[str]:
    at = start
    while old > 0 or new > 0:
        mark = lines[at][:1] if at < len(lines) else ""
        if at >= len(lines) or mark not in {KEPT, REMOVED, ADDED, NOTE, ""}:
            raise PatchError(f"Line {at + 1} of the diff: the hunk breaks off.")
        old -= mark in {KEPT, REMOVED, ""}
        new -= mark in {KEPT, ADDED, ""}
        at += 1
    while at < len(lines) and lines[at][:1] == NOTE:
        at += 1
    return [line or KEPT for line in lines[start:at]]


def _hunk(head: re.Match[str], body: list[str]) -> Hunk:
    old, new = _counts(head)
    return Hunk(
        old_start=int(head[1]),
        old_lines=old,
        new_start=int(head[3]),
        new_lines=new,
        lines=tuple(body),
    )
