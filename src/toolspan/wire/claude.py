"""Claude Code's transcript lines: bytes to entries and back.

Decoding takes two steps. The typed decoder reads the fields that most questions need and leaves
everything else alone: inputs, results and bodies stay undecoded (`Raw`), unknown keys are passed
over, an unknown `type` is still an entry. A line whose known fields have unexpected types is read
again loosely: what fits is taken, what does not is named in `Entry.odd`. Encoding lays the typed
view over the decoded line, so that a wrong view would show as a difference.

Both the file form (camel case keys) and the stream form (snake case) are read here. Read `decode`
first.
"""

from typing import Any, NamedTuple, get_args, get_origin

import msgspec
from msgspec import Raw, Struct, field

from toolspan.wire import document

NOTHING = Raw()

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


class Block(Struct, gc=False):
    """One content block of a message."""

    type: str = ""
    id: str | None = None
    name: str | None = None
    input: Raw = NOTHING
    tool_use_id: str | None = None
    content: Raw = NOTHING
    is_error: bool | None = None
    text: Raw = NOTHING
    thinking: Raw = NOTHING


class Usage(Struct, gc=False):
    """Token counts of one message."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None


class ApiMessage(Struct, gc=False):
    """The message inside a user or assistant line."""

    id: str | None = None
    role: str | None = None
    model: str | None = None
    content: str | list[Block] | None = None
    stop_reason: str | None = None
    usage: Usage | None = None


class Origin(Struct, gc=False):
    """Who made a user line."""

    kind: str | None = None


class ForkedFrom(Struct, gc=False):
    """The place a forked session was copied from."""

    session_id: str | None = field(default=None, name="sessionId")
    message_uuid: str | None = field(default=None, name="messageUuid")


class Entry(Struct, gc=False):
    """The typed view of one line."""

    type: str = ""
    uuid: str | None = None
    parent_uuid: str | None = field(default=None, name="parentUuid")
    timestamp: str | None = None
    session_id: str | None = field(default=None, name="sessionId")
    session_id_snake: str | None = field(default=None, name="session_id")
    is_sidechain: bool | None = field(default=None, name="isSidechain")
    agent_id: str | None = field(default=None, name="agentId")
    message: ApiMessage | None = None
    tool_use_result: Raw = field(default=NOTHING, name="toolUseResult")
    tool_use_result_snake: Raw = field(default=NOTHING, name="tool_use_result")
    source_tool_use_id: str | None = field(default=None, name="sourceToolUseID")
    tool_denial_kind: str | None = field(default=None, name="toolDenialKind")
    permission_decision: Raw = field(default=NOTHING, name="permissionDecision")
    request_id: str | None = field(default=None, name="requestId")
    request_id_snake: str | None = field(default=None, name="request_id")
    parent_tool_use_id_snake: str | None = field(default=None, name="parent_tool_use_id")
    prompt_id: str | None = field(default=None, name="promptId")
    version: str | None = None
    cwd: str | None = None
    git_branch: str | None = field(default=None, name="gitBranch")
    slug: str | None = None
    team_name: str | None = field(default=None, name="teamName")
    is_meta: bool | None = field(default=None, name="isMeta")
    is_compact_summary: bool | None = field(default=None, name="isCompactSummary")
    is_api_error: bool | None = field(default=None, name="isApiErrorMessage")
    origin: Origin | None = None
    forked_from: ForkedFrom | None = field(default=None, name="forkedFrom")
    logical_parent_uuid: str | None = field(default=None, name="logicalParentUuid")
    subtype: str | None = None
    content: Raw = NOTHING
    tool_use_id: str | None = field(default=None, name="toolUseID")
    parent_tool_use_id: str | None = field(default=None, name="parentToolUseID")
    data: Raw = NOTHING
    attachment: Raw = NOTHING

    @property
    def session(self) -> str | None:
        """The session it names, in either spelling."""
        return self.session_id or self.session_id_snake

    @property
    def structured(self) -> Raw:
        """The structured result, in either spelling; empty when absent."""
        return self.tool_use_result if _given(self.tool_use_result) else self.tool_use_result_snake

    @property
    def known(self) -> bool:
        """Its type has been seen before."""
        return self.type in KNOWN_TYPES or self.type.startswith(_KNOWN_PREFIXES)


def _given(raw: Raw) -> bool:
    return len(memoryview(raw)) > 0


UNFIT = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What `decode_typed` raises when a line needs a closer look."""

decode_typed = msgspec.json.Decoder(Entry).decode
"""The first, fast step: raises one of UNFIT when a known field has another type, or on damage."""


class Decoded(NamedTuple):
    """An entry, and the names of known fields whose values did not fit."""

    entry: Entry
    odd: tuple[str, ...]


def decode(data: bytes) -> Decoded:
    """One line as an entry.

    Raises:
        ValueError: the bytes are not exactly one JSON object.
    """
    try:
        return Decoded(decode_typed(data), ())
    except UNFIT:
        return decode_loosely(data)


def decode_loosely(data: bytes) -> Decoded:
    """The second, slow step: take what fits and name what does not.

    Raises:
        ValueError: the bytes are not exactly one JSON object.
    """
    found = document.decode(data)
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    odd: list[str] = []
    return Decoded(_fit_struct(found, Entry, "", odd), tuple(odd))


def _fit_struct(found: dict[str, Any], shape: type, path: str, odd: list[str]) -> Any:
    """As much of a decoded object as fits a Struct."""
    taken: dict[str, Any] = {}
    for known in msgspec.structs.fields(shape):
        if known.encode_name not in found:
            continue
        name = f"{path}{known.encode_name}"
        try:
            taken[known.name] = _fit(found[known.encode_name], known.type, name, odd)
        except (msgspec.ValidationError, TypeError, ValueError):
            odd.append(name)
    return shape(**taken)


def _fit(value: Any, wanted: Any, path: str, odd: list[str]) -> Any:
    if wanted is Raw:
        return Raw(document.encode(value))
    options = get_args(wanted) or (wanted,)
    for option in options:
        if isinstance(value, dict) and isinstance(option, type) and issubclass(option, Struct):
            return _fit_struct(value, option, f"{path}.", odd)
        if isinstance(value, list) and get_origin(option) is list:
            (shape,) = get_args(option)
            return [_fit_struct(item, shape, f"{path}[{n}].", odd) if isinstance(item, dict)
                    else _odd_block(f"{path}[{n}]", odd) for n, item in enumerate(value)]  # fmt: skip
    return msgspec.convert(value, wanted)


def _odd_block(path: str, odd: list[str]) -> Block:
    odd.append(path)
    return Block()


def encode(entry: Entry, data: bytes) -> bytes:
    """A line written anew: the typed view laid over what the line holds, unknown keys kept.

    Raises:
        ValueError: `data` is not exactly one JSON object.
    """
    found = document.decode(data)
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    _overlay(found, entry)
    return document.encode(found)


def _overlay(found: dict[str, Any], view: Struct) -> None:
    for known in msgspec.structs.fields(type(view)):
        value = getattr(view, known.name)
        if value is None or known.encode_name not in found:
            continue
        below = found[known.encode_name]
        if isinstance(value, Raw):
            if _given(value):
                found[known.encode_name] = document.decode(bytes(value))
        elif isinstance(value, Struct):
            _overlay(below, value)
        elif isinstance(value, list):
            for block, part in zip(value, below, strict=True):
                if isinstance(part, dict):
                    _overlay(part, block)
        else:
            found[known.encode_name] = value


def text_of(raw: Raw) -> str:
    """A string field as text; an array of blocks as the texts in it; anything else as empty."""
    if not _given(raw):
        return ""
    try:
        found = document.decode(bytes(raw))
    except ValueError:
        return bytes(raw).decode("utf-8", "replace")
    return plain(found)


def plain(content: Any) -> str:
    """Message content as text: strings as they are, blocks by their text, others as a note."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(_plain_block(block) for block in content)
    return ""


def _plain_block(block: Any) -> str:
    if not isinstance(block, dict):
        return block if isinstance(block, str) else ""
    if isinstance(block.get("text"), str):
        return str(block["text"])
    kind = block.get("type")
    if kind == "tool_reference":
        return f"[tool {block.get('tool_name')}]"
    return f"[{kind}]" if isinstance(kind, str) else ""
