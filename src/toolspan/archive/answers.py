"""The answers of an archive: sequences of frozen rows with totals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar, overload

import msgspec
from msgspec import Struct

from toolspan.errors import InvalidFilter

R = TypeVar("R", bound=Struct)
T = TypeVar("T")
_SHOWN_IN_REPR = 3


class Rows(Sequence[R], Generic[R]):
    """The rows of an answer. `total` counts those that a limit left out, too."""

    def __init__(self, rows: Sequence[R], total: int | None = None) -> None:
        self._rows = tuple(rows)
        self.total = len(self._rows) if total is None else total

    @overload
    def __getitem__(self, index: int) -> R: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[R]: ...
    def __getitem__(self, index: int | slice) -> R | Sequence[R]:
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[R]:
        return iter(self._rows)

    def __repr__(self) -> str:
        rows = ", ".join(type(row).__name__ for row in self._rows[:_SHOWN_IN_REPR])
        more = ", …" if len(self._rows) > _SHOWN_IN_REPR else ""
        return f"<{len(self._rows):,} rows: {rows}{more}>" if self._rows else "<no rows>"

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the rows as dictionaries with the names of the JSON output, for pandas or polars."""
        return [msgspec.to_builtins(row) for row in self._rows]


class SortOrder(Struct, frozen=True):
    """A column and a direction. By default numbers sort descending, texts and times ascending."""

    column: str
    is_reversed: bool = False

    @classmethod
    def parse(cls, text: str | None, columns: Sequence[str], aliases: dict[str, str] | None = None) -> SortOrder | None:
        """Return the order for a column name; a leading `-` reverses it.

        Raises:
            InvalidFilter: there is no such column.
        """
        if not text:
            return None
        name = text.removeprefix("-").replace(" ", "_")
        aliases = aliases or {}
        if name not in columns and name not in aliases:
            raise InvalidFilter(f"no column {name!r}; the columns are {', '.join(columns)}")
        return cls(aliases.get(name, name), text.startswith("-"))

    def sort(self, rows: Sequence[Any], value_of: Callable[[Any, str], Any] = getattr) -> list[Any]:
        """Return the rows in this order; rows without a value come last."""
        valued: list[tuple[Any, Any]] = []
        empty: list[Any] = []
        for row in rows:
            value = value_of(row, self.column)
            valued.append((value, row)) if value is not None else empty.append(row)
        is_number = bool(valued) and isinstance(valued[0][0], int | float)
        valued.sort(key=lambda pair: pair[0], reverse=is_number != self.is_reversed)
        return [row for _, row in valued] + empty


def arrange(
    rows: Sequence[T], sort: SortOrder | None, limit: int | None, value_of: Callable[[Any, str], Any] = getattr
) -> Sequence[T]:
    """Return the first rows in an order, or the last ones of a chronological list; all rows without a limit."""
    return sort.sort(rows, value_of)[: limit or None] if sort is not None else rows[-(limit or 0) :]
