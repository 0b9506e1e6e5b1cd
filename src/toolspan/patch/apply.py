"""Texts with a patch applied, or taken back.

In: hunks and the whole text of one side. Out: the whole text of the other side. Only a line
feed ends a line. Knows nothing of files, paths or encodings. Read `_patch` first.
"""

from collections.abc import Sequence
from typing import NamedTuple

from toolspan.model.hunk import Hunk
from toolspan.patch.hunks import ADDED, KEPT, NOTE, REMOVED, bare_sides, positions, problems
from toolspan.patch.make import common_start


class PatchError(ValueError):
    """The hunks are not sound, or the text is not the one they were made from."""


def apply(hunks: Sequence[Hunk], text: str) -> str:
    """The new text, made from the old one.

    A final newline that no note line speaks of stays as it is in `text`. When the hunks leave out
    the carriage returns of a CRLF text, kept lines keep their ends; added ones get the usual end.

    Raises:
        PatchError: The hunks are not sound, or `text` does not fit them.
    """
    return _patch(_forwards(hunks), text)


def revert(hunks: Sequence[Hunk], text: str) -> str:
    """The old text, made from the new one; the rules are those of `apply`.

    Raises:
        PatchError: The hunks are not sound, or `text` does not fit them.
    """
    return _patch(_backwards(hunks), text)


def check(hunks: Sequence[Hunk]) -> None:
    """Refuse hunks that no text could fit.

    Raises:
        PatchError: The hunks are not sound.
    """
    found = problems(hunks)
    if found:
        raise PatchError(found[0])


class Difference(NamedTuple):
    """Where two lists of lines part, and how."""

    at: int
    words: str


class _Step(NamedTuple):
    """One hunk, seen from the text it is applied to."""

    start: int
    before: list[str]
    """The lines the text must have from `start` on."""
    lines: tuple[str, ...]


class _Recipe(NamedTuple):
    """A patch in one direction; the side it starts from is `before`."""

    steps: list[_Step]
    leaves: str
    """The prefix of lines that only the text before has."""
    bare_before: bool
    bare_after: bool


class _Text(NamedTuple):
    """A text as lines."""

    lines: list[str]
    closed: bool
    """Whether a newline ends the last line; true of the empty text."""


def _forwards(hunks: Sequence[Hunk]) -> _Recipe:
    check(hunks)
    starts = [at.old for at in positions(hunks)]
    bare = bare_sides(hunks)
    return _Recipe(_steps(hunks, starts, REMOVED), REMOVED, bare.old, bare.new)


def _backwards(hunks: Sequence[Hunk]) -> _Recipe:
    check(hunks)
    starts = [at.new for at in positions(hunks)]
    bare = bare_sides(hunks)
    return _Recipe(_steps(hunks, starts, ADDED), ADDED, bare.new, bare.old)


def _steps(hunks: Sequence[Hunk], starts: Sequence[int], leaves: str) -> list[_Step]:
    return [
        _Step(start, [line[1:] for line in hunk.lines if line[0] in {KEPT, leaves}], hunk.lines)
        for hunk, start in zip(hunks, starts, strict=True)
    ]


def _patch(recipe: _Recipe, text: str) -> str:
    if not recipe.steps:
        return text
    source = _split(text)
    carriage = _fit(recipe, source, text)
    _check_end(recipe, source)
    lines = _rebuild(recipe, source, carriage)
    if _closes(recipe, source):
        return "".join(f"{line}\n" for line in lines)
    return "\n".join(lines).removesuffix(carriage)


def _split(text: str) -> _Text:
    lines = text.split("\n")
    closed = not lines[-1]
    if closed:
        lines.pop()
    return _Text(lines, closed)


def _fit(recipe: _Recipe, source: _Text, text: str) -> str:
    """Check that the text has the expected lines; gives what ends added lines before the line feed.

    Lines are compared as they are first, so that hunks which show carriage returns stay exact.
    """
    misfit = _misfit(recipe.steps, source.lines)
    carriage = ""
    if misfit and "\r\n" in text and not _shows_carriage(recipe.steps):
        misfit = _misfit(recipe.steps, [line.removesuffix("\r") for line in source.lines])
        carriage = "\r" if 2 * text.count("\r\n") > text.count("\n") else ""
    if misfit:
        raise PatchError(misfit)
    return carriage


def _shows_carriage(steps: Sequence[_Step]) -> bool:
    return any(line.endswith("\r") for step in steps for line in step.lines)


def _misfit(steps: Sequence[_Step], lines: list[str]) -> str | None:
    for number, step in enumerate(steps, 1):
        if step.start > len(lines):
            return f"Hunk {number} follows line {step.start}, but the text has {len(lines)} lines."
        found = lines[step.start : step.start + len(step.before)]
        if found != step.before:
            same, words = difference(step.before, found)
            return f"Hunk {number} does not fit at line {step.start + same + 1}: {words}."
    return None


def difference(expected: Sequence[str], found: Sequence[str]) -> Difference:
    """The first place where two different lists of lines differ."""
    at = common_start(expected, found)
    one = expected[at] if at < len(expected) else None
    other = found[at] if at < len(found) else None
    near = common_start(one or "", other or "")
    return Difference(at, f"expected {_excerpt(one, near)}, found {_excerpt(other, near)}")


def _excerpt(line: str | None, near: int) -> str:
    """The line as a literal; of a long one, the part around character `near`."""
    width = 80
    if line is None:
        return "the end of the text"
    if len(line) <= width:
        return repr(line)
    start = max(0, min(near - width // 2, len(line) - width))
    return f"{line[start : start + width]!r} (characters {start + 1} to {start + width})"


def _check_end(recipe: _Recipe, source: _Text) -> None:
    """Check what note lines say about the end of the text against the text."""
    if not (recipe.bare_before or recipe.bare_after):
        return
    end = _end(recipe.steps[-1])
    place = f"Hunk {len(recipe.steps)} does not fit at line {end}"
    if end < len(source.lines):
        raise PatchError(f"{place}: expected the end of the text, found more lines.")
    if recipe.bare_before and source.closed:
        raise PatchError(f"{place}: expected no newline after it, found one.")
    if not recipe.bare_before and not source.closed:
        raise PatchError(f"{place}: expected a newline after it, found none.")


def _end(step: _Step) -> int:
    return step.start + len(step.before)


def _rebuild(recipe: _Recipe, source: _Text, carriage: str) -> list[str]:
    lines = source.lines
    if lines and not source.closed:
        lines = [*lines[:-1], lines[-1] + carriage]  # it may become a line in the middle
    out: list[str] = []
    at = 0
    for step in recipe.steps:
        out += lines[at : step.start]
        at = step.start
        for line in step.lines:
            if line[0] == KEPT:
                out.append(lines[at])
            elif line[0] not in {recipe.leaves, NOTE}:
                out.append(line[1:] + carriage)
            at += line[0] in {KEPT, recipe.leaves}
    return out + lines[at:]


def _closes(recipe: _Recipe, source: _Text) -> bool:
    """Whether the new text ends with a newline.

    Notes decide. Some clients write none: then the end stays as it was, unless the last line was
    replaced by itself, which can only mean that its newline came or went.
    """
    if recipe.bare_before or recipe.bare_after:
        return not recipe.bare_after
    last = recipe.steps[-1]
    if _end(last) == len(source.lines) and _repeats_last_line(last, recipe.leaves):
        return not source.closed
    return source.closed


def _repeats_last_line(step: _Step, leaves: str) -> bool:
    left = next((line for line in reversed(step.lines) if line[0] in {KEPT, leaves}), KEPT)
    came = next((line for line in reversed(step.lines) if line[0] not in {NOTE, leaves}), KEPT)
    return KEPT not in {left[0], came[0]} and left[1:] == came[1:]
