"""Texts with a patch applied, or taken back.

In: hunks and the whole text of one side. Out: the whole text of the other side. Only a line
feed ends a line. Knows nothing of files, paths or encodings. Read `_patch` first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from toolspan.diffs.hunks import ADDED, NOTE, REMOVED, UNCHANGED, hunk_positions, missing_newlines, problems
from toolspan.diffs.make import common_prefix_length
from toolspan.types.hunk import Hunk


class PatchError(ValueError):
    """The hunks are not sound, or the text is not the one they were made from."""


def apply(hunks: Sequence[Hunk], text: str) -> str:
    """The new text, made from the old one.

    A final newline that no note line speaks of stays as it is in `text`. When the hunks leave out
    the carriage returns of a CRLF text, kept lines keep their ends; added ones get the usual end.

    Raises:
        PatchError: The hunks are not sound, or `text` does not fit them.
    """
    return _apply_directed(_forward_patch(hunks), text)


def revert(hunks: Sequence[Hunk], text: str) -> str:
    """The old text, made from the new one; the rules are those of `apply`.

    Raises:
        PatchError: The hunks are not sound, or `text` does not fit them.
    """
    return _apply_directed(_reverse_patch(hunks), text)


def check_hunks(hunks: Sequence[Hunk]) -> None:
    """Refuse hunks that no text could fit.

    Raises:
        PatchError: The hunks are not sound.
    """
    hunk_problems = problems(hunks)
    if hunk_problems:
        raise PatchError(hunk_problems[0])


class LineDifference(NamedTuple):
    """Where two lists of lines part, and how."""

    position: int
    message: str


class _HunkStep(NamedTuple):
    """One hunk, seen from the text it is applied to."""

    start: int
    expected: list[str]
    """The lines the text must have from `start` on."""
    lines: tuple[str, ...]


class _DirectedPatch(NamedTuple):
    """A patch in one direction; the side it starts from is `before`."""

    steps: list[_HunkStep]
    removed_prefix: str
    """The prefix of lines that only the text before has."""
    no_newline_before: bool
    no_newline_after: bool


class _SplitText(NamedTuple):
    """A text as lines."""

    lines: list[str]
    ends_with_newline: bool
    """Whether a newline ends the last line; true of the empty text."""


def _forward_patch(hunks: Sequence[Hunk]) -> _DirectedPatch:
    check_hunks(hunks)
    starts = [at.old for at in hunk_positions(hunks)]
    missing = missing_newlines(hunks)
    return _DirectedPatch(_hunk_steps(hunks, starts, REMOVED), REMOVED, missing.old, missing.new)


def _reverse_patch(hunks: Sequence[Hunk]) -> _DirectedPatch:
    check_hunks(hunks)
    starts = [at.new for at in hunk_positions(hunks)]
    missing = missing_newlines(hunks)
    return _DirectedPatch(_hunk_steps(hunks, starts, ADDED), ADDED, missing.new, missing.old)


def _hunk_steps(hunks: Sequence[Hunk], starts: Sequence[int], removed_prefix: str) -> list[_HunkStep]:
    return [
        _HunkStep(start, [line[1:] for line in hunk.lines if line[0] in {UNCHANGED, removed_prefix}], hunk.lines)
        for hunk, start in zip(hunks, starts, strict=True)
    ]


def _apply_directed(directed_patch: _DirectedPatch, text: str) -> str:
    if not directed_patch.steps:
        return text
    source = _split_text(text)
    carriage = _check_fit(directed_patch, source, text)
    _check_end(directed_patch, source)
    lines = _rebuild_lines(directed_patch, source, carriage)
    if _should_end_with_newline(directed_patch, source):
        return "".join(f"{line}\n" for line in lines)
    return "\n".join(lines).removesuffix(carriage)


def _split_text(text: str) -> _SplitText:
    lines = text.split("\n")
    ends_with_newline = not lines[-1]
    if ends_with_newline:
        lines.pop()
    return _SplitText(lines, ends_with_newline)


def _check_fit(directed_patch: _DirectedPatch, source: _SplitText, text: str) -> str:
    """Check that the text has the expected lines; gives what ends added lines before the line feed.

    Lines are compared as they are first, so that hunks which show carriage returns stay exact.
    """
    mismatch = _find_mismatch(directed_patch.steps, source.lines)
    carriage = ""
    if mismatch and "\r\n" in text and not _shows_carriage(directed_patch.steps):
        mismatch = _find_mismatch(directed_patch.steps, [line.removesuffix("\r") for line in source.lines])
        carriage = "\r" if 2 * text.count("\r\n") > text.count("\n") else ""
    if mismatch:
        raise PatchError(mismatch)
    return carriage


def _shows_carriage(steps: Sequence[_HunkStep]) -> bool:
    return any(line.endswith("\r") for step in steps for line in step.lines)


def _find_mismatch(steps: Sequence[_HunkStep], lines: list[str]) -> str | None:
    for number, step in enumerate(steps, 1):
        if step.start > len(lines):
            return f"Hunk {number} follows line {step.start}, but the text has {len(lines)} lines."
        actual = lines[step.start : step.start + len(step.expected)]
        if actual != step.expected:
            index, message = first_difference(step.expected, actual)
            return f"Hunk {number} does not fit at line {step.start + index + 1}: {message}."
    return None


def first_difference(expected: Sequence[str], actual: Sequence[str]) -> LineDifference:
    """The first place where two different lists of lines differ."""
    index = common_prefix_length(expected, actual)
    expected_line = expected[index] if index < len(expected) else None
    actual_line = actual[index] if index < len(actual) else None
    column = common_prefix_length(expected_line or "", actual_line or "")
    return LineDifference(
        index, f"expected {_quote_line(expected_line, column)}, found {_quote_line(actual_line, column)}"
    )


def _quote_line(line: str | None, column: int) -> str:
    """The line as a literal; of a long one, the part around character `near`."""
    width = 80
    if line is None:
        return "the end of the text"
    if len(line) <= width:
        return repr(line)
    start = max(0, min(column - width // 2, len(line) - width))
    return f"{line[start : start + width]!r} (characters {start + 1} to {start + width})"


def _check_end(directed_patch: _DirectedPatch, source: _SplitText) -> None:
    """Check what note lines say about the end of the text against the text."""
    if not (directed_patch.no_newline_before or directed_patch.no_newline_after):
        return
    end = _step_end(directed_patch.steps[-1])
    place = f"Hunk {len(directed_patch.steps)} does not fit at line {end}"
    if end < len(source.lines):
        raise PatchError(f"{place}: expected the end of the text, found more lines.")
    if directed_patch.no_newline_before and source.ends_with_newline:
        raise PatchError(f"{place}: expected no newline after it, found one.")
    if not directed_patch.no_newline_before and not source.ends_with_newline:
        raise PatchError(f"{place}: expected a newline after it, found none.")


def _step_end(step: _HunkStep) -> int:
    return step.start + len(step.expected)


def _rebuild_lines(directed_patch: _DirectedPatch, source: _SplitText, carriage: str) -> list[str]:
    lines = source.lines
    if lines and not source.ends_with_newline:
        lines = [*lines[:-1], lines[-1] + carriage]  # it may become a line in the middle
    out: list[str] = []
    at = 0
    for step in directed_patch.steps:
        out += lines[at : step.start]
        at = step.start
        for line in step.lines:
            if line[0] == UNCHANGED:
                out.append(lines[at])
            elif line[0] not in {directed_patch.removed_prefix, NOTE}:
                out.append(line[1:] + carriage)
            at += line[0] in {UNCHANGED, directed_patch.removed_prefix}
    return out + lines[at:]


def _should_end_with_newline(directed_patch: _DirectedPatch, source: _SplitText) -> bool:
    """Whether the new text ends with a newline.

    Notes decide. Some clients write none: then the end stays as it was, unless the last line was
    replaced by itself, which can only mean that its newline came or went.
    """
    if directed_patch.no_newline_before or directed_patch.no_newline_after:
        return not directed_patch.no_newline_after
    last = directed_patch.steps[-1]
    if _step_end(last) == len(source.lines) and _repeats_last_line(last, directed_patch.removed_prefix):
        return not source.ends_with_newline
    return source.ends_with_newline


def _repeats_last_line(step: _HunkStep, removed_prefix: str) -> bool:
    old_line = next((line for line in reversed(step.lines) if line[0] in {UNCHANGED, removed_prefix}), UNCHANGED)
    new_line = next((line for line in reversed(step.lines) if line[0] not in {NOTE, removed_prefix}), UNCHANGED)
    return UNCHANGED not in {old_line[0], new_line[0]} and old_line[1:] == new_line[1:]


class Fits(Struct, frozen=True, tag="fits"):
    """The patch leads from the text before to the text after."""


class NoBase(Struct, frozen=True, tag="no_base"):
    """The text before is not known, so there is nothing to apply the patch to."""


class Mismatch(Struct, frozen=True, tag="mismatch"):
    """The patch does not lead from the text before to the text after."""

    reason: str


Verification = Fits | NoBase | Mismatch
"""Do hunks and a file belong together?"""

_LEADING_TABS = re.compile(r"(?:^|(?<=\n))\t+")


def verify(hunks: Sequence[Hunk], before: str | None, after: str | None) -> Verification:
    """Check a patch against the texts; with `after` unknown, only that it applies.

    A creation is often recorded without hunks: its `before` is unknown (None), not empty.
    """
    if before is None:
        return NoBase()
    reason = _mismatch_reason(hunks, before, after)
    if reason is None:
        return Fits()
    if _fits_with_tabs_expanded(hunks, before, after):
        reason = f"The patch shows leading tabs as two spaces each; otherwise it fits. {reason}"
    return Mismatch(reason=reason)


def _mismatch_reason(hunks: Sequence[Hunk], before: str, after: str | None) -> str | None:
    try:
        patched = apply(hunks, before)
    except PatchError as error:
        return str(error)
    return None if after is None or patched == after else _describe_difference(patched, after)


def _fits_with_tabs_expanded(hunks: Sequence[Hunk], before: str, after: str | None) -> bool:
    """Some clients make the patch of texts in which leading tabs are shown as spaces."""
    expanded_after = None if after is None else _expand_tabs(after)
    return _mismatch_reason(hunks, _expand_tabs(before), expanded_after) is None


def _expand_tabs(text: str) -> str:
    return _LEADING_TABS.sub(lambda tabs: "  " * len(tabs[0]), text)


def _describe_difference(patched: str, after: str) -> str:
    if patched.removesuffix("\n") == after.removesuffix("\n"):
        ends = "has none" if patched.endswith("\n") else "has one"
        return f"Only the final newline differs: the text after {ends}."
    if patched.replace("\r\n", "\n") == after.replace("\r\n", "\n"):
        return "Only line ends differ: \\r\\n on one side, \\n on the other."
    index, message = first_difference(after.split("\n"), patched.split("\n"))
    return f"Line {index + 1} of the patched text is not that of the text after: {message}."
