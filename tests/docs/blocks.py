"""Code blocks of the documentation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """One fenced block."""

    page: str
    line: int
    language: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[str]:
    below = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md"))
    return ["README.md", "CONTRIBUTING.md", *below]


def blocks(page: str) -> Iterator[Block]:
    text = (ROOT / page).read_text(encoding="utf-8")
    for block in _FENCED.finditer(text):
        yield Block(page, text.count("\n", 0, block.start(2)) + 1, block[1], block[2])


def programs() -> dict[Block, list[Block]]:
    """Return the Python programs of all pages, each with the output block right below it."""
    outputs: dict[Block, list[Block]] = {}
    for page in pages():
        if page.startswith(("docs/journeys/", "docs/decisions/")):
            continue
        last = None
        for block in blocks(page):
            if block.language == "python":
                last = block
                outputs[block] = []
            elif block.language == "text" and last is not None and block.line <= last.line + last.text.count("\n") + 4:
                outputs[last].append(block)
    return outputs
