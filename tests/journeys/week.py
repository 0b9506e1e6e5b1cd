"""Journey 1: find the failures of the week and restore a file.

Two sessions were recorded; in one of them an edit broke a file, which is still broken. Each next
command is one that the previous output suggests.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from tests.journeys.home import Home, bare_python, build_wheel, open_home
from tests.journeys.page import Page
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


def write_page() -> str:
    """Run the journey and return its page."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel, python = build_wheel(folder), bare_python(folder)
        with open_home("bakery", python=python) as home:
            (home.path / wheel.name).write_bytes(wheel.read_bytes())
            return _run_journey(home, wheel.name)


def _run_journey(home: Home, wheel: str) -> str:
    file = home.project / "prices.py"
    before = GOOD.encode()
    broken = GOOD.replace(OLD, NEW).encode()
    file.write_bytes(broken)
    edit = _record_sessions(home, file)
    screen = home.screen
    page = Page(TITLE, home.normalize, screen)

    page.add_text(
        "Claude Code has worked in `~/bakery` for a week, and something is wrong with the prices."
        " Install toolspan, here from its wheel. It reads the transcripts below `~/.claude`; nothing leaves the"
        " machine."
    )
    install = f"python -m pip install -q ~/{wheel}"
    output = screen.run(install)
    assert output == "", output
    page.add_console(install, output)

    output = page.run("toolspan")
    assert "2 sessions in 1 folder" in output

    page.add_text("It suggests the next command.")
    errors = _find(r"toolspan errors --since \S+", output)
    output = page.run(errors)
    assert "assert 90 == 180" in output

    page.add_text("The tests failed last. Look at that call.")
    call = _find(r"e\.g\. (toolu_\w+)", output[output.index("assert 90 == 180") :])
    output = page.run(f"toolspan show {call}")
    assert "Edit" in output

    page.add_text("An edit ran right before it.")
    assert _find(r"Edit +prices\.py +(toolu_\w+)", output) == edit
    output = page.run(f"toolspan show {edit}")

    page.add_text(
        "The edit lost the numbers. The last line of the call shows how to restore the file;"
        " the command shows the difference and asks before it writes."
    )
    restore = _find(r"toolspan restore .*", output)
    screen.start(restore)
    screen.wait_for("[y/N]")
    screen.type_line("y")
    output = screen.wait_for_exit()
    page.add_console(restore, output)

    assert file.read_bytes() == before
    assert (home.project / "prices.py.before-restore").read_bytes() == broken
    page.add_text(
        "`prices.py` is byte for byte as it was before the edit; the replaced content is kept beside it."
        " More: [files.md](../files.md), [commands.md](../commands.md)."
    )
    return page.text


def _find(pattern: str, output: str) -> str:
    """Return the command that the screen suggests, or its group."""
    match = re.search(pattern, output)
    assert match, f"no match for {pattern!r} in:\n{output}"
    return match[match.re.groups].rstrip()


def _record_sessions(home: Home, file: Path) -> str:
    """Write the two sessions; return the id of the edit that broke the file."""
    scripts = TranscriptBuilder(
        session_id="0b5e63a8-91d4-4f0e-8f57-2c8d1a4be6f0", cwd=str(home.project), start=home.ago(4, 9, 12)
    ).prompt("Check the shell scripts.")
    lint = scripts.call("Bash", {"command": "shellcheck *.sh"}, after_ms=2_400)
    scripts.result(lint, exited(127, "/bin/bash: line 1: shellcheck: command not found"), after_ms=60)
    oven = scripts.call("Read", {"file_path": f"{home.project}/oven.sh"}, after_ms=1_900)
    scripts.result(oven, refused("File does not exist."), after_ms=12)
    scripts.text("There is no shellcheck here, and no script.", after_ms=2_000)
    home.add_transcript(scripts)

    prices = TranscriptBuilder(
        session_id="d2c7f914-6a3b-4e58-b0d9-7e41c95fa832", cwd=str(home.project), start=home.ago(1, 16, 40)
    ).prompt("Make total() simpler.")
    read_prices = prices.call("Read", {"file_path": str(file)}, after_ms=2_100)
    prices.result(read_prices, read(str(file), GOOD), after_ms=14)
    edit_input = {"file_path": str(file), "old_string": OLD, "new_string": NEW, "replace_all": False}
    edit = prices.call("Edit", edit_input, after_ms=3_300)
    prices.result(edit, edited(str(file), GOOD, OLD, NEW), after_ms=31)
    tests = prices.call("Bash", {"command": "pytest -q"}, after_ms=1_700)
    prices.result(tests, exited(1, FAILED), after_ms=420)
    prices.text("The test expects two rolls to cost twice as much.", after_ms=2_600)
    status = prices.call("Bash", {"command": "git status --short"}, after_ms=900)
    prices.result(status, ran(" M prices.py"), after_ms=25)
    home.add_transcript(prices)
    return edit
