"""The interface of redactors, and those that change nothing. Start at `Redactor`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

from msgspec import Struct

from toolspan.redaction.user_names import find_user_names

R = TypeVar("R", bound=Struct)


class Redactor(Protocol):
    """A filter for data that must not be exported. Its methods never raise."""

    @property
    def notice(self) -> str | None:
        """A sentence for readers of the export about the data that was replaced; None if it is complete."""
        ...

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of replacements so far, by kind."""
        ...

    def learn_names(self, lines: Iterable[bytes]) -> None:
        """Collect names from the raw lines of a session. It is called before any of its records are redacted."""
        ...

    def redact_record(self, record: R) -> R:
        """Return the record without data that must not be exported."""
        ...


class NoRedaction:
    """A redactor that changes nothing."""

    notice: str | None = None
    counts: Mapping[str, int] = {}

    def learn_names(self, lines: Iterable[bytes]) -> None:
        """Do nothing."""

    def redact_record(self, record: R) -> R:
        """Return the record unchanged."""
        return record


class NameCollector(NoRedaction):
    """A stand-in for a redactor in another process. It changes nothing and collects the names to be learned."""

    def __init__(self) -> None:
        self.names: list[list[str]] = []
        """The names of each transcript."""

    def learn_names(self, lines: Iterable[bytes]) -> None:
        """Collect the names that `SecretRedactor.learn_names` would learn."""
        self.names.append(find_user_names(lines))


def format_counts(counts: Mapping[str, int]) -> str:
    """Return the number of replacements by kind, such as `3 key, 1 email`, the most frequent first."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count:,} {kind}" for kind, count in ordered) or "nothing"
