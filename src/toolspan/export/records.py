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
from toolspan.reading.rows import CallRow
from toolspan.types.session import ClientName, MessageAuthor, Tokens
from toolspan.types.span import Branch, HookOutcome


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


class CallRecord(CallRow, frozen=True, kw_only=True, tag="call"):
    """A call with its result: its row, and what is read again from the transcript."""

    start: int | None = None
    end: int | None = None
    phases: tuple[PhaseRecord, ...] = ()
    wait_certainty: Certainty = "unknown"
    input: object = None
    input_chars: int = 0
    result: str | None = None
    """The result text that the model received."""
    result_chars: int | None = None
    diffs: tuple[DiffRecord, ...] = ()
    events: tuple[EventRecord, ...] = ()
    problem: str | None = None
    """The reason why the bodies could not be read."""
    redacted: int | None = None
    """The number of values that were replaced in this record; None if it is not redacted."""

    @property
    def line(self) -> int | None:
        """The line of the request, or of a result without a request."""
        return self.request_line or self.result_line


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
    parent_call: str | None = None
    start: int | None = None
    end: int | None = None


class RequestRecord(Struct, frozen=True, kw_only=True, tag="request"):
    """A request to a model."""

    id: str
    model: str | None = None
    at: str | None = None
    start: int | None = None
    tokens: Tokens = Tokens()
    """The tokens. The input excludes cached tokens."""
    cost_usd: float | None = None
    """The cost that the client recorded."""


class SliceRecord(Struct, frozen=True, kw_only=True):
    """An interval in the main conversation, in milliseconds since the epoch."""

    part: Literal["model", "tools", "permission", "hooks", "idle", "nothing_recorded"]
    start: int
    end: int


class SessionRecord(Struct, frozen=True, kw_only=True, tag="session"):
    """The facts about a session as a whole."""

    id: str
    client: ClientName
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


ExportRecord = SessionRecord | AgentRecord | MessageRecord | CallRecord | RequestRecord
