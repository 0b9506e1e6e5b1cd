"""The centre of everything: one call's whole life.

A `Span` joins what the model asked for (`Call`), what went back (`Result`), how it ended (`State`,
with the evidence for it) and what happened around it (events). Facts are fields; bodies (inputs,
outputs) stay in the transcript and are read when asked for, through an injected `Shelf`.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal, Protocol

from msgspec import Struct

from toolspan.ids import CallId, SessionId
from toolspan.model.event import Event
from toolspan.model.kind import ADVICE, Advice, ErrorKind
from toolspan.model.place import Place
from toolspan.model.session import Dialect
from toolspan.model.state import State
from toolspan.model.toolkind import ToolKind, tool_kind

if TYPE_CHECKING:  # a large module that most questions never need
    from toolspan.model.inputs import ToolInput

Branch = Literal["active", "compacted", "abandoned"]


class Shelf(Protocol):
    """Where bodies are kept: reads an input or a result again, when somebody asks.

    May do I/O. Raises SourceError when the place no longer holds what it held.
    """

    @property
    def name(self) -> str:
        """The file the places are in."""
        ...

    def raw_input(self, call: "Call") -> bytes:
        """The input as JSON."""
        ...

    def arguments(self, call: "Call") -> Mapping[str, object]:
        """The input, decoded; empty when it is no object."""
        ...

    def typed_input(self, call: "Call") -> "ToolInput":
        """The input narrowed to its tool's type."""
        ...

    def content(self, result: "Result") -> object:
        """What the model read, as decoded JSON: a string or a list of blocks."""
        ...

    def text(self, result: "Result") -> str:
        """What the model read, as text; pictures and other blocks as short notes."""
        ...

    def structured(self, result: "Result") -> object:
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
    shelf: Shelf
    """Where its body is read from when somebody asks."""

    @property
    def place(self) -> Place | None:
        """Where the request stands; None for an orphan result."""
        return Place.unpacked(self.shelf.name, self.at) if self.at else None

    @property
    def kind(self) -> ToolKind:
        """What sort of work the tool does."""
        return tool_kind(self.tool)

    @property
    def input(self) -> "ToolInput":
        """The input, narrowed to its tool's type."""
        return self.shelf.typed_input(self)

    @property
    def raw_input(self) -> bytes:
        """The input as JSON."""
        return self.shelf.raw_input(self)

    @property
    def arguments(self) -> Mapping[str, object]:
        """The input as the model wrote it, decoded: `call.arguments["command"]`."""
        return self.shelf.arguments(self)


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
    shelf: Shelf

    @property
    def place(self) -> Place:
        """Where it stands."""
        return Place.unpacked(self.shelf.name, self.at)

    @property
    def text(self) -> str:
        """What the model read, as text."""
        return self.shelf.text(self)

    @property
    def content(self) -> object:
        """What the model read: a string or a list of blocks."""
        return self.shelf.content(self)

    @property
    def structured(self) -> object:
        """The machine-readable companion, narrowed to its tool's type."""
        return self.shelf.structured(self)


class Evidence(Struct, frozen=True, gc=False):
    """One reason for a state: the rule that spoke and the text it saw."""

    rule: str
    text: str | None = None


class Copy(Struct, frozen=True, gc=False):
    """A further request or result with an id that was there before."""

    what: Literal["call", "result"]
    place: Place


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
    copies: tuple[Copy, ...] = ()
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
    def input(self) -> "ToolInput":
        """The call's input, narrowed to its tool's type."""
        return self.call.input

    @property
    def requested(self) -> datetime | None:
        """When it was asked for."""
        return moment(self.call.requested_at)

    @property
    def finished(self) -> datetime | None:
        """When its result was recorded."""
        return moment(self.result.finished_at) if self.result else None

    @property
    def duration(self) -> timedelta | None:
        """From request to result, permission wait included; None where a time is missing.

        Nor does a result that was made up later tell when the call ended. Codex may write both
        lines at once, or without times: what it says of the tool is the least.
        """
        result = self.result
        if result is None or (self.state in _REPAIRED and self.made_up):
            return None
        try:
            taken = _parse(result.finished_at or "") - _parse(self.call.requested_at or "")
        except (TypeError, ValueError):  # one is missing or odd, or only one has a zone
            start, end = self.requested, self.finished
            if start is None or end is None:
                return self._reported
            taken = end - start
        if self.call.dialect == "codex":
            taken = max(taken, self._reported or _NO_TIME)
        return taken if taken >= _NO_TIME else None

    @property
    def duration_ms(self) -> int | None:
        """The same in whole milliseconds, as every command counts it."""
        taken = self.duration
        return None if taken is None else round(taken.total_seconds() * 1000)

    @property
    def made_up(self) -> bool:
        """The result was not the tool's: a client wrote it later, when it was started again."""
        return self.synthetic or any(one.rule == _RESUMED for one in self.evidence)

    @property
    def _reported(self) -> timedelta | None:
        if self.call.dialect != "codex" or self.result is None or self.result.reported_ms is None:
            return None
        try:
            return timedelta(milliseconds=self.result.reported_ms)
        except OverflowError:
            return None

    @property
    def advice(self) -> Advice | None:
        """Cause and suggested solution, when something went wrong."""
        return ADVICE[self.error_kind] if self.error_kind else None


def moment(text: str | None) -> datetime | None:
    """The time a record states; None when it states none or none that can be read."""
    if not text:
        return None
    try:
        found = _parse(text)
    except ValueError:
        return None
    return found if found.tzinfo is UTC else _with_zone(found)


def _with_zone(found: datetime) -> datetime | None:
    """A time with its zone, UTC if it has none; None where UTC has no such year any more."""
    if found.tzinfo is None:
        return found.replace(tzinfo=UTC)
    try:
        found.astimezone(UTC)
    except OverflowError:
        return None
    return found


def within(at: str | None, since: datetime | None, until: datetime | None) -> bool:
    """Whether a timestamp lies between two times; one that nobody knows lies only in all time."""
    if since is None and until is None:
        return True
    found = moment(at)
    if found is None:
        return False
    return (since is None or found >= since) and (until is None or found < until)


_parse = datetime.fromisoformat
_REPAIRED = frozenset({"interrupted", "never_answered"})
"""What calls come to be whose result was made up."""
_RESUMED = "session ended"
"""The evidence of a result that a client wrote when it was started again."""
_NO_TIME = timedelta(0)


class Counts(Struct, frozen=True, kw_only=True, gc=False):
    """How many lines a transcript has, and of what quality."""

    lines: int = 0
    """Not blank."""
    blank: int = 0
    malformed: int = 0
    """Lines that are not exactly one JSON object in UTF-8."""
    recovered: int = 0
    """Entries got out of malformed lines."""
