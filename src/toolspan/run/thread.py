"""The runner, as a sync tool in a worker thread sees it.

Reading is safe from any thread; news must be told in the thread of the event loop.
"""

import threading
from collections.abc import Awaitable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import anyio.from_thread

from toolspan.hooks.points import After, Occasion
from toolspan.ids import CallId
from toolspan.model.decision import Decision
from toolspan.run.context import Bench, Listed


@dataclass(frozen=True, slots=True)
class FromThread:
    """A bench that may be used from a worker thread."""

    bench: Bench
    home: int = field(default_factory=threading.get_ident)
    """The thread of the event loop: the one this is made in."""

    @property
    def tools(self) -> Iterable[Listed]:
        """What the session has."""
        return self.bench.tools

    @property
    def in_progress(self) -> frozenset[CallId]:
        """The calls that run now."""
        return self.bench.in_progress

    @property
    def decisions(self) -> Mapping[CallId, Decision]:
        """How the permission question of each call was answered."""
        return self.bench.decisions

    def progress(self, call_id: CallId, kind: str, data: Mapping[str, object]) -> None:
        """Emit news of a call; lost when the run is over."""
        if threading.get_ident() == self.home:
            self.bench.progress(call_id, kind, data)
            return
        with suppress(RuntimeError):  # the event loop is closed: nobody waits for news
            anyio.from_thread.run_sync(self.bench.progress, call_id, kind, data)

    def is_cancelled(self, call_id: CallId) -> bool:
        """Whether somebody wants the call to end."""
        return self.bench.is_cancelled(call_id)

    def can_use_tool(self, tool: str, input: Mapping[str, object]) -> Awaitable[Decision]:
        """Ask whether a further call would be allowed; await it in the loop's thread."""
        return self.bench.can_use_tool(tool, input)

    def fire(self, call_id: CallId, occasion: Occasion) -> Awaitable[After]:
        """Fire a hook point; await it in the loop's thread."""
        return self.bench.fire(call_id, occasion)
