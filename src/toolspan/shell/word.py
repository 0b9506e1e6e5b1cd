"""A word of a command line: what it says once its quotes are gone.

In: the text of one word, as it was written. Out: a `Word`, or None when a piece of it is not
understood. What the shell would fill in stands as it was written, and is marked. Substitutions are
given by their places: who calls knows where they end.
"""

import re
from collections.abc import Sequence

from toolspan.shell.line import Word

_BARE = re.compile(r"[^\s\\'\"$`;&|<>()\x00-\x1f\x7f]+")
_VARIABLE = re.compile(r"\$(?:[A-Za-z_]\w*|[0-9@*#?$!-])", re.ASCII)
_BRACED = re.compile(
    r"\$\{(?:"
    r"#?(?:[A-Za-z_]\w*|[0-9@*#?$!-])(?:\[(?:[@*]|\d+)\])?"  # ${x} ${#x} ${x[0]} ${#x[@]}
    r"|[A-Za-z_]\w*(?:\[(?:[@*]|\d+)\])?"
    r"(?::\s?-?\d+(?::-?\d+)?"  # ${x:1:2}
    r"|(?::?[-=+?]|##?|%%?|//?|\^\^?|,,?)"
    r"(?:[^'\"\\`{}$<>()\x00-\x1f]|\$[A-Za-z_]\w*|\$\{[A-Za-z_]\w*\})*)"
    r")\}",
    re.ASCII,
)
_DOUBLE = re.compile(r'"([^"\\$`]*)"')
_LETTERS = re.compile(r"[^\\$`]+")
_INNER = re.compile(r'[^"\\$`]+')
_PATTERN = re.compile(r"[*?\[]|\{(?!\})|^~|^[A-Za-z_]\w*\+?=(?:.*:)?~", re.ASCII)
"""What the shell fills in. `a=~` is the home folder wherever it stands, not only in assignments."""
_ODD_BLANK = re.compile(
    r"[\x80-\xa0\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u2064\u3000\ufeff]"
)
_ANSI = re.compile(
    r"\\(?:([abeEfnrtv\\'\"?])|([0-7]{1,3})|x([0-9a-fA-F]{1,2})"
    r"|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|c(.))",
    re.DOTALL,
)
_ODD_CODE = re.compile(r"\\[xuU](?![0-9a-fA-F])")
"""Such as `\\x{72}`: bash reads more forms than it documents."""
_NAMED = {
    "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t",
    "v": "\v", "\\": "\\", "'": "'", '"': '"', "?": "?",
}  # fmt: skip

Span = tuple[int, int]
"""From where to where in a text."""


def spell(text: str, start: int, end: int, runs: Sequence[Span] = ()) -> Word | None:
    """The word that stands from `start` to `end`; `runs` are the substitutions in it, in order."""
    if found := _BARE.fullmatch(text, start, end):
        return _bare(found[0])
    return _Speller(text, start, end, runs).word()


def _bare(text: str) -> Word | None:
    if text[0] == "#" or (not text.isascii() and _ODD_BLANK.search(text)):
        return None
    filled = text != "[" and _PATTERN.search(text) is not None
    return Word(text, filled=filled, splits=filled and text[0] != "~")


class _Speller:
    """A place in a word, and what it says up to there."""

    def __init__(self, text: str, start: int, end: int, runs: Sequence[Span]) -> None:
        self._text, self._at, self._end = text, start, end
        self._runs = {begin: stop for begin, stop in runs if start <= begin and stop <= end}
        self._said: list[str] = []
        self._filled = self._ran = self._splits = False

    def word(self) -> Word | None:
        """What the word says; None when a piece is not understood."""
        while self._at < self._end:
            if not self._piece():
                return None
        if self._at != self._end:
            return None
        filled = self._filled or self._ran
        return Word("".join(self._said), filled=filled, runs=self._ran, splits=self._splits)

    def body(self) -> Word | None:
        """As `word`, for a text in which quotes mean nothing."""
        while self._at < self._end:
            if found := _LETTERS.match(self._text, self._at, self._end):
                self._say(found[0], found.end())
            elif not self._quoted(self._text[self._at]):
                return None
        return Word("".join(self._said), filled=self._filled or self._ran, runs=self._ran)

    def _say(self, text: str, at: int) -> bool:
        self._said.append(text)
        self._at = at
        return True

    def _piece(self) -> bool:
        """Take in what stands here; False when it is not understood."""
        if found := _BARE.match(self._text, self._at, self._end):
            return self._plain(found[0], found.end())
        match self._text[self._at]:
            case "'":
                return self._single()
            case '"':
                return self._double()
            case "\\":
                return self._escaped()
            case "$" if self._text.startswith("$'", self._at):
                return self._ansi()
            case _:
                self._splits = True
                return self._fill()

    def _plain(self, text: str, at: int) -> bool:
        word = _bare(text) if not self._said else Word(text, filled=bool(_PATTERN.search(text)))
        if word is None or (not text.isascii() and _ODD_BLANK.search(text)):
            return False
        self._filled = self._filled or word.filled
        self._splits = self._splits or word.filled
        return self._say(text, at)

    def _single(self) -> bool:
        close = self._text.find("'", self._at + 1, self._end)
        return close >= 0 and self._say(self._text[self._at + 1 : close], close + 1)

    def _escaped(self) -> bool:
        if self._at + 2 > self._end:
            return False
        letter = self._text[self._at + 1]
        return self._say("" if letter == "\n" else letter, self._at + 2)

    def _ansi(self) -> bool:
        at = self._at + 2
        while at < self._end and self._text[at] != "'":
            at += 2 if self._text[at] == "\\" else 1
        if at >= self._end:
            return False
        said = ansi_c(self._text[self._at + 2 : at])
        return said is not None and self._say(said, at + 1)

    def _double(self) -> bool:
        if found := _DOUBLE.match(self._text, self._at, self._end):
            return self._say(found[1], found.end())
        self._at += 1
        self._said.append("")  # an empty word is a word
        while self._at < self._end:
            if found := _INNER.match(self._text, self._at, self._end):
                self._say(found[0], found.end())
                continue
            letter = self._text[self._at]
            if letter == '"':
                self._at += 1
                return True
            if not self._quoted(letter):
                return False
        return False

    def _quoted(self, letter: str) -> bool:
        """Take in what stands here, inside double quotes."""
        following = self._text[self._at + 1 : self._at + 2]
        if letter == "\\" and following in set('$`"\\\n'):
            return self._say("" if following == "\n" else following, self._at + 2)
        if letter == "$" and not (following.isalnum() or following in set("_{(@*#?$!-[`'\"")):
            return self._say("$", self._at + 1)
        if letter == "$" and following in ("'", '"'):
            return self._say("$", self._at + 1)
        if letter in "$`":
            return self._fill()
        return self._say(letter, self._at + 1)

    def _fill(self) -> bool:
        """A variable, or a command that runs to make the word."""
        stop = self._runs.get(self._at)
        if stop is not None:
            self._ran = True
            return self._say(self._text[self._at : stop], stop)
        found = _VARIABLE.match(self._text, self._at, self._end)
        found = found or _BRACED.match(self._text, self._at, self._end)
        if found is None:
            alone = self._text[self._at] == "$" and self._at + 1 == self._end
            return alone and self._say("$", self._end)
        self._filled = True
        return self._say(found[0], found.end())


def spell_body(text: str, start: int, end: int, runs: Sequence[Span]) -> Word | None:
    """A here-document whose variables are filled in, as one word."""
    return _Speller(text, start, end, runs).body()


def ansi_c(text: str) -> str | None:
    """What stands in `$'...'`, with its escapes resolved; None when bash would cut it off."""
    if _ODD_CODE.search(text):
        return None
    out: list[str] = []
    at = 0
    for found in _ANSI.finditer(text):
        out.append(text[at : found.start()])
        at = found.end()
        named, octal, hexa, short, long, control = found.groups()
        if control is not None:
            return None
        letter = _NAMED[named] if named else chr(_code(octal, hexa or short or long))
        if letter == "\0" or (letter > "\x7f" and not (short or long)):
            return None
        out.append(letter)
    return "".join(out) + text[at:]


def _code(octal: str | None, hexa: str | None) -> int:
    code = int(octal, 8) & 0xFF if octal else int(hexa or "0", 16)
    return code if code < 0x110000 else 0
