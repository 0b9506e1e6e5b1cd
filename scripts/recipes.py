"""Run every command and program of pages that show outputs, and update the outputs.

    python scripts/recipes.py [recipes.md] [parts.md]

Needs jq. Commands and programs are edited in the pages; the tests run them and compare.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.docs.spoken import COMPARED, JQ, Section, prepare, run, sections  # noqa: E402


def main() -> int:
    """Update the named pages, or all."""
    if JQ is None:
        sys.stderr.write("jq is not installed\n")
        return 2
    for name in sys.argv[1:] or COMPARED:
        page = ROOT / "docs" / name
        found = sections(page.read_text(encoding="utf-8"))
        page.write_text("".join(renewed(section) for section in found), encoding="utf-8")
    return 0


def renewed(section: Section) -> str:
    """Return the section with the current output of its steps."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        return section.renewed(iter([run(step, folder) for step in section.steps()]))


if __name__ == "__main__":
    sys.exit(main())
