"""Find the file arguments of well-known programs, and determine whether the files are read or changed.

Start at `find_file_arguments`. Unlike a permission decision, this skips options that are not in the table.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from toolspan.shell.table import find_operands, program_table
from toolspan.shell.words import ShellWord


class FileArguments(Struct, frozen=True):
    """The file arguments of a program."""

    read: tuple[ShellWord, ...] = ()
    changed: tuple[ShellWord, ...] = ()


def changes_files(name: str) -> bool:
    """Return whether a program's main purpose is to change files."""
    spec = program_table().get(name)
    return spec is not None and "write*" in spec.operands.split()


def find_file_arguments(name: str, arguments: Sequence[ShellWord]) -> FileArguments | None:
    """Return the files among the arguments of a program, or None if the program is unknown.

    If a program reads the current folder by default, the result contains `.`.
    """
    known = find_operands(name, arguments)
    if known is None:
        return None
    if name == "sed" and any(word.text[:2] in ("-i", "--") for word in arguments):
        return FileArguments(changed=known.files("read", "write"))
    return FileArguments(read=known.files("read", "stat"), changed=known.changed)
