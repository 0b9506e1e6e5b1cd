"""Journey 3: an agent in 15 lines, interrupted and continued.

The code is the block of the README. The page leaves out durations, and replaces the random
session ids with fixed ones.
"""

from __future__ import annotations

import os
import re
import shutil

from tests.journeys.home import ROOT, Home, open_home
from tests.journeys.normalize import Normalizer
from tests.journeys.page import Page

TITLE = "My agent in 15 lines"
MAX_LINES = 15
_SECTION = re.compile(r"^## Record and resume\n.*?^```python\n(.*?)^```", re.M | re.S)


def readme_code() -> str:
    """Return the code block of the README."""
    match = _SECTION.search((ROOT / "README.md").read_text(encoding="utf-8"))
    assert match, "the README has no agent that resumes"
    return match[1]


def write_page() -> str:
    """Run the journey and return its page."""
    # It says when it runs, and runs long enough to press Ctrl-C on a busy machine.
    program = f'echo > "$HOME/running"; exec {shutil.which("sleep")} 3600'
    with open_home("oven", programs={"sleep": program}) as home:
        os.mkfifo(home.path / "running")
        return _run_journey(home)


def _run_journey(home: Home) -> str:
    code = readme_code()
    (home.project / "agent.py").write_text(code, encoding="utf-8")
    screen = home.screen
    page = Page(TITLE, Normalizer(home), screen)
    assert sum(1 for line in code.splitlines() if line.strip()) <= MAX_LINES

    page.add_text("Put this into `agent.py`. The model follows a script, so it needs no key.")
    page.add_code("python", code)

    page.add_text("Run it, and press Ctrl-C while the second call runs.")
    screen.start("python agent.py")
    screen.wait_for("▸ Bash  sleep 10")
    (home.path / "running").read_bytes()
    screen.press("C-c")
    output = screen.wait_for_exit()
    page.add_console("python agent.py", output)
    assert re.search(r"■ Bash  sleep 10 .*interrupted$", output, re.M), output
    assert "Traceback" not in output

    page.add_text(
        "The call and the processes it had started were ended, and the call has a result. The session is"
        " recorded in the format and folder of Claude Code."
    )
    output = page.run("toolspan show --last")
    assert "✓ 1 succeeded  ■ 1 interrupted" in output

    page.add_text(
        "Run it again. `Session.resume()` reads the recorded session: the model sees which calls finished and"
        " which was interrupted, and continues."
    )
    output = page.run("python agent.py")
    assert re.fullmatch(r"▸ Bash  echo baked >> log\.txt\n✓ Bash  echo baked >> log\.txt  .*\nDone\.", output), output

    page.add_text("No call ran twice, and it is still one session.")
    output = page.run("cat log.txt")
    assert output == "mixed\nbaked"
    output = page.run("toolspan show --last")
    assert "✓ 2 succeeded  ■ 1 interrupted" in output
    assert len(list((home.path / ".claude/projects").rglob("*.jsonl"))) == 1

    page.add_text(
        "Another model is one line: `make_model` of `toolspan.session` takes `anthropic:NAME` and `openai:NAME`"
        " ([agents.md](../agents.md)). Your own tools, hooks and permissions are arguments of the `Session`"
        " ([embed.md](../embed.md))."
    )
    return page.text
