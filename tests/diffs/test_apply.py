from __future__ import annotations

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.diffs.diffs import NO_NEWLINE, hunk, hunks_between, texts
from toolspan.diffs import Fits, Mismatch, NoBase, PatchError, Verification, apply, revert, verify
from toolspan.types.hunk import Hunk


@given(texts, texts, st.integers(0, 3))
def test_patch_applies_and_reverts(old: str, new: str, context: int) -> None:
    hunks = hunks_between(old, new, context=context)

    assert apply(hunks, old) == new
    assert revert(hunks, new) == old


@given(texts, texts)
def test_final_newline_is_unchanged_without_notes(old: str, new: str) -> None:
    assume(old and new)
    assume(old.endswith("\n") == new.endswith("\n"))
    hunks = hunks_between(old, new, notes=False)

    assert apply(hunks, old) == new
    assert revert(hunks, new) == old


@given(texts)
def test_last_line_replaced_by_itself_gains_or_loses_its_newline_without_notes(text: str) -> None:
    assume(text.removesuffix("\n") and not text.endswith("\n\n"))
    open_end = text.removesuffix("\n")
    hunks = hunks_between(open_end, open_end + "\n", notes=False)

    assert apply(hunks, open_end) == open_end + "\n"
    assert revert(hunks, open_end + "\n") == open_end


@given(texts, texts)
def test_hunks_without_carriage_returns_fit_a_crlf_text(old: str, new: str) -> None:
    old, new = old.replace("\r", ""), new.replace("\r", "")
    hunks = hunks_between(old, new)
    assume(all(item.old_lines and item.new_lines for item in hunks))
    old_crlf, new_crlf = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
    assume("\r" in old_crlf and "\r" in new_crlf)

    assert apply(hunks, old_crlf) == new_crlf
    assert revert(hunks, new_crlf) == old_crlf


def test_mixed_line_ends_are_kept_and_added_lines_get_the_most_common() -> None:
    change = hunk("-1,4 +1,4", " a", "-b", "+B", " c", " d")

    assert apply([change], "a\r\nb\r\nc\nd\r\n") == "a\r\nB\r\nc\nd\r\n"


def test_hunks_with_carriage_returns_are_exact() -> None:
    change = hunk("-1,2 +1,2", " a\r", "-b\r", "+b")

    assert apply([change], "a\r\nb\r\n") == "a\r\nb\n"
    with pytest.raises(PatchError, match=r"expected 'b\\r', found 'b'"):
        apply([change], "a\r\nb\n")


def test_line_added_below_an_unterminated_crlf_line_terminates_it() -> None:
    change = hunk("-1,2 +1,3", " a", " b", "+c")

    assert apply([change], "a\r\nb") == "a\r\nb\r\nc"


@pytest.mark.parametrize("start", ["0", "1"])
def test_empty_side_may_start_at_zero_or_one(start: str) -> None:
    creation = hunk(f"-{start},0 +1,2", "+a", "+b")
    removal = hunk(f"-1,2 +{start},0", "-a", "-b")

    assert apply([creation], "") == "a\nb\n"
    assert revert([creation], "a\nb\n") == ""
    assert apply([removal], "a\nb\n") == ""
    assert revert([removal], "") == "a\nb\n"


@pytest.mark.parametrize("text", ["", "a", "a\n", "\r\n"])
def test_no_hunks_change_nothing(text: str) -> None:
    assert apply([], text) == text
    assert revert([], text) == text


@pytest.mark.parametrize("old_start", [2, 3])
def test_insertion_without_context_is_placed_by_its_new_start(old_start: int) -> None:
    insertion = hunk(f"-{old_start},0 +3,1", "+x")

    assert apply([insertion], "a\nb\nc\n") == "a\nb\nx\nc\n"


@pytest.mark.parametrize(
    "lines",
    [
        (" a", "+x", " b", "-c", NO_NEWLINE, "+d", NO_NEWLINE),
        (" a", "+x", " b", NO_NEWLINE, "-c", "+d", NO_NEWLINE),  # as older jsdiff puts it
    ],
)
def test_note_on_an_earlier_line_refers_to_the_old_end(lines: tuple[str, ...]) -> None:
    change = hunk("-1,3 +1,4", *lines)

    assert apply([change], "a\nb\nc") == "a\nx\nb\nd"
    assert revert([change], "a\nx\nb\nd") == "a\nb\nc"


CHANGE = hunk("-2,2 +2,2", " b", "-c", "+C")


@pytest.mark.parametrize(
    ("hunks", "text", "message"),
    [
        ([CHANGE], "a\nb\nd\n", "Hunk 1 does not fit at line 3: expected 'c', found 'd'."),
        ([CHANGE], "a\nb", "Hunk 1 does not fit at line 3: expected 'c', found the end of the text."),
        ([CHANGE], "", "Hunk 1 follows line 1, but the text has 0 lines."),
        ([CHANGE, hunk("-9,1 +9,0", "-i")], "a\nb\nc\n", "Hunk 2 follows line 8, but the text has 3 lines."),
        (
            [hunk("-1,1 +1,1", "-a", NO_NEWLINE, "+b")],
            "a\n",
            "Hunk 1 does not fit at line 1: expected no newline after it, found one.",
        ),
        (
            [hunk("-1,1 +1,1", "-a", "+b", NO_NEWLINE)],
            "a",
            "Hunk 1 does not fit at line 1: expected a newline after it, found none.",
        ),
        (
            [hunk("-1,1 +1,1", "-a", "+b", NO_NEWLINE)],
            "a\nc\n",
            "Hunk 1 does not fit at line 1: expected the end of the text, found more lines.",
        ),
        ([hunk("-1,2 +1,1", "-a", "+b")], "a\n", "Hunk 1 promises 2 old lines, but has 1."),
    ],
)
def test_text_that_does_not_fit_is_refused(hunks: list[Hunk], text: str, message: str) -> None:
    with pytest.raises(PatchError) as refused:
        apply(hunks, text)

    assert str(refused.value) == message


def test_reverting_the_old_text_is_refused() -> None:
    with pytest.raises(PatchError) as refused:
        revert([CHANGE], "a\nb\nc\n")

    assert str(refused.value) == "Hunk 1 does not fit at line 3: expected 'C', found 'c'."


def test_error_shows_the_differing_part_of_a_long_line() -> None:
    change = hunk("-1,1 +1,0", "-" + "x" * 5_000 + "y" + "z" * 5_000)

    with pytest.raises(PatchError, match=r"expected 'x{40}yz{39}' .*, found 'x{40}z{40}' "):
        apply([change], "x" * 5_000 + "z" * 5_001 + "\n")


def test_long_file_with_a_change_on_every_tenth_line_is_patched() -> None:
    old = [f"line {n}" for n in range(50_000)]
    new = [line.upper() if n % 10 == 5 else line for n, line in enumerate(old)]
    hunks = [
        hunk(f"-{n},3 +{n},3", " " + old[n - 1], "-" + old[n], "+" + new[n], " " + old[n + 1])
        for n in range(5, 50_000, 10)
    ]

    assert apply(hunks, "\n".join(old)) == "\n".join(new)
    assert revert(hunks, "\n".join(new)) == "\n".join(old)


REPLACEMENT = hunk("-1,2 +1,2", " a", "-b", "+B")


@given(texts, texts)
def test_correct_patch_fits(old: str, new: str) -> None:
    hunks = hunks_between(old, new)

    assert verify(hunks, old, new) == Fits()
    assert verify(hunks, old, None) == Fits()


def test_patch_without_the_old_text_has_no_base() -> None:
    assert verify([REPLACEMENT], None, "a\nB\n") == NoBase()


def test_creation_without_hunks_has_no_base() -> None:
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
def test_mismatch_shows_the_line_and_the_difference(before: str, after: str, reason: str) -> None:
    assert verify([REPLACEMENT], before, after) == Mismatch(reason=reason)


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


def test_patch_of_one_text_does_not_fit_another() -> None:
    hunks: tuple[Hunk, ...] = hunks_between("a\nb\n", "a\nc\n")

    assert isinstance(verify(hunks, "a\nb\n", "a\nd\n"), Mismatch)
