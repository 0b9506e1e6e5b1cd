"""A tool: a named function with a schema, and what the runner must know about it.

`@tool` makes one of a function (see `define.py`); built-in tools are made by hand. Tools are
values: they hold no state of a session, which comes in with the `ToolContext`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from toolspan.runtime.schema.issues import Invalid, Parse, Valid
from toolspan.types.error_kinds import ErrorKind
from toolspan.types.events import Content
from toolspan.types.tool_kinds import ToolKind

if TYPE_CHECKING:
    from toolspan.runtime.context import CallContext, ToolContext


__all__ = [
    "GRACE",
    "OUTPUT_LIMIT",
    "PROCESS_GRACE",
    "Input",
    "Interrupt",
    "Invalid",
    "Output",
    "Parse",
    "Refusal",
    "RunFunction",
    "Tool",
    "ToolFailure",
    "ToolHints",
    "ToolSubject",
    "Valid",
    "ValidateFunction",
]

OUTPUT_LIMIT = 50_000
GRACE = 2.0
"""Seconds that code of users gets to stop when it is told to; then it is left to itself."""
PROCESS_GRACE = 8.0
"""As much for code that may have processes to end, which takes up to seven of them."""
Input = Mapping[str, object]
"""An input as the model gave it, decoded."""


class Output(Struct, frozen=True):  # one is made for every call: a Struct costs a fifth
    """What a tool gives back."""

    content: Content = ""
    """What the model reads; an empty text becomes a sentence that says so."""
    structured: object | None = None
    """For programs: any JSON value."""
    flag: bool | None = None
    """Write `is_error: false` (False) or leave it out (None); a shell says it, others do not."""
    modify: Callable[[CallContext], CallContext] | None = None
    """How the call changes what later calls start from."""
    companions: tuple[Content, ...] = ()
    """What the model is told beside the result."""
    structured_output: object | None = None
    """An answer in a shape the host asked for, emitted apart."""
    background_task: str | None = None
    """The work that goes on after the call."""
    agent: str | None = None
    """The subagent that the call started."""
    exit_code: int | None = None
    """Of a command."""
    persisted: Path | None = None
    """The file that holds the whole, when the content is only its announcement."""
    beside: Mapping[str, object] | None = None
    """Further keys of the result's record, in the client's words."""


@dataclass(frozen=True, slots=True)
class ToolFailure:
    """A run that ended badly, told by the tool itself instead of raised."""

    text: str
    kind: ErrorKind | None = None
    timed_out: bool = False
    exit_code: int | None = None
    structured: object | None = None
    """None: the error text is recorded, as clients do."""
    modify: Callable[[CallContext], CallContext] | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """A tool's own veto before it runs: `validate` returns it, or None."""

    text: str
    kind: ErrorKind | None = None
    structured: str | None = None
    """What is recorded beside it; None: `Error: ` and the text."""
    wrapped: bool = True
    """In the tags of a refusal; some clients leave them out for some refusals."""


RunFunction = Callable[[Any, "ToolContext"], Awaitable["Output | ToolFailure"]]
ValidateFunction = Callable[[Any, "ToolContext"], Awaitable[Refusal | None]]
Interrupt = Literal["cancel", "block"]


@dataclass(frozen=True, slots=True)
class ToolSubject:
    """The input field that says what a call acts on: permission rules match it and replay maps it."""

    kind: Literal["command", "path", "url", "agent", "text"]
    field: str


@dataclass(frozen=True, slots=True)
class ToolHints:
    """The title of a tool and its worst possible effect, as an MCP server announces them."""

    title: str
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False
    """It may reach beyond this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A named function with a schema."""

    name: str
    description: str
    input_schema: Mapping[str, object]
    parse: Parse
    run: RunFunction
    concurrent: bool | Callable[[Any], bool] = False
    """May overlap with other such calls; a function gets the parsed input, an exception is no."""
    validate: ValidateFunction | None = None
    aliases: tuple[str, ...] = ()
    read_only: bool = False
    """A hint for permission: it changes nothing."""
    output_limit: int | None = OUTPUT_LIMIT
    """Characters the model gets inline; the rest is spilled to a file. None: no limit."""
    timeout: float | None = None
    """Seconds until the run is ended."""
    grace: float = PROCESS_GRACE
    """Seconds it gets to stop when it is told to; then its call ends without it."""
    interrupt: Interrupt = "cancel"
    paths: Callable[[Any], frozenset[str]] | None = None
    """The files a call touches, for runners that lock by path."""
    records_intent: bool = False
    """It tells the journal itself, once it knows what it is about to change."""
    idempotent: bool = False
    """Running it twice does no harm: a retry is allowed."""
    approval_prompt: str | None = None
    """Somebody is asked before it runs, in these words, whatever rules and modes allow."""
    render_result: Callable[[Any], Content] | None = None
    """What the model reads of a structured result, should a hook put another in its place."""
    kind: ToolKind | None = None
    """None: `tool_kind(name)` applies."""
    subject: ToolSubject | None = None
    """None: rules can match only the tool as a whole, and a replay has no paths to map."""
    slow_after: float | None = None
    """Seconds after which a call is reported as slow; None: any duration is usual."""
    hints: ToolHints | None = None
    """None: derived from `read_only` and `idempotent`."""
    output_schema: Mapping[str, object] | None = None
    """Keys that the structured result always has; it may have more."""
    replayable: bool = False
    """A recorded call can be run again in a copy of the project without network, model or person."""
    enabled: bool = True
    extra: Mapping[str, object] = field(default_factory=dict)

    def may_overlap(self, value: object) -> bool:
        """Whether a call with this input may run beside others."""
        if isinstance(self.concurrent, bool):
            return self.concurrent
        try:
            return bool(self.concurrent(value))
        except Exception:  # noqa: BLE001 - a tool's own function; any fault means no
            return False

    def schema(self) -> dict[str, object]:
        """As a Messages API request offers it."""
        return {"name": self.name, "description": self.description, "input_schema": dict(self.input_schema)}
