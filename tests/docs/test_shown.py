"""Commands that pages show work, and print what stands below them."""

from __future__ import annotations

import re
import shutil

import pytest

from tests.docs.blocks import Block, is_made, of
from tests.docs.scenes import SCENES, new_home
from tests.docs.spoken import Step, commands, ran
from tests.docs.typed import is_typed

DOTS = "…"
"""A line of a page in place of any number of lines that were printed."""
RUN = [block for block in of("console", SCENES) if not is_typed(block) and not is_made(block)]
"""The blocks that are run here."""


@pytest.mark.parametrize("block", RUN, ids=lambda block: block.name)
def test_commands_print_what_their_page_shows(block: Block) -> None:
    if "curl " in block.text and shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    with new_home() as home, SCENES[block.page](home) as stage:
        for step in commands(block.text.splitlines()):
            typed = Step(stage.here(step.code), python=False, printed="")
            code, lines = ran(typed, stage.folder, stage.environment)
            lines = stage.there("\n".join(lines)).rstrip("\n").split("\n")
            shown = step.printed.splitlines()
            assert code == 0 or (shown and code == 1), lines  # 1: there is something to tell
            if shown:
                assert timeless(lines, stage.differs) == timeless(filled(shown, lines), stage.differs)
            made = re.findall(r" -o (\S+)", typed.code)
            assert [name for name in made if not (stage.folder / name).stat().st_size] == []


@pytest.mark.parametrize("page", SCENES)
def test_a_scene_has_something_to_run(page: str) -> None:
    assert [block for block in RUN if block.page == page]


def filled(shown: list[str], printed: list[str]) -> list[str]:
    """What is shown, with what was printed in the place of each line of dots."""
    whole: list[str] = []
    for at, line in enumerate(shown):
        if line != DOTS:
            whole.append(line)
        else:
            rest = printed[len(whole) :]
            after = shown[at + 1] if at + 1 < len(shown) else None
            whole += rest[: rest.index(after) if after in rest else len(rest)]
    return whole


def timeless(lines: list[str], differs: str | None) -> list[str]:
    return [re.sub(differs, DOTS, line) for line in lines] if differs else lines
