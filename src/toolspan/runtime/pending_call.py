"""A call in progress: its `tool_use` block, its stage, and its input and result in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import msgspec
from msgspec import Struct, structs

from toolspan.errors import BadCall
from toolspan.runtime.hooks.events import PreToolDecision
from toolspan.runtime.schema.issues import Invalid, Valid, unparsed_input
from toolspan.types.events import Content, Decided, Finished, Progressed
from toolspan.types.ids import CallId
from toolspan.types.span import Call, Result

if TYPE_CHECKING:
    from toolspan.runtime.context import CallContext, ToolContext
    from toolspan.runtime.isolation import IsolatedTask
    from toolspan.runtime.outcome import Outcome
    from toolspan.runtime.tool import Input, Tool
    from toolspan.types.inputs import ToolInput


CancelSource = Literal["user", "host", "turn", "sibling", "discarded"]
"""The source of a cancellation: the user, the host program, the end of the turn, a failed sibling call, or a reply
that was streamed again.
"""

NO_DECISION = PreToolDecision()


class PendingCall(Struct, kw_only=True, eq=False):
    """A call that has been accepted and has not finished."""

    call: Call
    body_store: LiveBodyStore
    tool: Tool | None
    parsed: Valid | Invalid | None
    requested_at: float
    message: Mapping[str, object] | None = None
    recovers: CallId | None = None  # the failed call for which a recovery policy runs this call
    truncated: bool = False  # the reply was cut off inside the block, so that the input is incomplete
    isolated_task: IsolatedTask[Any] | None = None  # the user code that the call is waiting for
    cancelled_by: CancelSource | None = None
    started_at: float | None = None
    tool_context: ToolContext | None = None
    decision_event: Decided | None = None
    pre_tool_decision: PreToolDecision = NO_DECISION
    held_progress: Progressed | None = None  # the latest progress, held because other progress was emitted just before
    progress_sent_at: float = 0.0
    slow_reported: bool = False
    outcome: Outcome | None = None
    """The outcome of the tool itself, which is kept even if a later stage is cancelled or fails."""
    modify: Callable[[CallContext], CallContext] | None = None
    finished: Finished | None = None

    @property
    def is_blocking(self) -> bool:
        """True if the call is inside a tool that must not be interrupted."""
        blocks = self.tool is not None and self.tool.interrupt == "block"
        return blocks and self.started_at is not None and self.outcome is None

    def cancel(self, by: CancelSource) -> None:
        """Cancel the call. Only the first source is recorded."""
        if self.cancelled_by is None:
            self.cancelled_by = by
            if self.isolated_task is not None and not self.is_blocking:
                self.isolated_task.cancel_wait()


class PreparedCall(Struct, frozen=True):
    """A call whose tool exists and whose input is valid."""

    tool: Tool
    valid: Valid
    tool_context: ToolContext

    def with_input(self, arguments: Input | None) -> PreparedCall | Invalid:
        """Return the call with another input, or the issues in it. None leaves the input unchanged."""
        if arguments is None:
            return self
        parsed = self.tool.parse(arguments)
        return parsed if isinstance(parsed, Invalid) else structs.replace(self, valid=parsed)

    def drop_unknown_keys(self, arguments: Input) -> Input:
        """Return the input without keys that the tool does not accept, because approvers may add keys
        meant for other tools.
        """
        parsed = self.tool.parse(arguments)
        if not isinstance(parsed, Invalid):
            return arguments
        unknown = {issue.path[0] for issue in parsed.issues if issue.code == "unexpected"}
        return {key: value for key, value in arguments.items() if key not in unknown}


class CallRequest(NamedTuple):
    """The content of a `tool_use` block."""

    id: CallId
    tool: str
    input: Input


UNNAMED_TOOL = "unnamed"
"""The name of the tool in a call that names none. No tool has it, so the call fails."""


def parse_tool_use(block: Mapping[str, object]) -> CallRequest:
    """Parse a `tool_use` block. A call without a name gets a result, as one to an unknown tool does.

    Raises:
        BadCall: the block is not a call, or lacks the id needed to answer it.
    """
    if block.get("type", "tool_use") != "tool_use":
        raise BadCall("a call must be a block of type tool_use")
    call_id, name = block.get("id"), block.get("name")
    if not isinstance(call_id, str) or not call_id:
        raise BadCall("a tool_use block needs an id, which must be a non-empty string")
    arguments = block.get("input", {})
    if not isinstance(arguments, (dict, Mapping)):  # perf: checking the abstract class alone is slow
        arguments = unparsed_input(str(arguments))
    return CallRequest(CallId(call_id), name if isinstance(name, str) and name else UNNAMED_TOOL, arguments)


def call_block(call: Call) -> dict[str, object]:
    """Return a call as a block for an assistant message."""
    return {"type": "tool_use", "id": call.id, "name": call.tool, "input": dict(call.arguments)}


_TARGET_ORDER = (
    "file_path", "command", "pattern", "notebook_path", "url", "query", "skill", "description",
    "subject", "path", "task_id", "bash_id", "shell_id", "taskId", "prompt", "sql", "selector",
)  # fmt: skip
_TARGET_KEYS = frozenset(_TARGET_ORDER)


def call_target(arguments: Input) -> str | None:
    """Return the path, command, pattern or address in the input, shortened, or None if there is none."""
    if _TARGET_KEYS.isdisjoint(arguments):
        return None
    for key in _TARGET_ORDER:
        value = arguments.get(key)
        if value and isinstance(value, str):
            return value[:160]
    return None


class LiveBodyStore(Struct, eq=False):
    """The input and result of a live call, with the interface of a transcript's body store."""

    name: ClassVar[str] = "live"
    arguments_: Mapping[str, object]
    content_: Content = ""
    structured_: object | None = None

    def arguments(self, call: Call) -> Mapping[str, object]:  # noqa: ARG002 - holds one call only
        """Return the decoded input as a read-only mapping."""
        return MappingProxyType(dict(self.arguments_))

    def raw_input(self, call: Call) -> bytes:  # noqa: ARG002
        """Return the input as JSON."""
        return msgspec.json.encode(self.arguments_)

    def typed_input(self, call: Call) -> ToolInput:
        """Return the input as its tool's input type."""
        from toolspan.formats.registry import recorded_format

        return recorded_format().narrow_input(call.tool, self.raw_input(call))

    def content(self, result: Result) -> object:  # noqa: ARG002
        """Return the content sent to the model: a string or a list of blocks."""
        return self.content_

    def text(self, result: Result) -> str:  # noqa: ARG002
        """Return the content sent to the model, as text."""
        if isinstance(self.content_, str):
            return self.content_
        from toolspan.formats.decoding import content_to_text

        return content_to_text(self.content_)

    def structured(self, result: Result) -> object:
        """Return the structured result as its tool's result type."""
        from toolspan.formats.registry import recorded_format

        if self.structured_ is None:
            return recorded_format().narrow_text_result(result.tool, self.text(result))
        return recorded_format().narrow_result(result.tool, msgspec.json.encode(self.structured_))
