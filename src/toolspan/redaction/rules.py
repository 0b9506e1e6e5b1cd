"""The rules that find secrets and personal data by patterns: those of gitleaks and those in the TOML files.

A rule belongs to a line if a word of the line contains one of its keywords or matches its hint. The values that its
pattern matches are secrets if its check accepts them; the checks are in `checks.py`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from msgspec import Struct, convert
from msgspec import json as fast
from msgspec.structs import replace

Span = tuple[int, int]
Check = Callable[[re.Match[str], int, int], Iterable[Span]]
"""A function that returns the parts to be replaced. It gets a match, and start and end of the value in it."""


class SecretMatch(NamedTuple):
    """A secret or personal item in a string."""

    start: int
    end: int
    kind: str
    """The name of the kind in placeholders, such as `key` in `[key-1]`."""
    rule: str
    """The rule that recognized it."""


def shift(finding: SecretMatch, by: int) -> SecretMatch:
    """Return the match with its offsets increased by `by`."""
    return SecretMatch(finding.start + by, finding.end + by, finding.kind, finding.rule)


class RuleData(Struct, frozen=True):
    """An entry of the rule files; secret_rules.toml describes its fields."""

    id: str
    pattern: str
    kind: str = "secret"
    keywords: tuple[str, ...] = ()
    hint: str = ""
    also: str = ""
    check: str = "plausible"
    group: int | None = None
    """The group that contains the key, in rules of gitleaks."""
    entropy: float = 0.0
    """The least entropy of the key, in rules of gitleaks."""


class Rule:
    """A pattern with the words that call for it and a check of its values."""

    def __init__(self, data: RuleData, check: Check, flags: int = re.VERBOSE) -> None:
        """Create a rule from its entry in a file."""
        self.id = data.id
        self.keywords = data.keywords
        self.hint = data.hint
        self.pattern_text = data.pattern
        self._data = data
        self._check = check
        self._flags = flags

    @property
    def pattern(self) -> re.Pattern[str]:
        """The pattern. It is compiled when it is first needed."""
        return _compile(self._data.pattern, self._flags)

    def find(self, line: str, low: str = "") -> Iterator[SecretMatch]:
        """Yield the values in a line that the check accepts. `low` is the line in lower case, if it is known."""
        kind, also = self._data.kind, self._data.also
        if also and not _compile(also, self._flags).search(low or line.lower()):
            return
        for match in self.pattern.finditer(line):
            start, end = self._value_span(match)
            for span in self._check(match, start, end):
                rule = f"name {match['name']}"[:60] if "name" in match.re.groupindex else self.id
                yield SecretMatch(*span, kind, rule)

    def _value_span(self, match: re.Match[str]) -> Span:
        if self._data.group is not None:
            return match.span(self._data.group if match[self._data.group] is not None else match.lastindex or 0)
        for name in match.re.groupindex:
            if name.startswith("value") and match[name] is not None:
                start, end = match.span(name)
                is_quoted = end - start > 1 and match[name][0] in "\"'" and match[name][-1] == match[name][0]
                return (start + 1, end - 1) if is_quoted else (start, end)
        return match.span()


@cache
def _compile(pattern: str, flags: int) -> re.Pattern[str]:
    return re.compile(pattern, flags)


@cache
def load_data(name: str) -> dict[str, Any]:
    """Return the content of a TOML file of this package."""
    return tomllib.loads((resources.files("toolspan.redaction") / name).read_text(encoding="utf-8"))


def load_words(section: str, name: str) -> frozenset[str]:
    """Return a list of words in words.toml."""
    return frozenset(load_data("words.toml")[section][name].split())


def load_rules(file: str, section: str, checks: Mapping[str, Check], **defaults: str) -> list[Rule]:
    """Return the rules in a section of a TOML file. `defaults` are for fields that its entries may leave out."""
    data = load_data(file)
    hints = data.get("hints", {})
    foreign = "|".join(sorted(load_words("names", "foreign_passwords")))
    rules = []
    for entry in convert([defaults | row for row in data[section]], list[RuleData]):
        pattern = entry.pattern.replace("{foreign_passwords}", foreign)
        rules.append(Rule(replace(entry, hint=hints.get(entry.hint, entry.hint), pattern=pattern), checks[entry.check]))
    return rules


class _Gitleaks(Struct, frozen=True):
    """The file `gitleaks.json`, which `scripts/secret_rules.py` writes."""

    source: str
    version: str
    license: str
    sha256: str
    rules: tuple[RuleData, ...]


def load_gitleaks_rules(make_check: Callable[[float], Check]) -> Iterator[Rule]:
    """Yield the rules of gitleaks. `make_check` returns a check for the least entropy of a key."""
    data = (resources.files("toolspan.redaction") / "gitleaks.json").read_bytes()
    for entry in fast.decode(data, type=_Gitleaks).rules:
        yield Rule(replace(entry, kind="key"), make_check(entry.entropy), flags=0)


def join_hints(parts: Iterable[str]) -> str:
    """Return one pattern that matches wherever any of the parts matches.

    perf: parts with the same first two characters are grouped, so that most of them are skipped at once.
    """
    return _join_alternatives(dict.fromkeys(parts), levels=2)


def _join_alternatives(parts: Iterable[str], levels: int) -> str:
    groups: dict[str, list[str]] = {}
    for part in parts:
        first = re.match(r"(?:\\\W|[^\W_]|[-:<~])(?![?*+{])", part) if levels else None
        groups.setdefault(first[0] if first else part, []).append(part[first.end() :] if first else "")
    others = {first: rest for first, rest in groups.items() if not first.isascii() and len(first) == 1}
    alternatives = [
        f"{first}(?:{_join_alternatives(rest, levels - 1)})" if any(rest) else first
        for first, rest in groups.items()
        if first not in others
    ]
    if others:  # perf: most texts contain none of these letters
        names = (f"(?<={first})(?:{'|'.join(rest)})" for first, rest in others.items())
        alternatives.append(f"[{''.join(others)}](?:{'|'.join(names)})")
    return "|".join(alternatives)
