"""Hooks in the head of a file: the lines between `---` that an agent or a skill begins with.

In: those lines. Out: what stands behind `hooks:`, as decoded JSON would be. It is as much YAML as
such blocks have: objects and lists by indentation, words quoted or not, blocks of lines behind `|`
or `>`, and JSON. What is not understood is an error: a guard that is left out guards nothing. Read
`hooks_in` first.
"""

import json
import re
from collections.abc import Sequence
from typing import NamedTuple

from toolspan.settings.handlers import BadSetting

_KEY = re.compile(r"""("[^"]*"|'[^']*'|[\w.*|-]+)[ \t]*:(?:[ \t]+(.*))?""")
_WORDS = {"true": True, "false": False, "null": None, "~": None, "": None}
_NUMBER = re.compile(r"-?\d+(\.\d+)?")


def hooks_in(head: str) -> object | None:
    """The block of hooks in a head; None when there is none.

    Raises:
        BadSetting: there is one, and it is not understood.
    """
    lines = head.splitlines()
    at = next((n for n, line in enumerate(lines) if re.match(r"hooks[ \t]*:", line)), None)
    if at is None:
        return None
    end = at + 1
    while end < len(lines) and (not lines[end].strip() or lines[end][0] in " \t#-"):
        end += 1
    try:
        return _Reader(lines[at:end]).read()["hooks"]
    except (ValueError, RecursionError) as error:
        raise BadSetting(f"hooks: not understood: {error}") from error


class _Line(NamedTuple):
    indent: int
    text: str


class _Reader:
    """Goes down the lines; each function takes those that belong to it."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._raw = lines
        self._at = 0
        self._pending: _Line | None = None
        """What is left of a line whose dash was taken."""

    def read(self) -> dict[str, object]:
        found = self._mapping(0)
        if self._peek() is not None:
            raise self._error()
        return found

    def _peek(self) -> _Line | None:
        """The next line with something on it."""
        if self._pending is not None:
            return self._pending
        while self._at < len(self._raw):
            line = self._raw[self._at]
            text = line.strip()
            if text and not text.startswith("#"):
                return _Line(len(line) - len(line.lstrip(" ")), text)
            self._at += 1
        return None

    def _take(self) -> None:
        self._pending = None
        self._at += 1

    def _node(self, above: int) -> object:
        """What stands below a key or a dash; nothing when no line is further in."""
        line = self._peek()
        if line is None or line.indent <= above:
            return None
        return self._list(line.indent) if _is_item(line.text) else self._mapping(line.indent)

    def _mapping(self, indent: int) -> dict[str, object]:
        found: dict[str, object] = {}
        while (line := self._peek()) is not None and line.indent == indent:
            key = _KEY.fullmatch(line.text)
            if key is None:
                if _is_item(line.text):
                    break
                raise self._error()
            self._take()
            found[str(_scalar(key[1]))] = self._value((key[2] or "").strip(), indent)
        return found

    def _value(self, given: str, indent: int) -> object:
        if given[:1] in ("|", ">") and given.rstrip("+-") in ("|", ">"):
            return self._literal(indent, "\n" if given[0] == "|" else " ")
        if given and not given.startswith("#"):
            return self._checked(given)
        below = self._peek()
        if below is not None and below.indent == indent and _is_item(below.text):
            return self._list(indent)
        return self._node(indent)

    def _list(self, indent: int) -> list[object]:
        found: list[object] = []
        while (line := self._peek()) is not None and line.indent == indent and _is_item(line.text):
            given = line.text[1:].strip()
            if not given:
                self._take()
                found.append(self._node(indent))
            elif _KEY.fullmatch(given):
                inner = indent + line.text.index(given)
                self._pending = _Line(inner, given)
                found.append(self._mapping(inner))
            else:
                self._take()
                found.append(self._checked(given))
        return found

    def _literal(self, indent: int, between: str) -> str:
        lines: list[str] = []
        while self._at < len(self._raw):
            line = self._raw[self._at]
            if line.strip() and len(line) - len(line.lstrip(" ")) <= indent:
                break
            lines.append(line)
            self._at += 1
        inner = min((len(one) - len(one.lstrip(" ")) for one in lines if one.strip()), default=0)
        return between.join(one[inner:].rstrip() for one in lines).strip("\n")

    def _checked(self, given: str) -> object:
        try:
            return _scalar(given)
        except ValueError as error:
            raise ValueError(repr(given[:60])) from error

    def _error(self) -> ValueError:
        line = self._peek()
        return ValueError(repr((line.text if line else "")[:60]))


def _is_item(text: str) -> bool:
    return text == "-" or text.startswith("- ")


def _scalar(text: str) -> object:
    """One value.

    Raises:
        ValueError: it begins like JSON, or with a quote, and does not end so.
    """
    if text[:1] in ('"', "[", "{"):
        value, end = json.JSONDecoder().raw_decode(text)
        _only_comment(text[end:])
        return value
    if text[:1] == "'":
        quoted = re.match(r"'((?:[^']|'')*)'", text)
        if quoted is None:
            raise ValueError(text)
        _only_comment(text[quoted.end() :])
        return quoted[1].replace("''", "'")
    plain = re.split(r"\s#", text, maxsplit=1)[0].strip()
    if plain in _WORDS:
        return _WORDS[plain]
    if _NUMBER.fullmatch(plain):
        return float(plain) if "." in plain else int(plain)
    return plain


def _only_comment(rest: str) -> None:
    if rest.strip() and not rest.lstrip().startswith("#"):
        raise ValueError(rest)
