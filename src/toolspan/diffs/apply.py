"""Apply a patch to a file's content, revert it, or verify that it matches. Only a line feed ends a line.

Start at `apply`, then `_apply_patch`.
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

    The final newline stays as it is in `text` unless a note line says otherwise. If the hunks omit
    the carriage returns in a CRLF file, unchanged lines keep their line endings and added lines get
    the usual one.

    Raises:
        PatchError: the hunks are malformed, or do not match `text`.
    """
    return _apply_patch(_direct_patch(hunks, forward=True), text)


def revert(hunks: Sequence[Hunk], text: str) -> str:
    """Revert the hunks in the new text and return the old text, by the same rules as `apply`.

    Raises:
        PatchError: the hunks are malformed, or do not match `text`.
    """
    return _apply_patch(_direct_patch(hunks, forward=False), text)


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
    if _fits_with_tabs_expanded(hunks, before, after):
        reason = f"The patch shows leading tabs as two spaces each; otherwise it fits. {reason}"
    return Mismatch(reason=reason)


# Applying


class _LineDifference(NamedTuple):
    """The first difference between two lists of lines."""

    position: int
    message: str


class _HunkStep(NamedTuple):
    """One hunk, with its lines in the text that it is applied to."""

    start: int
    expected: list[str]
    """The lines that must be in the text at `start`."""
    lines: tuple[str, ...]

    @property
    def end(self) -> int:
        return self.start + len(self.expected)


class _DirectedPatch(NamedTuple):
    """A patch in one direction: `before` is the text it is applied to."""

    steps: list[_HunkStep]
    removed_prefix: str
    """The prefix of lines that occur only in the text before."""
    no_newline_before: bool
    no_newline_after: bool


class _SplitText(NamedTuple):
    """The lines of a file, and how the last one ends."""

    lines: list[str]
    ends_with_newline: bool
    """True if the last line ends with a newline, or if the text is empty."""


def _direct_patch(hunks: Sequence[Hunk], *, forward: bool) -> _DirectedPatch:
    check_hunks(hunks)
    removed = REMOVED if forward else ADDED
    steps = [
        _HunkStep(
            start=at.old if forward else at.new,
            expected=[line[1:] for line in hunk.lines if line[0] in {UNCHANGED, removed}],
            lines=hunk.lines,
        )
        for hunk, at in zip(hunks, hunk_positions(hunks), strict=True)
    ]
    missing = missing_newlines(hunks)
    before, after = (missing.old, missing.new) if forward else (missing.new, missing.old)
    return _DirectedPatch(steps, removed, before, after)


def _apply_patch(patch: _DirectedPatch, text: str) -> str:
    if not patch.steps:
        return text
    source = _split_text(text)
    carriage = _check_fit(patch, source, text)
    _check_end(patch, source)
    lines = _rebuild_lines(patch, source, carriage)
    if _should_end_with_newline(patch, source):
        return "".join(f"{line}\n" for line in lines)
    return "\n".join(lines).removesuffix(carriage)


def _split_text(text: str) -> _SplitText:
    lines = text.split("\n")
    ends_with_newline = not lines[-1]
    if ends_with_newline:
        lines.pop()
    return _SplitText(lines, ends_with_newline)


def _check_fit(patch: _DirectedPatch, source: _SplitText, text: str) -> str:
    """Check that `text` contains the expected lines, and return the carriage return to append to added
    lines, if any.

    Lines are compared unchanged first, so that hunks with explicit carriage returns match exactly.
    """
    mismatch = _find_mismatch(patch.steps, source.lines)
    carriage = ""
    shows_carriage = any(line.endswith("\r") for step in patch.steps for line in step.lines)
    if mismatch and "\r\n" in text and not shows_carriage:
        mismatch = _find_mismatch(patch.steps, [line.removesuffix("\r") for line in source.lines])
        carriage = "\r" if 2 * text.count("\r\n") > text.count("\n") else ""
    if mismatch:
        raise PatchError(mismatch)
    return carriage


def _find_mismatch(steps: Sequence[_HunkStep], lines: list[str]) -> str | None:
    for number, step in enumerate(steps, 1):
        if step.start > len(lines):
            return f"Hunk {number} follows line {step.start}, but the text has {len(lines)} lines."
        actual = lines[step.start : step.start + len(step.expected)]
        if actual != step.expected:
            index, message = _first_difference(step.expected, actual)
            return f"Hunk {number} does not fit at line {step.start + index + 1}: {message}."
    return None


def _first_difference(expected: Sequence[str], actual: Sequence[str]) -> _LineDifference:
    """Return the first difference between two unequal lists of lines."""
    index = common_prefix_length(expected, actual)
    expected_line = expected[index] if index < len(expected) else None
    actual_line = actual[index] if index < len(actual) else None
    column = common_prefix_length(expected_line or "", actual_line or "")
    message = f"expected {_quote_line(expected_line, column)}, found {_quote_line(actual_line, column)}"
    return _LineDifference(index, message)


def _quote_line(line: str | None, column: int) -> str:
    """Return the line as a literal, or the part around `column` if the line is long."""
    width = 80
    if line is None:
        return "the end of the text"
    if len(line) <= width:
        return repr(line)
    start = max(0, min(column - width // 2, len(line) - width))
    return f"{line[start : start + width]!r} (characters {start + 1} to {start + width})"


def _check_end(patch: _DirectedPatch, source: _SplitText) -> None:
    """Check that the text ends with or without a newline, as the note lines require."""
    if not (patch.no_newline_before or patch.no_newline_after):
        return
    end = patch.steps[-1].end
    place = f"Hunk {len(patch.steps)} does not fit at line {end}"
    if end < len(source.lines):
        raise PatchError(f"{place}: expected the end of the text, found more lines.")
    if patch.no_newline_before and source.ends_with_newline:
        raise PatchError(f"{place}: expected no newline after it, found one.")
    if not patch.no_newline_before and not source.ends_with_newline:
        raise PatchError(f"{place}: expected a newline after it, found none.")


def _rebuild_lines(patch: _DirectedPatch, source: _SplitText, carriage: str) -> list[str]:
    lines = source.lines
    if lines and not source.ends_with_newline:
        lines = [*lines[:-1], lines[-1] + carriage]  # another line may follow it now
    out: list[str] = []
    at = 0
    for step in patch.steps:
        out += lines[at : step.start]
        at = step.start
        for line in step.lines:
            if line[0] == UNCHANGED:
                out.append(lines[at])
            elif line[0] not in {patch.removed_prefix, NOTE}:
                out.append(line[1:] + carriage)
            at += line[0] in {UNCHANGED, patch.removed_prefix}
    return out + lines[at:]


def _should_end_with_newline(patch: _DirectedPatch, source: _SplitText) -> bool:
    """Return whether the new text ends with a newline.

    Note lines take precedence. Without them, the final newline is unchanged, unless the last line
    is replaced by an equal line, which means that its newline was added or removed.
    """
    if patch.no_newline_before or patch.no_newline_after:
        return not patch.no_newline_after
    last = patch.steps[-1]
    if last.end == len(source.lines) and _repeats_last_line(last, patch.removed_prefix):
        return not source.ends_with_newline
    return source.ends_with_newline


def _repeats_last_line(step: _HunkStep, removed_prefix: str) -> bool:
    old_line = next((line for line in reversed(step.lines) if line[0] in {UNCHANGED, removed_prefix}), UNCHANGED)
    new_line = next((line for line in reversed(step.lines) if line[0] not in {NOTE, removed_prefix}), UNCHANGED)
    return UNCHANGED not in {old_line[0], new_line[0]} and old_line[1:] == new_line[1:]


# Verifying


def _mismatch_reason(hunks: Sequence[Hunk], before: str, after: str | None) -> str | None:
    try:
        patched = apply(hunks, before)
    except PatchError as error:
        return str(error)
    return None if after is None or patched == after else _describe_difference(patched, after)


def _fits_with_tabs_expanded(hunks: Sequence[Hunk], before: str, after: str | None) -> bool:
    """Return whether the patch matches when leading tabs are expanded to spaces, as some clients do."""
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
    index, message = _first_difference(after.split("\n"), patched.split("\n"))
    return f"Line {index + 1} of the patched text is not that of the text after: {message}."
