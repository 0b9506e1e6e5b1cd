"""One hunk of a patch, as reported by editing tools."""

from __future__ import annotations

from msgspec import Struct


class Hunk(Struct, frozen=True, kw_only=True, rename="camel"):
    """A run of changed lines with its context.

    Each line starts with a space (unchanged), `-` (removed) or `+` (added). A line that starts with a backslash is a
    note such as "No newline at end of file" and belongs to neither side.
    """

    old_start: int
    old_lines: int
    new_start: int
    new_lines: int
    lines: tuple[str, ...]
