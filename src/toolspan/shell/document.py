"""Here-documents that are text and nothing else, cut out of a line.

In: a line. Out: the line with a letter in the place of each document, and the documents; None when
one of them is anything but text, or it is not certain where one ends. Whether what is left is plain
is asked by `easy.py`: the letters are such as no plain line has, in quotes or not.
"""

import re

from msgspec import Struct

FED = "\x01"
"""In the place of `<<'EOF'` and what belongs to it: the command before it reads the document."""
WRITTEN = "\x02"
"""In the place of `"$(cat <<'EOF' ... )"`: the document is a word."""

_BEGIN = re.compile(
    r"""("\$\([ \t]*+cat[ \t]*+)?<<[ \t]*+(?:'(\w++)'|"(\w++)"|(\w++))([^\n]*+)\n""", re.ASCII
)
_END = re.compile(r"(?![^\n])")
_END_OF_WORD = re.compile(r'\n[ \t\n]*+\)"')
_ODD = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
_ESCAPE = re.compile(r"\s*+\\")
"""A document that begins so is taken for a word by the tree."""
_FILLED = re.compile(r"[$`\\]")


class Document(Struct, frozen=True):
    """A text that a command reads."""

    body: str
    source: str = ""
    """The word that it makes, as it was written; nothing when it makes none."""


class Rest(Struct, frozen=True):
    """A line without its documents."""

    text: str
    documents: tuple[Document, ...]


def cut(line: str) -> Rest | None:
    """What is left of a line; None when a document in it may be more than text."""
    if _ODD.search(line):
        return None
    texts: list[str] = []
    documents: list[Document] = []
    at = 0
    while begin := _BEGIN.search(line, at):
        end = _end(line, begin)
        if end is None:
            return None
        texts.append(line[at : begin.start()])
        body, at = line[begin.end() : end[0]], end[1]
        if begin[1] is None:
            texts.append(FED + begin[5])
            documents.append(Document(body))
        else:
            texts.append(WRITTEN)
            documents.append(Document(body, line[begin.start() : at]))
    texts.append(line[at:])
    return Rest("".join(texts), tuple(documents))


def _end(line: str, begin: re.Match[str]) -> tuple[int, int] | None:
    """Where a document ends, and where the line goes on; None when that, or it, is not plain."""
    _, single, double, bare, behind = begin.groups()
    mark, start = single or double or bare, begin.end()
    end = line.find(mark, start)  # readers of shell code disagree on marks within lines
    if end < 0 or line[end - 1] != "\n" or "<<" in behind or _ESCAPE.match(line, start):
        return None
    if bare and _FILLED.search(line, start, end):
        return None
    if begin[1] is None:
        closed = _END.match(line, end + len(mark))
    else:
        closed = None if behind else _END_OF_WORD.match(line, end + len(mark))
    return None if closed is None else (end, closed.end())
