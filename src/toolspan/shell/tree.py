"""The tree-sitter tree of a command line, with positions in characters instead of bytes."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node, Parser


@lru_cache(maxsize=1)
def bash_parser() -> Parser:
    """Return the tree-sitter parser, created once per process because that is slow."""
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


class LineTree:
    """The tree of a line, and the positions of its nodes."""

    def __init__(self, line: str) -> None:
        data = line.encode("utf-8", "surrogatepass")
        self.root: Node = bash_parser().parse(data).root_node
        self.start: Callable[[Node], int] = attrgetter("start_byte")
        self.end: Callable[[Node], int] = attrgetter("end_byte")
        if not line.isascii():
            character_at = _CharacterIndex(data).character_at
            self.start = lambda node: character_at(node.start_byte)
            self.end = lambda node: character_at(node.end_byte)


class _CharacterIndex:
    """A map from byte offsets to character offsets for a text that is not ASCII.

    It counts from the previous lookup, because nodes are visited roughly in order.
    """

    def __init__(self, data: bytes) -> None:
        self._data, self._byte, self._character = data, 0, 0

    def character_at(self, at: int) -> int:
        """Return the index of the character that a byte belongs to."""
        data = self._data
        while at < len(data) and data[at] & 0xC0 == 0x80:  # inside a character
            at -= 1
        if at >= self._byte:
            self._character += len(data[self._byte : at].decode("utf-8", "surrogatepass"))
        else:
            self._character -= len(data[at : self._byte].decode("utf-8", "surrogatepass"))
        self._byte = at
        return self._character
