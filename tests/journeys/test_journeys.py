"""The three journeys of docs/journeys, each at a real terminal."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.journeys import own_agent, resume, week
from tests.journeys.home import ROOT
from tests.journeys.screen import TMUX

pytestmark = pytest.mark.skipif(TMUX is None, reason="the journeys need a terminal: tmux is not installed")
PAGES: dict[str, Callable[[], str]] = {
    "week": week.write_page,
    "resume": resume.write_page,
    "own-agent": own_agent.write_page,
}
"""Each journey by the name of its page."""


def check_page(name: str) -> None:
    """Run the journey and compare it with its page."""
    expected = (ROOT / f"docs/journeys/{name}.md").read_text(encoding="utf-8")
    assert PAGES[name]() == expected, "the page differs: run python scripts/journeys.py to write it"


def test_failures_of_the_week_are_found_and_the_file_is_restored() -> None:
    check_page("week")


def test_session_that_does_not_resume_is_repaired_and_continued() -> None:
    check_page("resume")


def test_interrupted_agent_of_the_readme_continues_where_it_stopped() -> None:
    check_page("own-agent")
