"""Journey 2: a session that does not resume is repaired and continued.

The machine went down while a call ran, and a line of the transcript was lost. The commands are
typed as toolspan prints them; the scripted model rejects a history that a server would reject.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.journeys.home import Home, open_home
from tests.journeys.normalize import Normalizer
from tests.journeys.page import Page
from toolspan.session.resume import load_history
from toolspan.testing import TranscriptBuilder, check_history
from toolspan.testing.claude_results import ran, read

TITLE = "My session will not resume"
SESSION = "8e20b7d4-1f6c-4c93-a5d8-3b9e07f4c261"
BEDS = "bed,crop\nnorth,beans\nsouth,peas\n"
_SCRIPT = [{"type": "text", "text": "The beds are read; that the pump ran is not sure."}]


def write_page() -> str:
    """Run the journey and return its page."""
    with open_home("garden") as home:
        return _run_journey(home)


def _run_journey(home: Home) -> str:
    (home.path / "script.json").write_text(json.dumps([_SCRIPT]), encoding="utf-8")
    path = _record_sessions(home)
    broken = path.read_bytes()
    screen = home.screen
    page = Page(TITLE, Normalizer(home, {SESSION}), screen)

    page.add_text(
        "The machine went down while a client worked in `~/garden`. Now the client does not resume"
        " the session, or has forgotten half of it. What is wrong with it?"
    )
    output = page.run("toolspan doctor")
    assert "torn_line" in output
    assert "unanswered_call" in output

    page.add_text("Repair it. The damaged file is not changed.")
    repair = _find(r"toolspan repair \S+", output)
    assert repair.endswith(SESSION)
    output = page.run(repair)
    assert path.read_bytes() == broken

    page.add_text(
        "The last lines are commands to resume the copy, with the client or with toolspan. This uses"
        " toolspan, with a scripted model that accepts only what a server would accept."
    )
    set_model = "export TOOLSPAN_MODEL=scripted:$HOME/script.json"
    screen.run(set_model)
    page.add_console(set_model, "")
    resume = _find(r"cd \S+ && toolspan run --resume \S+", output)
    new = path.with_name(f"{resume.split()[-1]}.jsonl")
    assert check_history(load_history(new)) == []
    screen.start(resume)
    screen.wait_for("resuming")
    screen.wait_for("\n>")
    screen.type_line("Where were we?")
    screen.wait_for("not sure.")
    screen.wait_for("tokens\n>")
    screen.type_line("/exit")
    output = screen.wait_for_exit()
    page.add_console(resume, output)

    output = page.run("toolspan doctor")
    assert "healthy" in output
    assert "Where were we?" in str(load_history(new))
    page.add_text("[doctor.md](../doctor.md) describes the repairs.")
    return page.text


def _find(pattern: str, output: str) -> str:
    match = re.search(pattern, output)
    assert match, f"no match for {pattern!r} in:\n{output}"
    return match[0]


def _record_sessions(home: Home) -> Path:
    """Write a session with a torn line and an unanswered call."""
    beds = f"{home.project}/beds.csv"
    transcript = TranscriptBuilder(session_id=SESSION, cwd=str(home.project), start=home.ago(1, 7, 30)).prompt(
        "Water the beds that need it."
    )
    read_beds = transcript.call("Read", {"file_path": beds}, after_ms=1_900)
    transcript.result(read_beds, read(beds, BEDS), after_ms=11)
    transcript.text("North first.", after_ms=1_200)
    pump = transcript.call("Bash", {"command": "./pump north"}, after_ms=800)
    transcript.result(pump, ran("pumped 12 l"), after_ms=4_000)
    transcript.tear(180, ended=True)
    transcript.text("Now the south.", after_ms=1_000)
    transcript.call("Bash", {"command": "./pump south"}, after_ms=900)
    return home.add_transcript(transcript)
