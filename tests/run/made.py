"""Short words for tests of the runner: calls, and what was told."""

from dataclasses import dataclass, field
from typing import TypeVar

from toolspan.model.live import Finished, LiveEvent

E = TypeVar("E")


def call(name: str, tool: str, **given: object) -> dict[str, object]:
    """A `tool_use` block."""
    return {"type": "tool_use", "id": name, "name": tool, "input": given}


@dataclass
class Told:
    """A sink that remembers; give it to a runner as `direct`."""

    events: list[LiveEvent] = field(default_factory=list)

    def __call__(self, event: LiveEvent) -> None:
        self.events.append(event)

    def of(self, kind: type[E]) -> list[E]:
        """The events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def states(self) -> dict[str, str]:
        """How each call ended, in the order in which they did."""
        return {str(one.call_id): one.span.state for one in self.of(Finished)}
