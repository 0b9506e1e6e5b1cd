from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.diffs.diffs import hunk, hunks_between, texts
from toolspan.diffs import Fits, Mismatch, NoBase, Verification, verify
from toolspan.types.hunk import Hunk

CHANGE = hunk("-1,2 +1,2", " a", "-b", "+B")


@given(texts, texts)
def test_a_true_patch_fits(old: str, new: str) -> None:
    hunks = hunks_between(old, new)

    assert verify(hunks, old, new) == Fits()
    assert verify(hunks, old, None) == Fits()


def test_without_the_text_before_there_is_no_base() -> None:
    assert verify([CHANGE], None, "a\nB\n") == NoBase()


def test_a_creation_recorded_without_hunks_has_no_base() -> None:
    assert verify([], None, "a\n") == NoBase()


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("a\nc\n", "a\nB\n", "Hunk 1 does not fit at line 2: expected 'b', found 'c'."),
        (
            "a\nb\nc\n",
            "a\nB\nC\n",
            "Line 3 of the patched text is not that of the text after: expected 'C', found 'c'.",
        ),
        (
            "a\nb",
            "a\nB\nc",
            "Line 3 of the patched text is not that of the text after: expected 'c', found the end of the text.",
        ),
        ("a\nb\n", "a\nB", "Only the final newline differs: the text after has none."),
        ("a\nb", "a\nB\n", "Only the final newline differs: the text after has one."),
        ("a\nb\n", "a\r\nB\r\n", "Only line ends differ: \\r\\n on one side, \\n on the other."),
    ],
)
def test_a_mismatch_shows_the_place_and_the_difference(before: str, after: str, reason: str) -> None:
    assert verify([CHANGE], before, after) == Mismatch(reason=reason)


def test_malformed_hunks_are_a_mismatch() -> None:
    assert verify([hunk("-1,2 +1,1", " a")], "a\nb\n", None) == Mismatch(
        reason="Hunk 1 promises 2 old lines, but has 1."
    )


@pytest.mark.parametrize("after", ["{\n\t\tbb\tc\n}\n", None])
def test_tabs_shown_as_spaces_are_named_as_the_reason(after: str | None) -> None:
    change = hunk("-1,3 +1,3", " {", "-  b", "+    bb\tc", " }")

    assert verify([change], "{\n\tb\n}\n", after) == Mismatch(
        reason="The patch shows leading tabs as two spaces each; otherwise it fits. "
        "Hunk 1 does not fit at line 2: expected '  b', found '\\tb'."
    )


@given(texts, texts, texts, st.none() | texts)
def test_verifying_never_raises(old: str, new: str, before: str, after: str | None) -> None:
    verdict = verify(hunks_between(old, new), before, after)

    assert isinstance(verdict, Fits | Mismatch)


def test_verification_results_survive_json() -> None:
    verdicts: list[Verification] = [Fits(), NoBase(), Mismatch(reason="no")]

    assert msgspec.json.decode(msgspec.json.encode(verdicts), type=list[Verification]) == verdicts


def test_a_patch_of_one_text_does_not_fit_another() -> None:
    hunks: tuple[Hunk, ...] = hunks_between("a\nb\n", "a\nc\n")

    assert isinstance(verify(hunks, "a\nb\n", "a\nd\n"), Mismatch)
