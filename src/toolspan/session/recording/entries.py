"""The fields of individual records, and the conversation events that become records.

Pure functions from events to JSON or the objects in it. Field names and messages match the
client's. `recorder.py` decides when to write them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from toolspan.formats.jsonl import encode_json
from toolspan.runtime.profiles import Profile, TranscriptShape
from toolspan.types.events import Content, Decided, Finished, HookContext, HookRan

Fields = dict[str, object]

SYNTHETIC_MODEL = "<synthetic>"
"""The model name in messages that no model wrote."""
INTERRUPTED = "[Request interrupted by user]"
INTERRUPTED_TOOL = "[Request interrupted by user for tool use]"

_NO_USAGE = {"input_tokens": 0, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 0}
_LAST_PROMPT_LENGTH = 200
_BLOCKING_EXIT_CODE = 2
"""The exit code with which a hook blocks."""
_OUTPUT_TO_MODEL_EVENTS = frozenset({"UserPromptSubmit", "SessionStart"})
"""Hook points whose plain output is sent to the model."""
_EXTRA_OUTCOMES = frozenset({"context", "message", "stopped", "deferred"})
"""Outcomes that are reported in addition to the hook's own outcome."""


def prompt_fields(shape: TranscriptShape, permission_mode: str, turn: int) -> Fields:
    """Return the fields that follow a prompt's timestamp."""
    fields: Fields = {}
    if shape.prompt_ids:
        fields["permissionMode"] = permission_mode
    if shape.prompt_source:
        fields["promptSource"] = "sdk"
    if shape.turn_position:
        fields["turnOrigin"] = "sdk"
        fields["turnPosition"] = {"promptIndex": 0, "turnIndex": turn}
    return fields


def notification_fields(shape: TranscriptShape, fields: Fields) -> Fields:
    """Extend prompt fields for a turn started by a background task."""
    extra: Fields = {"origin": {"kind": "task-notification"}} if shape.prompt_source else {}
    if shape.turn_position:
        extra |= {"promptSource": "system", "turnOrigin": "task_notification"}
    return fields | extra


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
    for key in message:
        if key not in fields:
            fields[key] = message[key]
    return fields


def encode_reply_fields(message: Fields, position: int | None, request_id: str | None) -> bytes:
    """Encode the fields of a record on the model's side."""
    encoded = b',"message":' + encode_json(message)
    if position is not None:
        encoded += b',"apiBlockIndex":%d' % position
    if request_id:
        encoded += b',"requestId":' + encode_json(request_id)
    return encoded + b',"type":"assistant"'


def last_prompt_fields(shape: TranscriptShape, prompt: str, leaf: str) -> Fields | None:
    """Return the record that clients use to list the session, or None if the client version has none."""
    one_line = " ".join(prompt.split())
    cut = one_line if len(one_line) <= _LAST_PROMPT_LENGTH else f"{one_line[:_LAST_PROMPT_LENGTH]}…"
    match shape.last_prompt:
        case "none":
            return None
        case "words":
            return {"type": "last-prompt", "lastPrompt": cut}
        case "leaf":
            return {"type": "last-prompt", "lastPrompt": cut, "leafUuid": leaf}


def encode_result_message(call_id: str, content: Content, *, is_error: bool | None) -> bytes:
    """Encode a result message. Clients order its keys differently for errors."""
    block: Fields
    if is_error:
        block = {"type": "tool_result", "content": content, "is_error": True, "tool_use_id": call_id}
    else:
        block = {"tool_use_id": call_id, "type": "tool_result", "content": content}
        if is_error is not None:
            block["is_error"] = False
    return encode_json({"role": "user", "content": [block]})


def encode_result_extras(
    finished: Finished, call_uuid: str | None, shape: TranscriptShape, *, sidechain: bool
) -> bytes:
    """Encode the fields that follow a result's timestamp. `call_uuid` is the record of its call."""
    encoded = b""
    if finished.structured is not None and _has_structured_result(finished, shape, sidechain=sidechain):
        encoded += b',"toolUseResult":' + encode_json(finished.structured)
    if finished.beside:
        for key, value in finished.beside.items():
            encoded += b",%s:%s" % (encode_json(key), encode_json(value))
    result = finished.span.result
    if shape.decisions and (finished.decision or (result and result.denial_kind)):
        encoded += _encode_denial(finished)
    if call_uuid and shape.parent_is_own_call:
        encoded += b',"sourceToolAssistantUUID":"%s"' % call_uuid.encode()
    if finished.decision and shape.decisions:
        encoded += b',"permissionDecision":' + encode_json(decision_fields(finished.decision))
    return encoded


def _has_structured_result(finished: Finished, shape: TranscriptShape, *, sidechain: bool) -> bool:
    result = finished.span.result
    return not sidechain or shape.companions_aside or bool(result and result.is_error)


def _encode_denial(finished: Finished) -> bytes:
    """Encode how a call was denied or, for an allowed command, that it ran without a sandbox."""
    result, decision = finished.span.result, finished.decision
    if result and result.denial_kind:
        return b',"toolDenialKind":' + encode_json(result.denial_kind)
    ran = decision and decision.allowed and finished.span.tool == "Bash"
    return b',"sandboxed":false' if ran else b""


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


def hook_attachment(event: HookRan, tool: str) -> Fields | None:
    """Return the attachment for a hook, or None if clients do not write one."""
    if event.outcome == "success" and not (event.stdout or event.stderr or event.text):
        return None  # clients omit hooks without output
    name = hook_name(event, tool)
    return _attachment_fields(event, {"hookName": name, "toolUseID": event.call_id, "hookEvent": event.point})


def _attachment_fields(event: HookRan, common: Fields) -> Fields | None:
    match event.outcome:
        case "context":
            return {"type": "hook_additional_context", "content": [event.text or ""], **common}
        case "message":
            return {"type": "hook_system_message", "content": event.text or "", **common}
        case "stopped":
            return {"type": "hook_stopped_continuation", "message": event.text or "", **common}
        case "error" | "cancelled" | "blocked":
            return _failure_attachment(event, common)
        case "decision" if event.point == "PermissionRequest":
            common.pop("hookName")
            return {"type": "hook_permission_decision", "decision": event.text or "", **common}
        case "success" | "decision":
            return _success_attachment(event, common)
        case "started" | "deferred":
            return None


def _success_attachment(event: HookRan, common: Fields) -> Fields | None:
    if event.outcome == "decision" and not (event.stdout or event.stderr):
        return None
    content = event.text if event.outcome == "success" else None
    output = {"content": content or "", "stdout": event.stdout or "", "stderr": event.stderr or ""}
    exit_fields = {"exitCode": event.exit_code or 0, **_command_fields(event)}
    return {"type": "hook_success", **common, **output, **exit_fields}


def _failure_attachment(event: HookRan, common: Fields) -> Fields | None:
    match event.outcome:
        case "error" if event.fault:
            return {"type": "hook_error_during_execution", "content": event.text or "", **common}
        case "error":
            message = event.stderr if event.text is None else event.text
            output: Fields = {"stderr": message or "", "stdout": event.stdout or ""}
            code = {"exitCode": 1 if event.exit_code is None else event.exit_code}
            return {"type": "hook_non_blocking_error", **common, **output, **code, **_command_fields(event)}
        case "cancelled":
            limit: Fields = {"timedOut": True, "timeoutMs": round(event.timeout_ms or 0)}
            return {"type": "hook_cancelled", **common, **_command_fields(event), **(limit if event.timed_out else {})}
        case _ if event.point == "PreToolUse":
            return None  # the result of the call contains it
        case _ if event.point == "Stop" and event.exit_code == _BLOCKING_EXIT_CODE:
            return None  # the feedback to the model contains it
        case _:
            message = event.text if event.text is not None else event.stderr
            error = {"blockingError": message or "", "command": event.command or event.name}
            return {"type": "hook_blocking_error", **common, "blockingError": error}


def _command_fields(event: HookRan) -> Fields:
    return {"command": event.command or event.name, "durationMs": round(event.duration_ms or 0)}


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
    kind = "task-notification"
    return {
        "type": "queued_command",
        "prompt": text,
        "commandMode": kind,
        "origin": {"kind": kind, "producer": "session-task"},
    }


def hook_progress(event: HookRan, tool: str) -> Fields | None:
    """Return the progress record that old clients wrote for each hook."""
    if event.outcome in _EXTRA_OUTCOMES:
        return None
    command = event.command or event.name
    data = {"type": "hook_progress", "hookEvent": event.point}
    data |= {"hookName": hook_name(event, tool), "command": command}
    return {"data": data, "parentToolUseID": event.call_id, "toolUseID": event.call_id}


def context_event(context: HookContext, finished: Finished) -> HookRan:
    """Return the hook event that records additional context."""
    return HookRan(
        call_id=finished.call_id,
        point=context.point,
        name=context.name,
        outcome="context",
        text=context.text,
        at=finished.at,
    )


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
    """A prompt that a hook blocked."""

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
    infos: list[Fields] = []
    for command, duration in summary.handlers:
        infos.append({"command": command} if duration is None else {"command": command, "durationMs": round(duration)})
    return {
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
    fields: Fields = {"subtype": "informational", "content": content, "isMeta": False, "level": "warning"}
    if profile.shape.hooks == "attachments":
        fields["preventContinuation"] = True
    if profile.hooks.records_prompt_outcome and not refused.is_stop:
        ending = {"kind": "blocked_by_hook", "reason": refused.reason}
        fields["promptSubmitEnding"] = {"ending": ending, "promptKept": False}
    return fields


def compaction_fields(compaction: Compaction, last_uuid: str | None) -> Fields:
    """Return the fields of the compaction boundary that follows the record `last_uuid`."""
    return {
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
