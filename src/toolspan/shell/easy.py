"""Lines in which nothing is hidden: plain commands, operators between them, simple redirects.

In: a line. Out: its programs, or None when it holds anything else; most lines hold nothing else.
One expression says which lines these are, so that nobody has to build their trees; what comes out
is what `seen.py` says about them. Variables, substitutions, groups, comments, escapes between
words, letters beyond ASCII outside of quotes and words of the shell itself are never in them.
Here-documents that are text and nothing else are cut out before: `document.py`.
"""

import re
from collections.abc import Iterator

from toolspan.shell.document import FED, WRITTEN, Document, cut
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
_BEFORE = rf"(?:{_OTHER}|(?:{_INTO})[ \t]*+)"
_BETWEEN = r"&&|\|\||[;|\n]|&(?!>)"


def _line(command: str) -> re.Pattern[str]:
    """Commands with operators between them."""
    further = rf"(?:[ \t]*+(?:{_BETWEEN})[ \t\n]*+{command})*+"
    return re.compile(rf"[ \t\n]*+{command}{further}(?:[ \t]*+[;&])?+[ \t\n]*+", re.ASCII)


_LINE = _line(rf"{_NAME}(?:[ \t]++(?:{_BEFORE}?+{_WORD}(?![<>])))*+")
_CUT_LINE = _line(
    rf"{_NAME}(?:[ \t]++(?:{_BEFORE}?+{_WORD}(?![<>])|{WRITTEN}(?![^\s;|&])))*+"
    rf"(?:[ \t]++{FED}(?:[ \t]++{_BEFORE}{_WORD}(?![<>]))*+[ \t]*+(?![^\n]))?+"
)

# What follows takes apart lines of which the above is known.
_QUOTES = r"""'[^']*+'|"(?:[^"\\]++|\\.)*+"|\\."""
_COMMAND = re.compile(
    r"[ \t\n]*+(?:([\w ./:,@%+=^\t-]++)(?![^;|&\n]|&>)"
    rf"|((?:[^;|&\n'\"\\]++|(?<=>)&|&(?=>)|{_QUOTES})++))"
    r"(&&|\|\||[;|\n&]?)",
    re.ASCII | re.DOTALL,
)
_PIECE = re.compile(
    r"(?:([12]?>&|[12]?>>?|&>>?|<)[ \t]*+)?+"
    rf"(?:([^\s'\"\\*?~<>&{FED}{WRITTEN}]++)(?!\S)|('[^']*+'|\"[^\"\\]*+\")(?!\S)"
    rf"|([{FED}{WRITTEN}])|((?:[^\s'\"\\<>&]++|{_QUOTES})++))",
    re.ASCII | re.DOTALL,
)
_CAT = (Word("cat"),)
_ESCAPED = re.compile(r'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_ESCAPE = re.compile(r'\\([$`"\\])')


def easy(line: str) -> tuple[Program, ...] | None:
    """The programs of a line that is plain to see; None for any other line."""
    if "<<" in line:
        rest = cut(line)
        if rest is None or "\\\n" in rest.text or _CUT_LINE.fullmatch(rest.text) is None:
            return None
        return _programs(rest.text, iter(rest.documents))
    if "\\\n" in line or _LINE.fullmatch(line) is None:
        return None
    return _programs(line, iter(()))


def _programs(line: str, documents: Iterator[Document]) -> tuple[Program, ...] | None:
    programs: list[Program] = []
    fed = False
    for bare, mixed, between in _COMMAND.findall(line):
        if bare:
            words = bare.split()
            programs.append(Program(tuple(map(Word, words)), " ".join(words), fed=fed))
        else:
            found = _mixed(mixed, documents, fed=fed)
            if found is None:
                return None
            programs += found
        fed = between == "|"
    return tuple(programs)


def _mixed(text: str, documents: Iterator[Document], *, fed: bool) -> list[Program] | None:
    """A command with quotes, patterns, redirects or documents, and what runs to make its words."""
    programs: list[Program] = []
    words: list[Word] = []
    sources: list[str] = []
    redirects: list[Redirect] = []
    feed: str | None = None
    for into, bare, quoted, mark, odd in _PIECE.findall(text):
        if mark == FED:
            fed, feed = True, next(documents).body
            continue
        source = bare or quoted or odd
        if mark:
            document = next(documents)
            source = document.source.replace("\\\n", "")
            word = Word(document.source[1:-1], filled=True, runs=True)
            programs.append(Program(_CAT, "cat", fed=True, feed=document.body, nested=True))
        elif bare:
            word = Word(bare)
        else:
            spelled = Word(quoted[1:-1]) if quoted else _spelled(odd)
            if spelled is None:
                return None
            word = spelled
        if into:
            redirects.append(Redirect(into, word))
            fed = fed or into == "<"
        else:
            words.append(word)
            sources.append(source)
    told = Program(tuple(words), " ".join(sources), redirects=tuple(redirects), fed=fed, feed=feed)
    return [*programs, told]


def _spelled(odd: str) -> Word | None:
    if _ESCAPED.fullmatch(odd):
        return Word(_ESCAPE.sub(r"\1", odd[1:-1]))
    return spell(odd, 0, len(odd))
