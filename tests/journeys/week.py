"""Journey 1: find the failures of the week and restore a file.

In a week two sessions were recorded; in one of them an edit spoilt a file that is still so. The
person follows what the commands themselves tell to type next.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from tests.journeys.page import Page
from tests.journeys.world import World, bare_python, wheel, world
from toolspan.testing import TranscriptBuilder
from toolspan.testing.claude_results import edited, exited, ran, read, refused

TITLE = "What went wrong this week?"
GOOD = '''\
"""What a basket costs, in cents."""

PRICES = {"bread": 420, "crème brûlée": 650, "roll": 90}


def total(basket: dict[str, int]) -> int:
    """The sum of all that is in it."""
    return sum(PRICES[name] * number for name, number in basket.items())
'''
OLD = "PRICES[name] * number for name, number in basket.items()"
NEW = "PRICES[name] for name in basket"
FAILED = """\
E   assert 90 == 180
test_prices.py:5: AssertionError: two rolls
FAILED test_prices.py::test_two_rolls - assert 90 == 180
1 failed in 0.04s"""


def take() -> str:
    """Run the journey and return its page."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made, python = wheel(folder), bare_python(folder)
        with world("bakery", python=python) as place:
            (place.home / made.name).write_bytes(made.read_bytes())
            return _way(place, made.name)


def _way(place: World, made: str) -> str:
    file = place.project / "prices.py"
    before = GOOD.encode()
    spoilt = GOOD.replace(OLD, NEW).encode()
    file.write_bytes(spoilt)
    edit = _recorded(place, file)
    shell = place.screen
    page = Page(TITLE, place.settled, shell)

    page.says(
        "Claude Code has worked in `~/bakery` for a week, and something is wrong with the prices."
        " Install toolspan, here from its wheel. It reads the transcripts below `~/.claude`; nothing leaves the"
        " machine."
    )
    install = f"python -m pip install -q ~/{made}"
    shown = shell.runs(install)
    assert shown == "", shown
    page.shows(install, shown)

    shown = page.runs("toolspan")
    assert "2 sessions in 1 folder" in shown

    page.says("It suggests the next command.")
    errors = _told(r"toolspan errors --since \S+", shown)
    shown = page.runs(errors)
    assert "assert 90 == 180" in shown

    page.says("The tests failed last. Look at that call.")
    call = _told(r"e\.g\. (toolu_\w+)", shown[shown.index("assert 90 == 180") :])
    shown = page.runs(f"toolspan show {call}")
    assert "Edit" in shown

    page.says("An edit ran right before it.")
    assert _told(r"Edit +prices\.py +(toolu_\w+)", shown) == edit
    shown = page.runs(f"toolspan show {edit}")

    page.says(
        "The edit lost the numbers. The last line of the call shows how to restore the file;"
        " the command shows the difference and asks before it writes."
    )
    restore = _told(r"toolspan restore .*", shown)
    shell.starts(restore)
    shell.sees("[y/N]")
    shell.types("y")
    shown = shell.ends()
    page.shows(restore, shown)

    assert file.read_bytes() == before
    assert (place.project / "prices.py.before-restore").read_bytes() == spoilt
    page.says(
        "`prices.py` is byte for byte as it was before the edit; the replaced content is kept beside it."
        " More: [files.md](../files.md), [commands.md](../commands.md)."
    )
    return page.text


def _told(pattern: str, shown: str) -> str:
    """Return the command that the screen suggests, or its group."""
    found = re.search(pattern, shown)
    assert found, f"nothing like {pattern!r} in:\n{shown}"
    return found[found.re.groups].rstrip()


def _recorded(place: World, file: Path) -> str:
    """The week; the id of the edit that spoilt the file."""
    tools = TranscriptBuilder(
        session_id="0b5e63a8-91d4-4f0e-8f57-2c8d1a4be6f0", cwd=str(place.project), start=place.ago(4, 9, 12)
    ).prompt("Check the shell scripts.")
    lint = tools.call("Bash", {"command": "shellcheck *.sh"}, after_ms=2_400)
    tools.result(lint, exited(127, "/bin/bash: line 1: shellcheck: command not found"), after_ms=60)
    oven = tools.call("Read", {"file_path": f"{place.project}/oven.sh"}, after_ms=1_900)
    tools.result(oven, refused("File does not exist."), after_ms=12)
    tools.text("There is no shellcheck here, and no script.", after_ms=2_000)
    place.keeps(tools)

    prices = TranscriptBuilder(
        session_id="d2c7f914-6a3b-4e58-b0d9-7e41c95fa832", cwd=str(place.project), start=place.ago(1, 16, 40)
    ).prompt("Make total() simpler.")
    looked = prices.call("Read", {"file_path": str(file)}, after_ms=2_100)
    prices.result(looked, read(str(file), GOOD), after_ms=14)
    given = {"file_path": str(file), "old_string": OLD, "new_string": NEW, "replace_all": False}
    edit = prices.call("Edit", given, after_ms=3_300)
    prices.result(edit, edited(str(file), GOOD, OLD, NEW), after_ms=31)
    tests = prices.call("Bash", {"command": "pytest -q"}, after_ms=1_700)
    prices.result(tests, exited(1, FAILED), after_ms=420)
    prices.text("The test expects two rolls to cost twice as much.", after_ms=2_600)
    looked = prices.call("Bash", {"command": "git status --short"}, after_ms=900)
    prices.result(looked, ran(" M prices.py"), after_ms=25)
    place.keeps(prices)
    return edit
