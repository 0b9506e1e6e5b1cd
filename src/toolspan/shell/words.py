"""Parse the words of a command line and resolve their quotes and escapes.

Start at `parse_word`. The last section classifies the names of environment variables.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from tree_sitter import Node, Parser


CharRange = tuple[int, int]
"""The start and end offsets of a substring."""


class ShellWord(Struct, frozen=True, eq=False, gc=False):
    """One word of a command. Comparison ignores `may_split`."""

    text: str
    """The word without its quotes. Variables, patterns and substitutions are left as written."""
    has_expansion: bool = False
    """True if the word contains a variable, a pattern or a substitution, so that its value is unknown."""
    has_substitution: bool = False
    """True if the word contains a command substitution."""
    may_split: bool = False
    """True if the word may expand to no word or to several words."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ShellWord):
            return NotImplemented
        return (
            self.text == other.text
            and self.has_expansion == other.has_expansion
            and self.has_substitution == other.has_substitution
        )

    def __hash__(self) -> int:
        return hash((self.text, self.has_expansion, self.has_substitution))


class Redirect(Struct, frozen=True, gc=False):
    """A redirection of a stream to or from a file or another stream."""

    operator: str
    target: ShellWord


def join_words(parts: Sequence[ShellWord], between: str = "") -> ShellWord:
    """Join several words into one."""
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
_QUOTED_WORD = re.compile(r"""'[^']*'|"[^"\\$`]*\"""")
_BLANKS = re.compile(r"(?:[ \t]|\\\n)*")
_BODY_TEXT = re.compile(r"[^\\$`]+")
_QUOTED_TEXT = re.compile(r'[^"\\$`]+')
_WORD_GLOB = re.compile(r"[*?\[]|\{(?!\})|^~|^[A-Za-z_]\w*\+?=(?:.*:)?~", re.ASCII)
"""Text that the shell expands. Bash expands the tilde of `a=~` in all words, not only in assignments."""
_UNUSUAL_BLANK = re.compile(r"[\x80-\xa0\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u2064\u3000\ufeff]")
_ANSI_ESCAPE = re.compile(
    r"\\(?:([abeEfnrtv\\'\"?])|([0-7]{1,3})|x([0-9a-fA-F]{1,2})"
    r"|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|c(.))",
    re.DOTALL,
)
_ESCAPABLE = frozenset('$`"\\\n')
"""Characters before which a backslash is removed in double quotes."""
_EXPANSION_START = frozenset("_{(@*#?$!-[`'\"")
_UNDOCUMENTED_ESCAPE = re.compile(r"\\[xuU](?![0-9a-fA-F])")
"""Escapes such as `\\x{72}`: bash accepts more forms than it documents."""
_NAMED_ESCAPES = {
    "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t",
    "v": "\v", "\\": "\\", "'": "'", '"': '"', "?": "?",
}  # fmt: skip


def parse_word(text: str, start: int, end: int, substitutions: Sequence[CharRange] = ()) -> ShellWord | None:
    """Parse the word between `start` and `end`, or return None if it contains unsupported syntax.

    `substitutions` are the ranges of the command and process substitutions in `text`, in order.
    """
    if matched := _BARE_TEXT.fullmatch(text, start, end):
        return _parse_bare_word(matched[0])
    if matched := _QUOTED_WORD.fullmatch(text, start, end):
        return ShellWord(matched[0][1:-1])
    return _WordParser(text, start, end, substitutions).parse()


def parse_document_body(text: str, start: int, end: int, substitutions: Sequence[CharRange]) -> ShellWord | None:
    """Parse the body of an unquoted here-document as one word in which quotes have no meaning."""
    return _WordParser(text, start, end, substitutions).parse_body()


def split_words(text: str) -> list[ShellWord] | None:
    """Parse the words in `text`, which has no substitutions, or return None if one contains unsupported syntax."""
    return _WordParser(text, 0, len(text), ()).parse_all()


def _parse_bare_word(text: str) -> ShellWord | None:
    if text[0] == "#" or (not text.isascii() and _UNUSUAL_BLANK.search(text)):
        return None
    expands = _WORD_GLOB.search(text) is not None
    return ShellWord(text, has_expansion=expands, may_split=expands and text[0] != "~")


class _WordParser:
    """A parser for words, with its position in the text and the pieces of the current word."""

    def __init__(self, text: str, start: int, end: int, substitutions: Sequence[CharRange]) -> None:
        self._text, self._position, self._end = text, start, end
        self._substitutions = {begin: stop for begin, stop in substitutions if start <= begin and stop <= end}
        self._start_word()

    def _start_word(self) -> None:
        self._pieces: list[str] = []
        self._has_expansion = self._has_substitution = self._may_split = False

    def parse(self) -> ShellWord | None:
        while self._position < self._end:
            if not self._parse_piece():
                return None
        return self._finish_word() if self._position == self._end else None

    def parse_all(self) -> list[ShellWord] | None:
        words: list[ShellWord] = []
        while True:
            if matched := _BLANKS.match(self._text, self._position):
                self._position = matched.end()
            if self._position >= self._end:
                return words
            self._start_word()
            while self._position < self._end and self._text[self._position] not in " \t":
                if not self._parse_piece():
                    return None
            words.append(self._finish_word())

    def parse_body(self) -> ShellWord | None:
        while self._position < self._end:
            if matched := _BODY_TEXT.match(self._text, self._position, self._end):
                self._append_text(matched[0], matched.end())
            elif not self._add_quoted_piece(self._text[self._position]):
                return None
        return self._finish_word()

    def _finish_word(self) -> ShellWord:
        return ShellWord(
            "".join(self._pieces),
            has_expansion=self._has_expansion or self._has_substitution,
            has_substitution=self._has_substitution,
            may_split=self._may_split,
        )

    def _append_text(self, text: str, at: int) -> bool:
        self._pieces.append(text)
        self._position = at
        return True

    def _parse_piece(self) -> bool:
        """Parse the piece at the current position and return whether its syntax is supported."""
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
        decoded = _decode_ansi_c(self._text[self._position + 2 : at])
        return decoded is not None and self._append_text(decoded, at + 1)

    def _add_double_quoted(self) -> bool:
        if matched := _DOUBLE_QUOTED.match(self._text, self._position, self._end):
            return self._append_text(matched[1], matched.end())
        self._position += 1
        self._pieces.append("")  # an empty word is still a word
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
        """Parse a piece inside double quotes that starts with a special character."""
        following = self._text[self._position + 1 : self._position + 2]
        if letter == "\\" and following in _ESCAPABLE:
            return self._append_text("" if following == "\n" else following, self._position + 2)
        if letter == "$" and not (following.isalnum() or following in _EXPANSION_START):
            return self._append_text("$", self._position + 1)
        if letter == "$" and following in ("'", '"'):
            return self._append_text("$", self._position + 1)
        if letter in "$`":
            return self._add_expansion()
        return self._append_text(letter, self._position + 1)

    def _add_expansion(self) -> bool:
        """Parse a variable or a substitution."""
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


def _decode_ansi_c(text: str) -> str | None:
    """Resolve the escapes in a `$'...'` string, or return None if bash may interpret it differently."""
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
    "ANTHROPIC_API_KEY", "BLOCKSIZE", "BLOCK_SIZE", "CGO_ENABLED", "CHARSET", "CI", "CLICOLOR",
    "CLICOLOR_FORCE", "COLORTERM", "COLUMNS", "DEBIAN_FRONTEND", "FORCE_COLOR", "GCC_COLORS",
    "GIT_TERMINAL_PROMPT", "GO111MODULE", "GOARCH", "GOEXPERIMENT", "GOOS", "GREP_COLOR", "GREP_COLORS",
    "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_TIME", "LINES", "LSCOLORS", "LS_COLORS", "NODE_ENV",
    "NO_COLOR", "PYTEST_DEBUG", "PYTEST_DISABLE_PLUGIN_AUTOLOAD", "PYTHONDONTWRITEBYTECODE",
    "PYTHONUNBUFFERED", "RUST_BACKTRACE", "RUST_LOG", "TERM", "TIME_STYLE", "TZ",
})  # fmt: skip

_INFLUENTIAL_VARIABLES = re.compile(
    r"PATH|.*PATH|IFS|ENV|LC_.*|BASH.*|SHELL.*|GLOBIGNORE|HOME|PWD|OLDPWD|PS\d|PROMPT_.*|HIST.*|FUNCNAME"
    r"|LD_.*|DYLD_.*|GIT_.*|SSH_.*|GPG_.*|PAGER|.*_PAGER|MANPAGER|LESS.*|EDITOR|.*_EDITOR|VISUAL"
    r"|BROWSER|PYTHON.*|NODE_.*|NPM_.*|PERL.*|RUBY.*|GEM_.*|JAVA.*|_JAVA.*|JDK_.*|MAVEN_.*|GRADLE_.*"
    r"|GO[A-Z]*|RUST.*|CARGO_.*|TMPDIR|TEMP|TMP|TERMINFO.*|TERMCAP|NLS.*|GCONV.*|MALLOC_.*|GLIBC_.*"
    r"|.*OPTIONS|.*_OPTS?|.*FLAGS|.*_COMMAND|.*_PRELOAD|.*_CONFIG.*|XDG_.*|TAR.*|ZIPOPT|CC|CXX|LD|AR"
    r"|MAKE.*|DOCKER_.*|KUBECONFIG|AWS_.*|.*_PROXY|POSIXLY_CORRECT|UID|EUID|USER|LOGNAME|OPTIND|_"
)


_LOCALE = re.compile(r"(?:C|POSIX|[a-z]{2}_[A-Z]{2})(?:\.UTF-8)?")
_VALUE_FORMS = (
    (re.compile(r"LANG|LANGUAGE|LC_.*"), _LOCALE),
    (re.compile(r"COLUMNS|LINES"), re.compile(r"[0-9]+")),
    (re.compile(r"TZ|TERM"), re.compile(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+)*")),
    (re.compile(r".*"), re.compile(r"(?!/|.*\.\.)[A-Za-z0-9_./:,=+-]*")),
)
"""Patterns for the names of harmless variables and for their permitted values. The first matching name is used."""


def is_harmless_variable(name: str, value: ShellWord | None = None) -> bool:
    """Return whether a variable, with this value, can be set before a program without requiring approval."""
    if name not in _HARMLESS_VARIABLES or value is None:
        return name in _HARMLESS_VARIABLES
    form = next(form for names, form in _VALUE_FORMS if names.fullmatch(name))
    return not value.has_expansion and form.fullmatch(value.text) is not None


def is_influential_variable(name: str) -> bool:
    """Return whether a variable may change the behaviour of the shell or of its programs."""
    if not name or (name not in _HARMLESS_VARIABLES and _INFLUENTIAL_VARIABLES.fullmatch(name)):
        return True
    return name.endswith("_proxy") or name.startswith(("npm_", "ld_"))


@lru_cache(maxsize=1)
def bash_parser() -> Parser:
    """Return the tree-sitter parser, which is created once per process because creating it is slow."""
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


class LineTree:
    """The syntax tree of a line, and the positions of its nodes."""

    def __init__(self, line: str) -> None:
        data = line.encode("utf-8", "surrogatepass")
        self.root: Node = bash_parser().parse(data).root_node
        self.start: Callable[[Node], int] = attrgetter("start_byte")
        self.end: Callable[[Node], int] = attrgetter("end_byte")
        if not line.isascii():
            characters = _CharacterIndex(data)
            self.start = lambda node: characters[node.start_byte]
            self.end = lambda node: characters[node.end_byte]


class _CharacterIndex(dict[int, int]):
    """A map from byte offsets to character offsets in non-ASCII text.

    It counts from the previous lookup, because nodes are visited roughly in order.
    """

    def __init__(self, data: bytes) -> None:
        self._data, self._byte, self._character = data, 0, 0

    def __missing__(self, offset: int) -> int:
        """Return the index of the character that a byte belongs to."""
        data, at = self._data, offset
        while at < len(data) and data[at] & 0xC0 == 0x80:  # inside a character
            at -= 1
        if at >= self._byte:
            self._character += len(data[self._byte : at].decode("utf-8", "surrogatepass"))
        else:
            self._character -= len(data[at : self._byte].decode("utf-8", "surrogatepass"))
        self._byte = at
        self[offset] = self._character
        return self._character
