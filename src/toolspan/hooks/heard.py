"""What a handler is given, and what comes back from it, before anybody understands it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from toolspan.hooks.points import Point
from toolspan.hooks.scene import Scene

End = Literal["ended", "failed", "timed_out"]


@dataclass(frozen=True, slots=True)
class Told:
    """One point, as a handler is told of it."""

    point: Point
    fields: Mapping[str, object]
    data: bytes
    """The fields as JSON."""
    scene: Scene
    environment: Mapping[str, str] = field(default_factory=dict)
    """Further variables for a command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """How a handler ended, and what it left."""

    end: End = "ended"
    stdout: str = ""
    stderr: str = ""
    exit_code: int | None = None
    """None where there is no process."""
    problem: str | None = None
    """Why it failed: it could not be run at all, or not be heard."""
    later: "Later | None" = None
    """Nobody waited for it: it runs on, and may be heard later."""


class Later(Protocol):
    """A handler that runs on."""

    @property
    def exit_code(self) -> int | None:
        """None as long as it runs."""
        ...

    async def heard(self) -> Heard:
        """What it left, once it has ended."""
        ...

    async def end(self) -> None:
        """End it, with everything it started."""
        ...


class Handler(Protocol):
    """Runs one handler. Raises nothing but cancellation: what goes wrong is a `Heard` that failed.

    When it is cancelled it leaves nothing behind that runs.
    """

    @property
    def name(self) -> str:
        """What people know it by: its command, its address."""
        ...

    @property
    def key(self) -> object:
        """Equal for handlers that do the same: of those only one is run."""
        ...

    async def run(self, told: Told) -> Heard:
        """Tell it, and hear what it says."""
        ...
