"""A command line, taken apart into simple commands.

In: the text a shell would be given. Out: its simple commands in order, with the operators between
them, or None when it holds anything beyond that: groups, here-documents, arrays, quotes that never
end. Keywords such as `for` come out as the names of commands: whoever asks does not know them, and
that is enough. Read `parse_line` first.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from toolspan.shell.scan import Unclear, end_of_backticks, end_of_substitution

_OPERATOR = re.compile(r"&&|\|\||\|&|;|\||&(?!>)|\n")
_REDIRECT = re.compile(r"(&>>|&>|\d*(?:>>|>\||>&|<&|<>|<(?!<)|>))[ \t]*")
_CLOSED = re.compile(r"[()]|\d*<<|;;")
"""What opens or closes more than a simple command has."""
_VARIABLE = re.compile(r"\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*\}|[0-9@*#?$!-])")
_PLAIN = re.compile(r"[^\s\\'\"$`;&|<>()]+")
_PATTERN = re.compile(r"[*?\[{]|^~")


class Word(Struct, frozen=True, eq=False, gc=False):
    """One word of a command."""

    text: str
    """Without its quotes; what the shell would fill in stands as it was written."""
    filled: bool = False
    """A variable or a pattern is in it: what it becomes is known only to the shell."""
    runs: bool = False
    """A command is in it that runs first, to make the word."""
    splits: bool = False
    """It may become no word at all, or several; only `word.py` tells, so it is not compared."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Word):
            return NotImplemented
        return (self.text, self.filled, self.runs) == (other.text, other.filled, other.runs)

    def __hash__(self) -> int:
        return hash((self.text, self.filled, self.runs))


class Redirect(Struct, frozen=True):
    """Where a command's stream goes or comes from."""

    operator: str
    target: Word


@dataclass(slots=True)
class Simple:
    """A program with its arguments and redirects."""

    words: list[Word] = field(default_factory=list)
    redirects: list[Redirect] = field(default_factory=list)
    ended_by: str = ""
    """The operator after it; nothing at the end of the line."""

    @property
    def name(self) -> str:
        """The program; empty when there is none, or the shell would have to fill it in."""
        if not self.words or self.words[0].filled or self.words[0].runs:
            return ""
        return self.words[0].text


def parse_line(text: str) -> list[Simple] | None:
    """The simple commands of a line; None when there is more in it, or it is not complete."""
    try:
        return _Parser(text).commands()
    except Unclear:
        return None


class _Parser:
    """A place in a text, and the commands before it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._done: list[Simple] = []
        self._now = Simple()

    def commands(self) -> list[Simple]:
        """Take the text apart.

        Raises:
            Unclear: there is more in it than simple commands.
        """
        while self._at < len(self._text):
            self._step()
        self._close("")
        return self._done

    def _step(self) -> None:
        """Take in what stands here: a blank, an operator, a redirect or a word."""
        if self._text[self._at] in " \t":
            self._at += 1
        elif self._text.startswith("\\\n", self._at):
            self._at += 2
        elif self._text[self._at] == "#":
            end = self._text.find("\n", self._at)
            self._at = len(self._text) if end < 0 else end
        elif _CLOSED.match(self._text, self._at):
            raise Unclear
        elif found := _REDIRECT.match(self._text, self._at):
            self._at = found.end()
            self._now.redirects.append(Redirect(found[1], self._word()))
        elif found := _OPERATOR.match(self._text, self._at):
            self._at = found.end()
            self._close(found[0])
        else:
            self._now.words.append(self._word())

    def _close(self, operator: str) -> None:
        if self._now.words or self._now.redirects:
            self._now.ended_by = operator
            self._done.append(self._now)
        elif operator not in ("", "\n"):
            raise Unclear
        self._now = Simple()

    def _word(self) -> Word:
        parts: list[Word] = []
        while part := self._part():
            parts.append(part)
        if not parts:
            raise Unclear
        return joined(parts)

    def _part(self) -> Word | None:
        """What stands here, up to the next quote, variable or end of the word."""
        if found := _PLAIN.match(self._text, self._at):
            self._at = found.end()
            test = found[0] == "[" and self._text[self._at : self._at + 1] in ("", " ", "\t")
            return Word(found[0], filled=not test and bool(_PATTERN.search(found[0])))
        match self._text[self._at : self._at + 1]:
            case "'":
                return self._single()
            case '"':
                return self._double()
            case "\\":
                return self._escaped()
            case "$" | "`":
                return self._filled()
            case _:
                return None

    def _single(self) -> Word:
        end = self._text.find("'", self._at + 1)
        if end < 0:
            raise Unclear
        text = self._text[self._at + 1 : end]
        self._at = end + 1
        return Word(text)

    def _escaped(self) -> Word:
        following = self._text[self._at + 1 : self._at + 2]
        if not following:
            raise Unclear
        self._at += 2
        return Word("" if following == "\n" else following)

    def _double(self) -> Word:
        self._at += 1
        parts: list[Word] = []
        while self._text[self._at : self._at + 1] != '"':
            parts.append(self._quoted_part())
        self._at += 1
        return joined(parts)

    def _quoted_part(self) -> Word:
        """What stands here inside double quotes."""
        character = self._text[self._at : self._at + 1]
        if not character:
            raise Unclear
        if character == "$" and self._text[self._at + 1 : self._at + 2] == '"':
            self._at += 1
            return Word("$")
        if character in "$`":
            return self._filled()
        if character == "\\" and self._text[self._at + 1 : self._at + 2] in set('$`"\\\n'):
            return self._escaped()
        self._at += 1
        return Word(character)

    def _filled(self) -> Word:
        """A variable, or a command that runs to make the word."""
        start = self._at
        if found := _VARIABLE.match(self._text, start):
            self._at = found.end()
            return Word(found[0], filled=True)
        if self._text.startswith("$(", start):
            self._at = end_of_substitution(self._text, start + 2)
        elif self._text[start] == "`":
            self._at = end_of_backticks(self._text, start + 1)
        elif self._text[start + 1 : start + 2] in ("", " ", "\t", "\n"):
            self._at += 1
            return Word("$")
        else:
            raise Unclear
        return Word(self._text[start : self._at], filled=True, runs=True)


def joined(parts: Sequence[Word], between: str = "") -> Word:
    """One word of several."""
    return Word(
        between.join(part.text for part in parts),
        filled=any(part.filled for part in parts),
        runs=any(part.runs for part in parts),
    )
