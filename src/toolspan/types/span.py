"""What happened around a call while it lived: hooks, progress, permission, notifications."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal, Protocol

from msgspec import Struct

from toolspan.types.error_kinds import ADVICE, Advice, ErrorKind
from toolspan.types.ids import CallId, SessionId, SourceLocation
from toolspan.types.session import Dialect
from toolspan.types.state import State
from toolspan.types.tool_kinds import ToolKind, tool_kind

if TYPE_CHECKING:
    from toolspan.types.inputs import ToolInput


HookOutcome = Literal[
    "started", "success", "error", "blocked", "cancelled", "context", "message", "decision",
    "stopped", "deferred",
]  # fmt: skip


class Hook(Struct, frozen=True, kw_only=True, gc=False, tag="hook"):
    """One hook's part in a call."""

    point: str
    """Where it was called: `PreToolUse`, `PostToolUse`, …"""
    name: str
    outcome: HookOutcome
    command: str | None = None
    exit_code: int | None = None
    duration_ms: float | None = None
    text: str | None = None
    at: str | None = None
    place: SourceLocation


class Progress(Struct, frozen=True, kw_only=True, gc=False, tag="progress"):
    """All progress notes of one kind for a call, folded into one."""

    kind: str
    count: int
    first_at: str | None
    last_at: str | None


class Permission(Struct, frozen=True, kw_only=True, gc=False, tag="permission"):
    """What the transcript says about consent for a call."""

    decision: str
    """As the client wrote it: `accept`, `reject`, a denial kind, …"""
    source: str | None = None
    reason: str | None = None
    origin: str | None = None
    """Where the rule that decided comes from."""
    code: str | None = None
    """What it was about, in the client's word: `workingDir`, `mode:plan`, …"""
    scope: str | None = None
    """How far a person's consent goes: `once`, …"""
    place: SourceLocation


class Notification(Struct, frozen=True, kw_only=True, gc=False, tag="notification"):
    """News of a background task that a call started."""

    task_id: str | None
    status: str | None
    summary: str | None
    at: str | None
    place: SourceLocation


class Note(Struct, frozen=True, kw_only=True, gc=False, tag="note"):
    """Something else the client attached to a call, such as that a file was cut."""

    kind: str
    text: str | None
    at: str | None
    place: SourceLocation


Event = Hook | Progress | Permission | Notification | Note
"""What happened around a call, as transcripts tell it."""


Branch = Literal["active", "compacted", "abandoned"]


class BodyStore(Protocol):
    """Where bodies are kept: reads an input or a result again, when somebody asks.

    May do I/O. Raises SourceError when the place no longer holds what it held.
    """

    @property
    def name(self) -> str:
        """The file the places are in."""
        ...

    def raw_input(self, call: Call) -> bytes:
        """The input as JSON."""
        ...

    def arguments(self, call: Call) -> Mapping[str, object]:
        """The input, decoded; empty when it is no object."""
        ...

    def typed_input(self, call: Call) -> ToolInput:
        """The input narrowed to its tool's type."""
        ...

    def content(self, result: Result) -> object:
        """What the model read, as decoded JSON: a string or a list of blocks."""
        ...

    def text(self, result: Result) -> str:
        """What the model read, as text; pictures and other blocks as short notes."""
        ...

    def structured(self, result: Result) -> object:
        """The machine-readable companion, narrowed to its tool's type; None when absent."""
        ...


class Call(Struct, frozen=True, kw_only=True, gc=False):
    """A model's request to run one tool."""

    id: CallId
    tool: str
    """Empty for an orphan result: nobody recorded the request."""
    at: int
    """Its place, packed; 0 for an orphan result."""
    requested_at: str | None
    """The time as it is written; `Span.requested` has it parsed."""
    target: str | None
    """What it is about: a path, command, pattern, address, question."""
    session_id: SessionId | None = None
    agent_id: str | None = None
    """The subagent that asked, None for the main conversation."""
    message_id: str | None = None
    """The assistant message it belongs to: calls that share one are a batch."""
    prompt_id: str | None = None
    """The turn it belongs to."""
    parent_call: CallId | None = None
    """The call that started the subagent which asked, or the process it speaks to."""
    dialect: Dialect = "claude"
    body_store: BodyStore
    """Where its body is read from when somebody asks."""

    @property
    def place(self) -> SourceLocation | None:
        """Where the request stands; None for an orphan result."""
        return SourceLocation.unpack(self.body_store.name, self.at) if self.at else None

    @property
    def kind(self) -> ToolKind:
        """What sort of work the tool does."""
        return tool_kind(self.tool)

    @property
    def input(self) -> ToolInput:
        """The input, narrowed to its tool's type."""
        return self.body_store.typed_input(self)

    @property
    def raw_input(self) -> bytes:
        """The input as JSON."""
        return self.body_store.raw_input(self)

    @property
    def arguments(self) -> Mapping[str, object]:
        """The input as the model wrote it, decoded: `call.arguments["command"]`."""
        return self.body_store.arguments(self)


class Result(Struct, frozen=True, kw_only=True, gc=False):
    """What went back to the model."""

    id: CallId
    tool: str
    at: int
    """Its place, packed."""
    finished_at: str | None
    """The time as it is written; `Span.finished` has it parsed."""
    is_error: bool | None
    """As written: most successes do not carry the flag at all."""
    exit_code: int | None = None
    """Of a command, as the text or the companion tells it."""
    denial_kind: str | None = None
    """How the client itself names a refusal, where it does."""
    truncated: bool = False
    """The model got only a part of it."""
    persisted_path: str | None = None
    """The file that holds the whole."""
    background_task: str | None = None
    """The work that goes on after the call."""
    reported_ms: float | None = None
    """The duration the tool itself reported."""
    trusts_reported: bool = False
    """The reported duration counts where timestamps are missing or closer together."""
    body_store: BodyStore

    @property
    def place(self) -> SourceLocation:
        """Where it stands."""
        return SourceLocation.unpack(self.body_store.name, self.at)

    @property
    def text(self) -> str:
        """What the model read, as text."""
        return self.body_store.text(self)

    @property
    def content(self) -> object:
        """What the model read: a string or a list of blocks."""
        return self.body_store.content(self)

    @property
    def structured(self) -> object:
        """The machine-readable companion, narrowed to its tool's type."""
        return self.body_store.structured(self)


class Evidence(Struct, frozen=True, gc=False):
    """One reason for a state: the rule that spoke and the text it saw."""

    rule: str
    text: str | None = None


class DuplicateRecord(Struct, frozen=True, gc=False):
    """A further request or result with an id that was there before."""

    what: Literal["call", "result"]
    place: SourceLocation


class Span(Struct, frozen=True, kw_only=True, gc=False):
    """One call's whole life: request, events, result, times, state."""

    call: Call
    result: Result | None
    """None while there is none."""
    state: State
    evidence: tuple[Evidence, ...]
    """Why it is in that state."""
    error_kind: ErrorKind | None = None
    """What went wrong, when it did not succeed."""
    message: str | None = None
    """The beginning of the error text, tags removed."""
    events: tuple[Event, ...] = ()
    """Hooks, progress, permission decisions, notifications, in order."""
    background: bool = False
    """The call returned while its work goes on."""
    ambiguous: bool = False
    """The transcript allows another reading; see the evidence."""
    synthetic: bool = False
    """The result was made up by the client to repair a broken conversation."""
    deferred: bool = False
    """A hook put it off: somebody is to come back to it."""
    branch: Branch = "active"
    """Whether the conversation still goes through it."""
    agent: str | None = None
    """The subagent this call started."""
    copies: tuple[DuplicateRecord, ...] = ()
    """Re-emissions in the same file; copies in forks and resumes are joined by a history."""

    @property
    def id(self) -> CallId:
        """The call's id."""
        return self.call.id

    @property
    def tool(self) -> str:
        """The tool's name."""
        return self.call.tool

    @property
    def input(self) -> ToolInput:
        """The call's input, narrowed to its tool's type."""
        return self.call.input

    @property
    def requested(self) -> datetime | None:
        """When it was asked for."""
        return parse_timestamp(self.call.requested_at)

    @property
    def finished(self) -> datetime | None:
        """When its result was recorded."""
        return parse_timestamp(self.result.finished_at) if self.result else None

    @property
    def duration(self) -> timedelta | None:
        """From request to result, permission wait included; None where a time is missing.

        Nor does a result that was made up later tell when the call ended. Codex may write both
        lines at once, or without times: what it says of the tool is the least.
        """
        result = self.result
        if result is None or (self.state in _REPAIRED_STATES and self.has_fabricated_result):
            return None
        try:
            elapsed = _parse_iso(result.finished_at or "") - _parse_iso(self.call.requested_at or "")
        except (TypeError, ValueError):  # one is missing or odd, or only one has a zone
            start, end = self.requested, self.finished
            if start is None or end is None:
                return self._reported_duration
            elapsed = end - start
        elapsed = max(elapsed, self._reported_duration or elapsed)
        return elapsed if elapsed >= _ZERO else None

    @property
    def duration_ms(self) -> int | None:
        """The same in whole milliseconds, as every command counts it."""
        elapsed = self.duration
        return None if elapsed is None else round(elapsed.total_seconds() * 1000)

    @property
    def has_fabricated_result(self) -> bool:
        """The result was not the tool's: a client wrote it later, when it was started again."""
        return self.synthetic or any(item.rule == _RESUME_RULE for item in self.evidence)

    @property
    def _reported_duration(self) -> timedelta | None:
        if self.result is None or self.result.reported_ms is None or not self.result.trusts_reported:
            return None
        try:
            return timedelta(milliseconds=self.result.reported_ms)
        except OverflowError:
            return None

    @property
    def advice(self) -> Advice | None:
        """Cause and suggested solution, when something went wrong."""
        return ADVICE[self.error_kind] if self.error_kind else None


def parse_timestamp(text: str | None) -> datetime | None:
    """The time a record states; None when it states none or none that can be read."""
    if not text:
        return None
    try:
        parsed = _parse_iso(text)
    except ValueError:
        return None
    return parsed if parsed.tzinfo is UTC else _with_timezone(parsed)


def _with_timezone(parsed: datetime) -> datetime | None:
    """A time with its zone, UTC if it has none; None where UTC has no such year any more."""
    if parsed.tzinfo is None:
        return parsed.replace(tzinfo=UTC)
    try:
        parsed.astimezone(UTC)
    except OverflowError:
        return None
    return parsed


def is_within(at: str | None, since: datetime | None, until: datetime | None) -> bool:
    """Whether a timestamp lies between two times; one that nobody knows lies only in all time."""
    if since is None and until is None:
        return True
    timestamp = parse_timestamp(at)
    if timestamp is None:
        return False
    return (since is None or timestamp >= since) and (until is None or timestamp < until)


_parse_iso = datetime.fromisoformat
_REPAIRED_STATES = frozenset({"interrupted", "never_answered"})
"""What calls come to be whose result was made up."""
_RESUME_RULE = "session ended"
"""The evidence of a result that a client wrote when it was started again."""
_ZERO = timedelta(0)


class LineCounts(Struct, frozen=True, kw_only=True, gc=False):
    """How many lines a transcript has, and of what quality."""

    lines: int = 0
    """Not blank."""
    blank: int = 0
    malformed: int = 0
    """Lines that are not exactly one JSON object in UTF-8."""
    recovered: int = 0
    """Entries got out of malformed lines."""
