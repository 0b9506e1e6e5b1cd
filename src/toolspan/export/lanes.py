"""Bars side by side: which row of its agent a call is drawn in.

In: calls as they come, with their times. Out: a row for each, the first one that is free. Pure.
"""


class Lanes:
    """The rows of one agent."""

    def __init__(self) -> None:
        self._free: list[int] = []

    @property
    def count(self) -> int:
        """How many rows there are."""
        return max(len(self._free), 1)

    def place(self, start: int, end: int) -> int:
        """The row of a bar; what has no length stands beside others, never on them."""
        until = max(end, start + 1)
        for row, free in enumerate(self._free):
            if free <= start:
                self._free[row] = until
                return row
        self._free.append(until)
        return len(self._free) - 1
