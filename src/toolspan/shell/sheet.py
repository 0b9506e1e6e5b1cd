"""A command line as text and as a tree, and what is doubtful in it.

In: a line. Out: places and pieces of it, and its words, each spelled anew. Which nodes there are
and what they mean is known to those who build on it: `redirect.py`, then `seen.py`.
"""

import re
from abc import abstractmethod
from collections.abc import Callable
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING

from toolspan.shell.line import Word
from toolspan.shell.program import UNKNOWN, Draft
from toolspan.shell.word import Span, spell

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

_FIRST_BYTE: "Callable[[Node], int]" = attrgetter("start_byte")
_LAST_BYTE: "Callable[[Node], int]" = attrgetter("end_byte")
BLANKS = re.compile(r"(?:[ \t]|\\\n)*")
BREAKS = re.compile(r"(?:[ \t\n]|\\\n)*")


@lru_cache(maxsize=1)
def parser() -> "Parser":
    """The parser; making one takes a while."""
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


class Sheet:
    """A line, and the doubts about it."""

    def __init__(self, line: str) -> None:
        self._text = line
        self._data = line.encode("utf-8", "surrogatepass")
        self._start: Callable[[Node], int] = _FIRST_BYTE
        self._end: Callable[[Node], int] = _LAST_BYTE
        if not line.isascii():
            letter = _Wide(self._data).letter
            self._start = lambda node: letter(node.start_byte)
            self._end = lambda node: letter(node.end_byte)
        self.unclear: list[str] = []

    def _doubt(self, why: str) -> None:
        self.unclear.append(why)

    def _source(self, node: "Node") -> str:
        return self._text[self._start(node) : self._end(node)]

    @abstractmethod
    def _look_inside(self, node: "Node") -> bool:
        """Look into a node that runs something to make a word; False when it is none."""

    @abstractmethod
    def _collect(self, node: "Node", draft: Draft) -> None:
        """Take in all parts of a command."""

    @abstractmethod
    def _part(self, child: "Node", draft: Draft) -> None:
        """Take in a part of a command."""

    @abstractmethod
    def _note(self, draft: Draft) -> None:
        """A command is complete."""

    @abstractmethod
    def _is_statement(self, node: "Node") -> bool:
        """Whether a node is a command or more than one."""

    @abstractmethod
    def _visit(self, node: "Node") -> None:
        """Look at a statement."""

    def _word(self, node: "Node") -> Word:
        runs: list[Span] = []
        if node.child_count:
            self._substitutions(node, runs)
        word = spell(self._text, self._start(node), self._end(node), runs)
        if word is None:
            self._doubt("a word is not understood")
            return UNKNOWN
        return word

    def _substitutions(self, node: "Node", runs: list[Span] | None = None) -> None:
        """Look into whatever a word runs; note where it stands."""
        if self._look_inside(node):
            if runs is not None:
                runs.append((self._start(node), self._end(node)))
            return
        for child in node.children:
            if child.child_count:
                self._substitutions(child, runs)

    def _substitutions_below(self, node: "Node") -> None:
        for child in node.children:
            self._substitutions(child)


class _Wide:
    """Which letter of a text a byte belongs to, when some letters take several bytes.

    Counted from where one asked last: nodes are looked at more or less in their order.
    """

    def __init__(self, data: bytes) -> None:
        self._data, self._at, self._letter = data, 0, 0

    def letter(self, at: int) -> int:
        """The place of the letter that a byte belongs to."""
        data = self._data
        while at < len(data) and data[at] & 0xC0 == 0x80:  # within a letter
            at -= 1
        if at >= self._at:
            self._letter += len(data[self._at : at].decode("utf-8", "surrogatepass"))
        else:
            self._letter -= len(data[at : self._at].decode("utf-8", "surrogatepass"))
        self._at = at
        return self._letter
