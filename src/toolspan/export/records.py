"""The records of an export: one for each call, message, agent and session, including bodies.

`session_export.py` creates them, and the formats use nothing else. Text written by users, models, tools or clients is
a plain `str`; values from a fixed set are `Literal`s. Redaction relies on this: it redacts or leaves out every new
field until the field is listed as safe.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from toolspan.analysis.file_history.changes import ChangeKind
from toolspan.analysis.timing import Certainty, Phase
from toolspan.types.error_kinds import ErrorKind
from toolspan.types.session import Dialect, MessageAuthor, Tokens
from toolspan.types.span import Branch, HookOutcome
from toolspan.types.state import State
from toolspan.types.tool_kinds import ToolKind


class PhaseRecord(Struct, frozen=True, kw_only=True):
    """A phase of a call as an interval in milliseconds since the epoch."""

    phase: Phase
    start: int
    end: int


class DiffRecord(Struct, frozen=True, kw_only=True):
    """A change that a call made to one file."""

    path: str
    kind: ChangeKind
    added: int | None
    removed: int | None
    text: str
    """A unified diff, without line numbers if the position of the change is unknown."""


class EventRecord(Struct, frozen=True, kw_only=True):
    """An event that occurred during a call."""

    type: Literal["hook", "progress", "permission", "notification", "note"]
    at: str | None = None
    name: str | None = None
    """The hook event, kind of progress, decision, task status or kind of note."""
    who: str | None = None
    """The hook, the source of the decision, or the task."""
    text: str | None = None
    outcome: HookOutcome | None = None
    exit_code: int | None = None
    duration_ms: float | None = None
    count: int | None = None

    @property
    def summary(self) -> str:
        """The event as a single line, without its type."""
        duration = None if self.duration_ms is None else f"{self.duration_ms:,.0f} ms"
        count = None if self.count is None else f"×{self.count:,}"
        parts = (self.name, self.who, self.outcome, count, duration, self.text)
        return " · ".join(part for part in parts if part)


class EvidenceRecord(Struct, frozen=True, kw_only=True):
    """One piece of evidence for a state."""

    rule: str
    text: str | None = None


class CallRecord(Struct, frozen=True, kw_only=True, tag="call"):
    """A call with its result. Most fields are the same as in `reading.rows.CallRow`."""

    session: str | None
    agent: str | None
    """The id of the subagent that made the call; None for the main conversation."""
    id: str
    parent: str | None
    """The call that started the subagent."""
    batch: str | None
    """The id of the assistant message. Calls with the same id were requested together."""
    tool: str
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
    """Time of the request, as the client wrote it."""
    finished: str | None = None
    start: int | None = None
    end: int | None = None
    duration_ms: int | None = None
    phases: tuple[PhaseRecord, ...] = ()
    wait_certainty: Certainty = "unknown"
    exit_code: int | None = None
    is_error: bool | None = None
    target: str | None = None
    message: str | None = None
    input: object = None
    input_chars: int = 0
    result: str | None = None
    """The result text that the model received."""
    result_chars: int | None = None
    diffs: tuple[DiffRecord, ...] = ()
    events: tuple[EventRecord, ...] = ()
    evidence: tuple[EvidenceRecord, ...] = ()
    started_agent: str | None = None
    problem: str | None = None
    file: str = ""
    line: int | None = None
    redacted: int | None = None
    """The number of values that were replaced in this record; None if it is not redacted."""


class MessageRecord(Struct, frozen=True, kw_only=True, tag="message"):
    """A message in the conversation."""

    session: str | None
    agent: str | None
    voice: MessageAuthor
    opens: bool = False
    at: str | None = None
    start: int | None = None
    branch: Branch = "active"
    text: str = ""
    chars: int = 0


class AgentRecord(Struct, frozen=True, kw_only=True, tag="agent"):
    """The start of a subagent."""

    session: str | None
    agent: str | None
    role: str | None = None
    calls: int = 0
    linked: bool = True
    parent: str | None = None
    start: int | None = None
    end: int | None = None


class SliceRecord(Struct, frozen=True, kw_only=True):
    """An interval in the main conversation, in milliseconds since the epoch."""

    part: Literal["model", "tools", "permission", "hooks", "idle", "nothing_recorded"]
    start: int
    end: int


class SessionRecord(Struct, frozen=True, kw_only=True, tag="session"):
    """The facts about a session as a whole."""

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


ExportRecord = SessionRecord | AgentRecord | MessageRecord | CallRecord
