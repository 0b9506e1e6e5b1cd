"""What resumed and forked sessions copied from each other, so that it is counted once.

In: files, what they say about themselves, and their calls. Out: a family for each, and whether
something was seen in that family before. Files are a family when they share a lineage, or a call of
the same message. Pure. Read `Copies.family` first.
"""

from collections.abc import Hashable, Iterable

from toolspan.model.session import SessionInfo
from toolspan.read.lineage import Lineages


class Copies:
    """What has been seen of which family."""

    def __init__(self, files: Iterable[tuple[str, SessionInfo]]) -> None:
        self._lineages = Lineages()
        for file, info in files:
            self._lineages.add(file, info)
        self._calls: dict[tuple[str, str], Hashable] = {}
        self._seen: set[Hashable] = set()

    def family(self, file: str, calls: Iterable[tuple[str, str | None]]) -> Hashable:
        """The family of a file, by its lineage or by a call, id and message, that was seen."""
        named = [(name, batch) for name, batch in calls if batch]
        known = next((self._calls[call] for call in named if call in self._calls), None)
        family = self._lineages.of(file) if known is None else known
        for call in named:
            self._calls.setdefault(call, family)
        return family

    def new(self, *name: Hashable) -> bool:
        """Whether this is the first time; it begins with the family."""
        if name in self._seen:
            return False
        self._seen.add(name)
        return True
