"""Apply a patch to a file's content, revert it, or verify that it matches. Only a line feed ends a line.

Start at `apply`, then `_apply_hunks`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from toolspan.diffs.hunks import ADDED, NOTE, REMOVED, UNCHANGED, hunk_positions, missing_newlines, problems
from toolspan.diffs.make import common_prefix_length
from toolspan.types.hunk import Hunk

_LEADING_TABS = re.compile(r"(?:^|(?<=\n))\t+")


class PatchError(ValueError):
    """Raised if the hunks are malformed or do not match the text."""


class Fits(Struct, frozen=True, tag="fits"):
    """The result for a patch that turns the text before into the text after."""


class NoBase(Struct, frozen=True, tag="no_base"):
    """The result for a patch that cannot be checked because the text before is unknown."""


class Mismatch(Struct, frozen=True, tag="mismatch"):
    """The result for a patch that does not turn the text before into the text after."""

    reason: str


Verification = Fits | NoBase | Mismatch
"""The result of `verify`."""


def apply(hunks: Sequence[Hunk], text: str) -> str:
    """Apply the hunks to the old text and return the new text.

    The final newline is the same as in `text` unless a note line specifies otherwise. If the hunks omit the
    carriage returns in a CRLF file, unchanged lines keep their line endings and added lines get the usual one.

    Raises:
        PatchError: the hunks are malformed, or do not match `text`.
    """
    return _apply_hunks(hunks, text, forward=True)


def revert(hunks: Sequence[Hunk], text: str) -> str:
    """Revert the hunks in the new text and return the old text, by the same rules as `apply`.

    Raises:
        PatchError: the hunks are malformed, or do not match `text`.
    """
    return _apply_hunks(hunks, text, forward=False)


def check_hunks(hunks: Sequence[Hunk]) -> None:
    """Raise PatchError if the hunks are malformed and so cannot match any text."""
    hunk_problems = problems(hunks)
    if hunk_problems:
        raise PatchError(hunk_problems[0])


def verify(hunks: Sequence[Hunk], before: str | None, after: str | None) -> Verification:
    """Check a patch against both versions of a file. If `after` is None, check only that the patch applies.

    A creation is often recorded without hunks: its `before` is unknown (None), not empty.
    """
    if before is None:
        return NoBase()
    reason = _mismatch_reason(hunks, before, after)
    if reason is None:
        return Fits()
    # Some clients expand leading tabs to spaces.
    before, after = _expand_tabs(before), None if after is None else _expand_tabs(after)
    if _mismatch_reason(hunks, before, after) is None:
        reason = f"The patch shows leading tabs as two spaces each; otherwise it fits. {reason}"
    return Mismatch(reason=reason)


# Applying


class _HunkStep(NamedTuple):
    """One hunk, with its lines in the text that it is applied to."""

    start: int
    expected: list[str]
    """The lines that must be in the text at `start`."""
    lines: tuple[str, ...]


def _apply_hunks(hunks: Sequence[Hunk], text: str, *, forward: bool) -> str:
    check_hunks(hunks)
    if not hunks:
        return text
    removed = REMOVED if forward else ADDED
    steps = [
        _HunkStep(
            start=at.old if forward else at.new,
            expected=[line[1:] for line in hunk.lines if line[0] in {UNCHANGED, removed}],
            lines=hunk.lines,
        )
        for hunk, at in zip(hunks, hunk_positions(hunks), strict=True)
    ]
    lines = text.split("\n")
    ends_with_newline = not lines[-1]
    if ends_with_newline:
        lines.pop()
    # Lines are compared unchanged first, so that hunks with explicit carriage returns match exactly.
    mismatch = _find_mismatch(steps, lines)
    carriage = ""
    shows_carriage = any(line.endswith("\r") for step in steps for line in step.lines)
    if mismatch and "\r\n" in text and not shows_carriage:
        mismatch = _find_mismatch(steps, [line.removesuffix("\r") for line in lines])
        carriage = "\r" if 2 * text.count("\r\n") > text.count("\n") else ""
    if mismatch:
        raise PatchError(mismatch)
    missing = missing_newlines(hunks)
    missing_before, missing_after = (missing.old, missing.new) if forward else (missing.new, missing.old)
    end = steps[-1].start + len(steps[-1].expected)
    if missing_before or missing_after:
        place = f"Hunk {len(steps)} does not fit at line {end}"
        if end < len(lines):
            raise PatchError(f"{place}: expected the end of the text, found more lines.")
        if missing_before == ends_with_newline:
            wording = "no newline after it, found one" if missing_before else "a newline after it, found none"
            raise PatchError(f"{place}: expected {wording}.")
    new_lines = _rebuild_lines(steps, removed, lines, carriage, ends_with_newline=ends_with_newline)
    # Without note lines, the final newline is unchanged, unless the last line is replaced by an equal line, which
    # means that its newline was added or removed.
    old_line = next((line for line in reversed(steps[-1].lines) if line[0] in {UNCHANGED, removed}), UNCHANGED)
    new_line = next((line for line in reversed(steps[-1].lines) if line[0] not in {NOTE, removed}), UNCHANGED)
    repeats_last_line = UNCHANGED not in {old_line[0], new_line[0]} and old_line[1:] == new_line[1:]
    if missing_before or missing_after:
        ends_with_newline = not missing_after
    elif end == len(lines) and repeats_last_line:
        ends_with_newline = not ends_with_newline
    return (
        "".join(f"{line}\n" for line in new_lines) if ends_with_newline else "\n".join(new_lines).removesuffix(carriage)
    )


def _find_mismatch(steps: Sequence[_HunkStep], lines: list[str]) -> str | None:
    for number, step in enumerate(steps, 1):
        if step.start > len(lines):
            return f"Hunk {number} follows line {step.start}, but the text has {len(lines)} lines."
        actual = lines[step.start : step.start + len(step.expected)]
        if actual != step.expected:
            index, message = _first_difference(step.expected, actual)
            return f"Hunk {number} does not fit at line {step.start + index + 1}: {message}."
    return None


def _first_difference(expected: Sequence[str], actual: Sequence[str]) -> tuple[int, str]:
    """Return the index of the first difference between two unequal lists of lines, and a message about it."""
    index = common_prefix_length(expected, actual)
    expected_line = expected[index] if index < len(expected) else None
    actual_line = actual[index] if index < len(actual) else None
    column = common_prefix_length(expected_line or "", actual_line or "")
    return index, f"expected {_quote_line(expected_line, column)}, found {_quote_line(actual_line, column)}"


def _quote_line(line: str | None, column: int) -> str:
    """Return the line as a literal, or the part around `column` if the line is long."""
    width = 80
    if line is None:
        return "the end of the text"
    if len(line) <= width:
        return repr(line)
    start = max(0, min(column - width // 2, len(line) - width))
    return f"{line[start : start + width]!r} (characters {start + 1} to {start + width})"


def _rebuild_lines(
    steps: Sequence[_HunkStep], removed: str, lines: list[str], carriage: str, *, ends_with_newline: bool
) -> list[str]:
    if lines and not ends_with_newline:
        lines = [*lines[:-1], lines[-1] + carriage]  # another line may follow it now
    out: list[str] = []
    at = 0
    for step in steps:
        out += lines[at : step.start]
        at = step.start
        for line in step.lines:
            if line[0] == UNCHANGED:
                out.append(lines[at])
            elif line[0] not in {removed, NOTE}:
                out.append(line[1:] + carriage)
            at += line[0] in {UNCHANGED, removed}
    return out + lines[at:]


# Verifying


def _mismatch_reason(hunks: Sequence[Hunk], before: str, after: str | None) -> str | None:
    try:
        patched = apply(hunks, before)
    except PatchError as error:
        return str(error)
    if after is None or patched == after:
        return None
    if patched.removesuffix("\n") == after.removesuffix("\n"):
        ends = "has none" if patched.endswith("\n") else "has one"
        return f"Only the final newline differs: the text after {ends}."
    if patched.replace("\r\n", "\n") == after.replace("\r\n", "\n"):
        return "Only line ends differ: \\r\\n on one side, \\n on the other."
    index, message = _first_difference(after.split("\n"), patched.split("\n"))
    return f"Line {index + 1} of the patched text is not that of the text after: {message}."


def _expand_tabs(text: str) -> str:
    return _LEADING_TABS.sub(lambda tabs: "  " * len(tabs[0]), text)
