"""Lines in which nothing is hidden: plain commands, operators between them, simple redirects.

In: a line. Out: its programs, or None when it holds anything else; most lines hold nothing else.
One expression says which lines these are, so that nobody has to build their trees; what comes out
is what `seen.py` says about them. Variables, substitutions, groups, comments, escapes between
words, letters beyond ASCII outside of quotes and words of the shell itself are never in them.
Here-documents that are text and nothing else are cut out before: `document.py`.
"""

import re
from collections.abc import Iterable, Iterator

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


_GOES_ON = ("&&", "||", "|")
_END = rf"[ \t]*+(?:({_BETWEEN})[ \t\n]*+|\Z)"
_PLAIN = r"(?!=|-(?![^\s;|&]))[A-Za-z0-9_./:,@%+=^-]++(?![^\s;|&])"


def _commands(further: str = "", last: str = "") -> re.Pattern[str]:
    """A command of plain words, or another one; what is behind it; or else all that is left."""
    plain = rf"{_NAME}(?:[ \t]++{_PLAIN})*+"
    mixed = rf"{_NAME}(?:[ \t]++(?:{_BEFORE}?+{_WORD}(?![<>]){further}))*+{last}"
    return re.compile(
        rf"[ \t\n]*+(?:({plain}){_END}|({mixed}){_END})|([^\x00]++)",
        re.ASCII,
    )


_LINE = _commands()
_CUT_LINE = _commands(
    rf"|{WRITTEN}(?![^\s;|&])",
    rf"(?:[ \t]++{FED}(?:[ \t]++{_BEFORE}{_WORD}(?![<>]))*+[ \t]*+(?![^\n]))?+",
)
_QUOTES = r"""'[^']*+'|"(?:[^"\\]++|\\.)*+"|\\."""
_PIECE = re.compile(
    rf"[ \t]*+(?:([^\s'\"\\*?~<>&{FED}{WRITTEN}]++)(?!\S)|('[^']*+'|\"[^\"\\]*+\")(?!\S)"
    rf"|([12]?>&|[12]?>>?|&>>?|<)|([{FED}{WRITTEN}])|((?:[^\s'\"\\<>&]++|{_QUOTES})++))",
    re.ASCII | re.DOTALL,
)
"""A piece of a command that is known to be mixed."""
_CAT = (Word("cat"),)
_ESCAPED = re.compile(r'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_ESCAPE = re.compile(r'\\([$`"\\])')


def easy(line: str) -> tuple[Program, ...] | None:
    """The programs of a line that is plain to see; None for any other line."""
    if "<<" not in line:
        return None if "\\\n" in line else _programs(_LINE.findall(line), iter(()))
    rest = cut(line)
    if rest is None or "\\\n" in rest.text:
        return None
    return _programs(_CUT_LINE.findall(rest.text), iter(rest.documents))


def _programs(
    commands: Iterable[tuple[str, ...]], documents: Iterator[Document]
) -> tuple[Program, ...] | None:
    programs: list[Program] = []
    between = ""
    for plain, then, mixed, next_then, other in commands:
        if other:
            return None
        if plain:
            words = plain.split()
            programs.append(Program(tuple(map(Word, words)), " ".join(words), fed=between == "|"))
            between = then
            continue
        found = _mixed(mixed, documents, fed=between == "|")
        if found is None:
            return None
        programs += found
        between = next_then
    return None if not programs or between in _GOES_ON else tuple(programs)


def _mixed(text: str, documents: Iterator[Document], *, fed: bool) -> list[Program] | None:
    """A command with quotes, patterns, redirects or documents, and what runs to make its words."""
    programs: list[Program] = []
    words: list[Word] = []
    sources: list[str] = []
    redirects: list[Redirect] = []
    feed: str | None = None
    operator = ""
    for bare, quoted, into, mark, odd in _PIECE.findall(text):
        if into:
            operator = into
            continue
        if mark == FED:
            fed, feed = True, next(documents).body
            continue
        source = bare or quoted or odd
        word = Word(bare) if bare else _spelled(quoted, odd)
        if mark:
            document = next(documents)
            source = document.source.replace("\\\n", "")
            word = Word(document.source[1:-1], filled=True, runs=True)
            programs.append(Program(_CAT, "cat", fed=True, feed=document.body, nested=True))
        if word is None:
            return None
        if operator:
            redirects.append(Redirect(operator, word))
            fed, operator = fed or operator == "<", ""
        else:
            words.append(word)
            sources.append(source)
    told = Program(tuple(words), " ".join(sources), redirects=tuple(redirects), fed=fed, feed=feed)
    return [*programs, told]


def _spelled(quoted: str, odd: str) -> Word | None:
    if not odd:
        return Word(quoted[1:-1])
    if _ESCAPED.fullmatch(odd):
        return Word(_ESCAPE.sub(r"\1", odd[1:-1]))
    return spell(odd, 0, len(odd))
