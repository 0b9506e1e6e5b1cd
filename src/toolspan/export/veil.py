"""What may be seen: everything, everything but secrets, or bones alone.

A `Veil` gets every record before any format does. It is pure but for what it remembers: the same
secret has the same placeholder everywhere in one export.
"""

from collections.abc import Iterable
from typing import Protocol, TypeVar

from toolspan.export.record import Record

R = TypeVar("R", bound=Record)


class Veil(Protocol):
    """Takes away what may not be seen. Never raises."""

    def meet(self, lines: Iterable[bytes]) -> None:
        """Raw lines of a session, before any of its records: whose names are in them?"""
        ...

    def over(self, record: R) -> R:
        """The record as it may be seen."""
        ...


class NoVeil:
    """Everything may be seen."""

    def meet(self, lines: Iterable[bytes]) -> None:
        """Nothing to learn, so nothing is read."""

    def over(self, record: R) -> R:
        """The record itself."""
        return record
