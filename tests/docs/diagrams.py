"""Blocks that are no code: pictures, and what a text may hold. Few, and each by its name.

In: a block. Out: whether it is such. What they name is held against the code by
`test_diagrams.py` and, for paths of modules, `test_names.py`.
"""

from __future__ import annotations

from tests.docs.blocks import Block, all_blocks

FLOW = "docs/flow.md"
LAYERS = "docs/decisions/0005-imports-one-way.md"
ANSWERS = "docs/hooks.md"
_DIAGRAMS = {
    (FLOW, "reply ─▶ session/session ─▶ run/batch ─▶ run/queue      which calls may start now"),
    (FLOW, "bytes ─▶ wire/source ─▶ wire/jsonl ─▶ wire/claude ─▶ read/transcript (Reader)"),
    (LAYERS, "cli | serve"),
    (ANSWERS, "continue: false, stopReason        end the turn after this"),
}


def is_diagram(block: Block) -> bool:
    """Whether it is one of these."""
    return block.language == "text" and (block.page, block.first) in _DIAGRAMS


def diagrams() -> list[Block]:
    """All of them, as they stand on their pages."""
    found = [block for block in all_blocks() if is_diagram(block)]
    gone = _DIAGRAMS - {(block.page, block.first) for block in found}
    assert not gone, f"not on its page any more: {gone}"
    return found


def of_page(page: str) -> str:
    """The pictures of a page."""
    return "".join(block.text for block in diagrams() if block.page == page)
