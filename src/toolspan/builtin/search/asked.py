"""What a Grep call asks for: from the input to ripgrep's arguments.

In: the parsed input. Out: an `Asked`. Which values hold for which client is the profile's.
"""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from toolspan.builtin.search.records import SEPARATOR
from toolspan.profile import SearchValues

Mode = Literal["content", "files_with_matches", "count"]
Number = int | float

_WIDEST = 500
"""Columns of a line; of a wider one, only that it is there is told."""
_VERSIONING = (".git", ".svn", ".hg", ".bzr", ".jj", ".sl")
"""Folders of version control; what is in them is not the project's."""
_COMMA = re.compile(r",(?![^{]*\})")
_MODE_FLAGS: Mapping[Mode, str] = {
    "content": "--no-heading",
    "files_with_matches": "--files-with-matches",
    "count": "--count",
}


def grep_schema(values: SearchValues) -> dict[str, object]:
    """The input that a client version takes."""
    extra = {
        "context": {"type": "number", "description": "Lines to show around each match"},
        "-o": {"type": "boolean", "description": "Show only what matched of each line"},
    }
    return {
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "description": "The regular expression"},
            "path": {"type": "string", "description": "File or folder; the current one if left"},
            "glob": {"type": "string", "description": "Only files with such names: `*.{ts,tsx}`"},
            "output_mode": {
                "type": "string",
                "enum": ["content", "files_with_matches", "count"],
                "description": "Lines, files (the default) or numbers of lines",
            },
            "-B": {"type": "number", "description": "Lines to show before each match"},
            "-A": {"type": "number", "description": "Lines to show after each match"},
            "-C": {"type": "number", "description": "Lines to show around each match"},
            "-n": {"type": "boolean", "description": "Show line numbers; they are unless told not"},
            "-i": {"type": "boolean", "description": "Upper and lower case are the same"},
            "type": {"type": "string", "description": "Only files of this type: py, rust, md"},
            "head_limit": {"type": "number", "description": "How many lines or files to give"},
            "offset": {"type": "number", "description": "How many of them to leave out first"},
            "multiline": {"type": "boolean", "description": "The pattern may span lines"},
            **{name: one for name, one in extra.items() if name in values.grep_inputs},
        },
        "required": ["pattern"],
        "additionalProperties": False,
    }


def bad_range(value: Mapping[str, object]) -> str | None:
    """What is wrong with the limit or the offset."""
    for name, advice in (("head_limit", " Pass 0 for unlimited."), ("offset", "")):
        number = _number(value.get(name))
        if number is not None and (number < 0 or not isinstance(number, int)):
            return f"{name} must be a whole number of 0 or more, got {number}.{advice}"
    return None


@dataclass(frozen=True, slots=True)
class Asked:
    """One search."""

    value: Mapping[str, object]
    mode: Mode
    limit: Number | None
    """As it was given."""
    offset: Number
    most: int | None
    """How many are given at most; None: all."""

    @property
    def numbers(self) -> bool:
        """Whether line numbers are shown."""
        return self.value.get("-n") is not False

    @property
    def skip(self) -> int:
        """How many are left out at the beginning."""
        return max(0, int(self.offset))

    @property
    def reach(self) -> int | None:
        """How many have to be known: those left out and those given."""
        return None if self.most is None else self.skip + self.most

    def arguments(self, path: Path) -> list[str]:
        """What ripgrep is told, beside what it always is."""
        return [
            _MODE_FLAGS[self.mode],
            "--with-filename",
            *(self._line_arguments() if self.mode == "content" else ()),
            *self._match_arguments(),
            *(f"--glob={one}" for one in _globs(str(self.value.get("glob") or ""))),
            *(f"--glob=!{name}" for name in _VERSIONING),
            "--regexp",
            str(self.value["pattern"]),
            "--",
            str(path),
        ]

    def _line_arguments(self) -> Iterator[str]:
        yield f"--max-columns={_WIDEST}"
        yield f"--context-separator={os.fsdecode(SEPARATOR)}"
        yield "--line-number"  # also when it is not shown: it tells matches from lines around them
        if self.value.get("-o") is True:
            yield "--only-matching"
        around = self.value.get("context", self.value.get("-C"))
        if around is not None:
            yield from ("-C", str(_number(around)))
            return
        for flag in ("-B", "-A"):
            if flag in self.value:
                yield from (flag, str(_number(self.value[flag])))

    def _match_arguments(self) -> Iterator[str]:
        if self.value.get("-i") is True:
            yield "--ignore-case"
        if self.value.get("multiline") is True:
            yield from ("--multiline", "--multiline-dotall")
        if self.value.get("type"):
            yield from ("--type", str(self.value["type"]))


def asked(value: Mapping[str, object], values: SearchValues) -> Asked:
    """The search that an input describes."""
    limit = _number(value.get("head_limit"))
    most = values.default_limit if limit is None else max(0, int(limit))
    if limit == 0 and values.zero_is_all:
        most = None
    return Asked(
        value=value,
        mode=_mode(value.get("output_mode")),
        limit=limit,
        offset=_number(value.get("offset")) or 0,
        most=most,
    )


def _mode(value: object) -> Mode:
    return next((mode for mode in _MODE_FLAGS if mode == value), "files_with_matches")


def _globs(given: str) -> list[str]:
    """Several globs may stand in one text, with blanks or, outside of braces, commas between."""
    return [glob for word in given.split() for glob in _COMMA.split(word) if glob]


def _number(value: object) -> Number | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if isinstance(value, float) and value.is_integer() else value
