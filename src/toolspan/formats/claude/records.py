"""Claude Code transcript lines: from bytes to entries and back.

The typed decoder reads the fields that most callers need, in the file form (camel case keys) and in
the stream form (snake case). Bodies stay undecoded, unknown keys are skipped, and a line of unknown
`type` is still an entry. `EntryBodies` is the view with inputs and results. Start at `Entry` and
`decode_entry`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw, Struct, field

from toolspan.formats.decoding import TypedDecoder, known_keys
from toolspan.types.ids import CallId, EntryId, SessionId

ABSENT = Raw()
"""The default for values that a line may omit."""


class Attachment(Struct, gc=False):
    """Context that the client injected, including hook output."""

    type: str = ""
    hook_name: str | None = field(default=None, name="hookName")
    hook_event: str | None = field(default=None, name="hookEvent")
    tool_use_id: str | None = field(default=None, name="toolUseID")
    command: str | None = None
    exit_code: int | None = field(default=None, name="exitCode")
    duration_ms: int | float | None = field(default=None, name="durationMs")
    content: Raw = ABSENT
    stderr: Raw = ABSENT
    blocking_error: Raw = field(default=ABSENT, name="blockingError")
    decision: Raw = ABSENT
    message: Raw = ABSENT
    banner: Raw = ABSENT
    prompt: Raw = ABSENT
    command_mode: str | None = field(default=None, name="commandMode")


class ProgressData(Struct, gc=False):
    """The payload of a progress line."""

    type: str = ""
    hook_event: str | None = field(default=None, name="hookEvent")
    hook_name: str | None = field(default=None, name="hookName")
    command: str | None = None
    agent_id: str | None = field(default=None, name="agentId")


LAUNCHED_STATUSES = ("async_launched", "remote_launched", "teammate_spawned")
"""Statuses of calls that return immediately and continue in the background."""


class _AnyObject(Struct, gc=False):
    """An object whose fields are not needed."""


class StructuredFacts(Struct, gc=False):
    """The fields of a structured result that determine a call's state."""

    interrupted: bool | None = None
    was_interrupted: bool | None = field(default=None, name="wasInterrupted")
    background_task_id: str | None = field(default=None, name="backgroundTaskId")
    timed_out_after_ms: int | float | None = field(default=None, name="timedOutAfterMs")
    persisted_output_path: str | None = field(default=None, name="persistedOutputPath")
    status: str | None = None
    agent_id: str | None = field(default=None, name="agentId")
    task_id: str | None = field(default=None, name="taskId")
    is_async: bool | None = field(default=None, name="isAsync")
    duration_ms: int | float | None = field(default=None, name="durationMs")
    duration_seconds: int | float | None = field(default=None, name="durationSeconds")
    total_duration_ms: int | float | None = field(default=None, name="totalDurationMs")
    bash_edit_diff: _AnyObject | None = field(default=None, name="bashEditDiff")

    @property
    def is_abnormal(self) -> bool:
        """True if the call was interrupted or timed out."""
        return bool(self.interrupted or self.was_interrupted or self.timed_out_after_ms is not None)

    @property
    def has_details(self) -> bool:
        """True if there is more to record than a plain success and its duration."""
        return bool(
            self.is_abnormal
            or self.background_task_id
            or self.agent_id
            or self.is_async
            or self.persisted_output_path is not None
            or self.bash_edit_diff is not None
            or self.status in LAUNCHED_STATUSES
        )

    @property
    def reported_ms(self) -> float | None:
        """The duration reported by the tool."""
        if self.duration_seconds is not None:
            return self.duration_seconds * 1000
        return self.total_duration_ms if self.duration_ms is None else self.duration_ms


class PermissionDecision(Struct, gc=False):
    """A recorded permission decision."""

    decision: str | None = None
    source: str | None = None
    reason_type: str | None = field(default=None, name="reasonType")
    rule_source: str | None = field(default=None, name="ruleSource")
    reason_code: str | None = field(default=None, name="reasonCode")
    grant_scope: str | None = field(default=None, name="grantScope")


class CallReference(Struct, gc=False):
    """A call that the host of a stream denied, or a hook deferred."""

    id: str | None = None
    tool_use_id: str | None = None


class CallTarget(Struct, gc=False):
    """The input keys that identify the subject of a call, most specific first."""

    file_path: Any = None
    notebook_path: Any = None
    command: Any = None
    url: Any = None
    pattern: Any = None
    query: Any = None
    skill: Any = None
    description: Any = None
    subject: Any = None
    path: Any = None
    task_id: Any = None
    bash_id: Any = None
    shell_id: Any = None
    task: Any = field(default=None, name="taskId")
    prompt: Any = None
    sql: Any = None
    selector: Any = None
    subagent_type: Any = None

    def format_summary(self, limit: int = 160) -> str | None:
        """Return the subject of the call, shortened: a path, command, pattern or URL."""
        likely = self.file_path or self.command or self.pattern
        if type(likely) is str:
            return likely[:limit]
        for value in msgspec.structs.astuple(self):
            if value and type(value) is str:
                return value[:limit]
        return None


_DECISION_DECODER = msgspec.json.Decoder(PermissionDecision)


def decode_permission_decision(raw: Raw) -> PermissionDecision | None:
    """Decode a recorded permission decision, or return None if it is absent or unreadable."""
    if raw is ABSENT:
        return None
    try:
        return _DECISION_DECODER.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


NOTICE_START = re.compile(rb"<(?:task|bash)-notification")
TASK_OUTPUT_TOOLS = frozenset({"BashOutput", "TaskOutput", "AgentOutputTool"})
TASK_TOOLS = TASK_OUTPUT_TOOLS | {"KillShell", "KillBash", "TaskStop"}
_TASK_STATUS = r"<status>(completed|failed|killed)</status>"
_TASK_EXIT_CODE = r"<exit_code>(-?\d{1,9})</exit_code>"
_TASK_OUTPUT = r"(?s)<(?:stdout|stderr|output)>\n?(.*?)\n?</(?:stdout|stderr|output)>"
_TASK_OUTPUT_LIMIT = 4_000


class TaskEnd(NamedTuple):
    """The end of a background task, from a result that shows its output."""

    status: str
    summary: str | None
    output: str | None


def parse_task_end(text: str) -> TaskEnd | None:
    """Return the end of the task whose output a result shows, or None if it still runs."""
    status = re.search(_TASK_STATUS, text)
    if status is None:
        return None
    code = re.search(_TASK_EXIT_CODE, text)
    output = "\n".join(re.findall(_TASK_OUTPUT, text))[-_TASK_OUTPUT_LIMIT:] if status[1] == "failed" else ""
    return TaskEnd(status[1], f"exit code {code[1]}" if code else None, output or None)


_AGENT_LINE = r"(?m)^agentId: (?:agent-)?([\w-]+)"


def find_agent_id(text: str) -> str | None:
    """Return the subagent id that a result's text states on a separate line."""
    return next(reversed(re.findall(_AGENT_LINE, text)), None)


KNOWN_ENTRY_TYPES = frozenset({
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
"""Types that have been observed or documented; lines of other types are also read, and reported as drift."""

_KNOWN_PREFIXES = ("artifact-", "marble-origami-")


CALL_BLOCK_TYPES = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})


class MessageBlock(Struct, gc=False):
    """One content block of a message."""

    type: str = ""
    id: CallId | None = None
    name: str | None = None
    input: CallTarget | None = None
    tool_use_id: CallId | None = None
    content: Raw = ABSENT
    is_error: bool | None = None
    text: Raw = ABSENT
    thinking: Raw = ABSENT


class CacheCreation(Struct, gc=False):
    """Tokens written to the prompt cache, by lifetime."""

    ephemeral_1h_input_tokens: int | None = None


class MessageUsage(Struct, gc=False):
    """Token counts for one message."""

    input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation: CacheCreation | None = None
    speed: str | None = None


class ApiMessage(Struct, gc=False):
    """The message in a user or assistant line."""

    model: str | None = None
    id: str | None = None
    content: str | list[MessageBlock] | None = None
    usage: MessageUsage | None = None


class EntryOrigin(Struct, gc=False):
    """The origin of a user line."""

    kind: str | None = None


class ForkedFrom(Struct, gc=False):
    """The session and record from which a forked session was copied."""

    session_id: str | None = field(default=None, name="sessionId")
    message_uuid: str | None = field(default=None, name="messageUuid")


Structured = StructuredFacts | list[Raw] | str | int | float | bool | None
"""Any JSON value, with objects reduced to the facts that determine a state."""


class Entry(Struct, gc=False):
    """The typed view of one line, with fields in the order in which clients write them."""

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
    content: Raw = ABSENT
    session_id_snake: SessionId | None = field(default=None, name="session_id")
    tool_use_result_snake: Structured = field(default=None, name="tool_use_result")
    parent_tool_use_id_snake: CallId | None = field(default=None, name="parent_tool_use_id")
    tool_use_id_snake: str | None = field(default=None, name="tool_use_id")
    request_id_snake: str | None = field(default=None, name="request_id")
    tool_denial_kind: str | None = field(default=None, name="toolDenialKind")
    permission_decision: Raw = field(default=ABSENT, name="permissionDecision")
    team_name: str | None = field(default=None, name="teamName")
    is_compact_summary: bool | None = field(default=None, name="isCompactSummary")
    is_api_error: bool | None = field(default=None, name="isApiErrorMessage")
    origin: EntryOrigin | None = None
    forked_from: ForkedFrom | None = field(default=None, name="forkedFrom")
    logical_parent_uuid: str | None = field(default=None, name="logicalParentUuid")
    summary: str | None = None
    ai_title: str | None = field(default=None, name="aiTitle")
    custom_title: str | None = field(default=None, name="customTitle")
    permission_denials: list[CallReference] | None = None
    deferred_tool_use: CallReference | None = None
    hook_infos: Raw = field(default=ABSENT, name="hookInfos")
    hook_errors: Raw = field(default=ABSENT, name="hookErrors")
    prevented_continuation: bool | None = field(default=None, name="preventedContinuation")
    stop_reason: Raw = field(default=ABSENT, name="stopReason")

    @property
    def session(self) -> SessionId | None:
        """The session id, in either spelling."""
        return self.session_id or self.session_id_snake

    @property
    def structured(self) -> Structured:
        """The facts from the structured result, in either spelling; None if absent."""
        result = self.tool_use_result
        return self.tool_use_result_snake if result is None else result

    @property
    def is_known(self) -> bool:
        """True if the type is in `KNOWN_ENTRY_TYPES`."""
        return self.type in KNOWN_ENTRY_TYPES or self.type.startswith(_KNOWN_PREFIXES)


class BlockBody(Struct, gc=False):
    """A content block with undecoded bodies."""

    type: str = ""
    id: CallId | None = None
    tool_use_id: CallId | None = None
    input: Raw = ABSENT
    content: Raw = ABSENT


class BodyMessage(Struct, gc=False):
    """A message with undecoded bodies."""

    content: str | list[BlockBody] | None = None


class EntryBodies(Struct, gc=False):
    """The view of a line that includes its inputs and results."""

    message: BodyMessage | None = None
    tool_use_result: Raw = field(default=ABSENT, name="toolUseResult")
    tool_use_result_snake: Raw = field(default=ABSENT, name="tool_use_result")

    @property
    def blocks(self) -> list[BlockBody]:
        """The content blocks; empty if the content is a string."""
        content = self.message.content if self.message else None
        return content if isinstance(content, list) else []

    @property
    def structured(self) -> bytes | None:
        """The structured result as JSON, in either spelling; None if absent or null."""
        data = bytes(self.tool_use_result) or bytes(self.tool_use_result_snake)
        return data if data and data != b"null" else None


ENTRY_DECODER = TypedDecoder(Entry)
BODIES_DECODER = TypedDecoder(EntryBodies)

decode_entry = ENTRY_DECODER.decode
decode_entries = ENTRY_DECODER.decode_many
encode_entry = ENTRY_DECODER.encode


def decode_bodies(data: bytes) -> EntryBodies:
    """Decode one line with its inputs and results."""
    return BODIES_DECODER.decode(data).entry


def unknown_keys(line: dict[str, Any]) -> Iterator[str]:
    """Yield the unknown keys of a line, its message and its blocks, as dotted paths."""
    known = known_keys("claude")
    yield from (key for key in line if key not in known["line"])
    message = line.get("message")
    if not isinstance(message, dict):
        return
    for key in message:
        if key not in known["message"]:  # a string spread into an object has one numeric key per character
            yield "message.<number>" if key.isdecimal() else f"message.{key}"
    content = message.get("content")
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict):
            yield from (f"message.content.{key}" for key in block if key not in known["block"])


BACKUP_MARK = b'"file-history-'
"""Bytes that every line about backups contains, so that other lines can be skipped quickly."""


class Backup(Struct, frozen=True, kw_only=True):
    """The state of a file at one point in time."""

    path: str
    """The path as recorded: absolute, or relative to the client's working folder."""
    name: str | None
    """The file name of the copy, or None if the original did not exist."""
    at: str


class _BackupEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    backup_file_name: str | None = None
    backup_time: str = ""


class _BackupSnapshot(Struct, frozen=True, kw_only=True, rename="camel"):
    tracked_file_backups: dict[str, _BackupEntry] = field(default_factory=dict)


class _BackupLine(Struct, frozen=True, kw_only=True, rename="camel"):
    type: str = ""
    snapshot: _BackupSnapshot | None = None
    tracking_path: str | None = None
    backup: _BackupEntry | None = None


_line_decoder = msgspec.json.Decoder(_BackupLine)


def parse_backups(line: bytes) -> Iterator[Backup]:
    """Yield the backups recorded in a line; nothing for other or malformed lines."""
    if BACKUP_MARK not in line:
        return
    try:
        record = _line_decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return
    if record.type == "file-history-snapshot" and record.snapshot:
        for path, entry in record.snapshot.tracked_file_backups.items():
            yield Backup(path=path, name=entry.backup_file_name, at=entry.backup_time)
    elif record.type == "file-history-delta" and record.tracking_path and record.backup:
        entry = record.backup
        yield Backup(path=record.tracking_path, name=entry.backup_file_name, at=entry.backup_time)
