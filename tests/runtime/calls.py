"""Short builders of calls, and a sink that keeps events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from toolspan.runtime.pending_call import LiveBodyStore
from toolspan.types.events import Finished, LiveEvent
from toolspan.types.ids import CallId
from toolspan.types.span import Call

E = TypeVar("E")


def call(name: str, tool: str, **fields: object) -> dict[str, object]:
    return {"type": "tool_use", "id": name, "name": tool, "input": fields}


def pending_call(tool: str, tool_input: Mapping[str, object] | None = None) -> Call:
    shelf = LiveBodyStore(tool_input or {})
    return Call(id=CallId("a"), tool=tool, at=0, requested_at=None, target=None, body_store=shelf)


@dataclass
class EventLog:
    """A sink that remembers; give it to a runner as `direct`."""

    events: list[LiveEvent] = field(default_factory=list)

    def __call__(self, event: LiveEvent) -> None:
        self.events.append(event)

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def states(self) -> dict[str, str]:
        return {str(item.call_id): item.span.state for item in self.of(Finished)}
