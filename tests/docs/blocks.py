"""Every block of code that the pages show, and where it stands.

In: README, CONTRIBUTING and what is below docs. Out: blocks, as Markdown has them: between fences
of backticks or tildes, also in lists and quotes, and by four blanks alone. Nothing here knows who
runs them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent
INDENTED = "indented"
"""What is called the language of a block without fences."""
_FENCE = re.compile(r"^(?P<before>[ >]*)(?P<fence>`{3,}|~{3,}) *(?P<language>[^\s`]*)")
_BARE = re.compile(r"^(?: {4}|\t)")


class Block(NamedTuple):
    """One block."""

    page: str
    """Its path, from the root."""
    line: int
    """Where its first line of code is, counted from 1."""
    language: str
    text: str

    @property
    def name(self) -> str:
        """Where somebody finds it."""
        return f"{self.page}:{self.line}"

    @property
    def first(self) -> str:
        """Its first line."""
        return self.text.partition("\n")[0]


def pages() -> list[str]:
    """Every page."""
    below = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md"))
    return ["README.md", "CONTRIBUTING.md", *below]


@cache
def blocks(page: str) -> tuple[Block, ...]:
    """The blocks of a page, in order."""
    return tuple(blocks_in((ROOT / page).read_text(encoding="utf-8"), page))


def all_blocks() -> list[Block]:
    """The blocks of all pages."""
    return [block for page in pages() for block in blocks(page)]


def of(language: str, named: Iterable[str]) -> list[Block]:
    """The blocks of some pages in one language."""
    return [block for page in named for block in blocks(page) if block.language == language]


def is_made(block: Block) -> bool:
    """Whether a block is about the Makefile."""
    return block.language == "console" and block.text.startswith("$ make ")


def blocks_in(text: str, page: str) -> Iterator[Block]:
    """The blocks of a text; one that is not closed goes on to its end."""
    lines = text.splitlines()
    at, before = 0, ""
    while at < len(lines):
        if opened := _FENCE.match(lines[at]):
            end = _end(lines, at + 1, opened["fence"])
            cut = len(opened["before"])
            yield _block(page, at + 1, opened["language"], [line[cut:] for line in lines[at + 1 : end]])
            at, before = end + 1, ""
        elif _BARE.match(lines[at]) and not before.strip():
            end = next((n for n in range(at, len(lines)) if not _BARE.match(lines[n])), len(lines))
            yield _block(page, at, INDENTED, [line[4:] for line in lines[at:end]])
            at, before = end, ""
        else:
            at, before = at + 1, lines[at]


def _end(lines: list[str], start: int, fence: str) -> int:
    closing = re.compile(rf"^[ >]*{re.escape(fence[0])}{{{len(fence)},}}\s*$")
    return next((at for at in range(start, len(lines)) if closing.match(lines[at])), len(lines))


def _block(page: str, above: int, language: str, lines: list[str]) -> Block:
    return Block(page, above + 1, language, "".join(f"{line}\n" for line in lines))
