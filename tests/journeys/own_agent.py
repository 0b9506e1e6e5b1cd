"""Journey 3: an agent in 15 lines, interrupted and continued.

The code is the block of the README. Durations are real, so the page names
no times; ids of sessions are random, so it names one of its own.
"""

from __future__ import annotations

import re
import shutil

from tests.journeys.page import Page
from tests.journeys.settle import Settled
from tests.journeys.world import ROOT, World, world

TITLE = "My agent in 15 lines"
MOST_LINES = 15
_SECTION = re.compile(r"^## An agent in 15 lines\n.*?^```python\n(.*?)^```", re.M | re.S)


def readme_code() -> str:
    """The block of the README."""
    found = _SECTION.search((ROOT / "README.md").read_text(encoding="utf-8"))
    assert found, "the README has no agent in 15 lines"
    return found[1]


def take() -> str:
    """Run the journey and return its page."""
    # Long enough for a busy machine to press Ctrl-C in time.
    with world("oven", programs={"sleep": f"exec {shutil.which('sleep')} 3600"}) as place:
        return _way(place)


def _way(place: World) -> str:
    code = readme_code()
    (place.project / "agent.py").write_text(code, encoding="utf-8")
    shell = place.screen
    page = Page(TITLE, Settled(place), shell)
    assert sum(1 for line in code.splitlines() if line.strip()) <= MOST_LINES

    page.says("Put this into `agent.py`. The model follows a script, so it needs no key.")
    page.code("python", code)

    page.says("Run it, and press Ctrl-C while the second call runs.")
    shell.starts("python agent.py")
    shell.sees("▸ Bash  sleep 10")
    shell.presses("C-c")
    shown = shell.ends()
    page.shows("python agent.py", shown)
    assert re.search(r"■ Bash  sleep 10 .*interrupted$", shown, re.M), shown
    assert "Traceback" not in shown

    page.says(
        "The call and the processes it had started were ended, and the call has a result. The session is"
        " recorded in the format and folder of Claude Code."
    )
    shown = page.runs("toolspan show --last")
    assert "✓ 1 succeeded  ■ 1 interrupted" in shown

    page.says(
        "Run it again. `Session.resume()` reads the recorded session: the model sees which calls finished and"
        " which was interrupted, and continues."
    )
    shown = page.runs("python agent.py")
    assert re.fullmatch(r"▸ Bash  echo baked >> log\.txt\n✓ Bash  echo baked >> log\.txt  .*\nDone\.", shown), shown

    page.says("No call ran twice, and it is still one session.")
    shown = page.runs("cat log.txt")
    assert shown == "mixed\nbaked"
    shown = page.runs("toolspan show --last")
    assert "✓ 2 succeeded  ■ 1 interrupted" in shown
    assert len(list((place.home / ".claude/projects").rglob("*.jsonl"))) == 1

    page.says(
        "Another model is one line: `make_model` of `toolspan.session` takes `anthropic:NAME` and `openai:NAME`"
        " ([agents.md](../agents.md)). Your own tools, hooks and permissions are arguments of the `Session`"
        " ([embed.md](../embed.md))."
    )
    return page.text
