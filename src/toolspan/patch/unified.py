"""Hunks as a unified diff that `git apply` and `patch -p1` accept.

In: sound hunks and the path they change. Out: diff text. Does not see the files, so whether the
diff fits them is for `verify.py` to say. Read `unified` first.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Literal

from toolspan.model.hunk import Hunk
from toolspan.patch.apply import check
from toolspan.patch.hunks import (
    ADDED,
    KEPT,
    NOTE,
    REMOVED,
    Position,
    bare_sides,
    last_index,
    positions,
)

Change = Literal["update", "create", "delete"]
"""What a diff does to its file."""

_NOWHERE = "/dev/null"
_NO_NEWLINE = "\\ No newline at end of file"
_TO_QUOTE = re.compile(r'[\x00-\x1f\x7f"\\\udc80-\udcff]')
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


def unified(
    hunks: Sequence[Hunk], path: str, *, old_path: str | None = None, change: Change = "update"
) -> str:
    """The diff text; empty when nothing changes.

    Args:
        hunks: What changes inside the file.
        path: The file, as the transcript names it; the leading `/` of an absolute path is dropped.
        old_path: Its name before, when an update also renames it.
        change: Whether the file existed before and exists afterwards.

    Raises:
        PatchError: The hunks are not sound, so no program could apply the diff.
    """
    check(hunks)
    old, new = (old_path or path).lstrip("/"), path.lstrip("/")
    header = [*_extended_header(old, new, change, bare=not hunks)]
    if hunks:
        header.append("--- " + (_NOWHERE if change == "create" else _labelled("a/" + old)))
        header.append("+++ " + (_NOWHERE if change == "delete" else _labelled("b/" + new)))
    return "".join(f"{line}\n" for line in (*header, *_body(hunks)))


def _extended_header(old: str, new: str, change: Change, *, bare: bool) -> Iterator[str]:
    """The lines only git has, for what `---` and `+++` cannot say."""
    renames = old != new
    if not renames and (change == "update" or not bare):
        return
    yield f"diff --git {_quoted('a/' + old)} {_quoted('b/' + new)}"
    if change == "create":
        yield "new file mode 100644"
    elif change == "delete":
        yield "deleted file mode 100644"
    else:
        yield f"rename from {_quoted(old)}"
        yield f"rename to {_quoted(new)}"


def _labelled(name: str) -> str:
    # As git does: without the tab, `patch` would end the name at its first space.
    return _quoted(name) + ("\t" if " " in name else "")


def _quoted(name: str) -> str:
    """The name as git writes it with `core.quotePath` off: quoted only when it must be."""
    escaped = _TO_QUOTE.sub(_escape, name)
    return name if escaped == name else f'"{escaped}"'


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    return _ESCAPES.get(char) or f"\\{ord(char) & 0xFF:03o}"  # U+DCxx stands for the raw byte xx


def _body(hunks: Sequence[Hunk]) -> Iterator[str]:
    for hunk, at in zip(hunks, positions(hunks), strict=True):
        yield _range_line(hunk, at)
        if hunk is hunks[-1]:
            yield from _with_notes(hunks)
        else:
            yield from hunk.lines


def _range_line(hunk: Hunk, at: Position) -> str:
    # A side without lines is named by the line before it, any other by its first line.
    old = at.old + (hunk.old_lines > 0)
    new = at.new + (hunk.new_lines > 0)
    return f"@@ -{old},{hunk.old_lines} +{new},{hunk.new_lines} @@"


def _with_notes(hunks: Sequence[Hunk]) -> Iterator[str]:
    """The lines of the last hunk, with each note right below the line it is about."""
    bare = bare_sides(hunks)
    lines = [line for line in hunks[-1].lines if line[0] != NOTE]
    noted: set[int] = set()
    if bare.old:
        noted.add(last_index(lines, {KEPT, REMOVED}))
    if bare.new:
        noted.add(last_index(lines, {KEPT, ADDED}))
    for index, line in enumerate(lines):
        yield line
        if index in noted:
            yield _NO_NEWLINE
