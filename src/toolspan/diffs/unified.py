"""Format hunks as a unified diff that `git apply` and `patch -p1` accept, and parse such diffs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal

from toolspan.diffs.apply import PatchError, check_hunks
from toolspan.diffs.hunks import (
    ADDED,
    NOTE,
    REMOVED,
    UNCHANGED,
    LinePosition,
    hunk_positions,
    last_index,
    missing_newlines,
)
from toolspan.types.hunk import Hunk

DiffKind = Literal["update", "create", "delete"]
"""The effect of a diff on its file."""

_DEV_NULL = "/dev/null"
_NO_NEWLINE = "\\ No newline at end of file"
_TO_QUOTE = re.compile(r'[\x00-\x1f\x7f"\\\udc80-\udcff]')
_HUNK_HEADER = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_ESCAPES = {
    "\a": "\\a",
    "\b": "\\b",
    "\t": "\\t",
    "\n": "\\n",
    "\v": "\\v",
    "\f": "\\f",
    "\r": "\\r",
    '"': '\\"',
    "\\": "\\\\",
}


def unified(hunks: Sequence[Hunk], path: str, *, old_path: str | None = None, change: DiffKind = "update") -> str:
    """Format hunks as a diff, or return an empty string if nothing changes.

    Args:
        hunks: The changes inside the file.
        path: The path as written in the transcript. The leading `/` of an absolute path is dropped.
        old_path: The former path, if an update also renames the file.
        change: Whether the diff updates, creates or deletes the file.

    Raises:
        PatchError: the hunks are malformed, so no program could apply the diff.
    """
    check_hunks(hunks)
    old, new = (old_path or path).lstrip("/"), path.lstrip("/")
    header = [*_extended_header(old, new, change, bare=not hunks)]
    if hunks:
        header.append("--- " + (_DEV_NULL if change == "create" else _format_label("a/" + old)))
        header.append("+++ " + (_DEV_NULL if change == "delete" else _format_label("b/" + new)))
    return "".join(f"{line}\n" for line in (*header, *_format_hunks(hunks)))


def _extended_header(old: str, new: str, change: DiffKind, *, bare: bool) -> Iterator[str]:
    """Yield git's extended header lines for changes that `---` and `+++` cannot express."""
    renames = old != new
    if not renames and (change == "update" or not bare):
        return
    yield f"diff --git {_quote_path('a/' + old)} {_quote_path('b/' + new)}"
    if change == "create":
        yield "new file mode 100644"
    elif change == "delete":
        yield "deleted file mode 100644"
    else:
        yield f"rename from {_quote_path(old)}"
        yield f"rename to {_quote_path(new)}"


def _format_label(name: str) -> str:
    # git also writes this tab; without it, `patch` would cut the name at its first space.
    return _quote_path(name) + ("\t" if " " in name else "")


def _quote_path(name: str) -> str:
    """Quote a path if necessary, as git does when `core.quotePath` is off."""
    escaped = _TO_QUOTE.sub(_escape_char, name)
    return name if escaped == name else f'"{escaped}"'


def _escape_char(match: re.Match[str]) -> str:
    char = match[0]
    return _ESCAPES.get(char) or f"\\{ord(char) & 0xFF:03o}"  # U+DCxx is the raw byte xx


def _format_hunks(hunks: Sequence[Hunk]) -> Iterator[str]:
    for hunk, at in zip(hunks, hunk_positions(hunks), strict=True):
        yield _range_line(hunk, at)
        if hunk is hunks[-1]:
            yield from _lines_with_notes(hunks)
        else:
            yield from hunk.lines


def _range_line(hunk: Hunk, at: LinePosition) -> str:
    # An empty side starts at the line before it, any other side at its first line.
    old = at.old + (hunk.old_lines > 0)
    new = at.new + (hunk.new_lines > 0)
    return f"@@ -{old},{hunk.old_lines} +{new},{hunk.new_lines} @@"


def _lines_with_notes(hunks: Sequence[Hunk]) -> Iterator[str]:
    """Yield the lines of the last hunk, with each note directly after the line that it applies to."""
    missing = missing_newlines(hunks)
    lines = [line for line in hunks[-1].lines if line[0] != NOTE]
    note_indexes: set[int] = set()
    if missing.old:
        note_indexes.add(last_index(lines, {UNCHANGED, REMOVED}))
    if missing.new:
        note_indexes.add(last_index(lines, {UNCHANGED, ADDED}))
    for index, line in enumerate(lines):
        yield line
        if index in note_indexes:
            yield _NO_NEWLINE


def parse_hunks(text: str) -> tuple[Hunk, ...]:
    """Parse the hunks in a diff, skipping everything before the first one.

    Raises:
        PatchError: a hunk is incomplete, or contains a line that cannot occur in a diff.
    """
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    at = 0
    hunks: list[Hunk] = []
    while at < len(lines):
        head = _HUNK_HEADER.match(lines[at])
        at += 1
        if head is not None:
            old, new = int(head[2] or 1), int(head[4] or 1)
            body = _read_hunk_body(lines, at, old, new)
            at += len(body)
            hunks.append(
                Hunk(old_start=int(head[1]), old_lines=old, new_start=int(head[3]), new_lines=new, lines=tuple(body))
            )
    return tuple(hunks)


def _read_hunk_body(lines: list[str], start: int, old: int, new: int) -> list[str]:
    at = start
    while old > 0 or new > 0:
        mark = lines[at][:1] if at < len(lines) else ""
        if at >= len(lines) or mark not in {UNCHANGED, REMOVED, ADDED, NOTE, ""}:
            raise PatchError(f"Line {at + 1} of the diff: the hunk is incomplete.")
        old -= mark in {UNCHANGED, REMOVED, ""}
        new -= mark in {UNCHANGED, ADDED, ""}
        at += 1
    while at < len(lines) and lines[at][:1] == NOTE:
        at += 1
    return [line or UNCHANGED for line in lines[start:at]]
