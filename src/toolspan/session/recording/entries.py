"""The fields of individual records, and the conversation events that become records.

Pure functions from events to JSON objects, and `EntryTemplate` for the fields that all records share.
Field names and messages match the client's. `recorder.py` decides when to write them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from toolspan.runtime.outcome import format_timestamp
from toolspan.runtime.profiles import Profile, TranscriptShape
from toolspan.types.events import Content, Decided, HookRan
from toolspan.types.ids import SessionId

if TYPE_CHECKING:
    from toolspan.session.recording.stored import StoredTranscript

Fields = dict[str, object]
Fsync = Literal["never", "results", "always"]
"""The records that are synced to disk when they are written."""

SYNTHETIC_MODEL = "<synthetic>"
"""The model name in messages that no model wrote."""
INTERRUPTED = "[Request interrupted by user]"
INTERRUPTED_TOOL = "[Request interrupted by user for tool use]"

_BRANCH_REF_PREFIX = "ref: refs/heads/"
_NO_USAGE = {"input_tokens": 0, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 0}
_LAST_PROMPT_LENGTH = 200
_OUTPUT_TO_MODEL_EVENTS = frozenset({"UserPromptSubmit", "SessionStart"})
"""Hook points whose plain output is sent to the model."""
_EXTRA_OUTCOMES = frozenset({"context", "message", "stopped", "deferred"})
"""Outcomes that are reported in addition to the hook's own outcome."""


def new_uuid() -> str:
    """Return a random UUID.

    perf: each record needs one, and the `uuid` module takes 3.7 µs for it, a tenth of the time of recording a call;
    this takes 1.3 µs.
    """
    digits = os.urandom(16).hex()
    variant = "89ab"[int(digits[16], 16) % 4]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderConfig:
    """The session to record, and which of its records are synced to disk."""

    profile: Profile
    session_id: SessionId
    cwd: Path
    agent_id: str | None = None
    """The id of the recorded subagent, or None for the main conversation."""
    permission_mode: str = "default"
    entrypoint: str = "sdk-cli"
    fsync: Fsync = "never"
    clock: Callable[[], float] = time.time
    """A function that returns seconds since the epoch."""
    new_id: Callable[[], str] = new_uuid
    stored: StoredTranscript | None = None
    """The store that gets a copy of the files."""
    is_read_only: Callable[[str], bool] = lambda _: False
    """A function that returns whether a tool has no side effects. The intent log omits calls to such tools."""


class EntryTemplate:
    """The fields shared by all records in a file. Depending on the version, they precede or follow the content."""

    def __init__(self, config: RecorderConfig) -> None:
        self.prompt_id: str | None = None
        self.is_sidechain = config.agent_id is not None
        self._shape = config.profile.shape
        self._agent_field: Fields = {"agentId": config.agent_id} if config.agent_id else {}
        self._session_fields: Fields = {"userType": "external"}
        if self._shape.entrypoint:
            self._session_fields["entrypoint"] = config.entrypoint
        self._session_fields |= {"cwd": "", "sessionId": config.session_id, "version": self._shape.version}
        self.set_cwd(config.cwd)

    def set_cwd(self, cwd: Path) -> None:
        """Set the folder for later records, and look up its git branch."""
        self.cwd = cwd
        self.set_branch(_find_git_branch(cwd) or self._shape.no_branch)

    def set_branch(self, branch: str) -> None:
        """Set the git branch for later records."""
        self._session_fields |= {"cwd": str(self.cwd), "gitBranch": branch}

    def build_entry(
        self, parent: str | None, uuid: str, at: float, body: Fields, extra: Fields, *, user: bool
    ) -> Fields:
        """Build a record in which `body` precedes the id and time, and `extra` follows them."""
        entry: Fields = {"parentUuid": parent, "isSidechain": self.is_sidechain}
        content: Fields = {**body, "uuid": uuid, "timestamp": format_timestamp(round(at * 1_000)), **extra}
        if not self._shape.envelope_last:
            return {**entry, **self._session_fields, **self._agent_field, **content}
        if user and self.prompt_id is not None and self._shape.prompt_ids:
            entry["promptId"] = self.prompt_id
        return {**entry, **self._agent_field, **content, **self._session_fields}


def _find_git_branch(folder: Path) -> str | None:
    """Return the current branch, or None outside a repository or with a detached HEAD."""
    for parent in (folder, *folder.parents):
        git = parent / ".git"
        try:
            if git.is_file():  # in a worktree, the file contains the path of the git folder
                git = parent / git.read_text(encoding="utf-8", errors="replace").removeprefix("gitdir:").strip()
            head = (git / "HEAD").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        return head.removeprefix(_BRANCH_REF_PREFIX).strip() if head.startswith(_BRANCH_REF_PREFIX) else None
    return None


# Prompts, replies and results


def user_fields(content: Content, **flags: bool) -> Fields:
    """Return the fields of a record on the user's side."""
    return {"type": "user", "message": {"role": "user", "content": content}, **flags}


def prompt_fields(shape: TranscriptShape, permission_mode: str, turn: int, *, is_notification: bool = False) -> Fields:
    """Return the fields that follow a prompt's timestamp. A background task's notification may start a turn too."""
    fields: Fields = {}
    if shape.prompt_ids:
        fields["permissionMode"] = permission_mode
    if shape.prompt_source:
        fields["promptSource"] = "sdk"
    if shape.turn_position:
        fields["turnOrigin"] = "sdk"
        fields["turnPosition"] = {"promptIndex": 0, "turnIndex": turn}
    if is_notification and shape.prompt_source:
        fields["origin"] = {"kind": "task-notification"}
    if is_notification and shape.turn_position:
        fields |= {"promptSource": "system", "turnOrigin": "task_notification"}
    return fields


def message_fields(message: Mapping[str, object]) -> Fields:
    """Return the message fields that every block record repeats, with content and stop reason left empty."""
    fields: Fields = {
        "id": message["id"],
        "type": "message",
        "role": "assistant",
        "model": message.get("model") or "unknown",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": message.get("usage") or _NO_USAGE,
    }
    return fields | {key: value for key, value in message.items() if key not in fields}


def reply_fields(message: Fields, position: int | None, request_id: str | None) -> Fields:
    """Return the fields of a record on the model's side."""
    fields: Fields = {"message": message}
    if position is not None:
        fields["apiBlockIndex"] = position
    if request_id:
        fields["requestId"] = request_id
    return {**fields, "type": "assistant"}


def last_prompt_fields(shape: TranscriptShape, prompt: str, leaf: str) -> Fields | None:
    """Return the record that clients use to list the session, or None if the client version has none."""
    if shape.last_prompt == "none":
        return None
    one_line = " ".join(prompt.split())
    cut = one_line if len(one_line) <= _LAST_PROMPT_LENGTH else f"{one_line[:_LAST_PROMPT_LENGTH]}…"
    fields: Fields = {"type": "last-prompt", "lastPrompt": cut}
    return fields | {"leafUuid": leaf} if shape.last_prompt == "leaf" else fields


def result_fields(
    shape: TranscriptShape,
    call_id: str,
    content: object,
    *,
    is_error: bool | None,
    call_uuid: str | None,
    structured: object,
    beside: Mapping[str, object] | None = None,
    denial: str | None = None,
    decision: Mapping[str, object] | None = None,
    is_command: bool = False,
) -> tuple[Fields, Fields]:
    """Return the fields of a result and those that follow its timestamp. `call_uuid` is the record of its call."""
    block: Fields
    if is_error:  # clients order the keys differently for errors
        block = {"type": "tool_result", "content": content, "is_error": True, "tool_use_id": call_id}
    else:
        block = {"tool_use_id": call_id, "type": "tool_result", "content": content}
        if is_error is not None:
            block["is_error"] = False
    extras: Fields = {}
    if structured is not None:
        extras["toolUseResult"] = structured
    extras |= beside or {}
    if not shape.decisions:
        extras.pop("sandboxed", None)
    if shape.decisions and denial:
        extras["toolDenialKind"] = denial
    elif shape.decisions and decision and decision["decision"] == "accept" and is_command:
        extras.setdefault("sandboxed", False)
    if call_uuid and shape.parent_is_own_call:
        extras["sourceToolAssistantUUID"] = call_uuid
    if shape.decisions and decision:
        extras["permissionDecision"] = decision
    return {"type": "user", "message": {"role": "user", "content": [block]}}, extras


_REASON_TYPES: Mapping[str, str] = {
    "rule": "rule",
    "parts": "subcommandResults",
    "mode": "mode",
    "hook": "hook",
    "classifier": "classifier",
}
_REASON_CODES: Mapping[str, str] = {
    "outside": "workingDir",
    "plan": "mode:plan",
    "hook": "hook:PreToolUse",
    "classifier": "classifier:auto-mode:unavailable",
}
_DECISION_SOURCES: Mapping[str, str] = {"user_session": "user_temporary", "permission_hook": "hook"}
_GRANT_SCOPES: Mapping[str, str] = {"user_temporary": "once", "user_session": "session", "user_permanent": "always"}


def decision_fields(decision: Decided) -> Fields:
    """Return the permission decision for a call and the reason for it."""
    source = decision.source
    fields: Fields = {
        "decision": "accept" if decision.allowed else "reject",
        "source": _DECISION_SOURCES.get(source, source),
    }
    if source == "permission_hook":
        code = "unknown" if decision.allowed else "hook:PermissionRequest"
        return fields | {"reasonType": "hook", "reasonCode": code}
    basis = "hook" if source == "hook" else decision.basis
    if basis == "sandbox":
        return fields | {"reasonType": "other", "reasonCode": "sandbox"}
    if basis is not None and basis in _REASON_TYPES and not decision.asked:
        fields["reasonType"] = _REASON_TYPES[basis]
    if decision.origin and not (decision.allowed and basis == "parts"):
        fields["ruleSource"] = decision.origin
    if source in _GRANT_SCOPES:
        fields["grantScope"] = _GRANT_SCOPES[source]
    if decision.asked or not decision.allowed:
        fields["reasonCode"] = _reason_code(decision, basis)
    return fields


def _reason_code(decision: Decided, basis: str | None) -> str:
    if basis in ("rule", "parts"):
        return f"rule:{decision.origin}" if decision.origin else "unknown"
    if basis == "mode":
        return f"mode:{decision.reason or 'default'}"
    if decision.missed is not None:
        return f"bashMiss:{decision.missed}"
    return _REASON_CODES.get(basis or "", "unknown")


# Hooks


def hook_attachment(event: HookRan, tool: str) -> Fields | None:
    """Return the attachment for a hook, or None if clients do not write one."""
    text, stdout, stderr = event.text or "", event.stdout or "", event.stderr or ""
    common: Fields = {"hookName": hook_name(event, tool), "toolUseID": event.call_id, "hookEvent": event.point}
    command = event.command or event.name
    ran: Fields = {"command": command, "durationMs": round(event.duration_ms or 0)}
    match event.outcome:
        case "context":
            return {"type": "hook_additional_context", "content": [text], **common}
        case "message":
            return {"type": "hook_system_message", "content": text, **common}
        case "stopped":
            return {"type": "hook_stopped_continuation", "message": text, **common}
        case "error" if event.fault:
            return {"type": "hook_error_during_execution", "content": text, **common}
        case "error":
            message = stderr if event.text is None else text
            output = {
                "stderr": message,
                "stdout": stdout,
                "exitCode": 1 if event.exit_code is None else event.exit_code,
            }
            return {"type": "hook_non_blocking_error", **common, **output, **ran}
        case "cancelled":
            limit = {"timedOut": True, "timeoutMs": round(event.timeout_ms or 0)} if event.timed_out else {}
            return {"type": "hook_cancelled", **common, **ran, **limit}
        case "decision" if event.point == "PermissionRequest":
            common.pop("hookName")
            return {"type": "hook_permission_decision", "decision": text, **common}
        case "success" | "decision" if stdout or stderr or (text and event.outcome == "success"):
            content = text if event.outcome == "success" else ""
            output = {"content": content, "stdout": stdout, "stderr": stderr, "exitCode": event.exit_code or 0}
            return {"type": "hook_success", **common, **output, **ran}
        case "blocked":
            error = {"blockingError": stderr if event.text is None else text, "command": command}
            return {"type": "hook_blocking_error", **common, "blockingError": error}
        case _:
            return None  # clients omit hooks without output


def deferred_attachment(event: HookRan, tool: str, input: object, permission_mode: str) -> Fields:
    """Return the attachment for a hook that deferred its call, leaving it without a result."""
    call: Fields = {"toolUseID": event.call_id, "toolName": tool, "toolInput": input}
    hook_fields = {"hookName": hook_name(event, tool), "hookEvent": event.point}
    return {"type": "hook_deferred_tool", **call, **hook_fields, "permissionMode": permission_mode}


def hook_name(event: HookRan, tool: str) -> str:
    """Return the client's name for a hook, which consists of its hook point and the tool, if any."""
    if event.name.startswith(event.point):
        return event.name
    return f"{event.point}:{tool}" if tool else event.point


def attachment_fields(shape: TranscriptShape, attachment: Fields) -> tuple[Fields, Fields]:
    """Return the fields of an attachment's record before and after its timestamp."""
    text = render_attachment(attachment) if shape.rendered else None
    reminder = f"<system-reminder>\n{text}\n</system-reminder>"
    rendered: Fields = {"rendered": [{"content": reminder}], "renderedRole": "system"}
    return {"attachment": attachment, "type": "attachment"}, {} if text is None else rendered


def render_attachment(attachment: Fields) -> str | None:
    """Return the text of an attachment that the model sees, or None if it has none."""
    name = attachment.get("hookName")
    match attachment:
        case {"type": "hook_additional_context", "content": [text]}:
            return f"{name} hook additional context: {text}"
        case {"type": "hook_success", "hookEvent": event, "content": str(text)} if (
            text and event in _OUTPUT_TO_MODEL_EVENTS
        ):
            return f"{name} hook success: {text}"
        case {"type": "hook_stopped_continuation", "message": text}:
            return f"{name} hook stopped continuation: {text}"
        case {"type": "queued_command", "prompt": str(text)}:
            return text
        case {"blockingError": {"blockingError": text, "command": command}}:
            return f'{name} hook blocking error from command: "{command}": {text}'
        case _:
            return None


def queued_notice(text: str) -> Fields:
    """Return the attachment for a background notification between results and the next reply."""
    origin = {"kind": "task-notification", "producer": "session-task"}
    return {"type": "queued_command", "prompt": text, "commandMode": "task-notification", "origin": origin}


def hook_progress(event: HookRan, tool: str) -> Fields | None:
    """Return the progress record that old clients wrote for each hook."""
    if event.outcome in _EXTRA_OUTCOMES:
        return None
    data = {"type": "hook_progress", "hookEvent": event.point}
    data |= {"hookName": hook_name(event, tool), "command": event.command or event.name}
    return {"type": "progress", "data": data, "parentToolUseID": event.call_id, "toolUseID": event.call_id}


# Conversation events


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption:
    """An interruption of the turn by the user."""

    during_tool_use: bool = True


@dataclass(frozen=True, slots=True)
class BackgroundNotice:
    """A notification that the model reads within a turn."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnLimitReached:
    """The end of a turn in which the model reached the maximum number of replies."""

    max_turns: int
    turns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StopSummary:
    """A summary of the hooks at the end of a turn."""

    handlers: tuple[tuple[str, float | None], ...]
    """The command and duration of each handler. The duration is None for a handler that blocked."""
    errors: tuple[str, ...] = ()
    contexts: tuple[str, ...] = ()
    stop: str | None = None
    has_output: bool = False
    report_id: str
    """The id shared by the hooks' attachments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedPrompt:
    """A prompt that a hook rejected."""

    prompt: str
    message: str
    """The hook's complete message."""
    reason: str
    """The hook's message without its name."""
    is_stop: bool = False
    """True if the hook ended the turn without blocking the prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """The replacement of the conversation by a summary."""

    summary: str
    trigger: str
    """`auto` or `manual`."""
    tokens_before: int
    duration_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFailure:
    """A failed request to the model."""

    message: str
    kind: str
    status: int | None = None
    text: str = ""
    """The text recorded instead of the reply, if the request is not retried."""
    attempt: int = 0
    """The number of the retry that follows, or 0 if there is none."""
    max_retries: int = 0
    wait_s: float = 0.0


ConversationEvent = (
    Interruption | BackgroundNotice | TurnLimitReached | StopSummary | RefusedPrompt | Compaction | RequestFailure
)
"""Conversation events other than prompts, replies and calls."""


def stop_summary_fields(summary: StopSummary) -> Fields:
    """Return the fields of a stop summary."""
    infos = [
        {"command": command} if duration is None else {"command": command, "durationMs": round(duration)}
        for command, duration in summary.handlers
    ]
    return {
        "type": "system",
        "subtype": "stop_hook_summary",
        "hookCount": len(infos),
        "hookInfos": infos,
        "hookErrors": list(summary.errors),
        "hookAdditionalContext": list(summary.contexts),
        "preventedContinuation": summary.stop is not None,
        "stopReason": summary.stop or "",
        "hasOutput": summary.has_output,
        "level": "suggestion",
        "toolUseID": summary.report_id,
    }


def refused_prompt_fields(refused: RefusedPrompt, profile: Profile) -> Fields:
    """Return the fields of a refused prompt."""
    content = f"UserPromptSubmit operation blocked by hook:\n{refused.message}\n\nOriginal prompt: {refused.prompt}"
    if refused.is_stop:
        content = f"Operation stopped by hook: {refused.message}"
    fields: Fields = {"type": "system", "subtype": "informational", "content": content}
    fields |= {"isMeta": False, "level": "warning"}
    if profile.shape.hooks == "attachments":
        fields["preventContinuation"] = True
    if profile.hooks.summarizes_stop and not refused.is_stop:
        ending = {"kind": "blocked_by_hook", "reason": refused.reason}
        fields["promptSubmitEnding"] = {"ending": ending, "promptKept": False}
    return fields


def compaction_fields(compaction: Compaction, last_uuid: str | None) -> Fields:
    """Return the fields of the compaction boundary that follows the record `last_uuid`."""
    return {
        "type": "system",
        "logicalParentUuid": last_uuid,
        "subtype": "compact_boundary",
        "content": "Conversation compacted",
        "isMeta": False,
        "level": "info",
        "compactMetadata": {
            "trigger": compaction.trigger,
            "preTokens": compaction.tokens_before,
            "durationMs": round(compaction.duration_ms),
        },
    }


def retry_fields(failure: RequestFailure) -> Fields:
    """Return the fields of a failed request that is retried."""
    status = {} if failure.status is None else {"status": failure.status}
    return {
        "type": "system",
        "subtype": "api_error",
        "level": "error",
        "error": {**status, "message": failure.message, "type": failure.kind},
        "retryInMs": round(failure.wait_s * 1000),
        "retryAttempt": failure.attempt,
        "maxRetries": failure.max_retries,
    }


def failure_fields(failure: RequestFailure) -> Fields:
    """Return the fields of the placeholder message that replaces a reply."""
    status = {} if failure.status is None else {"apiErrorStatus": failure.status}
    return {"error": failure.kind, "isApiErrorMessage": True, **status}
