"""What leaves with an export: one value per call, message and session, bodies included.

In: nothing; these are values, made by `story.py`. Out: the only thing that formats see. A text that
people, models, tools or clients wrote is a plain `str`; words of a closed set are `Literal`s. Veils
go by that: a field added here is hidden by them until they are told that it is safe.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from toolspan.analysis.file_history.recorded_changes import ChangeKind
from toolspan.analysis.phases import Certainty, Phase
from toolspan.types.error_kinds import ErrorKind
from toolspan.types.session import Dialect, MessageAuthor
from toolspan.types.span import Branch, HookOutcome
from toolspan.types.state import State
from toolspan.types.tokens import Tokens
from toolspan.types.tool_kinds import ToolKind


class PhaseRecord(Struct, frozen=True, kw_only=True):
    """A stretch of a call's time, in milliseconds since the epoch."""

    phase: Phase
    start: int
    end: int


class DiffRecord(Struct, frozen=True, kw_only=True):
    """What a call did to one file."""

    path: str
    kind: ChangeKind
    added: int | None
    removed: int | None
    text: str
    """A unified diff; empty where the place of the lines is not known."""


class EventRecord(Struct, frozen=True, kw_only=True):
    """Something that happened around a call."""

    type: Literal["hook", "progress", "permission", "notification", "note"]
    at: str | None = None
    name: str | None = None
    """The hook's point, the kind of progress, the decision, the task's status, the kind of note."""
    who: str | None = None
    """The hook, the source of a decision, the task."""
    text: str | None = None
    outcome: HookOutcome | None = None
    exit_code: int | None = None
    duration_ms: float | None = None
    count: int | None = None


class EvidenceRecord(Struct, frozen=True, kw_only=True):
    """One reason for a state."""

    rule: str
    text: str | None = None


class CallRecord(Struct, frozen=True, kw_only=True, tag="call"):
    """One call's whole life."""

    session: str | None
    agent: str | None
    """The subagent that asked; None for the main conversation."""
    id: str
    parent: str | None
    """The call that started the subagent."""
    batch: str | None
    """Calls that share it were asked for together."""
    tool: str
    """Empty for an orphan result."""
    kind: ToolKind
    dialect: Dialect
    state: State
    error_kind: ErrorKind | None = None
    branch: Branch = "active"
    background: bool = False
    ambiguous: bool = False
    synthetic: bool = False
    deferred: bool = False
    truncated: bool = False
    requested: str | None = None
    """As the client wrote it."""
    finished: str | None = None
    start: int | None = None
    """The same, in milliseconds since the epoch."""
    end: int | None = None
    duration_ms: int | None = None
    phases: tuple[PhaseRecord, ...] = ()
    wait_certainty: Certainty = "unknown"
    """How well the wait for permission, a phase, is known."""
    exit_code: int | None = None
    is_error: bool | None = None
    target: str | None = None
    message: str | None = None
    """The beginning of the error text."""
    input: object = None
    """What the model gave, as JSON values."""
    input_chars: int = 0
    result: str | None = None
    """What the model read, as text."""
    result_chars: int | None = None
    diffs: tuple[DiffRecord, ...] = ()
    events: tuple[EventRecord, ...] = ()
    evidence: tuple[EvidenceRecord, ...] = ()
    started_agent: str | None = None
    problem: str | None = None
    """Why its bodies could not be read again."""
    file: str = ""
    line: int | None = None


class MessageRecord(Struct, frozen=True, kw_only=True, tag="message"):
    """Somebody's words."""

    session: str | None
    agent: str | None
    voice: MessageAuthor
    opens: bool = False
    """It begins a turn."""
    at: str | None = None
    start: int | None = None
    branch: Branch = "active"
    text: str = ""
    chars: int = 0


class AgentRecord(Struct, frozen=True, kw_only=True, tag="agent"):
    """The beginning of a subagent's part."""

    session: str | None
    agent: str | None
    role: str | None = None
    calls: int = 0
    linked: bool = True
    """It is known which call started it."""
    parent: str | None = None
    start: int | None = None
    end: int | None = None


class SliceRecord(Struct, frozen=True, kw_only=True):
    """A stretch of the main conversation's time with one use, in milliseconds since the epoch."""

    part: Literal["model", "tools", "permission", "hooks", "idle"]
    start: int
    end: int


class SessionRecord(Struct, frozen=True, kw_only=True, tag="session"):
    """A conversation as a whole."""

    id: str
    dialect: Dialect
    title: str | None = None
    cwd: str | None = None
    git_branch: str | None = None
    versions: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    start: int | None = None
    end: int | None = None
    tokens: Tokens = Tokens()
    files: tuple[str, ...] = ()
    slices: tuple[SliceRecord, ...] = ()
    findings: int = 0
    """How many kinds of damage reading met."""


ExportRecord = SessionRecord | AgentRecord | MessageRecord | CallRecord
