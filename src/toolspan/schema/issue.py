"""What is wrong with an input: a list of issues, neutral to who found them.

`check.py` finds them for declared schemas, `derive.py` for functions; `explain.py` puts them into
the words and the JSON that a client writes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from msgspec import Struct

IssueCode = Literal[
    "missing", "unexpected", "type", "value", "format", "too_small", "too_big", "union", "other"
]
Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Issue:
    """One fault of an input."""

    code: IssueCode
    path: Path
    """Where: keys and positions from the outside in; for `unexpected` the unknown key is last."""
    message: str
    """One sentence without the path, for issues that no client has words for."""
    expected: str | None = None
    """A type by its JSON Schema name."""
    received: str | None = None
    """A type likewise, or `undefined`, `null`, `NaN`."""
    detail: Mapping[str, object] = field(default_factory=dict)
    """What hangs on the code: `values` and `value`, `format`, `bound` with `inclusive` and
    `origin`, `branches` (the issues of each alternative of a union)."""


@dataclass(frozen=True, slots=True)
class Invalid:
    """An input that does not fit, and why."""

    issues: tuple[Issue, ...]


class Valid(Struct, frozen=True):  # one is made for every call: a Struct costs a tenth
    """An input that fits: as the tool takes it, and as it is recorded (defaults added)."""

    value: Any  # what the tool's own function takes: a mapping, a struct, keyword arguments
    recorded: Mapping[str, object]


Parse = Callable[[Mapping[str, object]], Valid | Invalid]
"""From an input as the model gave it to one the tool can take; never raises."""
