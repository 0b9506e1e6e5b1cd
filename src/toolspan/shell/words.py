"""Parse the words of a command line and resolve their quotes and escapes.

Start at `parse_word`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from tree_sitter import Parser


if TYPE_CHECKING:
    lazy_property = cached_property
else:

    class lazy_property(cached_property):  # noqa: N801 - used as one
        """A property that is computed once."""

        def __get__(self, instance, owner=None):
            """Compute the value. perf: without the lock of Python 3.11, a decision takes a sixth less time."""
            value = instance.__dict__[self.attrname] = self.func(instance)
            return value


CharRange = tuple[int, int]
"""The start and end offsets of a substring."""


class ShellWord(Struct, frozen=True, gc=False):
    """One word of a command."""

    text: str
    """The word without its quotes. Variables, patterns and substitutions are left as written."""
    has_expansion: bool = False
    """True if the word contains a variable, a pattern or a substitution, so that its value is unknown."""
    has_substitution: bool = False
    """True if the word contains a command substitution."""
    may_split: bool = False
    """True if the word may expand to no word or to several words."""


UNKNOWN_WORD = ShellWord("$", has_expansion=True, has_substitution=True)
"""A word of a form that is not understood."""


class Redirect(Struct, frozen=True, gc=False):
    """A redirection of a stream to or from a file or another stream."""

    operator: str
    target: ShellWord


@lru_cache(maxsize=512)
def compile_cached(pattern: str) -> re.Pattern[str]:
    """Compile a pattern from a table."""
    return re.compile(pattern)


def has_glob(text: str) -> bool:
    """Return whether a text contains characters of file patterns."""
    return "*" in text or "?" in text or "[" in text


BLANKS = re.compile(r"(?:[ \t]|\\\n)*")
_VARIABLE = r"""(?P<variable>\$(?:[A-Za-z_]\w*|[0-9@*#?$!-]|\{(?:
    \#?(?:[A-Za-z_]\w*|[0-9@*\#?$!-])(?:\[(?:[@*]|\d+)\])?      # ${x} ${#x} ${x[0]} ${#x[@]}
    |[A-Za-z_]\w*(?:\[(?:[@*]|\d+)\])?(?:
        :\s?-?\d+(?::-?\d+)?                                     # ${x:1:2}
        |(?::?[-=+?]|\#\#?|%%?|//?|\^\^?|,,?)
         (?:[^'"\\`{}$<>()\x00-\x1f]|\$[A-Za-z_]\w*|\$\{[A-Za-z_]\w*\})*
    ))\}))"""
_PIECE = re.compile(
    r"""(?P<bare>[^\s\\'"$`;&|<>()\x00-\x1f\x7f]+) | '(?P<text>[^']*)' | \\(?P<escaped>[\s\S]) | (?P<quote>")
    | (?P<codes>\$'(?:[^'\\]|\\[\s\S])*') | (?P<dollar>\$\Z) | """
    + _VARIABLE,
    re.ASCII | re.VERBOSE,
)
_QUOTED_PIECE = re.compile(
    r"""(?P<text>[^"\\$`]+|\\(?![$`"\\\n])|\$(?![\w{(@*\#?$!`\[-]|[^\x00-\x7f]))
    | \\(?P<escaped>[\s\S]) | (?P<quote>") | """
    + _VARIABLE,
    re.ASCII | re.VERBOSE,
)
"""The parts of a word outside and inside double quotes."""
_WORD_GLOB = re.compile(r"[*?\[]|\{(?!\})|^~|^[A-Za-z_]\w*\+?=(?:.*:)?~", re.ASCII)
"""Text that the shell expands. Bash expands the tilde of `a=~` in all words, not only in assignments."""
_SUBSTITUTION_REASONS = {
    "$((": "An arithmetic expression", "$[": "An arithmetic expression", "<(": "A command used as a file",
    ">(": "A command used as a file",
}  # fmt: skip


def parse_word(
    text: str, start: int, end: int, substitutions: Sequence[CharRange] = ()
) -> tuple[ShellWord, str | None] | None:
    """Parse a word and return it with the first expansion in it, as a noun phrase, or None for unsupported syntax.

    `substitutions` are the ranges of the command and process substitutions in `text`.
    """
    stops = dict(substitutions)
    pieces: list[str] = []
    reason: str | None = None
    expands = substitutes = may_split = is_quoted = False
    at = start
    while at < end:
        if at in stops:
            piece, at, substitutes, may_split = text[at : stops[at]], stops[at], True, may_split or not is_quoted
            signs = (sign for sign in _SUBSTITUTION_REASONS if piece.startswith(sign))
            reason = reason or _SUBSTITUTION_REASONS.get(next(signs, ""), "A nested command")
            pieces.append(piece)
            continue
        matched = (_QUOTED_PIECE if is_quoted else _PIECE).match(text, at, end)
        if matched is None or (matched[0][0] == "#" and not pieces):
            return None
        kind, at = matched.lastgroup or "", matched.end()
        piece = matched[kind]
        if kind == "quote":
            is_quoted, piece = not is_quoted, ""
        elif kind == "bare":
            is_pattern = _WORD_GLOB.search(piece) is not None
            expands, may_split = expands or is_pattern, may_split or (is_pattern and (piece[0] != "~" or bool(pieces)))
        elif kind in ("variable", "dollar", "codes"):
            expands, may_split = True, may_split or (kind != "codes" and not is_quoted)
            names = {"codes": "Text with escape codes", "dollar": "A variable"}
            reason = reason or names.get(kind) or ("A variable in braces" if piece[1] == "{" else "A variable")
        pieces.append("" if kind == "escaped" and piece == "\n" else piece)
    return None if is_quoted else (ShellWord("".join(pieces), expands or substitutes, substitutes, may_split), reason)


@lru_cache(maxsize=1)
def bash_parser() -> Parser:
    """Return the tree-sitter parser, which is created once per process because creating it is slow."""
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))
