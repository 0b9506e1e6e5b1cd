"""The content of one record in terms that all formats share, for formats that need no reader of their own.

A `RecordParser` yields what each record of a transcript contains: calls, results, messages, model requests. Everything
else, from pairing to live following, is in `parsed_reader.py`. Start at `RecordParser.parse`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from toolspan.formats.pairing import StateInference
from toolspan.types.error_kinds import ErrorKind, kind_of
from toolspan.types.session import MessageAuthor, Tokens
from toolspan.types.span import Evidence
from toolspan.types.state import State
from toolspan.types.tool_kinds import tool_kind

if TYPE_CHECKING:
    from toolspan.types.inputs import ToolInput

Fields = dict[str, Any]
"""A decoded JSON object."""


class RecordedSession(Struct, kw_only=True, gc=False):
    """Facts about the session. Later values replace earlier ones, except the start and the version."""

    id: str | None = None
    agent_id: str | None = None
    """The id of the subagent that wrote the file; `id` is then the session that started it."""
    role: str | None = None
    """The type of that subagent."""
    cwd: str | None = None
    title: str | None = None
    version: str | None = None
    git_branch: str | None = None
    git_commit: str | None = None
    forked_from: str | None = None
    started_at: str | None = None


class RecordedLink(Struct, gc=False):
    """The position of the record in a tree of records, of which only the newest branch is active."""

    id: str
    parent: str | None


class RecordedCall(Struct, kw_only=True, gc=False):
    """A request to run a tool."""

    id: str
    tool: str
    arguments: object = None
    at: str | None = None
    batch: str | None = None
    """The id of the reply; calls in the same reply form a batch."""
    agent_id: str | None = None
    """The subagent that made the call, if its records are in the file of its session."""
    parent_call: str | None = None
    """The call that started that subagent."""


class RecordedResult(Struct, kw_only=True, gc=False):
    """The result of a call, as sent to the model."""

    id: str
    content: object = None
    """A string or a list of blocks."""
    text: str | None = None
    """The content as text, if it is not made of blocks with a text."""
    at: str | None = None
    is_error: bool | None = None
    exit_code: int | None = None
    outcome: StateInference | None = None
    """The state, if the record shows more than an exit code or an error flag."""
    structured: object = None
    reported_ms: float | None = None
    trusts_reported: bool = False
    truncated: bool = False
    persisted_path: str | None = None
    background_task: str | None = None
    denial_kind: str | None = None


class RecordedStop(Struct, kw_only=True, gc=False):
    """The end of calls that get no result."""

    outcome: StateInference
    calls: tuple[str, ...] | None = None
    """The ids of the calls; None for all that are open."""
    agent_id: str | None = None


class RecordedStart(Struct, gc=False):
    """The start of a call that was requested before."""

    id: str
    evidence: str


class RecordedEvent(Struct, kw_only=True, gc=False):
    """A permission decision, a hook or a notification about a call; see the events of a span."""

    id: str
    kind: str
    """`permission`, `hook` or `notification`."""
    values: Fields


class RecordedMessage(Struct, kw_only=True, gc=False):
    """A prompt, the model's text or thinking, or a note."""

    voice: MessageAuthor
    text: str
    at: str | None = None
    id: str | None = None
    agent_id: str | None = None


class RecordedRequest(Struct, kw_only=True, gc=False):
    """A request to a model, with its tokens without cached ones in the input."""

    id: str
    tokens: Tokens
    model: str | None = None
    at: str | None = None
    cost_usd: float | None = None
    agent_id: str | None = None


class RecordedAgent(Struct, kw_only=True, gc=False):
    """The subagent that a call started."""

    call: str
    agent_id: str
    role: str | None = None


class RecordedCompaction(Struct, gc=False):
    """A summary that replaces the history."""


Recorded = (
    RecordedSession | RecordedLink | RecordedCall | RecordedResult | RecordedStop | RecordedStart | RecordedEvent
    | RecordedMessage | RecordedRequest | RecordedAgent | RecordedCompaction
)  # fmt: skip


class RecordParser(ABC):
    """Parser for the records of one transcript, in order. It may keep what later records need."""

    known_types: frozenset[str] = frozenset()
    """The types of records that the client has been observed to write."""
    offset: int = 0
    """The offset of the record that is parsed, for clients whose calls have no ids."""

    @abstractmethod
    def parse(self, record: Fields) -> Iterator[Recorded]:
        """Yield the content of a record. Values may have any type. Never raises."""

    def record_type(self, record: Fields) -> str:
        """Return the type under which a record is counted."""
        return text_of(record, "type") or ""


# --- Values of any type


def text_of(holder: object, *keys: str) -> str | None:
    """Return the string below nested keys, or None if there is none."""
    value = value_of(holder, *keys)
    return value if isinstance(value, str) else None


def value_of(holder: object, *keys: str) -> Any:
    """Return the value below nested keys, or None."""
    for key in keys:
        holder = holder.get(key) if isinstance(holder, dict) else None
    return holder


def object_of(holder: object, *keys: str) -> Fields:
    """Return the object below nested keys, or an empty one."""
    value = value_of(holder, *keys)
    return value if isinstance(value, dict) else {}


def objects_of(holder: object, *keys: str) -> list[Fields]:
    """Return the objects in the list below nested keys."""
    value = value_of(holder, *keys)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def count_of(holder: object, *keys: str) -> int:
    """Return the count below nested keys, or 0 if there is none or it is impossible."""
    value = value_of(holder, *keys)
    return value if type(value) is int and 0 <= value < 1 << 48 else 0


def int_of(holder: object, *keys: str) -> int | None:
    """Return the integer below nested keys, or None."""
    value = value_of(holder, *keys)
    return value if type(value) is int and abs(value) < 1 << 62 else None


def number_of(holder: object, *keys: str) -> float | None:
    """Return the number below nested keys, or None."""
    value = value_of(holder, *keys)
    return value if type(value) in (int, float) and abs(value) < 1e18 else None


def time_of(holder: object, *keys: str) -> str | None:
    """Return the time below nested keys, as written or, for milliseconds or seconds since the epoch, in ISO 8601."""
    value = value_of(holder, *keys)
    if isinstance(value, str):
        return value
    if type(value) not in (int, float) or not 0 < value < 1e14:
        return None
    seconds = value / 1000 if value > 1e11 else value
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def texts_of(holder: object, *keys: str) -> str:
    """Return a string, or the texts in a list of blocks, one per line."""
    value = value_of(holder, *keys)
    if isinstance(value, str):
        return value
    return "\n".join(text for block in objects_of(value and {"": value}, "") if (text := text_of(block, "text")))


# --- States


def ended(state: State, kind: ErrorKind | None = None, rule: str = "status", text: str | None = None) -> StateInference:
    """Return a state with its evidence."""
    return StateInference(state=state, kind=kind, evidence=(Evidence(rule, text),))


ErrorTexts = tuple[tuple[ErrorKind, re.Pattern[str]], ...]
"""Error kinds with patterns of the texts that only one client writes."""


def find_kind(texts: ErrorTexts, tool: str, text: str) -> ErrorKind:
    """Return the kind of an error text, which a client's own patterns recognise before those of all clients."""
    kind = next((kind for kind, pattern in texts if pattern.search(text)), None) or kind_of(tool, text)
    return "command_failed" if kind == "unknown" and tool_kind(tool) == "shell" else kind


def failed(texts: ErrorTexts, tool: str, text: str, rule: str = "error flag") -> StateInference:
    """Return the state of a call whose error text is all that is known."""
    kind = find_kind(texts, tool, text)
    return ended("timed_out" if kind in ("command_timeout", "mcp_timeout") else "failed", kind, rule)


# --- Inputs


class ToolShape(Struct, frozen=True):
    """The type of a tool's input, and the client's names of its fields if they differ."""

    input_type: type[ToolInput]
    names: Mapping[str, str] = {}
    """Names in the type by names in the record."""
    item_names: Mapping[str, Mapping[str, str]] = {}
    """The same for the objects in a list, by the name of the list."""

    def rename(self, arguments: Fields) -> Fields:
        """Return the input with the names that the type has."""
        renamed = {self.names.get(key, key): value for key, value in arguments.items()}
        for key, names in self.item_names.items():
            if isinstance(items := renamed.get(key), list):
                renamed[key] = [
                    {names.get(name, name): value for name, value in item.items()} if isinstance(item, dict) else item
                    for item in items
                ]
        return renamed

    def convert(self, arguments: Fields) -> ToolInput:
        """Return the input as its type, as leniently as clients do. May raise msgspec.ValidationError."""
        return msgspec.convert(self.rename(arguments), self.input_type, strict=False)
