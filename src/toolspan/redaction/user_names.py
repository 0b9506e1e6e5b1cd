"""Names of users: `find_user_names` collects them from raw lines, and `NameIndex` finds collected names in a text."""

from __future__ import annotations

import re
from collections.abc import Iterable

from toolspan.redaction.rules import load_words

_ROOT = re.compile(
    r"(?:\A|[^\w.~-]|\\[nrt]|(?:\A|[^\w.~-])[A-Za-z]|/(?:var|export|mnt|net|nfs|host|host_mnt|rootfs|Volumes|data|private|Data))\Z"
)
"""Text that may precede a home folder: nothing, `a` in a diff, a drive letter or a parent folder."""
_RAW_NAME = rb"([^\s/\\\"'`:;,<>|*?$(){}\[\]!#%&=+@]{1,64})"
_RAW_HOME_FOLDERS = (
    (b"/home", re.compile(rb"/home\\?/+" + _RAW_NAME)),
    (b"/Users", re.compile(rb"/Users\\?/+" + _RAW_NAME)),
    (b":/users", re.compile(rb":/users\\?/+" + _RAW_NAME)),
    (b"Users\\", re.compile(rb"Users\\{1,8}([^/\\\n\"'<>|*?]{1,64})\\")),
    (b"%2F", re.compile(rb"%2F(?:home|Users)%2F([^\s%\"]{1,64})")),
)
"""Patterns for home folders, each with its fixed beginning. perf: most lines contain none or one of these."""
GENERIC_USER_NAMES = load_words("users", "generic")
"""User names that do not identify a person. They are replaced only in paths."""
_SOURCE_FILE = re.compile(rb"\.(?:tsx?|jsx?|py|html?|css|md|json|vue|svelte|php|go|rs|java|kt|swift|png|svg)\Z")
_WORD = re.compile(r"[^\W_]+")
_ESCAPED_WORD = re.compile(r"\\[nrt]([^\W_]+)")
"""A word after an escaped line end. The letter of the escape is not a part of the word."""


def is_home_folder(path: bytes, before: bytes) -> bool:
    """Return whether a match such as `/home/mira` is a home folder, judged by the text before it and by its name."""
    if path.startswith((b"%2F", b"Users", b":")):
        return True
    return bool(_ROOT.search(before.decode("utf-8", "replace"))) and not _SOURCE_FILE.search(path)


def find_user_names(lines: Iterable[bytes]) -> list[str]:
    """Return the user names in the home folders that occur in the raw lines of a transcript, sorted."""
    raw: set[bytes] = set()
    for line in lines:
        for beginning, pattern in _RAW_HOME_FOLDERS:
            for match in pattern.finditer(line) if beginning in line else ():
                if match[1] not in raw and is_home_folder(match[0], line[max(0, match.start() - 20) : match.start()]):
                    raw.add(match[1])
    return sorted({name.decode("utf-8", "replace").rstrip(".") for name in raw})


def stands_alone(name: str) -> bool:
    """Return whether a name is replaced everywhere, not only in paths."""
    words = set(name.replace("-", " ").split())
    return len(name) >= 3 and name not in GENERIC_USER_NAMES and not words <= GENERIC_USER_NAMES


def words_in(low: str) -> set[str]:
    """Return words of a lower-case text, among them the first word of each name that occurs in it."""
    words = {"", *_WORD.findall(low)}
    if "\\" in low:
        words.update(_ESCAPED_WORD.findall(low))
    return words


def first_word(name: str) -> str:
    """Return the first word of a name; if there is none, an empty string, which is in every `words_in`."""
    word = _WORD.search(name)
    return word[0] if word else ""


class NameIndex:
    """Names in lower case, indexed by their first word, so that a search takes the same time for one or many names."""

    def __init__(self) -> None:
        self._positions: dict[str, int] = {}
        self._by_word: dict[str, list[str]] = {}
        self._patterns: dict[str, re.Pattern[str]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._positions

    def add(self, name: str) -> None:
        """Add a name that is not known yet."""
        self._positions[name] = len(self._positions)
        self._by_word.setdefault(first_word(name), []).append(name)

    def patterns_in(self, low: str, words: set[str] | None = None) -> list[re.Pattern[str]]:
        """Return the patterns of the names that may occur in a lower-case text, in the order of `add`.

        `words` is the result of `words_in`, if the caller needs it too.
        """
        words = self._by_word.keys() & (words_in(low) if words is None else words)
        names = [name for word in words for name in self._by_word[word] if name in low]
        return [self.pattern(name) for name in sorted(names, key=self._positions.__getitem__)]

    def pattern(self, name: str) -> re.Pattern[str]:
        """Return a pattern for the name as a separate word or, if it is a common one, in the name of a folder."""
        pattern = self._patterns.get(name)
        if pattern is None:
            word = re.escape(name)
            end = r"(?<![^\W_]{0})|(?<=\\[nrt]{0})" if stands_alone(name) else "(?<=-home-{0})|(?<=-users-{0})"
            pattern = self._patterns[name] = re.compile(rf"{word}(?![^\W_])(?:{end.format(word)})")
        return pattern
