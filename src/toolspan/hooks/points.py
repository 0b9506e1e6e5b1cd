"""The hook points around a call and a session, and what the handlers there may answer.

Whoever is at a point fires it and gets one merged answer: `Before` or `After`. How handlers are
found and run (functions, commands, servers) is behind the protocol `Firing`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, Self

from msgspec import Struct

from toolspan.hooks.scene import Scene
from toolspan.model.decision import Decision
from toolspan.model.live import Content
from toolspan.model.live import HookReport as Report
from toolspan.model.span import Call, Span

__all__ = [
    "After", "Before", "Firing", "Moment", "NoHooks", "Occasion", "Point", "Replaced", "Report",
]  # fmt: skip

Point = Literal[
    "PreToolUse", "PostToolUse", "PostToolUseFailure", "PostToolBatch", "PermissionRequest",
    "UserPromptSubmit", "Stop", "SubagentStart", "SubagentStop", "PreCompact", "PostCompact",
    "SessionStart", "SessionEnd", "Notification", "CwdChanged", "TaskCreated", "TaskCompleted",
    "StopFailure", "PermissionDenied", "WorktreeCreate", "FileChanged",
]  # fmt: skip
"""Where user code is called."""


class Before(Struct, frozen=True, kw_only=True):
    """What all handlers before a call say together."""

    decision: Decision | None = None
    """Deny before ask before allow; None is no opinion."""
    input: Mapping[str, object] | None = None
    """Run with this instead; complete, not a difference."""
    defer: bool = False
    """Neither yes nor no: the call is put off, and the turn ends."""
    updates: tuple[Mapping[str, object], ...] = ()
    """Changes to the rules that a consent comes with, in the client's words."""
    contexts: tuple[str, ...] = ()
    """For the model to read beside the result."""
    stop: str | None = None
    """End the turn after this call, with this reason."""
    reports: tuple[Report, ...] = ()


@dataclass(frozen=True, slots=True)
class Replaced:
    """Another output instead of the tool's."""

    content: Content | None
    """None: as the tool shows a result like `structured`."""
    structured: object | None = None


class After(Struct, frozen=True, kw_only=True):
    """What all handlers after a call, or a batch, say together."""

    output: Replaced | None = None
    contexts: tuple[str, ...] = ()
    feedback: tuple[str, ...] = ()
    """Objections: the result stays, the model reads them beside it; or the turn does not end, the
    prompt does not count."""
    by: tuple[str, ...] = ()
    """Who objects: the handler of each feedback."""
    stop: str | None = None
    retry: bool = False
    """After a refusal: the model may ask for the same call again."""
    news: tuple[str, ...] = ()
    """What the model is woken with, by handlers that nobody waited for."""
    reports: tuple[Report, ...] = ()


class Moment(Struct, frozen=True, kw_only=True):
    """A call at a hook point."""

    call: Call
    input: Mapping[str, object]
    """As it is going to run, or ran."""
    cwd: Path
    known_as: str | None = None
    """The tool's own name, when the model used another one for it."""
    suggestions: tuple[Mapping[str, object], ...] = ()
    """Where somebody is asked: what they could say beside yes and no, in the client's words."""
    output: object | None = None
    """After a success: the structured result, else the text."""
    error: str | None = None
    interrupted: bool = False
    duration_ms: float | None = None

    @property
    def tool(self) -> str:
        """The tool's own name."""
        return self.known_as or self.call.tool


@dataclass(frozen=True, slots=True, kw_only=True)
class Occasion:
    """A point that is about no single call."""

    point: Point
    about: str | None = None
    """What matchers are compared with: a source, a reason, a kind of agent."""
    fields: Mapping[str, object] = field(default_factory=dict)
    """What handlers are told beside what they always are."""
    moment: Moment | None = None
    """The call that it is about after all."""


class Firing(Protocol):
    """Runs the handlers of a point. Never raises for what a handler did: that is in the reports."""

    @property
    def silent(self) -> bool:
        """True when there is no handler at all, so that firing can be skipped."""
        ...

    def listens(self, point: Point) -> bool:
        """Whether there is a handler at this point."""
        ...

    def bind(self, scene: Scene) -> "Firing":
        """The same handlers for one session; those that have one keep it."""
        ...

    async def before(self, moment: Moment) -> Before:
        """PreToolUse."""
        ...

    async def after(self, moment: Moment) -> After:
        """PostToolUse."""
        ...

    async def after_failure(self, moment: Moment) -> After:
        """PostToolUseFailure: not for calls that a user ended."""
        ...

    async def after_batch(self, spans: Sequence[Span]) -> After:
        """PostToolBatch."""
        ...

    async def permission(self, moment: Moment) -> Before:
        """PermissionRequest: somebody is about to be asked."""
        ...

    async def fire(self, occasion: Occasion) -> After:
        """Any other point."""
        ...

    @property
    def calls(self) -> bool:
        """Whether a handler that nobody waited for wants the model to be woken now."""
        ...

    async def called(self) -> bool:
        """Wait for such a handler; False when none runs that could be one. May be cancelled."""
        ...

    async def wake(self) -> After:
        """Hear those that want it now: their `news`, each once."""
        ...


@dataclass(frozen=True, slots=True)
class NoHooks:
    """Nobody listens."""

    silent: bool = field(default=True, init=False)
    calls: bool = field(default=False, init=False)

    def listens(self, point: Point) -> bool:  # noqa: ARG002 - the protocol's
        """Nobody does."""
        return False

    def bind(self, scene: Scene) -> Self:  # noqa: ARG002
        """The same nobody."""
        return self

    async def before(self, moment: Moment) -> Before:  # noqa: ARG002
        """No opinion."""
        return Before()

    async def after(self, moment: Moment) -> After:  # noqa: ARG002
        """Nothing to add."""
        return After()

    async def after_failure(self, moment: Moment) -> After:  # noqa: ARG002
        """Nothing to add."""
        return After()

    async def after_batch(self, spans: Sequence[Span]) -> After:  # noqa: ARG002
        """Nothing to add."""
        return After()

    async def permission(self, moment: Moment) -> Before:  # noqa: ARG002
        """No opinion."""
        return Before()

    async def fire(self, occasion: Occasion) -> After:  # noqa: ARG002
        """Nothing to add."""
        return After()

    async def called(self) -> bool:
        """Nobody is waited for."""
        return False

    async def wake(self) -> After:
        """Nothing to add."""
        return After()
