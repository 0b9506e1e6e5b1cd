"""Patches inside command lines: `apply_patch <<'EOF'` and the like.

In: a command, as a line for a shell or as words. Out: the text of each patch in it and the folder
it is meant for. Only the words are looked at: whether the shell got as far as there, and whether
the patch is sound, is for others to say. Read `patches_in` first.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

_NAME = r"(?:apply_patch|applypatch)"
_HEREDOC = re.compile(
    rf"""(?:^|&&|\|\||[;|(]|\n)[ \t]*{_NAME}[ \t]*<<-?[ \t]*(['"]?)(?P<end>\w+)\1[^\n]*\n
    (?P<patch>.*?)(?:\n[ \t]*(?P=end)[ \t]*(?=\n|\)|;|&|\Z)|\Z)""",
    re.DOTALL | re.VERBOSE,
)
_FOLDER = re.compile(
    r"""\A\s*cd[ \t]+(?P<quote>['"]?)(?P<folder>[^'"\n;&|$`]+)(?P=quote)[ \t]*(?:&&|;|\n)"""
)
_CD = re.compile(r"(?:^|[;&|(\n])\s*(?:cd|pushd)\b")
_SHELLS = frozenset({"bash", "sh", "zsh"})


class Embedded(NamedTuple):
    """A patch found in a command."""

    patch: str
    folder: str | None = None
    """Where the command goes before it; None: it stays where it is."""
    moved: bool = False
    """It goes somewhere in a way that is not understood, so paths are not known."""


def patches_in(command: str | Sequence[str]) -> list[Embedded]:
    """The patches that a command would apply, in order."""
    if isinstance(command, str):
        return _in_line(command)
    words = list(command)
    if len(words) > 1 and _base(words[0]) in {"apply_patch", "applypatch"}:
        return [Embedded(words[1])] if words[1].lstrip().startswith("*** Begin Patch") else []
    if len(words) > 2 and _base(words[0]) in _SHELLS and words[1] in {"-c", "-lc"}:
        return _in_line(words[2])
    return []


def _base(name: str) -> str:
    return name.rpartition("/")[2]


def _in_line(line: str) -> list[Embedded]:
    found = []
    for match in _HEREDOC.finditer(line):
        before = line[: match.start()]
        led = _FOLDER.match(line)
        folder = led["folder"].strip() if led else None
        rest = before[led.end() :] if led else before
        found.append(Embedded(match["patch"], folder, moved=bool(_CD.search(rest))))
    return found
