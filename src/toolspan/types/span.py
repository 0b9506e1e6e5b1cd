"""The span: one call with its request, events, result, times and state."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal, Protocol

from msgspec import Struct

from toolspan.types.error_kinds import ADVICE, Advice, ErrorKind, denial_message
from toolspan.types.ids import CallId, SessionId, SourceLocation
from toolspan.types.session import ClientName
from toolspan.types.state import State
from toolspan.types.tool_kinds import ToolKind, tool_kind

if TYPE_CHECKING:
    from toolspan.types.inputs import ToolInput


HookOutcome = Literal[
    "started", "success", "error", "blocked", "cancelled", "context", "message", "decision",
    "stopped", "deferred",
]  # fmt: skip


class Hook(Struct, frozen=True, kw_only=True, gc=False, tag="hook"):
    """A hook that ran for a call."""

    point: str
    """The hook point: `PreToolUse`, `PostToolUse`, …"""
    name: str
    outcome: HookOutcome
    command: str | None = None
    exit_code: int | None = None
    duration_ms: int | float | None = None
    text: str | None = None
    at: str | None = None
    place: SourceLocation


POLL = "poll"
"""The kind of progress that later calls report about a background command, by reading its output or stopping it."""


class Progress(Struct, frozen=True, kw_only=True, gc=False, tag="progress", omit_defaults=True):
    """All progress records of one kind for one call."""

    kind: str
    count: int
    first_at: str | None
    last_at: str | None
    pauses: tuple[tuple[str, str], ...] = ()
    """The long gaps between two records, as pairs of their times."""


class Permission(Struct, frozen=True, kw_only=True, gc=False, tag="permission"):
    """A recorded permission decision."""

    decision: str
    """The decision in the client's words: `accept`, `reject`, a denial kind, …"""
    source: str | None = None
    reason: str | None = None
    origin: str | None = None
    """The source of the rule that decided."""
    code: str | None = None
    """The client's code for the subject: `workingDir`, `mode:plan`, …"""
    scope: str | None = None
    """The scope of the user's approval: `once`, …"""
    place: SourceLocation


class Notification(Struct, frozen=True, kw_only=True, gc=False, tag="notification"):
    """A notification about a background task that the call started."""

    task_id: str | None
    status: str | None
    summary: str | None
    output: str | None = None
    """The end of the task's output, if it failed and the record contains it."""
    at: str | None
    place: SourceLocation


class Note(Struct, frozen=True, kw_only=True, gc=False, tag="note"):
    """Any other client note about a call, such as a truncated file."""

    kind: str
    text: str | None
    at: str | None
    place: SourceLocation


Event = Hook | Progress | Permission | Notification | Note


Branch = Literal["active", "compacted", "abandoned"]


class BodyStore(Protocol):
    """A reader for inputs and results on demand.

    Its methods may do I/O, and raise SourceError if the file has changed since it was first read.
    """

    @property
    def name(self) -> str:
        """The name of the file that locations refer to."""

    def raw_input(self, call: Call) -> bytes:
        """Return the input as JSON."""

    def arguments(self, call: Call) -> Mapping[str, object]:
        """Return the decoded input, or an empty mapping if it is not an object."""

    def typed_input(self, call: Call) -> ToolInput:
        """Return the input, as an instance of the tool's input type."""

    def content(self, result: Result) -> object:
        """Return the content sent to the model: a string or a list of blocks."""

    def text(self, result: Result) -> str:
        """Return the content as text, with short notes for images and other blocks."""

    def structured(self, result: Result) -> object:
        """Return the structured result, as an instance of the tool's result type, or None if there is none."""


class Call(Struct, frozen=True, kw_only=True, gc=False):
    """A model's request to run one tool."""

    id: CallId
    tool: str
    """The name of the tool; empty for an orphan result, whose request was not recorded."""
    at: int
    """The packed location; 0 for an orphan result."""
    requested_at: str | None
    """The unparsed timestamp; `Span.requested` is the parsed one."""
    target: str | None
    """The path, command, pattern, URL or question in the input."""
    session_id: SessionId | None = None
    agent_id: str | None = None
    """The subagent that made the call; None for the main conversation."""
    message_id: str | None = None
    """The id of the assistant message; calls in the same message form a batch."""
    prompt_id: str | None = None
    """The id of the prompt that started the turn."""
    parent_call: CallId | None = None
    """The call that started this subagent, or the process with which this call interacts."""
    continues: CallId | None = None
    """The call whose background command this call reads, writes to or stops."""
    client: ClientName = "claude"
    body_store: BodyStore

    @property
    def place(self) -> SourceLocation | None:
        """The location of the request; None for an orphan result."""
        return SourceLocation.unpack(self.body_store.name, self.at) if self.at else None

    @property
    def kind(self) -> ToolKind:
        """The kind of the tool."""
        return tool_kind(self.tool)

    @property
    def input(self) -> ToolInput:
        """The input, as an instance of the tool's input type."""
        return self.body_store.typed_input(self)

    @property
    def raw_input(self) -> bytes:
        """The input as JSON."""
        return self.body_store.raw_input(self)

    @property
    def arguments(self) -> Mapping[str, object]:
        """The decoded input, for example `call.arguments["command"]`."""
        return self.body_store.arguments(self)


class Result(Struct, frozen=True, kw_only=True, gc=False):
    """The result that was sent to the model."""

    id: CallId
    tool: str
    at: int
    """The packed location."""
    finished_at: str | None
    """The unparsed timestamp; `Span.finished` is the parsed one."""
    is_error: bool | None
    """The flag as recorded; most successful results omit it."""
    exit_code: int | None = None
    """The exit code of a command, from the text or the structured result."""
    denial_kind: str | None = None
    """The client's name for a refusal."""
    truncated: bool = False
    """True if the model received only part of the output."""
    persisted_path: str | None = None
    """The file that contains the whole output."""
    background_task: str | None = None
    """The id of the background task that continues after the call."""
    reported_ms: float | None = None
    """The duration reported by the tool."""
    trusts_reported: bool = False
    """True if the reported duration is used when timestamps are missing or imply a shorter one."""
    records_changes: bool = False
    """True if the structured result of a command contains the files that it changed."""
    has_copied_times: bool = False
    """True if a client stamped request and result with the time at which it copied them."""
    body_store: BodyStore

    @property
    def place(self) -> SourceLocation:
        """The location of the result."""
        return SourceLocation.unpack(self.body_store.name, self.at)

    @property
    def text(self) -> str:
        """The content as text."""
        return self.body_store.text(self)

    @property
    def content(self) -> object:
        """The content: a string or a list of blocks."""
        return self.body_store.content(self)

    @property
    def structured(self) -> object:
        """The structured result, as an instance of the tool's result type; None if there is none."""
        return self.body_store.structured(self)


class Evidence(Struct, frozen=True, gc=False):
    """A reason for a state: the rule that matched, and the text it matched."""

    rule: str
    text: str | None = None

    @property
    def summary(self) -> str:
        """The rule with its text, unless that is the sentence in which a client words every rejection."""
        return self.rule if self.text is None or denial_message(self.text) is None else f"{self.rule}: {self.text}"


class DuplicateRecord(Struct, frozen=True, gc=False):
    """A repeated record of a request or result with the same id."""

    what: Literal["call", "result"]
    place: SourceLocation


class Span(Struct, frozen=True, kw_only=True, gc=False):
    """One call with its request, events, result, times and state."""

    call: Call
    result: Result | None
    state: State
    evidence: tuple[Evidence, ...]
    error_kind: ErrorKind | None = None
    message: str | None = None
    """The beginning of the error text, without tags."""
    events: tuple[Event, ...] = ()
    """Hooks, progress, permission decisions and notifications, in order."""
    background: bool = False
    """True if the work continues in the background."""
    ambiguous: bool = False
    """True if the records allow another interpretation; see the evidence."""
    synthetic: bool = False
    """True if the client fabricated the result to repair a conversation."""
    deferred: bool = False
    """True if a hook deferred the call."""
    branch: Branch = "active"
    """The branch of the conversation that contains the call."""
    agent: str | None = None
    """The id of the subagent that this call started."""
    copies: tuple[DuplicateRecord, ...] = ()
    """Repetitions in the same file; `History` merges copies in forked and resumed sessions."""

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
        """The input, as an instance of the tool's input type."""
        return self.call.input

    @property
    def requested(self) -> datetime | None:
        """The time of the request."""
        return parse_timestamp(self.call.requested_at)

    @property
    def finished(self) -> datetime | None:
        """The time of the result."""
        return parse_timestamp(self.result.finished_at) if self.result else None

    @property
    def duration(self) -> timedelta | None:
        """The time from request to result, including permission waits; None if a time is missing.

        A background command lasts until its end, or until it was last seen running. A fabricated result has no
        duration. Codex may write both records at once or without times, so the duration reported by the tool is a
        lower bound. If the times are those of a copy, only the reported duration is known.
        """
        result = self.result
        if result is None or (self.state in _REPAIRED_STATES and self.has_fabricated_result):
            return None
        if result.has_copied_times:
            return self._reported_duration
        try:
            elapsed = _parse_iso(result.finished_at or "") - _parse_iso(self.call.requested_at or "")
        except (TypeError, ValueError):  # one is missing or malformed, or only one has a time zone
            start, end = self.requested, self.finished
            if start is None or end is None:
                return self._reported_duration
            elapsed = end - start
        elapsed = max(elapsed, self._reported_duration or elapsed)
        if self.background and (end := self.background_end) is not None and (start := self.requested) is not None:
            elapsed = max(elapsed, end - start)
        return elapsed if elapsed >= _ZERO else None

    @property
    def background_end(self) -> datetime | None:
        """The time at which the background work of the call ended or was last seen running; None if not recorded."""
        if not self.background:
            return None
        ends = (parse_timestamp(event.at) for event in self.events if isinstance(event, Notification) and event.status)
        if (end := min((at for at in ends if at is not None), default=None)) is not None:
            return end
        polls = (event for event in self.events if isinstance(event, Progress) and event.kind == POLL)
        return next((parse_timestamp(event.last_at) for event in polls), None)

    @property
    def polls(self) -> int:
        """The number of later calls that read the output of the call's background command or stopped it."""
        return sum(event.count for event in self.events if isinstance(event, Progress) and event.kind == POLL)

    @property
    def duration_ms(self) -> int | None:
        """The duration in whole milliseconds."""
        elapsed = self.duration
        return None if elapsed is None else round(elapsed.total_seconds() * 1000)

    @property
    def has_fabricated_result(self) -> bool:
        """True if the client wrote the result later, during resume or repair."""
        return self.synthetic or any(item.rule == _RESUME_RULE for item in self.evidence)

    @property
    def _reported_duration(self) -> timedelta | None:
        result = self.result
        if result is None or result.reported_ms is None or not (result.trusts_reported or result.has_copied_times):
            return None
        try:
            return timedelta(milliseconds=result.reported_ms)
        except OverflowError:
            return None

    @property
    def advice(self) -> Advice | None:
        """The cause of the error and the suggested solution."""
        return ADVICE[self.error_kind] if self.error_kind else None


def parse_timestamp(text: str | None) -> datetime | None:
    """Parse a timestamp, or return None if it is missing, invalid or out of range in UTC."""
    if not text:
        return None
    try:
        parsed = _parse_iso(text)
        if parsed.tzinfo is None:
            return parsed.replace(tzinfo=UTC)
        if parsed.tzinfo is not UTC:
            parsed.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return parsed


def to_epoch_ms(time: datetime | None) -> int | None:
    """Return a time as whole milliseconds since the epoch."""
    return None if time is None else (time - _EPOCH) // _MS


def is_within(at: str | None, since: datetime | None, until: datetime | None) -> bool:
    """Return whether a timestamp is in a period. An unknown time is only in a period without limits."""
    if since is None and until is None:
        return True
    timestamp = parse_timestamp(at)
    if timestamp is None:
        return False
    return (since is None or timestamp >= since) and (until is None or timestamp < until)


_parse_iso = datetime.fromisoformat
_REPAIRED_STATES = frozenset({"interrupted", "never_answered"})
_RESUME_RULE = "session ended"
_ZERO = timedelta(0)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


class LineCounts(Struct, frozen=True, kw_only=True, gc=False):
    """Line counts of a transcript."""

    lines: int = 0
    blank: int = 0
    malformed: int = 0
    """Lines that are not a single JSON object in UTF-8."""
    recovered: int = 0
    """Records recovered from malformed lines."""
