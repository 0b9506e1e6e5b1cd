"""What is asked of Read: a file, and which of its lines or pages.

In: an input that fits the schema. Out: a `Question` with the file as it is named and placed.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from toolspan.disk.window import Range
from toolspan.disk.words import clean
from toolspan.profile import FileValues
from toolspan.run.change import path_of
from toolspan.run.context import ToolContext


def schema_of(values: FileValues) -> dict[str, object]:
    """What a client version lets a model ask."""
    number = "integer" if values.whole_numbers else "number"
    offset: dict[str, object] = {"type": number, "description": "The first line to show"}
    limit: dict[str, object] = {"type": number, "description": "How many lines to show"}
    if values.odd_range == "dropped":
        offset["minimum"] = 0
        limit["exclusiveMinimum"] = 0
    extra: dict[str, object] = {
        "pages": {"type": "string", "description": "Pages of a PDF, such as 1-5"},
        "allow_large": {"type": "boolean", "description": "Show a large file whole all the same"},
    }
    return {
        "type": "object",
        "properties": {
            "file_path": {"type": "string", "description": "The file to read"},
            "offset": offset,
            "limit": limit,
            **{name: one for name, one in extra.items() if name in values.extra_inputs},
        },
        "required": ["file_path"],
        "additionalProperties": False,
    }


def sound_range(given: Mapping[str, object]) -> Mapping[str, object]:
    """The input without a range that makes no sense, which clients overlook."""
    least = {"offset": 0, "limit": 1}
    odd = {name for name, low in least.items() if _below(given.get(name), low)}
    return {name: value for name, value in given.items() if name not in odd} if odd else given


def _below(value: object, low: int) -> bool:
    if isinstance(value, str) and value.removeprefix("-").isdecimal():
        value = int(value)
    return isinstance(value, int | float) and not isinstance(value, bool) and value < low


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked: a file as named and as placed, and which lines."""

    name: str
    path: Path
    offset: int
    limit: int | None
    pages: str | None
    large: bool
    values: FileValues

    @property
    def whole(self) -> bool:
        """Whether all of it is asked for."""
        return self.offset in (0, 1) and self.limit is None

    @property
    def range(self) -> Range:
        """The lines that are asked for."""
        skip = self.offset - 1 if self.offset else 0
        if self.values.odd_range != "from_end":
            skip = max(0, skip)
        return Range(skip, None if self.limit is None else max(0, self.limit))


def question_of(value: Mapping[str, object], ctx: ToolContext) -> Question:
    """The input as a question."""
    values = ctx.profile.files
    name = str(value["file_path"])
    first = _whole(value.get("offset"))
    pages = value.get("pages")
    return Question(
        name=clean(name),
        path=path_of(name, ctx),
        offset=1 if first is None or (first == 0 and values.zero_is_first) else first,
        limit=_whole(value.get("limit")),
        pages=pages if isinstance(pages, str) else None,
        large=value.get("allow_large") is True,
        values=values,
    )


def _whole(value: object) -> int | None:
    if isinstance(value, int | float) and math.isfinite(value):
        return int(value)
    return None
