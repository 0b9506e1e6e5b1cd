"""Several sources of handlers as one: functions of the program and handlers of settings files.

All are asked at the same time; what they say is put together as each source does by itself.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import reduce
from typing import TypeVar

import anyio

from toolspan.hooks.merge import both_after, both_before
from toolspan.hooks.points import After, Before, Firing, Moment, NoHooks, Occasion, Point
from toolspan.hooks.scene import Scene
from toolspan.model.span import Span

_Answer = TypeVar("_Answer", Before, After)


def joined(*sources: Firing | None) -> Firing:
    """One source for all; the only one, if there is only one."""
    given = [one for one in sources if one is not None and not isinstance(one, NoHooks)]
    match given:
        case []:
            return NoHooks()
        case [one]:
            return one
        case _:
            return JoinedHooks(given)


class JoinedHooks:
    """Several sources of handlers."""

    def __init__(self, sources: Sequence[Firing]) -> None:
        self._sources = tuple(sources)

    @property
    def silent(self) -> bool:
        """Whether no source has a handler."""
        return all(source.silent for source in self._sources)

    def listens(self, point: Point) -> bool:
        """Whether some source has a handler at this point."""
        return any(source.listens(point) for source in self._sources)

    def bind(self, scene: Scene) -> "JoinedHooks":
        """The same handlers for a session."""
        return JoinedHooks([source.bind(scene) for source in self._sources])

    async def before(self, moment: Moment) -> Before:
        """Fire PreToolUse."""
        return _before(await self._all(lambda source: source.before(moment)))

    async def after(self, moment: Moment) -> After:
        """Fire PostToolUse."""
        return _after(await self._all(lambda source: source.after(moment)))

    async def after_failure(self, moment: Moment) -> After:
        """Fire PostToolUseFailure."""
        return _after(await self._all(lambda source: source.after_failure(moment)))

    async def after_batch(self, spans: Sequence[Span]) -> After:
        """Fire PostToolBatch."""
        return _after(await self._all(lambda source: source.after_batch(spans)))

    async def permission(self, moment: Moment) -> Before:
        """Fire PermissionRequest."""
        return _before(await self._all(lambda source: source.permission(moment)))

    async def fire(self, occasion: Occasion) -> After:
        """Fire any other point."""
        return _after(await self._all(lambda source: source.fire(occasion)))

    @property
    def calls(self) -> bool:
        """Whether some source has a handler that wants the model to be woken."""
        return any(source.calls for source in self._sources)

    async def called(self) -> bool:
        """Wait for the first such handler of any source."""

        async def listen(source: Firing, scope: anyio.CancelScope) -> None:
            if await source.called():
                scope.cancel()

        async with anyio.create_task_group() as group:
            for source in self._sources:
                group.start_soon(listen, source, group.cancel_scope)
        return self.calls

    async def wake(self) -> After:
        """Hear those that want it now."""
        return _after(await self._all(lambda source: source.wake()))

    async def _all(self, ask: Callable[[Firing], Awaitable[_Answer]]) -> list[_Answer]:
        slots: list[_Answer | None] = [None] * len(self._sources)

        async def fill(position: int) -> None:
            slots[position] = await ask(self._sources[position])

        async with anyio.create_task_group() as group:
            for position in range(len(self._sources)):
                group.start_soon(fill, position)
        return [answer for answer in slots if answer is not None]


def _before(answers: Sequence[Before]) -> Before:
    return reduce(both_before, answers, Before())


def _after(answers: Sequence[After]) -> After:
    return reduce(both_after, answers, After())
