"""What the recipes and the page on the parts show is what they print."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.blocks import ROOT
from tests.docs.spoken import COMPARED, JQ, Section, prepare, run, sections

PAGES = [(ROOT / "docs" / name).read_text(encoding="utf-8") for name in COMPARED]
SECTIONS = [one for page in PAGES for one in sections(page) if list(one.steps())]
WITH_JQ = [one for one in SECTIONS if any(step.needs_jq for step in one.steps())]


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.title)
def test_commands_and_programs_print_what_is_shown(section: Section, tmp_path: Path) -> None:
    prepare(tmp_path)
    steps = [step for step in section.steps() if not step.needs_jq]

    assert [run(step, tmp_path) for step in steps] == [step.printed for step in steps]


@pytest.mark.skipif(JQ is None, reason="jq is not installed")
@pytest.mark.parametrize("section", WITH_JQ, ids=lambda section: section.title)
def test_the_old_way_prints_what_is_shown(section: Section, tmp_path: Path) -> None:
    prepare(tmp_path)
    steps = [step for step in section.steps() if step.needs_jq or step.makes_a_file]

    assert [run(step, tmp_path) for step in steps] == [step.printed for step in steps]


@pytest.mark.parametrize("page", PAGES, ids=COMPARED)
def test_a_page_is_put_together_as_it_was_taken_apart(page: str) -> None:
    parts = [section.renewed(step.printed for step in section.steps()) for section in sections(page)]

    assert "".join(parts) == page
