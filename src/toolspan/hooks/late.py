"""Handlers that nobody waited for, and what they say when they have ended.

In: handlers that run on (`async`, `asyncRewake`). Out: what they add for the model, at the next
point at which it can be told. They decide nothing any more; but one that was to wake the model, and
ends with exit code 2, is heard even where the turn is over: `wait` waits for that. One whose time
is over is ended. Read `LateHandlers.ended` and `calling` first.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import anyio

from toolspan.hooks.heard import Heard, Later
from toolspan.hooks.merge import Ran
from toolspan.hooks.said import OBJECTS, Ear, Said

_NOTICE = """\
<task-notification>
<summary>Stop hook feedback</summary>
</task-notification>
<system-reminder>
Stop hook blocking error from command "{name}": {words}
</system-reminder>"""
"""What clients tell the model when it is woken, whichever point it was."""


@dataclass(frozen=True, slots=True)
class _Running:
    ran: Ran
    later: Later
    ear: Ear
    wakes: bool
    until: float
    """When its time is over."""

    @property
    def calls(self) -> bool:
        """It has ended, and wants the model to hear of it."""
        return self.wakes and self.later.exit_code == OBJECTS

    @property
    def runs(self) -> bool:
        """It has not ended."""
        return self.later.exit_code is None

    async def news(self) -> Ran:
        """What it left; it is ended if it still runs."""
        if self.runs:
            await self.later.end()
            heard = Heard(end="timed_out")
        else:
            heard = await self.later.heard()
        return replace(self.ran, heard=heard, said=self._said(heard))

    def _said(self, heard: Heard) -> Said:
        if self.wakes and heard.exit_code == OBJECTS:
            return Said(words=heard.stderr.strip() or heard.stdout.strip() or None)
        said = self.ear.understand(heard)
        return Said(
            contexts=said.contexts, message=said.message, words=said.words, error=said.error
        )


class LateHandlers:
    """The handlers of a session that run on."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._running: list[_Running] = []
        self._clock = clock

    def watch(self, ran: Ran, later: Later, ear: Ear, *, wakes: bool) -> None:
        """Hear of it when it has ended."""
        until = self._clock() + ran.timeout_ms / 1e3
        self._running.append(_Running(ran, later, ear, wakes, until))

    @property
    def calls(self) -> bool:
        """Whether one wants the model to be woken now."""
        return any(one.calls for one in self._running)

    async def ended(self) -> list[Ran]:
        """What those say that have ended, or should have, and wake nobody."""
        now = self._clock()
        chosen = self._take(lambda one: not one.calls and (not one.runs or one.until <= now))
        return [await one.news() for one in chosen]

    async def calling(self) -> list[tuple[Ran, str]]:
        """Those that want the model to be woken, with what it is to read."""
        chosen = [await one.news() for one in self._take(lambda one: one.calls)]
        return [(one, _notice(one)) for one in chosen]

    async def wait(self) -> None:
        """Until one wants the model to be woken, or none is left that could."""
        while not self.calls:
            waking = [one for one in self._running if one.wakes and one.runs]
            left = [one.until - self._clock() for one in waking]
            if not left or max(left) <= 0:
                return
            with anyio.move_on_after(max(left)):
                async with anyio.create_task_group() as group:
                    for one in waking:
                        group.start_soon(_until_ended, one.later, group.cancel_scope)

    def _take(self, wanted: Callable[[_Running], bool]) -> Iterator[_Running]:
        taken = [one for one in self._running if wanted(one)]
        self._running = [one for one in self._running if one not in taken]
        return iter(taken)


async def _until_ended(later: Later, scope: anyio.CancelScope) -> None:
    await later.heard()
    scope.cancel()


def _notice(ran: Ran) -> str:
    heard = ran.heard
    words = heard.stderr if heard.stderr.strip() else heard.stdout
    return _NOTICE.format(name=ran.name, words=words)
