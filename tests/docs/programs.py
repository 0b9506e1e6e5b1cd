"""The Python of the pages, and what of it a page shows as printed.

In: blocks. Out: programs, each of which runs by itself, and with each the texts below it that it is
to print. Not here: pages that are compared whole (`spoken.py`), and journeys, whose program is run
at a terminal.
"""

from __future__ import annotations

from tests.docs.blocks import Block, blocks, pages
from tests.docs.diagrams import is_diagram
from tests.docs.spoken import COMPARED
from tests.docs.typed import is_typed

_COMPARED = {f"docs/{name}" for name in COMPARED}


def programs() -> dict[Block, list[Block]]:
    """Each program, with the texts below it, up to the next program."""
    found: dict[Block, list[Block]] = {}
    for page in pages():
        if page in _COMPARED or page.startswith("docs/journeys/"):
            continue
        last = None
        for block in blocks(page):
            if block.language == "python":
                last = block
                found[block] = []
            elif block.language == "text" and last and not is_typed(block) | is_diagram(block):
                found[last].append(block)
    return found
