"""The hook points around a call, and what the handlers there may answer.

A pipeline fires a point and gets one merged answer: `Before` or `After`. How handlers are found and
run (functions, commands, servers) is behind the protocol `Firing`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from toolspan.model.decision import Decision
from toolspan.model.event import HookOutcome
from toolspan.model.live import Content
from toolspan.model.span import Call, Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one handler did."""

    point: str
    name: str
    outcome: HookOutcome
    command: str | None = None
    exit_code: int | None = None
    duration_ms: float | None = None
    text: str | None = None
    stdout: str | None = None
    stderr: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """What all handlers before a call say together."""

    decision: Decision | None = None
    """Deny before ask before allow; None is no opinion."""
    input: Mapping[str, object] | None = None
    """Run with this instead; complete, not a difference."""
    contexts: tuple[str, ...] = ()
    """For the model to read beside the result."""
    stop: str | None = None
    """End the turn after this call, with this reason."""
    reports: tuple[Report, ...] = ()


@dataclass(frozen=True, slots=True)
class Replaced:
    """Another output instead of the tool's."""

    content: Content
    structured: object | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class After:
    """What all handlers after a call, or a batch, say together."""

    output: Replaced | None = None
    contexts: tuple[str, ...] = ()
    feedback: tuple[str, ...] = ()
    """Objections: the result stays, the model reads them beside it."""
    stop: str | None = None
    reports: tuple[Report, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A call at a hook point."""

    call: Call
    input: Mapping[str, object]
    """As it is going to run, or ran."""
    cwd: Path
    known_as: str | None = None
    """The tool's own name, when the model used another one for it."""
    output: object | None = None
    """After a success: the structured result, else the text."""
    error: str | None = None
    interrupted: bool = False
    duration_ms: float | None = None

    @property
    def tool(self) -> str:
        """The tool's own name."""
        return self.known_as or self.call.tool


class Firing(Protocol):
    """Runs the handlers of a point. Never raises for what a handler did: that is in the reports."""

    @property
    def silent(self) -> bool:
        """True when there is no handler at all, so that firing can be skipped."""
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


@dataclass(frozen=True, slots=True)
class NoHooks:
    """Nobody listens."""

    silent: bool = field(default=True, init=False)

    async def before(self, moment: Moment) -> Before:  # noqa: ARG002 - the protocol's
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
