"""What a docstring tells a model: the first paragraph, and the parameters of its `Args:` section.

In: a docstring in Google style. Out: texts. What is no such section is left alone.
"""

import inspect
import re
from typing import NamedTuple

_ENTRY = re.compile(r"\*{0,2}(?P<name>\w+)\s*(?:\([^)]*\))?\s*:\s*(?P<text>.*)", re.DOTALL)
_ARGS = ("Args:", "Arguments:", "Parameters:")


class Docstring(NamedTuple):
    """The parts of a docstring that a tool is offered with."""

    summary: str
    parameters: dict[str, str]


def read_docstring(text: str | None) -> Docstring:
    """Take a docstring apart."""
    if not text:
        return Docstring("", {})
    lines = inspect.cleandoc(text).splitlines()
    return Docstring(_summary(lines), _parameters(lines))


def _summary(lines: list[str]) -> str:
    taken: list[str] = []
    for line in lines:
        if not line.strip() or line in _ARGS:
            break
        taken.append(line.strip())
    return " ".join(taken)


def _parameters(lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in _entries(_section(lines)):
        match = _ENTRY.fullmatch(entry)
        if match is not None:
            found[match["name"]] = " ".join(match["text"].split())
    return found


def _section(lines: list[str]) -> list[str]:
    """The indented lines below the heading of the parameters."""
    heading = next((at for at, line in enumerate(lines) if line in _ARGS), None)
    if heading is None:
        return []
    section: list[str] = []
    for line in lines[heading + 1 :]:
        if line and not line[0].isspace():
            break
        section.append(line)
    return section


def _entries(section: list[str]) -> list[str]:
    """One text per parameter: a line at the section's own indentation begins the next one."""
    filled = [line for line in section if line.strip()]
    if not filled:
        return []
    indent = len(filled[0]) - len(filled[0].lstrip())
    entries: list[str] = []
    for line in filled:
        if entries and len(line) - len(line.lstrip()) > indent:
            entries[-1] += "\n" + line.strip()
        else:
            entries.append(line.strip())
    return entries
