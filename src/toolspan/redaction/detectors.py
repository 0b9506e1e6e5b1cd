"""The detectors of secrets and personal data, and the choice of those that a word or a line calls for.

Most words of a transcript call for none, and most lines for a few. `detectors_for` decides by the keywords and hints
of the rules; `find_in_line` runs the chosen ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple, Protocol

from toolspan.redaction.checks import CHECKS, make_key_check
from toolspan.redaction.commands import Commands
from toolspan.redaction.named_secrets import find_named
from toolspan.redaction.personal_data import PERSONAL_CHECKS
from toolspan.redaction.personal_fields import find_labelled, label_hints
from toolspan.redaction.rules import Rule, SecretMatch, join_hints, load_gitleaks_rules, load_rules, load_words, shift
from toolspan.redaction.secret_names import FOREIGN_NAMES

_KEYWORD_HINTS = {"s.": r"s\.[a-z0-9]{24}", "sk": "sk[0-9a-f]{32}", "ey": "ey[a-z0-9]{17}"}
"""Longer patterns, in lower case, for the keywords of gitleaks that occur in many words."""
_FIELD_HINTS = (
    r"\.\d{3,}°?,",
    r"\d(?<![\w.:/+-]\d)(?:\d{9,10}|\d-\d\d-\d\d)(?![\w.:/-])",
)  # fmt: skip
"""Coordinates, and numbers that a label may precede."""
ESCAPED_LINE_END = re.compile(r"(?<!\\)\\++[nrt]")
_LEAST_KEY_CHARS = 16


class Detector(Protocol):
    """A rule, or a function that finds what rules cannot."""

    @property
    def keywords(self) -> Sequence[str]:
        """Texts of which a word must contain one, in lower case."""
        ...

    @property
    def hint(self) -> str:
        """A verbose pattern for a word in lower case; either a keyword or the hint must occur."""
        ...

    def find(self, line: str, low: str) -> Iterable[SecretMatch]:
        """Return the matches in a line. `low` is the line in lower case."""
        ...


class _NamedSecrets:
    """The secrets that follow a name such as `password`, and the rules for lines with such names."""

    keywords = ()
    hint = join_hints((*load_words("names", "hints"), *(re.escape(name) for name in FOREIGN_NAMES if " " not in name)))

    def __init__(self) -> None:
        self._rules = load_rules("secret_rules.toml", "named", CHECKS)

    def find(self, line: str, low: str) -> Iterator[SecretMatch]:
        yield from find_named(line, low)
        for rule in self._rules:
            for keyword in rule.keywords:  # perf: `any` takes twice as long
                if keyword in low:
                    yield from rule.find(line, low)
                    break


class _LabelledData:
    keywords = ()
    hint = "|".join((join_hints(label_hints()), *_FIELD_HINTS))

    def find(self, line: str, _low: str) -> Iterator[SecretMatch]:
        return find_labelled(line)


class _Registry(NamedTuple):
    """All detectors, the most certain ones first, and the words that call for them."""

    detectors: tuple[Detector, ...]
    key_count: int
    """The number of the first detectors that find a key in one word."""
    whole: range
    """The detectors that see a line as a whole, not the parts between escaped line ends."""
    keywords: dict[str, list[int]]
    hints: dict[re.Pattern[str], list[int]]
    short_words: re.Pattern[str]
    """A pattern for the keywords, except those of keys, which are long words."""
    long_words: re.Pattern[str]


@cache
def _registry() -> _Registry:
    keys = load_rules("secret_rules.toml", "key", CHECKS, kind="key", check="any")
    gitleaks = list(load_gitleaks_rules(make_key_check))
    one_word = [rule for rule in gitleaks if not _is_named_rule(rule)]
    lines: list[Detector] = [rule for rule in gitleaks if _is_named_rule(rule)]
    lines += load_rules("secret_rules.toml", "line", CHECKS)
    lines += (_NamedSecrets(), Commands())
    lines += load_rules("personal_rules.toml", "line", PERSONAL_CHECKS)
    lines.append(_LabelledData())
    whole = load_rules("personal_rules.toml", "whole", PERSONAL_CHECKS)
    detectors: tuple[Detector, ...] = (*keys, *one_word, *lines, *whole)
    key_count = len(keys) + len(one_word)
    keywords: dict[str, list[int]] = {}
    hints: dict[str, list[int]] = {}
    for number, detector in enumerate(detectors):
        for keyword in detector.keywords:
            first = keyword.split()[0]
            if first in _KEYWORD_HINTS:
                hints.setdefault(_KEYWORD_HINTS[first], []).append(number)
            else:
                keywords.setdefault(first, []).append(number)
        if detector.hint:
            hints.setdefault(detector.hint, []).append(number)
    long_words = {keyword: numbers for keyword, numbers in keywords.items() if max(numbers) < key_count}
    return _Registry(
        detectors,
        key_count,
        range(len(detectors) - len(whole), len(detectors)),
        keywords,
        {re.compile(hint, re.VERBOSE): numbers for hint, numbers in hints.items()},
        re.compile(join_hints(re.escape(keyword) for keyword in keywords if keyword not in long_words)),
        re.compile(join_hints(map(re.escape, long_words))),
    )


def _is_named_rule(rule: Rule) -> bool:
    """Return whether a rule of gitleaks is for the value of a name, which may be in another word than the keyword."""
    return "=|>|" in rule.pattern_text or " " in "".join(rule.keywords)


def detectors_for(words: Sequence[str], low_words: Sequence[str]) -> dict[str, frozenset[int]]:
    """Return the words that call for detectors, with the numbers of these detectors.

    `low_words` are the words in lower case. perf: the words are searched together, and most of them match nothing.
    """
    registry = _registry()
    joined = "\n".join(low_words)
    called: dict[str, set[int]] = {}
    for pattern, numbers in registry.hints.items():
        for word in matching_lines(pattern, joined):
            called.setdefault(word, set()).update(numbers)
    with_keyword = set(matching_lines(registry.short_words, joined))
    with_keyword.update(
        matching_lines(registry.long_words, "\n".join([word for word in low_words if len(word) >= _LEAST_KEY_CHARS]))
    )
    for word in with_keyword:
        for keyword, numbers in registry.keywords.items():
            if keyword in word:
                called.setdefault(word, set()).update(numbers)
    found = {}
    for word, low in zip(words, low_words, strict=True):
        if low in called and (confirmed := frozenset(_confirm_keys(word, called[low]))):
            found[word] = confirmed
    return found


def _confirm_keys(word: str, numbers: Iterable[int]) -> Iterator[int]:
    """Yield the numbers of the detectors without those that look for a key in one word, but do not find it."""
    registry = _registry()
    for number in numbers:
        if number >= registry.key_count or next(iter(registry.detectors[number].find(word, "")), None):
            yield number


def find_in_line(line: str, numbers: Iterable[int]) -> Iterator[SecretMatch]:
    """Yield the matches of these detectors in a line, those of the most certain ones first."""
    registry = _registry()
    ordered = sorted(numbers)
    parts = [number for number in ordered if number not in registry.whole]
    at = 0
    line_ends = [match.span() for match in ESCAPED_LINE_END.finditer(line)] if "\\" in line and parts else []
    for start, end in (*line_ends, (len(line), len(line))):
        part = line[at:start]
        low = part.lower()
        for number in parts:
            for finding in registry.detectors[number].find(part, low):
                yield shift(finding, at)
        at = end
    for number in ordered[len(parts) :]:
        yield from registry.detectors[number].find(line, "")


def may_have_user(numbers: Iterable[int]) -> bool:
    """Return whether a line that calls for these detectors may contain a home folder or the name of a user."""
    return any(number in _registry().whole for number in numbers)


def matching_lines(pattern: re.Pattern[str], text: str) -> Iterator[str]:
    """Yield the lines of a text in which a pattern matches."""
    line_end = 0
    for match in pattern.finditer(text):
        if (start := match.start()) < line_end:
            continue
        line_end = text.find("\n", start) % (len(text) + 1)  # -1 becomes the end of the text
        yield text[text.rfind("\n", 0, start) + 1 : line_end]
