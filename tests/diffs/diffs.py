"""Hunks for tests: written by hand, or made by difflib from two texts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher

from hypothesis import strategies as st

from toolspan.diffs.codex_patch import AddFile, DeleteFile, FileSection, UpdateFile
from toolspan.types.hunk import Hunk

NO_NEWLINE = "\\ No newline at end of file"

# Few different lines, so that texts share some; only the line feed may end one.
lines = st.sampled_from(["", "a", "b", "c", "\td", " e", "f\r", "\r", "g\u2028h", "i\x0cj", "k\x85", "-l", "\\ m"])
texts = st.builds(
    lambda body, last: "".join(f"{line}\n" for line in body) + last,
    st.lists(lines, max_size=20),
    st.one_of(st.just(""), lines),
)


def hunk(span: str, *lines: str) -> Hunk:
    """Build a hunk from the middle of its `@@ -1,3 +1,4 @@` line and its lines."""
    numbers = re.fullmatch(r"-(\d+),(\d+) \+(\d+),(\d+)", span)
    assert numbers is not None, span
    old_start, old_lines, new_start, new_lines = map(int, numbers.groups())
    return Hunk(old_start=old_start, old_lines=old_lines, new_start=new_start, new_lines=new_lines, lines=lines)


def hunks_between(old: str, new: str, *, context: int = 3, notes: bool = True) -> tuple[Hunk, ...]:
    """Return the hunks a client would write for this change; some clients write no `notes`."""
    before, after = split(old), split(new)
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    groups = matcher.get_grouped_opcodes(context)
    return tuple(one_hunk(group, before, after, notes=notes) for group in groups)


def split(text: str) -> list[str]:
    """Split into lines with their ends; unlike `splitlines`, only at line feeds."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def one_hunk(group: list[tuple[str, int, int, int, int]], before: list[str], after: list[str], *, notes: bool) -> Hunk:
    (_, old, _, new, _), (_, _, old_end, _, new_end) = group[0], group[-1]
    items = [line for step in group for line in prefixed(step, before, after)]
    displayed = (part for line in items for part in rendered(line, notes=notes))
    return Hunk(
        old_start=old + (old_end > old),
        old_lines=old_end - old,
        new_start=new + (new_end > new),
        new_lines=new_end - new,
        lines=tuple(displayed),
    )


def prefixed(step: tuple[str, int, int, int, int], before: list[str], after: list[str]) -> Iterator[str]:
    tag, old, old_end, new, new_end = step
    if tag == "equal":
        yield from (" " + line for line in before[old:old_end])
    else:
        yield from ("-" + line for line in before[old:old_end])
        yield from ("+" + line for line in after[new:new_end])


def rendered(line: str, *, notes: bool) -> tuple[str, ...]:
    if line.endswith("\n"):
        return (line[:-1],)
    return (line, NO_NEWLINE) if notes else (line,)


def format_patch(sections: Iterable[FileSection]) -> str:
    """Format sections as a patch. This is the inverse of `parse_patch`."""
    lines = ["*** Begin Patch"]
    for section in sections:
        match section:
            case AddFile():
                lines += [f"*** Add File: {section.path}", *("+" + line for line in section.lines)]
            case DeleteFile():
                lines.append(f"*** Delete File: {section.path}")
            case UpdateFile():
                lines.append(f"*** Update File: {section.path}")
                if section.move_to is not None:
                    lines.append(f"*** Move to: {section.move_to}")
                for chunk in section.chunks:
                    lines += [f"@@ {name}" for name in chunk.contexts] or ["@@"]
                    lines += chunk.lines
                    if chunk.at_end:
                        lines.append("*** End of File")
    return "\n".join([*lines, "*** End Patch", ""])
