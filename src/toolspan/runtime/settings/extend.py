"""Add entries to a list in a JSON text, leaving every other byte as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import NamedTuple

_DECODER = json.JSONDecoder()
_BLANKS = re.compile(r"[ \t\r\n]*")
_DEFAULT_INDENT = "  "


class _Member(NamedTuple):
    """The place of a value in a text."""

    key: str
    start: int
    end: int


def extend_list(text: str, keys: Sequence[str], entries: Sequence[str]) -> str:
    """Return a JSON text with entries appended to the list at `keys`; missing objects and lists are added.

    `text` must contain a JSON object, in which the values at `keys` are objects and a list, or are missing.
    """
    start = _skip_blanks(text, 0)
    if start == len(text):
        text, start = "{}\n", 0
    newline = "\r\n" if "\r\n" in text else "\n"
    unit = _indent_unit(text)
    for depth, key in enumerate(keys):
        members = _members(text, start)
        member = next((member for member in reversed(members) if member.key == key), None)  # the last one counts
        if member is None:
            value: object = list(entries)
            for name in reversed(keys[depth + 1 :]):
                value = {name: value}
            body = json.dumps(value, indent=unit, ensure_ascii=False).replace("\n", newline + unit * (depth + 1))
            return _insert(text, start, members, f"{json.dumps(key)}: {body}", newline, unit * (depth + 1))
        start = member.start
    texts = [json.dumps(entry, ensure_ascii=False) for entry in entries]
    for entry in texts:
        text = _insert(text, start, _elements(text, start), entry, newline, unit * (len(keys) + 1))
    return text


def _insert(text: str, start: int, members: Sequence[_Member], addition: str, newline: str, indent: str) -> str:
    """Insert a member at the end of an object or a list, in the style of the member before it."""
    if members:
        last, before = members[-1], members[-2].end if len(members) > 1 else start + 1
        gap_start = text.index(",", before) + 1 if len(members) > 1 else before
        blanks = text[gap_start : _skip_blanks(text, gap_start)]
        return f"{text[: last.end]},{blanks or ' '}{addition}{text[last.end :]}"
    end = _skip_blanks(text, start + 1)
    closing = indent[: len(indent) - len(_indent_unit(text))]
    return f"{text[: start + 1]}{newline}{indent}{addition}{newline}{closing}{text[end:]}"


def _members(text: str, start: int) -> list[_Member]:
    """Return the members of the object that begins at `start`. The keys begin before the values."""
    members: list[_Member] = []
    at = _skip_blanks(text, start + 1)
    while text[at] != "}":
        key, at = _DECODER.raw_decode(text, at)
        value_start = _skip_blanks(text, _skip_blanks(text, at) + 1)
        _, end = _DECODER.raw_decode(text, value_start)
        members.append(_Member(key, value_start, end))
        at = _skip_blanks(text, end)
        at = _skip_blanks(text, at + 1) if text[at] == "," else at
    return members


def _elements(text: str, start: int) -> list[_Member]:
    elements: list[_Member] = []
    at = _skip_blanks(text, start + 1)
    while text[at] != "]":
        _, end = _DECODER.raw_decode(text, at)
        elements.append(_Member("", at, end))
        at = _skip_blanks(text, end)
        at = _skip_blanks(text, at + 1) if text[at] == "," else at
    return elements


def _skip_blanks(text: str, at: int) -> int:
    match = _BLANKS.match(text, at)
    return at if match is None else match.end()


def _indent_unit(text: str) -> str:
    """Return the indentation of the first member of the text, or the default one."""
    match = re.match(r"[ \t\r\n]*\{[ \t]*\r?\n([ \t]+)", text)
    return match[1] if match is not None else _DEFAULT_INDENT
