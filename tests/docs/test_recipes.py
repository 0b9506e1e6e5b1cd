"""What the recipes show is what they print."""

from pathlib import Path

import pytest

from tests.docs.spoken import JQ, ROOT, Section, prepare, run, sections

PAGE = (ROOT / "docs/recipes.md").read_text(encoding="utf-8")
SECTIONS = [section for section in sections(PAGE) if list(section.steps())]
WITH_JQ = [one for one in SECTIONS if any(step.needs_jq for step in one.steps())]


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.title)
def test_commands_and_programs_of_a_recipe_print_what_is_shown(
    section: Section, tmp_path: Path
) -> None:
    prepare(tmp_path)
    steps = [step for step in section.steps() if not step.needs_jq]

    assert [run(step, tmp_path) for step in steps] == [step.printed for step in steps]


@pytest.mark.skipif(JQ is None, reason="jq is not installed")
@pytest.mark.parametrize("section", WITH_JQ, ids=lambda section: section.title)
def test_the_old_way_of_a_recipe_prints_what_is_shown(section: Section, tmp_path: Path) -> None:
    prepare(tmp_path)
    steps = [step for step in section.steps() if step.needs_jq or step.makes_a_file]

    assert [run(step, tmp_path) for step in steps] == [step.printed for step in steps]


def test_a_page_is_put_together_as_it_was_taken_apart() -> None:
    renewed = [
        section.renewed(step.printed for step in section.steps()) for section in sections(PAGE)
    ]

    assert "".join(renewed) == PAGE
