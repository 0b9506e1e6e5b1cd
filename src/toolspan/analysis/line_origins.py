"""Which call wrote each line of a file. Start at `trace_lines`.

The contents of the file before and after each change are compared one after another. A line keeps its origin while it
is unchanged; a line that a call added has that call as its origin; a line that appeared between two calls has none.
Where a content is not known, lines are matched by their text with those that the calls in between added.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from difflib import SequenceMatcher
from typing import Literal

from msgspec import Struct

from toolspan.analysis.file_history.changes import FileChange
from toolspan.analysis.file_history.content import (
    Absent,
    AppendEffect,
    EditEffect,
    MoveEffect,
    PatchEffect,
    RecoveredContent,
    WriteEffect,
)

Certainty = Literal["certain", "likely"]
_MIN_MATCHED_CHARS = 12
"""Lines with fewer characters occur in many places, so that their text does not show who wrote them."""
_MAX_COMPARED = 20_000
"""Files with more lines are compared only where their beginning and end differ."""


class LineOrigin(Struct, frozen=True):
    """The change that wrote a line."""

    change: FileChange
    certainty: Certainty
    """`likely` if the content at the change is not certain, the line was reformatted, or only its text matches."""


Origins = list[LineOrigin | None]


def split_lines(text: str) -> list[str]:
    """Return the lines of a text without their ends."""
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n") if text else []


def trace_lines(
    final: Sequence[str],
    changes: Sequence[FileChange],
    content_at: Callable[[str, Literal["before", "after"]], RecoveredContent],
) -> Origins:
    """Return the origin of each line of the final content, None for those that no recorded call wrote.

    `changes` are those of the file, in order, and `content_at` returns its content before or after a call.
    """
    lines: list[str] = []
    origins: Origins = []
    unplaced: list[FileChange] = []
    for call, own in _group_by_call(changes):
        before, after = content_at(call, "before"), content_at(call, "after")
        if _text_of(before) is not None:
            lines, origins = _advance(lines, origins, split_lines(_text_of(before) or ""), None, unplaced)
            unplaced = []
        after_text = _text_of(after)
        if after_text is None or (_text_of(before) is None and not isinstance(own[-1].effect, WriteEffect)):
            unplaced += own
            if after_text is not None:  # the whole file is known, but not which of its lines are new
                lines, origins = _advance(lines, origins, split_lines(after_text), None, unplaced)
                unplaced = []
            continue
        is_certain = all(
            item.confidence in ("exact", "derived") for item in (before, after) if item.content is not None
        )
        origin = LineOrigin(own[-1], "certain" if is_certain else "likely")
        lines, origins = _advance(lines, origins, split_lines(after_text), origin, ())
    _, origins = _advance(lines, origins, final, None, unplaced)
    return origins


def _group_by_call(changes: Sequence[FileChange]) -> Iterable[tuple[str, list[FileChange]]]:
    calls: dict[str, list[FileChange]] = {}
    for change in changes:
        calls.setdefault(change.call, []).append(change)
    return calls.items()


def _text_of(content: RecoveredContent) -> str | None:
    """Return the known text; that of a file that does not exist is empty."""
    return "" if isinstance(content.content, Absent) else content.content


def _advance(
    old: Sequence[str],
    origins: Origins,
    new: Sequence[str],
    origin: LineOrigin | None,
    unplaced: Sequence[FileChange],
) -> tuple[list[str], Origins]:
    """Return the new lines with their origins: unchanged lines keep theirs, and the others have `origin`.

    Without an origin, a reformatted line keeps its origin, and a line that an unplaced change added has that one.
    """
    result: Origins = [origin] * len(new)
    for tag, start, end, new_start, new_end in _compare(old, new):
        if tag == "equal":
            result[new_start:new_end] = origins[start:end]
        elif tag == "replace" and origin is None:
            _match_reformatted(old[start:end], origins[start:end], new[new_start:new_end], result, new_start)
    if origin is None and unplaced:
        _match_texts(new, result, unplaced)
    return list(new), result


def _compare(old: Sequence[str], new: Sequence[str]) -> Iterable[tuple[str, int, int, int, int]]:
    """Yield the operations that turn the old lines into the new ones."""
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    yield "equal", 0, head, 0, head
    middle, new_middle = old[head : len(old) - tail], new[head : len(new) - tail]
    if max(len(middle), len(new_middle)) > _MAX_COMPARED:
        yield "replace", head, len(old) - tail, head, len(new) - tail
    else:
        for tag, start, end, new_start, new_end in SequenceMatcher(
            None, middle, new_middle, autojunk=False
        ).get_opcodes():
            yield tag, start + head, end + head, new_start + head, new_end + head
    yield "equal", len(old) - tail, len(old), len(new) - tail, len(new)


def _match_reformatted(old: Sequence[str], origins: Origins, new: Sequence[str], result: Origins, offset: int) -> None:
    """Let lines that differ only in white space, quotes or a final comma keep their origins."""
    keys, new_keys = [_plain(line) for line in old], [_plain(line) for line in new]
    for tag, start, end, new_start, _ in SequenceMatcher(None, keys, new_keys, autojunk=False).get_opcodes():
        for n in range(end - start) if tag == "equal" else ():
            origin = origins[start + n]
            if origin is not None and keys[start + n]:
                result[offset + new_start + n] = LineOrigin(origin.change, "likely")


def _plain(line: str) -> str:
    return "".join(line.split()).replace('"', "'").rstrip(",;")


def _match_texts(new: Sequence[str], result: Origins, changes: Sequence[FileChange]) -> None:
    """Give lines without an origin that of the last change that added the same, distinctive text."""
    counts = Counter(new)
    added = {line: change for change in changes for line in _added_lines(change)}
    for n, line in enumerate(new):
        if result[n] is None and len(line.strip()) >= _MIN_MATCHED_CHARS and counts[line] == 1 and line in added:
            result[n] = LineOrigin(added[line], "likely")


def _added_lines(change: FileChange) -> Iterable[str]:
    for hunk in change.hunks:
        yield from (line[1:] for line in hunk.lines if line.startswith("+"))
    effect = change.effect.change if isinstance(change.effect, MoveEffect) else change.effect
    match effect:
        case WriteEffect() | AppendEffect():
            yield from split_lines(effect.content)
        case EditEffect():
            for edit in effect.edits:
                old = set(split_lines(edit.old_string or ""))
                yield from (line for line in split_lines(edit.new_string or "") if line not in old)
        case PatchEffect():
            for piece in effect.section.chunks:
                yield from (line[1:] for line in piece.lines if line.startswith("+"))
        case _:
            return
