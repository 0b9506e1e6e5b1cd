"""Claude Code's transcript lines: bytes to entries and back.

Decoding takes two steps. The typed decoder reads the fields that most questions need and leaves
everything else alone: bodies stay undecoded, unknown keys are passed over, an unknown `type` is
still an entry. A line whose known fields have unexpected types is read again loosely: what fits is
taken, what does not is named in `Decoded.odd`. `Bodies` is the view for those who want the inputs
and results themselves. Encoding lays the typed view over the decoded line, so that a wrong view
would show as a difference.

Both the file form (camel case keys) and the stream form (snake case) are read here. Read `decode`
first.
"""

from msgspec import Raw, Struct, field

from toolspan.ids import CallId, EntryId, SessionId
from toolspan.wire.claude_parts import (
    NOTHING,
    Attachment,
    Deferred,
    Denial,
    ProgressData,
    StructuredFacts,
    Target,
)
from toolspan.wire.views import UNFIT, View, plain, text_of

__all__ = ["UNFIT", "plain", "text_of"]

KNOWN_TYPES = frozenset({
    "user", "assistant", "system", "attachment", "progress", "summary", "ai-title", "custom-title",
    "agent-name", "agent-setting", "agent-color", "tag", "last-prompt", "mode", "permission-mode",
    "queue-operation", "file-history-snapshot", "file-history-delta", "content-replacement",
    "pr-link", "worktree-state", "relocated", "bridge-session", "cost-state", "frame-link",
    "artifact", "atis-latch", "history-suppression", "attribution-snapshot", "speculation-accept",
    "fork-context-ref", "agent_metadata", "turn_end", "compact_boundary", "api-request",
    "api-request-shape", "api-request-blob", "tools-used",
    "result", "stream_event", "tool_progress", "rate_limit_event", "control_request",
    "control_response", "control_cancel_request", "keep_alive", "tool_use_summary", "auth_status",
    "prompt_suggestion",
})  # fmt: skip
"""Types of lines that have been seen or documented; others are read all the same, as drift."""

_KNOWN_PREFIXES = ("artifact-", "marble-origami-")


CALL_BLOCKS = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
"""Content blocks that ask for a tool."""


class Block(Struct, gc=False):
    """One content block of a message."""

    type: str = ""
    id: CallId | None = None
    name: str | None = None
    input: Target | None = None
    tool_use_id: CallId | None = None
    content: Raw = NOTHING
    is_error: bool | None = None
    text: Raw = NOTHING
    thinking: Raw = NOTHING


class Usage(Struct, gc=False):
    """Token counts of one message."""

    input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens: int | None = None


class ApiMessage(Struct, gc=False):
    """The message inside a user or assistant line."""

    model: str | None = None
    id: str | None = None
    content: str | list[Block] | None = None
    usage: Usage | None = None


class Origin(Struct, gc=False):
    """Who made a user line."""

    kind: str | None = None


class ForkedFrom(Struct, gc=False):
    """The place a forked session was copied from."""

    session_id: str | None = field(default=None, name="sessionId")
    message_uuid: str | None = field(default=None, name="messageUuid")


Structured = StructuredFacts | list[Raw] | str | int | float | bool | None
"""A structured result may be anything; of objects only the facts that decide a state are read."""


class Entry(Struct, gc=False):
    """The typed view of one line; fields stand in the order in which clients write them."""

    parent_uuid: str | None = field(default=None, name="parentUuid")
    is_sidechain: bool | None = field(default=None, name="isSidechain")
    prompt_id: str | None = field(default=None, name="promptId")
    agent_id: str | None = field(default=None, name="agentId")
    cwd: str | None = None
    session_id: SessionId | None = field(default=None, name="sessionId")
    version: str | None = None
    git_branch: str | None = field(default=None, name="gitBranch")
    type: str = ""
    message: ApiMessage | None = None
    data: ProgressData | None = None
    attachment: Attachment | None = None
    request_id: str | None = field(default=None, name="requestId")
    tool_use_id: str | None = field(default=None, name="toolUseID")
    parent_tool_use_id: str | None = field(default=None, name="parentToolUseID")
    uuid: EntryId | None = None
    timestamp: str | None = None
    tool_use_result: Structured = field(default=None, name="toolUseResult")
    is_meta: bool | None = field(default=None, name="isMeta")
    subtype: str | None = None
    content: Raw = NOTHING
    session_id_snake: SessionId | None = field(default=None, name="session_id")
    tool_use_result_snake: Structured = field(default=None, name="tool_use_result")
    parent_tool_use_id_snake: CallId | None = field(default=None, name="parent_tool_use_id")
    tool_use_id_snake: str | None = field(default=None, name="tool_use_id")
    request_id_snake: str | None = field(default=None, name="request_id")
    tool_denial_kind: str | None = field(default=None, name="toolDenialKind")
    permission_decision: Raw = field(default=NOTHING, name="permissionDecision")
    team_name: str | None = field(default=None, name="teamName")
    is_compact_summary: bool | None = field(default=None, name="isCompactSummary")
    is_api_error: bool | None = field(default=None, name="isApiErrorMessage")
    origin: Origin | None = None
    forked_from: ForkedFrom | None = field(default=None, name="forkedFrom")
    logical_parent_uuid: str | None = field(default=None, name="logicalParentUuid")
    summary: str | None = None
    ai_title: str | None = field(default=None, name="aiTitle")
    custom_title: str | None = field(default=None, name="customTitle")
    permission_denials: list[Denial] | None = None
    deferred_tool_use: Deferred | None = None

    @property
    def session(self) -> SessionId | None:
        """The session it names, in either spelling."""
        return self.session_id or self.session_id_snake

    @property
    def structured(self) -> Structured:
        """The facts of the structured result, in either spelling; None when absent."""
        found = self.tool_use_result
        return self.tool_use_result_snake if found is None else found

    @property
    def known(self) -> bool:
        """Its type has been seen before."""
        return self.type in KNOWN_TYPES or self.type.startswith(_KNOWN_PREFIXES)


class Body(Struct, gc=False):
    """A content block with its bodies."""

    type: str = ""
    id: CallId | None = None
    tool_use_id: CallId | None = None
    input: Raw = NOTHING
    content: Raw = NOTHING


class BodyMessage(Struct, gc=False):
    """The message around the bodies."""

    content: str | list[Body] | None = None


class Bodies(Struct, gc=False):
    """The view of a line for those who want inputs and results themselves."""

    message: BodyMessage | None = None
    tool_use_result: Raw = field(default=NOTHING, name="toolUseResult")
    tool_use_result_snake: Raw = field(default=NOTHING, name="tool_use_result")

    @property
    def blocks(self) -> list[Body]:
        """The content blocks; none when the content is a string."""
        content = self.message.content if self.message else None
        return content if isinstance(content, list) else []

    @property
    def structured(self) -> bytes | None:
        """The structured result as JSON, in either spelling; None when absent or null."""
        found = bytes(self.tool_use_result) or bytes(self.tool_use_result_snake)
        return found if found and found != b"null" else None


_ENTRIES = View(Entry)
_BODIES = View(Bodies)

decode = _ENTRIES.decode
decode_whole = _ENTRIES.decode_whole
encode = _ENTRIES.encode


def decode_bodies(data: bytes) -> Bodies:
    """One line as the bodies it holds.

    Raises:
        ValueError: the bytes are not exactly one JSON object.
    """
    return _BODIES.decode(data).entry
