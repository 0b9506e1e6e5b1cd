"""What pages show of a terminal is what somebody sees there."""

from __future__ import annotations

import pytest

from tests.docs.blocks import Block, all_blocks
from tests.docs.test_shown import filled
from tests.docs.typed import TYPED, is_typed
from tests.journeys.screen import TMUX
from tests.journeys.world import world

RUN = [block for block in all_blocks() if is_typed(block)]
"""The blocks that are run here."""


@pytest.mark.skipif(TMUX is None, reason="tmux is not installed")
@pytest.mark.parametrize("block", RUN, ids=lambda block: block.name)
def test_somebody_sees_what_the_page_shows(block: Block) -> None:
    scene, story = TYPED[block.page, block.first]
    with world("project", programs={"claude": "echo '2.1.325 (Claude Code)'"}) as place:
        scene(place)
        for told, seen in story(place, block):
            lines = seen.splitlines()
            assert lines == filled(told.splitlines(), lines)


def test_every_story_is_on_a_page() -> None:
    assert len(RUN) == len(TYPED)
