"""A command line, taken apart into simple commands.

In: the text a shell would be given. Out: its simple commands in order, with the operators between
them, or None when it holds anything beyond that: groups, here-documents, arrays, quotes that never
end. Keywords such as `for` come out as the names of commands: whoever asks does not know them, and
that is enough. Read `parse_line` first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec import Struct


class UnsupportedSyntax(Exception):  # noqa: N818 - never leaves the package
    """The text holds more than is understood here."""


def find_substitution_end(text: str, start: int) -> int:
    """The place behind the parenthesis that closes.

    Raises:
        Unclear: it never closes.
    """
    depth, at = 1, start
    while depth:
        match text[at : at + 1]:
            case "":
                raise UnsupportedSyntax
            case "\\":
                at += 2
            case "'" | '"' as quote:
                at = _find_quote_end(text, at + 1, quote)
            case "(":
                depth, at = depth + 1, at + 1
            case ")":
                depth, at = depth - 1, at + 1
            case _:
                at += 1
    return at


def find_backtick_end(text: str, start: int) -> int:
    """The place behind the backtick that closes.

    Raises:
        Unclear: it never closes.
    """
    return _find_quote_end(text, start, "`")


def _find_quote_end(text: str, start: int, quote: str) -> int:
    at = start
    while text[at : at + 1] != quote:
        if at >= len(text):
            raise UnsupportedSyntax
        at += 2 if text[at] == "\\" and quote != "'" else 1
    return at + 1


_OPERATOR = re.compile(r"&&|\|\||\|&|;|\||&(?!>)|\n")
_REDIRECT = re.compile(r"(&>>|&>|\d*(?:>>|>\||>&|<&|<>|<(?!<)|>))[ \t]*")
_UNSUPPORTED = re.compile(r"[()]|\d*<<|;;")
"""What opens or closes more than a simple command has."""
_VARIABLE = re.compile(r"\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*\}|[0-9@*#?$!-])")
_PLAIN_TEXT = re.compile(r"[^\s\\'\"$`;&|<>()]+")
_GLOB = re.compile(r"[*?\[{]|^~")


class ShellWord(Struct, frozen=True, eq=False, gc=False):
    """One word of a command."""

    text: str
    """Without its quotes; what the shell would fill in stands as it was written."""
    has_expansion: bool = False
    """A variable or a pattern is in it: what it becomes is known only to the shell."""
    has_substitution: bool = False
    """A command is in it that runs first, to make the word."""
    may_split: bool = False
    """It may become no word at all, or several; only `word.py` tells, so it is not compared."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ShellWord):
            return NotImplemented
        return (self.text, self.has_expansion, self.has_substitution) == (
            other.text,
            other.has_expansion,
            other.has_substitution,
        )

    def __hash__(self) -> int:
        return hash((self.text, self.has_expansion, self.has_substitution))


class Redirect(Struct, frozen=True):
    """Where a command's stream goes or comes from."""

    operator: str
    target: ShellWord


@dataclass(slots=True)
class SimpleCommand:
    """A program with its arguments and redirects."""

    words: list[ShellWord] = field(default_factory=list)
    redirects: list[Redirect] = field(default_factory=list)
    ended_by: str = ""
    """The operator after it; nothing at the end of the line."""

    @property
    def name(self) -> str:
        """The program; empty when there is none, or the shell would have to fill it in."""
        if not self.words or self.words[0].has_expansion or self.words[0].has_substitution:
            return ""
        return self.words[0].text


def parse_line(text: str) -> list[SimpleCommand] | None:
    """The simple commands of a line; None when there is more in it, or it is not complete."""
    try:
        return _LineParser(text).parse_commands()
    except UnsupportedSyntax:
        return None


class _LineParser:
    """A place in a text, and the commands before it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._commands: list[SimpleCommand] = []
        self._command = SimpleCommand()

    def parse_commands(self) -> list[SimpleCommand]:
        """Take the text apart.

        Raises:
            Unclear: there is more in it than simple commands.
        """
        while self._position < len(self._text):
            self._parse_next()
        self._close_command("")
        return self._commands

    def _parse_next(self) -> None:
        """Take in what stands here: a blank, an operator, a redirect or a word."""
        if self._text[self._position] in " \t":
            self._position += 1
        elif self._text.startswith("\\\n", self._position):
            self._position += 2
        elif self._text[self._position] == "#":
            end = self._text.find("\n", self._position)
            self._position = len(self._text) if end < 0 else end
        elif _UNSUPPORTED.match(self._text, self._position):
            raise UnsupportedSyntax
        elif matched := _REDIRECT.match(self._text, self._position):
            self._position = matched.end()
            self._command.redirects.append(Redirect(matched[1], self._parse_word()))
        elif matched := _OPERATOR.match(self._text, self._position):
            self._position = matched.end()
            self._close_command(matched[0])
        else:
            self._command.words.append(self._parse_word())

    def _close_command(self, operator: str) -> None:
        if self._command.words or self._command.redirects:
            self._command.ended_by = operator
            self._commands.append(self._command)
        elif operator not in ("", "\n"):
            raise UnsupportedSyntax
        self._command = SimpleCommand()

    def _parse_word(self) -> ShellWord:
        parts: list[ShellWord] = []
        while part := self._parse_part():
            parts.append(part)
        if not parts:
            raise UnsupportedSyntax
        return join_words(parts)

    def _parse_part(self) -> ShellWord | None:
        """What stands here, up to the next quote, variable or end of the word."""
        if matched := _PLAIN_TEXT.match(self._text, self._position):
            self._position = matched.end()
            test = matched[0] == "[" and self._text[self._position : self._position + 1] in ("", " ", "\t")
            return ShellWord(matched[0], has_expansion=not test and bool(_GLOB.search(matched[0])))
        match self._text[self._position : self._position + 1]:
            case "'":
                return self._parse_single_quoted()
            case '"':
                return self._parse_double_quoted()
            case "\\":
                return self._parse_escape()
            case "$" | "`":
                return self._parse_expansion()
            case _:
                return None

    def _parse_single_quoted(self) -> ShellWord:
        end = self._text.find("'", self._position + 1)
        if end < 0:
            raise UnsupportedSyntax
        text = self._text[self._position + 1 : end]
        self._position = end + 1
        return ShellWord(text)

    def _parse_escape(self) -> ShellWord:
        following = self._text[self._position + 1 : self._position + 2]
        if not following:
            raise UnsupportedSyntax
        self._position += 2
        return ShellWord("" if following == "\n" else following)

    def _parse_double_quoted(self) -> ShellWord:
        self._position += 1
        parts: list[ShellWord] = []
        while self._text[self._position : self._position + 1] != '"':
            parts.append(self._parse_quoted_part())
        self._position += 1
        return join_words(parts)

    def _parse_quoted_part(self) -> ShellWord:
        """What stands here inside double quotes."""
        character = self._text[self._position : self._position + 1]
        if not character:
            raise UnsupportedSyntax
        if character == "$" and self._text[self._position + 1 : self._position + 2] == '"':
            self._position += 1
            return ShellWord("$")
        if character in "$`":
            return self._parse_expansion()
        if character == "\\" and self._text[self._position + 1 : self._position + 2] in set('$`"\\\n'):
            return self._parse_escape()
        self._position += 1
        return ShellWord(character)

    def _parse_expansion(self) -> ShellWord:
        """A variable, or a command that runs to make the word."""
        start = self._position
        if matched := _VARIABLE.match(self._text, start):
            self._position = matched.end()
            return ShellWord(matched[0], has_expansion=True)
        if self._text.startswith("$(", start):
            self._position = find_substitution_end(self._text, start + 2)
        elif self._text[start] == "`":
            self._position = find_backtick_end(self._text, start + 1)
        elif self._text[start + 1 : start + 2] in ("", " ", "\t", "\n"):
            self._position += 1
            return ShellWord("$")
        else:
            raise UnsupportedSyntax
        return ShellWord(self._text[start : self._position], has_expansion=True, has_substitution=True)


def join_words(parts: Sequence[ShellWord], between: str = "") -> ShellWord:
    """One word of several."""
    return ShellWord(
        between.join(part.text for part in parts),
        has_expansion=any(part.has_expansion for part in parts),
        has_substitution=any(part.has_substitution for part in parts),
    )


_BARE_TEXT = re.compile(r"[^\s\\'\"$`;&|<>()\x00-\x1f\x7f]+")
_PLAIN_VARIABLE = re.compile(r"\$(?:[A-Za-z_]\w*|[0-9@*#?$!-])", re.ASCII)
_BRACED_VARIABLE = re.compile(
    r"\$\{(?:"
    r"#?(?:[A-Za-z_]\w*|[0-9@*#?$!-])(?:\[(?:[@*]|\d+)\])?"  # ${x} ${#x} ${x[0]} ${#x[@]}
    r"|[A-Za-z_]\w*(?:\[(?:[@*]|\d+)\])?"
    r"(?::\s?-?\d+(?::-?\d+)?"  # ${x:1:2}
    r"|(?::?[-=+?]|##?|%%?|//?|\^\^?|,,?)"
    r"(?:[^'\"\\`{}$<>()\x00-\x1f]|\$[A-Za-z_]\w*|\$\{[A-Za-z_]\w*\})*)"
    r")\}",
    re.ASCII,
)
_DOUBLE_QUOTED = re.compile(r'"([^"\\$`]*)"')
_BODY_TEXT = re.compile(r"[^\\$`]+")
_QUOTED_TEXT = re.compile(r'[^"\\$`]+')
_WORD_GLOB = re.compile(r"[*?\[]|\{(?!\})|^~|^[A-Za-z_]\w*\+?=(?:.*:)?~", re.ASCII)
"""What the shell fills in. `a=~` is the home folder wherever it stands, not only in assignments."""
_UNUSUAL_BLANK = re.compile(r"[\x80-\xa0\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u2064\u3000\ufeff]")
_ANSI_ESCAPE = re.compile(
    r"\\(?:([abeEfnrtv\\'\"?])|([0-7]{1,3})|x([0-9a-fA-F]{1,2})"
    r"|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|c(.))",
    re.DOTALL,
)
_UNDOCUMENTED_ESCAPE = re.compile(r"\\[xuU](?![0-9a-fA-F])")
"""Such as `\\x{72}`: bash reads more forms than it documents."""
_NAMED_ESCAPES = {
    "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t",
    "v": "\v", "\\": "\\", "'": "'", '"': '"', "?": "?",
}  # fmt: skip

CharRange = tuple[int, int]
"""From where to where in a text."""


def parse_word(text: str, start: int, end: int, substitutions: Sequence[CharRange] = ()) -> ShellWord | None:
    """The word that stands from `start` to `end`; `runs` are the substitutions in it, in order."""
    if matched := _BARE_TEXT.fullmatch(text, start, end):
        return _parse_bare_word(matched[0])
    return _WordParser(text, start, end, substitutions).parse()


def _parse_bare_word(text: str) -> ShellWord | None:
    if text[0] == "#" or (not text.isascii() and _UNUSUAL_BLANK.search(text)):
        return None
    filled = text != "[" and _WORD_GLOB.search(text) is not None
    return ShellWord(text, has_expansion=filled, may_split=filled and text[0] != "~")


class _WordParser:
    """A place in a word, and what it says up to there."""

    def __init__(self, text: str, start: int, end: int, substitutions: Sequence[CharRange]) -> None:
        self._text, self._position, self._end = text, start, end
        self._substitutions = {begin: stop for begin, stop in substitutions if start <= begin and stop <= end}
        self._pieces: list[str] = []
        self._has_expansion = self._has_substitution = self._may_split = False

    def parse(self) -> ShellWord | None:
        """What the word says; None when a piece is not understood."""
        while self._position < self._end:
            if not self._parse_piece():
                return None
        if self._position != self._end:
            return None
        has_expansion = self._has_expansion or self._has_substitution
        return ShellWord(
            "".join(self._pieces),
            has_expansion=has_expansion,
            has_substitution=self._has_substitution,
            may_split=self._may_split,
        )

    def parse_body(self) -> ShellWord | None:
        """As `word`, for a text in which quotes mean nothing."""
        while self._position < self._end:
            if matched := _BODY_TEXT.match(self._text, self._position, self._end):
                self._append_text(matched[0], matched.end())
            elif not self._add_quoted_piece(self._text[self._position]):
                return None
        return ShellWord(
            "".join(self._pieces),
            has_expansion=self._has_expansion or self._has_substitution,
            has_substitution=self._has_substitution,
        )

    def _append_text(self, text: str, at: int) -> bool:
        self._pieces.append(text)
        self._position = at
        return True

    def _parse_piece(self) -> bool:
        """Take in what stands here; False when it is not understood."""
        if matched := _BARE_TEXT.match(self._text, self._position, self._end):
            return self._add_plain_text(matched[0], matched.end())
        match self._text[self._position]:
            case "'":
                return self._add_single_quoted()
            case '"':
                return self._add_double_quoted()
            case "\\":
                return self._add_escape()
            case "$" if self._text.startswith("$'", self._position):
                return self._add_ansi_quoted()
            case _:
                self._may_split = True
                return self._add_expansion()

    def _add_plain_text(self, text: str, at: int) -> bool:
        word = (
            _parse_bare_word(text) if not self._pieces else ShellWord(text, has_expansion=bool(_WORD_GLOB.search(text)))
        )
        if word is None or (not text.isascii() and _UNUSUAL_BLANK.search(text)):
            return False
        self._has_expansion = self._has_expansion or word.has_expansion
        self._may_split = self._may_split or word.has_expansion
        return self._append_text(text, at)

    def _add_single_quoted(self) -> bool:
        close = self._text.find("'", self._position + 1, self._end)
        return close >= 0 and self._append_text(self._text[self._position + 1 : close], close + 1)

    def _add_escape(self) -> bool:
        if self._position + 2 > self._end:
            return False
        letter = self._text[self._position + 1]
        return self._append_text("" if letter == "\n" else letter, self._position + 2)

    def _add_ansi_quoted(self) -> bool:
        at = self._position + 2
        while at < self._end and self._text[at] != "'":
            at += 2 if self._text[at] == "\\" else 1
        if at >= self._end:
            return False
        decoded = decode_ansi_c(self._text[self._position + 2 : at])
        return decoded is not None and self._append_text(decoded, at + 1)

    def _add_double_quoted(self) -> bool:
        if matched := _DOUBLE_QUOTED.match(self._text, self._position, self._end):
            return self._append_text(matched[1], matched.end())
        self._position += 1
        self._pieces.append("")  # an empty word is a word
        while self._position < self._end:
            if matched := _QUOTED_TEXT.match(self._text, self._position, self._end):
                self._append_text(matched[0], matched.end())
                continue
            letter = self._text[self._position]
            if letter == '"':
                self._position += 1
                return True
            if not self._add_quoted_piece(letter):
                return False
        return False

    def _add_quoted_piece(self, letter: str) -> bool:
        """Take in what stands here, inside double quotes."""
        following = self._text[self._position + 1 : self._position + 2]
        if letter == "\\" and following in set('$`"\\\n'):
            return self._append_text("" if following == "\n" else following, self._position + 2)
        if letter == "$" and not (following.isalnum() or following in set("_{(@*#?$!-[`'\"")):
            return self._append_text("$", self._position + 1)
        if letter == "$" and following in ("'", '"'):
            return self._append_text("$", self._position + 1)
        if letter in "$`":
            return self._add_expansion()
        return self._append_text(letter, self._position + 1)

    def _add_expansion(self) -> bool:
        """A variable, or a command that runs to make the word."""
        stop = self._substitutions.get(self._position)
        if stop is not None:
            self._has_substitution = True
            return self._append_text(self._text[self._position : stop], stop)
        matched = _PLAIN_VARIABLE.match(self._text, self._position, self._end)
        matched = matched or _BRACED_VARIABLE.match(self._text, self._position, self._end)
        if matched is None:
            alone = self._text[self._position] == "$" and self._position + 1 == self._end
            return alone and self._append_text("$", self._end)
        self._has_expansion = True
        return self._append_text(matched[0], matched.end())


def parse_document_body(text: str, start: int, end: int, substitutions: Sequence[CharRange]) -> ShellWord | None:
    """A here-document whose variables are filled in, as one word."""
    return _WordParser(text, start, end, substitutions).parse_body()


def decode_ansi_c(text: str) -> str | None:
    """What stands in `$'...'`, with its escapes resolved; None when bash would cut it off."""
    if _UNDOCUMENTED_ESCAPE.search(text):
        return None
    out: list[str] = []
    at = 0
    for escape in _ANSI_ESCAPE.finditer(text):
        out.append(text[at : escape.start()])
        at = escape.end()
        named, octal, hexa, short, long, control = escape.groups()
        if control is not None:
            return None
        letter = _NAMED_ESCAPES[named] if named else chr(_character_code(octal, hexa or short or long))
        if letter == "\0" or (letter > "\x7f" and not (short or long)):
            return None
        out.append(letter)
    return "".join(out) + text[at:]


def _character_code(octal: str | None, hexa: str | None) -> int:
    code = int(octal, 8) & 0xFF if octal else int(hexa or "0", 16)
    return code if code < 0x110000 else 0


_HARMLESS_VARIABLES = frozenset({
    "CI", "CLICOLOR", "CLICOLOR_FORCE", "COLORTERM", "COLUMNS", "DEBIAN_FRONTEND", "FORCE_COLOR",
    "GOARCH", "GOOS", "LANG", "LANGUAGE", "LC_ALL", "LC_COLLATE", "LC_CTYPE", "LC_MESSAGES",
    "LC_NUMERIC", "LC_TIME", "LINES", "NODE_ENV", "NO_COLOR", "PYTHONDONTWRITEBYTECODE",
    "PYTHONUNBUFFERED", "RUST_BACKTRACE", "RUST_LOG", "TERM", "TZ",
})  # fmt: skip

_INFLUENTIAL_VARIABLES = re.compile(
    r"PATH|.*PATH|IFS|ENV|BASH.*|SHELL.*|GLOBIGNORE|HOME|PWD|OLDPWD|PS\d|PROMPT_.*|HIST.*|FUNCNAME"
    r"|LD_.*|DYLD_.*|GIT_.*|SSH_.*|GPG_.*|PAGER|.*_PAGER|MANPAGER|LESS.*|EDITOR|.*_EDITOR|VISUAL"
    r"|BROWSER|PYTHON.*|NODE_.*|NPM_.*|PERL.*|RUBY.*|GEM_.*|JAVA.*|_JAVA.*|JDK_.*|MAVEN_.*|GRADLE_.*"
    r"|GO[A-Z]*|RUST.*|CARGO_.*|TMPDIR|TEMP|TMP|TERMINFO.*|TERMCAP|NLS.*|GCONV.*|MALLOC_.*|GLIBC_.*"
    r"|.*OPTIONS|.*_OPTS?|.*FLAGS|.*_COMMAND|.*_PRELOAD|.*_CONFIG.*|XDG_.*|TAR.*|ZIPOPT|CC|CXX|LD|AR"
    r"|MAKE.*|DOCKER_.*|KUBECONFIG|AWS_.*|.*_PROXY|POSIXLY_CORRECT|UID|EUID|USER|LOGNAME|OPTIND|_"
)


def is_harmless_variable(name: str) -> bool:
    """Whether a program run with it set is the same program."""
    return name in _HARMLESS_VARIABLES


def is_influential_variable(name: str) -> bool:
    """Whether it changes how the shell, or what it runs, goes on."""
    if not name or (name not in _HARMLESS_VARIABLES and _INFLUENTIAL_VARIABLES.fullmatch(name)):
        return True
    return name.endswith("_proxy") or name.startswith(("npm_", "ld_"))
