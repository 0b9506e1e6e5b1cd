"""The table of programs whose arguments are understood: options, and the role of each operand.

The facts are in `tables/*.toml`, one file per family of programs. A program or an option that is not in the table may
do anything. Start at `program_table`, which `arguments.py` uses to read the arguments of programs.

`tables/README.md` describes their fields.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib import resources
from typing import Any, Literal, cast

from msgspec import Struct, convert, field
from msgspec.structs import replace

Role = Literal[
    "option", "value", "text", "read", "stat", "ref", "write", "script", "format"
]  # fmt: skip
"""The role of an argument. `stat` is a file of which only the metadata is read, and `write` a file that is created,
changed or removed. `ref` is a revision or a path in git, and `format` that of a date.
"""


class ProgramSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """The entry of a program in the table."""

    source: str = ""
    flags: str = ""
    values: str = ""
    counts: str = ""
    formats: str = ""
    joined: str = ""
    optional: str = ""
    reads: str = ""
    operands: str = "read*"
    pattern_options: str = ""
    recursive: str = ""
    listing: str = ""
    words: str = ""
    only: str = ""
    rejects: str = ""
    grammar: str = ""
    default: str = ""
    """The operand that the program uses if there is none."""
    like: str = ""
    globs: bool = False
    closed: bool = False
    no_dash: bool = False
    numbers: bool = False
    literal: bool = False
    """True if unknown options are printed like other arguments."""
    dollars: bool = False
    """True if arguments may contain `$` and backquotes, in quotes."""
    edits: bool = False
    bare: bool = False
    follows: str = ""
    lists_names: str = ""
    searches: str = ""
    shows: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    """The kind of each option: `flag`, `value`, `optional` or `read`."""
    roles: tuple[str, ...] = ()
    """The words of `operands`."""
    noted_options: Mapping[str, str] = field(default_factory=dict)
    """The `pattern_options`, `recursive` and `listing` options, with the name of that field."""


_OPTION_FIELDS = (
    ("flags", "flag"),
    ("values", "value"),
    ("counts", "count"),
    ("formats", "format"),
    ("reads", "read"),
    ("optional", "optional"),
)


def _split_options(text: str, *, clusters: bool) -> Iterator[str]:
    for option in text.split():
        if option[:2] == "--" or not clusters or len(option) == 2:
            yield option
        else:
            yield from ("-" + letter for letter in option[1:])


_FAMILIES = ("edits", "git", "search", "system", "text")
"""The files about the arguments of programs."""


def state_builtins() -> frozenset[str]:
    """Return the builtins of bash and zsh that run their arguments, set variables or change what later commands mean.

    They need approval even if a rule allows them.
    """
    return _read_names("builtins.txt")


def version_programs() -> frozenset[str]:
    """Return the programs that answer `--version` before they read a file of the project.

    Others run code of the project first: yarn, cargo, mvn, gradle, flake8, pylint, grunt and ng, for example.
    """
    return _read_names("versions.txt")


def read_toml(name: str) -> dict[str, Any]:
    """Return the content of a file in `tables`."""
    return tomllib.loads(_read_text(f"{name}.toml"))


def _read_text(file: str) -> str:
    return resources.files(__package__).joinpath("tables", file).read_text(encoding="utf-8")


@lru_cache(maxsize=2)
def _read_names(file: str) -> frozenset[str]:
    return frozenset(_read_text(file).split())


@lru_cache(maxsize=1)
def program_table() -> Mapping[str, ProgramSpec]:
    """Return the entries of all programs, by name. The files are read once per process."""
    table: dict[str, ProgramSpec] = {}
    for file in _FAMILIES:
        family = cast("dict[str, dict[str, object]]", read_toml(file))
        for name, fields in family.items():
            base = family.get(cast("str", fields.get("like", "")), {})
            merged = {**base, **fields}
            options: dict[str, str] = {}
            for key, kind in _OPTION_FIELDS:
                texts = f"{base.get(key, '')} {fields.get(key, '')}"
                names = _split_options(texts, clusters=merged.get("grammar") != "find")
                options.update(dict.fromkeys(names, kind))
            spec = convert({**merged, "options": options}, ProgramSpec)
            noted = {
                option: key
                for key in ("pattern_options", "recursive", "listing")
                for option in _split_options(getattr(spec, key), clusters=True)
            }
            table[name] = replace(spec, roles=tuple(spec.operands.split()), noted_options=noted)
    return table
