"""Hooks in the head of a file: the lines between `---` that an agent or a skill begins with.

In: those lines. Out: what stands behind `hooks:`, as decoded JSON would be. It is as much YAML as
such blocks have: objects and lists by indentation, words quoted or not, blocks of lines behind `|`
or `>`, and JSON. What is not understood is an error: a guard that is left out guards nothing. Read
`hooks_in` first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import NamedTuple

from toolspan.runtime.settings.hooks_block import SettingsError

_KEY_LINE = re.compile(r"""("[^"]*"|'[^']*'|[\w.*|-]+)[ \t]*:(?:[ \t]+(.*))?""")
_CONSTANTS = {"true": True, "false": False, "null": None, "~": None, "": None}
_NUMBER = re.compile(r"-?\d+(\.\d+)?")


def parse_frontmatter_hooks(frontmatter: str) -> object | None:
    """The block of hooks in a head; None when there is none.

    Raises:
        BadSetting: there is one, and it is not understood.
    """
    lines = frontmatter.splitlines()
    at = next((n for n, line in enumerate(lines) if re.match(r"hooks[ \t]*:", line)), None)
    if at is None:
        return None
    end = at + 1
    while end < len(lines) and (not lines[end].strip() or lines[end][0] in " \t#-"):
        end += 1
    try:
        return _YamlReader(lines[at:end]).read()["hooks"]
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"hooks: not understood: {error}") from error


class _YamlLine(NamedTuple):
    indent: int
    text: str


class _YamlReader:
    """Goes down the lines; each function takes those that belong to it."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._position = 0
        self._pending: _YamlLine | None = None
        """What is left of a line whose dash was taken."""

    def read(self) -> dict[str, object]:
        mapping = self._read_mapping(0)
        if self._peek_line() is not None:
            raise self._syntax_error()
        return mapping

    def _peek_line(self) -> _YamlLine | None:
        """The next line with something on it."""
        if self._pending is not None:
            return self._pending
        while self._position < len(self._lines):
            line = self._lines[self._position]
            text = line.strip()
            if text and not text.startswith("#"):
                return _YamlLine(len(line) - len(line.lstrip(" ")), text)
            self._position += 1
        return None

    def _consume_line(self) -> None:
        self._pending = None
        self._position += 1

    def _read_node(self, above: int) -> object:
        """What stands below a key or a dash; nothing when no line is further in."""
        line = self._peek_line()
        if line is None or line.indent <= above:
            return None
        return self._read_list(line.indent) if _is_item(line.text) else self._read_mapping(line.indent)

    def _read_mapping(self, indent: int) -> dict[str, object]:
        mapping: dict[str, object] = {}
        while (line := self._peek_line()) is not None and line.indent == indent:
            key = _KEY_LINE.fullmatch(line.text)
            if key is None:
                if _is_item(line.text):
                    break
                raise self._syntax_error()
            self._consume_line()
            mapping[str(_parse_scalar(key[1]))] = self._read_value((key[2] or "").strip(), indent)
        return mapping

    def _read_value(self, text: str, indent: int) -> object:
        if text[:1] in ("|", ">") and text.rstrip("+-") in ("|", ">"):
            return self._read_literal(indent, "\n" if text[0] == "|" else " ")
        if text and not text.startswith("#"):
            return self._read_scalar(text)
        below = self._peek_line()
        if below is not None and below.indent == indent and _is_item(below.text):
            return self._read_list(indent)
        return self._read_node(indent)

    def _read_list(self, indent: int) -> list[object]:
        items: list[object] = []
        while (line := self._peek_line()) is not None and line.indent == indent and _is_item(line.text):
            text = line.text[1:].strip()
            if not text:
                self._consume_line()
                items.append(self._read_node(indent))
            elif _KEY_LINE.fullmatch(text):
                inner = indent + line.text.index(text)
                self._pending = _YamlLine(inner, text)
                items.append(self._read_mapping(inner))
            else:
                self._consume_line()
                items.append(self._read_scalar(text))
        return items

    def _read_literal(self, indent: int, between: str) -> str:
        lines: list[str] = []
        while self._position < len(self._lines):
            line = self._lines[self._position]
            if line.strip() and len(line) - len(line.lstrip(" ")) <= indent:
                break
            lines.append(line)
            self._position += 1
        inner = min((len(raw_line) - len(raw_line.lstrip(" ")) for raw_line in lines if raw_line.strip()), default=0)
        return between.join(raw_line[inner:].rstrip() for raw_line in lines).strip("\n")

    def _read_scalar(self, text: str) -> object:
        try:
            return _parse_scalar(text)
        except ValueError as error:
            raise ValueError(repr(text[:60])) from error

    def _syntax_error(self) -> ValueError:
        line = self._peek_line()
        return ValueError(repr((line.text if line else "")[:60]))


def _is_item(text: str) -> bool:
    return text == "-" or text.startswith("- ")


def _parse_scalar(text: str) -> object:
    """One value.

    Raises:
        ValueError: it begins like JSON, or with a quote, and does not end so.
    """
    if text[:1] in ('"', "[", "{"):
        value, end = json.JSONDecoder().raw_decode(text)
        _require_comment(text[end:])
        return value
    if text[:1] == "'":
        quoted = re.match(r"'((?:[^']|'')*)'", text)
        if quoted is None:
            raise ValueError(text)
        _require_comment(text[quoted.end() :])
        return quoted[1].replace("''", "'")
    plain = re.split(r"\s#", text, maxsplit=1)[0].strip()
    if plain in _CONSTANTS:
        return _CONSTANTS[plain]
    if _NUMBER.fullmatch(plain):
        return float(plain) if "." in plain else int(plain)
    return plain


def _require_comment(rest: str) -> None:
    if rest.strip() and not rest.lstrip().startswith("#"):
        raise ValueError(rest)
