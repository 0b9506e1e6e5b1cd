"""Claude Code transcript lines: from bytes to entries and back.

The typed decoder reads the fields that most callers need. Bodies stay undecoded, unknown keys are
skipped, and a line of unknown `type` is still an entry. If a known field has an unexpected type,
the line is decoded again on a slow path that keeps the matching fields and lists the others.
`EntryBodies` is the view with inputs and results. Encoding writes the typed view over the decoded
line, so that `doctor` can detect an incorrect view.

Reads both the file form (camel case keys) and the stream form (snake case). Start at `Entry` and
`decode_entry`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw, Struct, field

from toolspan.formats.decoding import TypedDecoder
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

    @property
    def is_abnormal(self) -> bool:
        """True if the call was interrupted or timed out."""
        return bool(self.interrupted or self.was_interrupted or self.timed_out_after_ms is not None)

    @property
    def has_details(self) -> bool:
        """True if there is more to record than a plain success and its duration."""
        return bool(
            self.interrupted
            or self.was_interrupted
            or self.timed_out_after_ms is not None
            or self.background_task_id
            or self.agent_id
            or self.is_async
            or self.persisted_output_path is not None
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


class PermissionDenial(Struct, gc=False):
    """A call denied by the host of a stream."""

    tool_use_id: str | None = None


class DeferredCall(Struct, gc=False):
    """A call deferred by a hook."""

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


class TaskNotice(NamedTuple):
    """A notification about a background task."""

    task_id: str | None
    call_id: str | None
    status: str | None
    summary: str | None


_NOTICE = re.compile(r"<task-notification>(.*?)(?:</task-notification>|\Z)", re.DOTALL)
_TAG = re.compile(r"<(task-id|tool-use-id|status|summary)>(.*?)</\1>", re.DOTALL)


def parse_task_notices(text: str) -> list[TaskNotice]:
    """Return the task notifications in `text`."""
    if "<task-notification>" not in text:
        return []
    notices = []
    for body in _NOTICE.findall(text):
        tags = dict(_TAG.findall(body))
        notices.append(
            TaskNotice(tags.get("task-id"), tags.get("tool-use-id"), tags.get("status"), tags.get("summary"))
        )
    return notices


_AGENT_LINE = re.compile(r"^agentId: (?:agent-)?([\w-]+)", re.MULTILINE)


def find_agent_id(text: str) -> str | None:
    """Return the subagent id that a result's text states on a line of its own."""
    agent_ids: list[str] = _AGENT_LINE.findall(text)
    return agent_ids[-1] if agent_ids else None


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
"""Content blocks that request a tool call."""


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
    """Tokens written to the cache, by the time they are kept."""

    ephemeral_1h_input_tokens: int | None = None


class MessageUsage(Struct, gc=False):
    """Token counts for one message."""

    input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation: CacheCreation | None = None


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
    permission_denials: list[PermissionDenial] | None = None
    deferred_tool_use: DeferredCall | None = None

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


_ENTRY_DECODER = TypedDecoder(Entry)
_BODIES_DECODER = TypedDecoder(EntryBodies)

decode_entry = _ENTRY_DECODER.decode
decode_entries = _ENTRY_DECODER.decode_many
encode_entry = _ENTRY_DECODER.encode


def decode_bodies(data: bytes) -> EntryBodies:
    """Decode one line with its inputs and results.

    Raises:
        ValueError: the bytes are not exactly one JSON object.
    """
    return _BODIES_DECODER.decode(data).entry


def _split_keys(text: str) -> frozenset[str]:
    return frozenset(text.split())


_LINE_KEYS = _split_keys(
    """
    advisorModel agentColor agentId agentName agentSetting agents aiTitle analytics_disabled
    apiBlockIndex apiErrorStatus apiKeySource api_error_status artifactId atis attachment
    attributionAgent attributionMcpServer attributionMcpTool attributionPlugin attributionSkill
    backup base cacheControl capabilities cause classifierMetaLines claude_code_version commandUuid
    compactMetadata content contextLength costUSD cronKind customTitle cwd data deferred_tool_use
    deliveryId description durationMs duration_api_ms duration_ms effort entrypoint error
    errorDetails errors estimated_tokens estimated_tokens_delta event fallbackModel
    fast_mode_disabled_reason fast_mode_state forkedFrom gitBranch hasOutput
    hasUnknownModelCost hash holdsPersonsWords
    hookAdditionalContext hookCount hookErrors hookInfos hook_event hook_name id imagePasteIds
    interruptedMessageId isAbortedMidStream isApiErrorMessage isCompactSummary isMeta isReplay
    isSidechain isSnapshotUpdate isSynthetic isVisibleInTranscriptOnly is_api_error_message is_error
    keep lastPrompt leafUuid level logicalParentUuid madeBy maxRetries mcpCallNotReadOnly mcpMeta
    mcp_servers memory_paths message messageCount messageId microcompactMetadata mode model
    modelUsage num_turns operation origin originalModel output_style params parentLastUuid
    parentSessionId parentToolUseID parentUuid parent_tool_use_id pendingBackgroundAgentCount
    pendingWorkflowCount perTurnEffort permissionDecision permissionMode permission_denials
    planContent plugins prNumber prRepository prUrl preventContinuation preventedContinuation
    product_feedback_disabled promptCacheRequested promptId promptSource promptSubmitEnding
    querySource queueOrigin queuePriority queueSkipAttachments rate_limit_info reason relocatedCwd
    rendered renderedBesideToolResult renderedInHumanTurn renderedRole repeatsCompactSummary
    replacements requestDigest requestId requestRef request_id requestedModel result
    retractedMessageUuids retryAttempt retryInMs sandboxed serverClassifierRequest sessionId
    sessionKind session_id shape shapeHash skills slash_commands slug snapshot snapshotMessageId
    sourceToolAssistantUUID sourceToolUseID startTime status stopReason stop_reason
    structured_output subtype summary supersedesUuids tag tail task_id teamName terminal_reason
    thinkingDisplay thinkingDurationMs thinkingMetadata time_to_request_ms timestamp todos
    toolDenialKind toolEndsTurn toolInputStreamMs toolUseID toolUseResult tool_name tool_result_meta
    tool_use_id tool_use_result tools totalAPIDuration totalAPIDurationWithoutRetries totalCostUSD
    totalDuration totalLinesAdded totalLinesRemoved totalToolDuration total_cost_usd trackingPath
    truncatedAfterOutput ttft_ms ttft_stream_ms turnCompanion turnOrigin turnPosition type url usage
    userFeedback userType uuid version wireToolInputs worktreeSession elapsed_time_seconds
    """
)
_MESSAGE_KEYS = _split_keys(
    """
    container content context_management diagnostics id model output_config role service_tier
    stop_details stop_reason stop_sequence type usage
    """
)
_BLOCK_KEYS = _split_keys(
    """
    cache_control caller citations content data from id index input is_error name server_name
    signature source text thinking title to tool_use_id type
    """
)


def unknown_keys(line: dict[str, Any]) -> Iterator[str]:
    """Yield the unknown keys of a line, its message and its blocks, as dotted paths."""
    yield from (key for key in line if key not in _LINE_KEYS)
    message = line.get("message")
    if not isinstance(message, dict):
        return
    yield from (f"message.{_mask_numeric_key(key)}" for key in message if key not in _MESSAGE_KEYS)
    content = message.get("content")
    if isinstance(content, list):
        for block in content:
            if isinstance(block, dict):
                yield from (f"message.content.{key}" for key in block if key not in _BLOCK_KEYS)


def _mask_numeric_key(key: str) -> str:
    """Return the same name for all numeric keys, since a string spread into an object has one key per character."""
    return "<number>" if key.isdecimal() else key


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
