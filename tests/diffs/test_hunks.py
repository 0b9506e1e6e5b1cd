from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.diffs.diffs import NO_NEWLINE, hunk, hunks_between, texts
from toolspan.diffs import ChangeCount, added_removed, problems
from toolspan.types.hunk import Hunk

FIRST = hunk("-1,3 +1,4", " a", "-b", "+B", "+bb", " c")


def test_valid_hunks_have_no_problems() -> None:
    second = hunk("-10,2 +11,1", " j", "-k", NO_NEWLINE)

    assert problems([FIRST, second]) == ()


def test_no_hunks_have_no_problems() -> None:
    assert problems([]) == ()


@pytest.mark.parametrize(
    "lone", [hunk("-0,0 +1,1", "+a"), hunk("-1,0 +1,1", "+a"), hunk("-1,1 +0,0", "-a"), hunk("-1,1 +1,0", "-a")]
)
def test_empty_side_of_a_hunk_may_start_at_zero_or_one(lone: Hunk) -> None:
    assert problems([lone]) == ()


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (hunk("-1,2 +1,1", " a"), "Hunk 1 promises 2 old lines, but has 1."),
        (hunk("-1,1 +1,2", " a"), "Hunk 1 promises 2 new lines, but has 1."),
        (hunk("-1,0 +1,0"), "Hunk 1 has no lines."),
        (hunk("-0,1 +1,1", " a"), "Hunk 1 starts at old line 0, expected at least 1."),
        (hunk("-1,1 +0,1", " a"), "Hunk 1 starts at new line 0, expected at least 1."),
        (hunk("-2,1 +3,1", " a"), "Hunk 1 starts at new line 3, but its old start gives 2."),
        (
            hunk("-1,1 +1,1", " a", "b", ""),
            "Hunk 1 has an unknown kind of line 2: expected ' ', '-', '+' or '\\' first, found 'b' (such lines: 2).",
        ),
        (
            hunk("-1,1 +1,1", " a", ""),
            "Hunk 1 has an unknown kind of line 2: expected ' ', '-', '+' or '\\' first, found nothing.",
        ),
        (hunk("-1,1 +1,1", " a\nb"), "Hunk 1 has a line break inside line 1."),
        (hunk("-1,1 +1,1", NO_NEWLINE, " a"), "Hunk 1 starts with a note, expected a line before it."),
        (hunk("-7,0 +3,1", "+a"), "Hunk 1 starts at old line 7 and new line 3, which are not the same place."),
    ],
)
def test_problem_of_a_hunk_is_described_in_a_sentence(bad: Hunk, sentence: str) -> None:
    assert problems([bad]) == (sentence,)


def test_overlap_names_the_later_hunk() -> None:
    assert problems([FIRST, hunk("-3,1 +4,1", " c")]) == (
        "Hunk 2 starts at old line 3 and new line 4, but the hunk before it ends at 3 and 4: "
        "it overlaps that hunk or is out of order.",
    )


def test_hunks_out_of_order_are_a_problem() -> None:
    result = problems([hunk("-10,2 +10,1", " j", "-k"), FIRST])

    assert [problem[:6] for problem in result] == ["Hunk 2"]


def test_only_the_last_hunk_may_note_the_end_of_the_file() -> None:
    ends = hunk("-1,1 +1,1", " a", NO_NEWLINE)

    assert problems([ends, hunk("-5,1 +5,1", " e")]) == ("Hunk 1 notes the end of the file, but another hunk follows.",)


def test_start_that_contradicts_earlier_hunks_is_a_problem() -> None:
    assert problems([FIRST, hunk("-10,1 +10,1", " j")]) == (
        "Hunk 2 starts at new line 10, but its old start gives 11.",
    )


def test_added_and_removed_lines_are_counted_over_all_hunks() -> None:
    second = hunk("-10,2 +11,1", " j", "-k", NO_NEWLINE)

    assert added_removed([FIRST, second]) == ChangeCount(added=2, removed=2)


@given(texts, texts, st.integers(0, 3))
def test_hunks_made_by_difflib_are_valid(old: str, new: str, context: int) -> None:
    assert problems(hunks_between(old, new, context=context)) == ()


anything = st.builds(
    Hunk,
    old_start=st.integers(),
    old_lines=st.integers(),
    new_start=st.integers(),
    new_lines=st.integers(),
    lines=st.lists(st.text()).map(tuple),
)


@given(st.lists(anything))
def test_checking_and_counting_never_raise(hunks: list[Hunk]) -> None:
    counted = added_removed(hunks)

    assert all(problem.startswith("Hunk ") for problem in problems(hunks))
    assert counted.added + counted.removed <= sum(len(item.lines) for item in hunks)
