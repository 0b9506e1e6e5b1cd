"""Format hunks as a unified diff that `git apply` and `patch -p1` accept, and parse such diffs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal

from toolspan.diffs.apply import PatchError, check_hunks
from toolspan.diffs.hunks import ADDED, NOTE, REMOVED, UNCHANGED, hunk_positions, last_index, missing_newlines
from toolspan.types.hunk import Hunk

DiffKind = Literal["update", "create", "delete"]
"""The effect of a diff on its file."""

_DEV_NULL = "/dev/null"
_NO_NEWLINE = "\\ No newline at end of file"
_TO_QUOTE = re.compile(r'[\x00-\x1f\x7f"\\\udc80-\udcff]')
_HUNK_HEADER = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_ESCAPES = {
    "\a": "\\a", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\v": "\\v", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"
}  # fmt: skip


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
    # U+DCxx is the raw byte xx.
    escaped = _TO_QUOTE.sub(lambda match: _ESCAPES.get(match[0]) or f"\\{ord(match[0]) & 0xFF:03o}", name)
    return name if escaped == name else f'"{escaped}"'


def _format_hunks(hunks: Sequence[Hunk]) -> Iterator[str]:
    for hunk, at in zip(hunks, hunk_positions(hunks), strict=True):
        # An empty side starts at the line before it, any other side at its first line.
        old, new = at.old + (hunk.old_lines > 0), at.new + (hunk.new_lines > 0)
        yield f"@@ -{old},{hunk.old_lines} +{new},{hunk.new_lines} @@"
        if hunk is not hunks[-1]:
            yield from hunk.lines
            continue
        # Each note comes directly after the line that it applies to.
        missing = missing_newlines(hunks)
        lines = [line for line in hunk.lines if line[0] != NOTE]
        last_old = last_index(lines, {UNCHANGED, REMOVED}) if missing.old else None
        last_new = last_index(lines, {UNCHANGED, ADDED}) if missing.new else None
        for index, line in enumerate(lines):
            yield line
            if index in (last_old, last_new):
                yield _NO_NEWLINE


def parse_hunks(text: str) -> tuple[Hunk, ...]:
    """Parse the hunks in a diff, skipping everything before the first one.

    Raise PatchError if a hunk is incomplete, or contains a line that cannot occur in a diff.
    """
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    at = 0
    hunks: list[Hunk] = []
    while at < len(lines):
        head = _HUNK_HEADER.match(lines[at])
        at += 1
        if head is None:
            continue
        start, old_lines, new_lines = at, int(head[2] or 1), int(head[4] or 1)
        old, new = old_lines, new_lines
        while old > 0 or new > 0:
            mark = lines[at][:1] if at < len(lines) else None
            if mark not in {UNCHANGED, REMOVED, ADDED, NOTE, ""}:
                raise PatchError(f"Line {at + 1} of the diff: the hunk is incomplete.")
            old -= mark in {UNCHANGED, REMOVED, ""}
            new -= mark in {UNCHANGED, ADDED, ""}
            at += 1
        while at < len(lines) and lines[at][:1] == NOTE:
            at += 1
        body = tuple(line or UNCHANGED for line in lines[start:at])
        hunks.append(
            Hunk(old_start=int(head[1]), old_lines=old_lines, new_start=int(head[3]), new_lines=new_lines, lines=body)
        )
    return tuple(hunks)
