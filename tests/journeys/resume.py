"""Journey 2: a session that does not resume is repaired and continued.

The machine went down while a call ran, and a line of the transcript was lost. The printed command
is typed as it is printed; the model follows a script and refuses every history that a server would
refuse.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.journeys.page import Page
from tests.journeys.settle import Settled
from tests.journeys.world import World, world
from toolspan.session.resume import load_history
from toolspan.testing import TranscriptBuilder, check_history
from toolspan.testing.claude_results import ran, read

TITLE = "My session will not resume"
SESSION = "8e20b7d4-1f6c-4c93-a5d8-3b9e07f4c261"
BEDS = "bed,crop\nnorth,beans\nsouth,peas\n"
_SCRIPT = [{"type": "text", "text": "The beds are read; that the pump ran is not sure."}]


def take() -> str:
    """Run the journey and return its page."""
    with world("garden") as place:
        return _way(place)


def _way(place: World) -> str:
    (place.home / "script.json").write_text(json.dumps([_SCRIPT]), encoding="utf-8")
    path = _recorded(place)
    broken = path.read_bytes()
    shell = place.screen
    page = Page(TITLE, Settled(place, {SESSION}), shell)

    page.says(
        "The machine went down while a client worked in `~/garden`. Now the client does not resume"
        " the session, or has forgotten half of it. What is wrong with it?"
    )
    shown = page.runs("toolspan doctor")
    assert "torn_line" in shown
    assert "unanswered_call" in shown

    page.says("Repair it. The damaged file is not changed.")
    mend = _told(r"toolspan repair \S+", shown)
    assert mend.endswith(SESSION)
    shown = page.runs(mend)
    assert path.read_bytes() == broken

    page.says(
        "The last lines are commands to resume the copy, with the client or with toolspan. This uses"
        " toolspan, with a scripted model that accepts only what a server would accept."
    )
    choose = "export TOOLSPAN_MODEL=scripted:$HOME/script.json"
    shell.runs(choose)
    page.shows(choose, "")
    resume = _told(r"cd \S+ && toolspan run --resume \S+", shown)
    new = path.with_name(f"{resume.split()[-1]}.jsonl")
    assert check_history(load_history(new)) == []
    shell.starts(resume)
    shell.sees("resuming")
    shell.sees("\n>")
    shell.types("Where were we?")
    shell.sees("not sure.")
    shell.sees("tokens\n>")
    shell.types("/exit")
    shown = shell.ends()
    page.shows(resume, shown)

    shown = page.runs("toolspan doctor")
    assert "healthy" in shown
    assert "Where were we?" in str(load_history(new))
    page.says("[doctor.md](../doctor.md) describes the repairs.")
    return page.text


def _told(pattern: str, shown: str) -> str:
    found = re.search(pattern, shown)
    assert found, f"nothing like {pattern!r} in:\n{shown}"
    return found[0]


def _recorded(place: World) -> Path:
    """A session with a torn line and an unanswered call."""
    beds = f"{place.project}/beds.csv"
    story = TranscriptBuilder(session_id=SESSION, cwd=str(place.project), start=place.ago(1, 7, 30)).prompt(
        "Water the beds that need it."
    )
    looked = story.call("Read", {"file_path": beds}, after_ms=1_900)
    story.result(looked, read(beds, BEDS), after_ms=11)
    story.text("North first.", after_ms=1_200)
    pump = story.call("Bash", {"command": "./pump north"}, after_ms=800)
    story.result(pump, ran("pumped 12 l"), after_ms=4_000)
    story.tear(180, ended=True)
    story.text("Now the south.", after_ms=1_000)
    story.call("Bash", {"command": "./pump south"}, after_ms=900)
    return place.keeps(story)
