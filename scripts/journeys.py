"""Write docs/journeys: run each journey at a real terminal, and record the output.

    python scripts/journeys.py [NAME]...

Needs tmux. The tests run the same journeys and compare.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.journeys.screen import TMUX  # noqa: E402
from tests.journeys.test_journeys import PAGES  # noqa: E402


def main() -> int:
    """Write the named pages, or all."""
    names = sys.argv[1:] or list(PAGES)
    unknown = [name for name in names if name not in PAGES]
    if unknown or TMUX is None:
        problem = f"no such journey: {', '.join(unknown)}" if unknown else "tmux is not installed"
        sys.stderr.write(f"{problem}\n")
        return 2
    for name in names:
        page = ROOT / "docs/journeys" / f"{name}.md"
        page.parent.mkdir(exist_ok=True)
        page.write_text(PAGES[name](), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
