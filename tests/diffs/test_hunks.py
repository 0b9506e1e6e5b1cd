from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.diffs.diffs import NO_NEWLINE, hunk, hunks_between, texts
from tests.requirement import requirement
from toolspan.diffs import ChangeCount, added_removed, problems
from toolspan.diffs.apply import apply, revert
from toolspan.diffs.make import make_hunks
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


LINES = st.lists(st.sampled_from(["a", "b", "c", "", "{"]), max_size=30)


def text(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


@requirement("patch.made-as-clients-do")
@pytest.mark.parametrize(
    ("old", "new", "hunks"),
    [
        ("a\n", "a\n", []),
        ("", "a\n", [(1, 0, 1, 1, "+a")]),
        ("a\n", "", [(1, 1, 1, 0, "-a")]),
        ("a", "a\n", [(1, 1, 1, 1, "-a +a")]),
        ("a\nb\n", "x\ny\nz\n", [(1, 2, 1, 3, "-a -b +x +y +z")]),
        ("1\n2\n3\n4\n5\n6\n7\n8\n9\n", "1\n2\n3\n4\nX\n6\n7\n8\n9\n",
         [(2, 7, 2, 7, " 2  3  4 -5 +X  6  7  8")]),
        # Six kept lines are one hunk, seven are two.
        ("a\n1\n2\n3\n4\n5\n6\nb\n", "A\n1\n2\n3\n4\n5\n6\nB\n",
         [(1, 8, 1, 8, "-a +A  1  2  3  4  5  6 -b +B")]),
        ("a\n1\n2\n3\n4\n5\n6\n7\nb\n", "A\n1\n2\n3\n4\n5\n6\n7\nB\n",
         [(1, 4, 1, 4, "-a +A  1  2  3"), (6, 4, 6, 4, " 5  6  7 -b +B")]),
        # Of equally short ways, the one that keeps the first of equal lines and removes first.
        ("a\na\n", "a\n", [(1, 2, 1, 1, " a -a")]),
        ("a\nb\nc\na\nb\nb\na\n", "c\nb\na\nb\na\nc\n",
         [(1, 7, 1, 6, "-a -b  c +b  a  b -b  a +c")]),
    ],
)  # fmt: skip
def test_hunks_are_those_of_the_client(old: str, new: str, hunks: list[tuple[int, int, int, int, str]]) -> None:
    assert make_hunks(old, new) == [
        Hunk(
            old_start=at, old_lines=count, new_start=new_at, new_lines=new_count,
            lines=tuple(lines[place : place + 2] for place in range(0, len(lines), 3)),
        )
        for at, count, new_at, new_count, lines in hunks
    ]  # fmt: skip


@given(old=LINES, new=LINES)
def test_hunks_lead_from_one_text_to_the_other_and_back(old: list[str], new: list[str]) -> None:
    hunks = make_hunks(text(old), text(new))

    assert problems(hunks) == ()
    assert apply(hunks, text(old)) == text(new)
    assert revert(hunks, text(new)) == text(old)


@given(old=LINES, new=LINES)
def test_no_shorter_patch_exists(old: list[str], new: list[str]) -> None:
    changed = sum(line[0] in "+-" for hunk in make_hunks(text(old), text(new)) for line in hunk.lines)

    assert changed == len(old) + len(new) - 2 * longest_common(old, new)


def longest_common(old: list[str], new: list[str]) -> int:
    row = [0] * (len(new) + 1)
    for line in old:
        above = row
        row = [0]
        for at, other in enumerate(new, 1):
            row.append(above[at - 1] + 1 if line == other else max(above[at], row[-1]))
    return row[-1]


@pytest.mark.parametrize("kind", ["one line", "every tenth line", "all lines", "shuffled", "bits"])
def test_hunks_of_large_texts_are_correct(kind: str) -> None:
    chance = random.Random(7)
    old = [f"line {number}" for number in range(50_000)]
    match kind:
        case "one line":
            new = [*old[:25_000], "new", *old[25_001:]]
        case "every tenth line":
            new = [line if number % 10 else f"new {line}" for number, line in enumerate(old)]
        case "all lines":
            new = [f"new {line}" for line in old]
        case "shuffled":
            new = chance.sample(old, len(old))
        case _:
            old = [str(chance.randrange(2)) for _ in old]
            new = [str(chance.randrange(2)) for _ in old]

    hunks = make_hunks(text(old), text(new))

    assert apply(hunks, text(old)) == text(new)
    if kind == "every tenth line":
        assert len(hunks) == 5_000
