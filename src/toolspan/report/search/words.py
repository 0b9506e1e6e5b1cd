r"""Words that are looked for, in decoded text and in raw bytes.

In: what somebody typed. Out: a `Query`, whose words know how to find themselves in a text, and
whose sieves find every line of JSON that may hold them. A client may write `"` as `\"`, `é` as
`\u00e9` or `/` as `\/`, and JSON inside JSON adds backslashes; a sieve looks for a part that has
only one spelling, or else for all spellings. It may let a line pass that holds no word, never the
other way round. Knows nothing of files, and imports little: a search starts with it.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from toolspan.errors import ToolspanError
from toolspan.report.search.ripgrep import lines_command

_PLAIN = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 _-.,:;()[]{}!?@#$%^*|~`"
)
"""Characters that no client writes as an escape."""
_ENOUGH = 3
"""A part of a word with so many plain characters is rare enough to look for alone."""
_SHORT = {"\n": "n", "\t": "t", "\r": "r", "\b": "b", "\f": "f", '"': '"', "/": "/"}
_ODD_CASE = frozenset("iskISK")
"""Letters that also equal others beyond ASCII when case does not count."""


class QueryError(ToolspanError):
    """What was typed cannot be looked for."""


class Sieve(NamedTuple):
    """Finds the places in raw bytes where a word may stand."""

    literal: bytes | None = None
    """To be found as it is; lower case when `folded`."""
    folded: bool = False
    """Upper and lower case of ASCII are the same."""
    pattern: bytes | None = None
    """A regular expression instead; with neither, every line may hold the word."""

    def finder(self, data: bytes | bytearray, end: int) -> Callable[[int], int]:
        """Tells where it may next stand before `end`, from an offset on; -1 when nowhere."""
        if self.literal is not None:
            literal, text = self.literal, data.lower() if self.folded else data
            return lambda start: text.find(literal, start, end)
        expression = re.compile(self.pattern or b"")

        def find(start: int) -> int:
            found = expression.search(data, start, end)
            return found.start() if found and start < end else -1

        return find

    def asked(self, program: str | None, folders: Sequence[str]) -> tuple[str, ...] | None:
        """How ripgrep is asked for the lines; None when it cannot be."""
        wanted = self.literal or self.pattern
        literal = self.literal is not None
        return lines_command(program, folders, wanted, literal=literal, folded=self.folded)


class Word(NamedTuple):
    """One thing that is looked for."""

    expression: re.Pattern[str]
    """On decoded text."""
    sieve: Sieve

    def within(self, text: str) -> tuple[int, int] | None:
        """Where it first stands in a text."""
        found = self.expression.search(text)
        return found.span() if found else None


class Query(NamedTuple):
    """Words that must all occur in the same call or message."""

    words: tuple[Word, ...]

    @property
    def rarest(self) -> Sieve:
        """The sieve that lets least pass, as far as one can tell from its length."""
        return max((word.sieve for word in self.words), key=_weight)


def query_of(words: Sequence[str], *, regex: bool = False, ignore_case: bool = False) -> Query:
    """The query that the words make.

    Raises:
        QueryError: there are none, one is empty, or one is not a regular expression.
    """
    if not words or not all(words):
        raise QueryError("nothing to look for: name at least one word")
    make = _regex if regex else _literal
    return Query(words=tuple(make(word, ignore_case=ignore_case) for word in words))


def _weight(sieve: Sieve) -> int:
    return len(sieve.literal or b"") * 4 or len(sieve.pattern or b"")


def _flags(*, ignore_case: bool) -> re.RegexFlag:
    return re.MULTILINE | (re.IGNORECASE if ignore_case else re.NOFLAG)


def _literal(word: str, *, ignore_case: bool) -> Word:
    """The cases of each letter are spelled out, so that text and bytes agree on what is equal."""
    spelled = [_cases(letter) if ignore_case else [letter] for letter in word]
    pattern = "".join(_either([re.escape(one) for one in cases]) for cases in spelled)
    expression = re.compile(pattern, _flags(ignore_case=False))
    return Word(expression=expression, sieve=_sieve(spelled, word))


def _cases(letter: str) -> list[str]:
    found = dict.fromkeys((letter, letter.lower(), letter.upper()))
    return [one for one in found if len(one) == 1]


def _sieve(spelled: list[list[str]], word: str) -> Sieve:
    runs = re.findall(f"[{re.escape(''.join(sorted(_PLAIN)))}]+", word)
    longest = max(runs, key=len, default="")
    if longest == word or len(longest) >= _ENOUGH:
        folded = any(len(cases) > 1 for cases in spelled)
        literal = (longest.lower() if folded else longest).encode("ascii")
        return Sieve(literal=literal, folded=folded)
    parts = (_either([one for case in cases for one in _spellings(case)]) for cases in spelled)
    return Sieve(pattern="".join(parts).encode("utf-8"))


def _either(options: list[str]) -> str:
    return options[0] if len(options) == 1 else f"(?:{'|'.join(options)})"


def _spellings(letter: str) -> Iterator[str]:
    """How a character may stand in JSON, or in JSON inside JSON, as regular expressions."""
    if letter in _PLAIN:
        yield re.escape(letter)
        return
    if letter == "\\":
        yield r"\\\\+"
    elif letter in _SHORT:
        yield rf"\\+{re.escape(_SHORT[letter])}"
    if letter not in '"\\\n' and not "\ud800" <= letter <= "\udfff":
        yield re.escape(letter)
    yield "".join(rf"\\+u{_hex(unit)}" for unit in _units(letter))


def _units(letter: str) -> list[str]:
    """The UTF-16 code units, four digits each."""
    data = letter.encode("utf-16-be", "surrogatepass").hex()
    return [data[n : n + 4] for n in range(0, len(data), 4)]


def _hex(digits: str) -> str:
    return "".join(f"[{d}{d.upper()}]" if d.isalpha() else d for d in digits)


def _regex(word: str, *, ignore_case: bool) -> Word:
    try:
        expression = re.compile(word, _flags(ignore_case=ignore_case))
    except (re.error, OverflowError, RecursionError) as error:
        raise QueryError(f"{word!r} is not a regular expression: {error}") from error
    needed = max(_needed(word), key=len, default="")
    if ignore_case:
        needed = max(re.split(f"[{''.join(_ODD_CASE)}]", needed), key=len)
    if len(needed) < _ENOUGH:
        return Word(expression=expression, sieve=Sieve())
    literal = (needed.lower() if ignore_case else needed).encode("ascii")
    return Word(expression=expression, sieve=Sieve(literal=literal, folded=ignore_case))


_TOKEN = (
    r"(?P<flags>\(\?[a-zA-OQ-Z-])|(?P<open>\()|(?P<close>\))"
    r"|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<maybe>[*?]|\{\d*,?\d*\})|(?P<again>\+)"
    r"|\\(?P<escaped>[^a-zA-Z0-9])|(?P<special>\\.|[.^$])|(?P<either>\|)|(?P<letter>.)"
)


def _needed(expression: str) -> Iterator[str]:
    """Runs of plain characters that every match holds; none where that is hard to tell."""
    tokens = list(re.finditer(_TOKEN, expression, re.DOTALL))
    if any(token.lastgroup in ("flags", "either") for token in tokens):
        return
    depth, run = 0, ""
    for token in tokens:
        letter = token["escaped"] or token["letter"] or ""
        if not depth and letter in _PLAIN and letter:
            run += letter
            continue
        depth += {"open": 1, "close": -1}.get(str(token.lastgroup), 0)
        yield run[:-1] if token.lastgroup == "maybe" else run
        run = ""
    yield run
