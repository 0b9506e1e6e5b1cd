"""One story in a house of its own: `python -m tests.oracle.indoors HARNESS CLIENT STORY`.

Started by `__main__.py` in namespaces. Prints what is wrong as a list in JSON, in the last line.
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path

from tests.oracle import mended, noted, served
from tests.oracle.house import ROOT, House

SERVED = {one.__name__: one for one in served.STORIES}
"""What any client can be asked."""
STORIES = SERVED | {one.__name__: one for one in (noted.hook_noted, *mended.STORIES)}
__all__ = ["ROOT", "SERVED", "STORIES"]


def main(harness: str, client: str, story: str) -> None:
    """Go through the story."""
    try:
        problems = list(STORIES[story](House(Path(harness), client, story)))
    except Exception:  # noqa: BLE001 - a story that cannot be told is one that failed
        problems = [traceback.format_exc()]
    sys.stdout.write("\n" + json.dumps(problems) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
