"""Lines in which nothing is hidden: plain commands, operators between them, simple redirects.

In: a line. Out: its programs, or None when it holds anything else; most lines hold nothing else.
One expression says which lines these are, so that nobody has to build their trees; what comes out
is what `seen.py` says about them. Variables, substitutions, groups, comments, escapes between
words, letters beyond ASCII outside of quotes and words of the shell itself are never in them.
"""

import re

from toolspan.shell.line import Redirect, Word
from toolspan.shell.program import Program
from toolspan.shell.word import spell

_SINGLE = r"'[^'\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]*+'"
_DOUBLE = r'"(?:[^"\\$`\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]++|\\[ -~])*+"'
_BARE = r"[A-Za-z0-9_./:,@%+=^~*?-]++|\{\}"
_WORD = rf"(?:(?!=|-(?![^\s;|&]))(?:{_BARE}|{_SINGLE}|{_DOUBLE})++|\\[;()!](?![^ \t])|!(?![^ \t]))"
_SHELLS_OWN = (
    "case|coproc|declare|do|done|elif|else|esac|export|fi|for|function|if|in|let|local|readonly"
    "|select|then|time|typeset|unset|unsetenv|until|while"
)
_NAME = rf"(?!(?:{_SHELLS_OWN})(?![\w./-]))[A-Za-z_./][\w./-]*+(?![^\s;|&])"
_INTO = r"[12]?>>?|&>>?|<"
_OTHER = r"[12]?>&(?=[12](?![^\s;|&]))"
_COMMAND = rf"{_NAME}(?:[ \t]++(?:(?:{_OTHER}|(?:{_INTO})[ \t]*+)?+{_WORD}(?![<>])))*+"
_BETWEEN = r"&&|\|\||[;|\n]|&(?!>)"
_LINE = re.compile(
    rf"[ \t\n]*+{_COMMAND}(?:[ \t]*+(?:{_BETWEEN})[ \t\n]*+{_COMMAND})*+(?:[ \t]*+[;&])?+[ \t\n]*+",
    re.ASCII,
)
_PIECE = re.compile(rf"[ \t]*+(?:(?![12]>)({_WORD})|({_BETWEEN})|({_OTHER}|{_INTO}))", re.ASCII)
_QUOTED = re.compile(r"""'[^']*+'|"[^"\\]*+\"""")
_ODD = re.compile(r"['\"\\*?~]")


def easy(line: str) -> tuple[Program, ...] | None:
    """The programs of a line that is plain to see; None for any other line."""
    if "\\\n" in line or _LINE.fullmatch(line) is None:
        return None
    return _programs(line)


def _programs(line: str) -> tuple[Program, ...] | None:
    programs: list[Program] = []
    words: list[Word] = []
    sources: list[str] = []
    redirects: list[Redirect] = []
    odd = _ODD.search(line) is not None
    fed = piped = False
    operator = ""
    for source, between, into in _PIECE.findall(line):
        if source:
            word = _word(source) if odd else Word(source)
            if word is None:
                return None
            if operator:
                redirects.append(Redirect(operator, word))
                fed, operator = fed or operator == "<", ""
            else:
                words.append(word)
                sources.append(source)
        elif into:
            operator = into
        elif words:
            programs.append(_program(words, sources, redirects, fed or piped))
            words, sources, redirects = [], [], []
            fed, piped = False, between == "|"
    if words:
        programs.append(_program(words, sources, redirects, fed or piped))
    return tuple(programs)


def _program(
    words: list[Word],
    sources: list[str],
    redirects: list[Redirect],
    fed: bool,  # noqa: FBT001 - called by position
) -> Program:
    return Program(tuple(words), " ".join(sources), redirects=tuple(redirects), fed=fed)


def _word(source: str) -> Word | None:
    if _ODD.search(source) is None:
        return Word(source)
    if _QUOTED.fullmatch(source):
        return Word(source[1:-1])
    return spell(source, 0, len(source))
