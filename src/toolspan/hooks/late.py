"""Handlers that nobody waited for, and what they say when they have ended.

In: handlers that run on (`async`, `asyncRewake`). Out: what they add for the model, at the next
point at which it can be told. They decide nothing any more; but one that was to wake the model, and
ends with exit code 2, is heard even where the turn would be over. Read `LateHandlers.ended` first.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from toolspan.hooks.heard import Heard, Later
from toolspan.hooks.merge import Ran
from toolspan.hooks.said import OBJECTS, Ear, Said

_SILENT = "It ended with exit code 2 and said nothing."


@dataclass(frozen=True, slots=True)
class _Running:
    ran: Ran
    later: Later
    ear: Ear
    wakes: bool

    @property
    def calls(self) -> bool:
        """It has ended, and wants the model to hear of it."""
        return self.wakes and self.later.exit_code == OBJECTS

    async def news(self) -> Ran:
        heard = await self.later.heard()
        return replace(self.ran, heard=heard, said=self._said(heard))

    def _said(self, heard: Heard) -> Said:
        if self.wakes and heard.exit_code == OBJECTS:
            return Said(contexts=(heard.stderr.strip() or heard.stdout.strip() or _SILENT,))
        said = self.ear.understand(heard)
        return Said(
            contexts=said.contexts, message=said.message, words=said.words, error=said.error
        )


class LateHandlers:
    """The handlers of a session that run on."""

    def __init__(self) -> None:
        self._running: list[_Running] = []

    def watch(self, ran: Ran, later: Later, ear: Ear, *, wakes: bool) -> None:
        """Hear of it when it has ended."""
        self._running.append(_Running(ran, later, ear, wakes))

    @property
    def calls(self) -> bool:
        """Whether one wants to be heard now."""
        return any(one.calls for one in self._running)

    async def ended(self, *, calling: bool = False) -> list[Ran]:
        """What those say that have ended; with `calling`, of those that want to be heard now."""
        chosen = list(self._take(calling=calling))
        return [await one.news() for one in chosen]

    def _take(self, *, calling: bool) -> Iterator[_Running]:
        running, self._running = self._running, []
        for one in running:
            if one.calls or (not calling and one.later.exit_code is not None):
                yield one
            else:
                self._running.append(one)
