"""The three journeys of docs/journeys, each at a real terminal."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.journeys import own_agent, resume, week
from tests.journeys.screen import TMUX
from tests.journeys.world import ROOT
from tests.requirement import requirement

pytestmark = pytest.mark.skipif(
    TMUX is None, reason="tmux is not installed: the journeys need a terminal to take place in"
)
PAGES: dict[str, Callable[[], str]] = {"week": week.take, "resume": resume.take, "own-agent": own_agent.take}
"""Each journey by the name of its page."""


def taken(name: str) -> None:
    """Run the journey and compare it with its page."""
    told = (ROOT / f"docs/journeys/{name}.md").read_text(encoding="utf-8")
    assert PAGES[name]() == told, "it went otherwise: python scripts/journeys.py writes it anew"


@requirement("journey.week")
def test_failures_of_the_week_are_found_and_the_file_is_restored() -> None:
    taken("week")


@requirement("journey.resume")
def test_session_that_does_not_resume_is_repaired_and_continued() -> None:
    taken("resume")


@requirement("journey.own-agent")
def test_interrupted_agent_of_the_readme_continues_where_it_stopped() -> None:
    taken("own-agent")
