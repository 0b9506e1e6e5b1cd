"""What is promised of a measurement and what came of it: the same words for every benchmark.

In: targets with their numbers. Out: lines of Markdown, a file of JSON. Measures nothing.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Target:
    """One promise of the design, and what came of it."""

    what: str
    limit: str
    measured: str
    met: bool | None
    """None: not measured, because a contestant was left out."""


def ratio_target(what: str, limit: float, pair: tuple[float | None, float | None], *, at_most: bool) -> Target:
    """A target about first / second."""
    first, second = pair
    sign = "≤" if at_most else "≥"
    if first is None or second is None:
        return Target(what, f"{sign} {limit:g} ×", "not measured", None)
    ratio = first / second
    met = ratio <= limit if at_most else ratio >= limit
    return Target(what, f"{sign} {limit:g} ×", f"{ratio:.2f} ×", met)


def missed(targets: Iterable[Target]) -> bool:
    """Whether a promise was broken; what was not measured does not count."""
    return any(target.met is False for target in targets)


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """A Markdown table, line by line."""
    yield "| " + " | ".join(header) + " |"
    yield "|" + "---|" * len(header)
    for row in rows:
        yield "| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |"


def target_table(targets: Iterable[Target]) -> Iterator[str]:
    """Promises kept and broken."""
    words = {True: "yes", False: "**no**", None: "not measured"}
    header = ["target", "limit", "measured", "met"]
    return table(header, ([t.what, t.limit, t.measured, words[t.met]] for t in targets))


def machine() -> str:
    """What it ran on, in one line."""
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"


def write_json(said: Mapping[str, object], out: Path | None) -> None:
    """All numbers, for programs: into a file, or to stdout for `-`."""
    if out is None:
        return
    text = json.dumps(said, indent=1)
    if str(out) == "-":
        print(text)
    else:
        out.write_text(text + "\n", encoding="utf-8")
