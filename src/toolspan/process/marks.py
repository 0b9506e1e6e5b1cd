"""The mark that every process of a command inherits in its environment.

In: the caller's mark (a call id, say). Out: the variable's value, and its parts read back.
A part is `mark@token`; the token is drawn for each command, because two runners may use the same
call id at the same time and neither may end the other's processes. A custody gives all its
commands a part of its own as well, and a runner inside a command of another runner adds its parts
behind the outer ones: each finds what is its own.
"""

import os
import secrets
from collections.abc import Mapping, Sequence

VARIABLE = "TOOLSPAN_CALL"
_BETWEEN_PARTS = ":"
_BEFORE_TOKEN = "@"
_ENTRY = VARIABLE.encode() + b"="


def new_part(mark: str) -> str:
    """A part for one command, or for the custody of many.

    Raises:
        ValueError: the mark is empty or holds a character that separates.
    """
    if not mark or any(sign in mark for sign in (_BETWEEN_PARTS, _BEFORE_TOKEN, "\0")):
        raise ValueError(f"a mark is not empty and has no ':', '@' or NUL in it, not {mark!r}")
    return f"{mark}{_BEFORE_TOKEN}{secrets.token_hex(6)}"


def marked(env: Mapping[str, str], parts: Sequence[str]) -> dict[str, str]:
    """The environment with these parts behind those of the runners around us."""
    outer = env.get(VARIABLE) or os.environ.get(VARIABLE)
    return {**env, VARIABLE: _BETWEEN_PARTS.join([outer, *parts] if outer else parts)}


def parts_of(environment: bytes) -> frozenset[str]:
    """The parts in a block of NUL-separated `name=value` entries."""
    if _ENTRY not in environment:  # nearly always
        return frozenset()
    values = (
        entry.removeprefix(_ENTRY).decode(errors="replace")
        for entry in environment.split(b"\0")
        if entry.startswith(_ENTRY)
    )
    return frozenset(part for value in values for part in value.split(_BETWEEN_PARTS))


def carries(parts: frozenset[str], mark: str) -> bool:
    """Is one of the parts this mark, with or without its token?"""
    return any(mark in (part, part.partition(_BEFORE_TOKEN)[0]) for part in parts)
