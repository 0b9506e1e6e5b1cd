"""Performance targets and their results, in the same form for every benchmark: as Markdown and as JSON."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Target:
    """A performance target and its result."""

    what: str
    limit: str
    measured: str
    met: bool | None
    """None if it was not measured because a contestant was left out."""


def ratio_target(what: str, limit: float, pair: tuple[float | None, float | None], *, at_most: bool) -> Target:
    """Return a target for the ratio of the first to the second number."""
    first, second = pair
    sign = "≤" if at_most else "≥"
    if first is None or second is None:
        return Target(what, f"{sign} {limit:g} ×", "not measured", None)
    ratio = first / second
    met = ratio <= limit if at_most else ratio >= limit
    return Target(what, f"{sign} {limit:g} ×", f"{ratio:.2f} ×", met)


def missed(targets: Iterable[Target]) -> bool:
    """Return whether a target was missed; targets that were not measured do not count."""
    return any(target.met is False for target in targets)


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Yield the lines of a Markdown table."""
    yield "| " + " | ".join(header) + " |"
    yield "|" + "---|" * len(header)
    for row in rows:
        yield "| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |"


def target_table(targets: Iterable[Target]) -> Iterator[str]:
    """Yield a table of targets met and missed."""
    labels = {True: "yes", False: "**no**", None: "not measured"}
    header = ["target", "limit", "measured", "met"]
    return table(header, ([t.what, t.limit, t.measured, labels[t.met]] for t in targets))


def machine() -> str:
    """Describe the machine in one line."""
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"


def write_json(numbers: Mapping[str, object], out: Path | None) -> None:
    """Write all numbers as JSON to a file, or to stdout for `-`."""
    if out is None:
        return
    text = json.dumps(numbers, indent=1)
    if str(out) == "-":
        print(text)
    else:
        out.write_text(text + "\n", encoding="utf-8")
