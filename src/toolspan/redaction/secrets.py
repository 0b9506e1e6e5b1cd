"""Secrets in text, for redacted exports and telemetry. Start at `find_secrets`.

A secret is recognized by its form (the rules of gitleaks and a few more), by the name before it (`DB_PASS=…`), by the
command that takes it (`mysql -p…`) or by its place in an address or header. High entropy alone is not a reason: it
only decides where a name is ambiguous. Few secrets extend over a line end; `find_in_text` finds these.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache

from toolspan.redaction.checks import CHECKS
from toolspan.redaction.detectors import detectors_for, find_in_line
from toolspan.redaction.named_secrets import find_named_values
from toolspan.redaction.rules import Rule, SecretMatch, load_rules, shift

MAX_LINE_CHARS = 8_192
_WINDOW_CHARS = 4_096
_WINDOW_MARGIN = 1_024
"""The text around a window in which rules may look. Only matches that start in the window count."""
_DATA = re.compile("[0-9A-Za-z+/]*")
"""A part of encoded data. Windows of only these characters are skipped, unless `_KEY_IN_DATA` matches."""
_KEY_IN_DATA = re.compile("AIza|[xyz]prv")
_WORD_REST = re.compile(r"[^\s\"'`<>&,;(){}\[\]|\\]*")
_VALUE_REST = re.compile(r"[^\"'\\]*")
_BREAK = re.compile(r"[\s;]")


@cache
def _text_rules() -> list[Rule]:
    return load_rules("secret_rules.toml", "text", CHECKS)


def find_in_text(text: str) -> Iterator[SecretMatch]:
    """Yield the secrets that extend over several lines, such as private keys, or whose names are in an earlier line."""
    for rule in _text_rules():
        if any(keyword in text for keyword in rule.keywords):
            yield from rule.find(text)
    if "\n" in text:
        yield from find_named_values(text)


def find_secrets(text: str) -> list[SecretMatch]:
    """Return the secrets in a text. They may overlap; the first of the overlapping ones determines their kind."""
    findings = [*find_in_text(text)]
    at = 0
    for line in text.split("\n"):
        findings += (shift(finding, at) for finding in find_in_windows(line, _find_secrets_in_line))
        at += len(line) + 1
    return findings


def _find_secrets_in_line(line: str) -> Iterator[SecretMatch]:
    numbers = detectors_for([line], [line.lower()]).get(line, ())
    return (match for match in find_in_line(line, numbers) if match.kind in ("key", "secret", "login"))


def find_in_windows(line: str, find: Callable[[str], Iterable[SecretMatch]]) -> Iterator[SecretMatch]:
    """Yield the matches of `find` in a line. A long line is searched in overlapping windows.

    The windows keep the time proportional to the length of the line, because several rules look at all text before
    or after a match. A match that reaches the end of its window is extended: to the end of the word or, if it contains
    several words, to the next quote.
    """
    if len(line) <= MAX_LINE_CHARS:
        yield from find(line)
        return
    first = 0
    while first < len(line):
        last = min(first + _WINDOW_CHARS, len(line))
        if last < len(line):
            last = max(first + _WINDOW_CHARS // 2, *(line.rfind(mark, first, last) + 1 for mark in ' ",'))
        start, end = max(0, first - _WINDOW_MARGIN), min(last + _WINDOW_MARGIN, len(line))
        if _DATA.fullmatch(line, start, end) and not _KEY_IN_DATA.search(line, start, end):
            first = last
            continue
        searched = last
        for finding in find(line[start:end]):
            match = shift(finding, start)
            if not first <= match.start < last:
                continue
            if match.end == end:
                rest = _VALUE_REST if _BREAK.search(line, match.start, end) else _WORD_REST
                match = match._replace(end=rest.match(line, end).end())  # type: ignore[union-attr]
            searched = max(searched, match.end)
            yield match
        first = searched
