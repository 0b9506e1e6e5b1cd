"""What single lines tell: results, decisions, hooks.

Pure functions from what the runner emitted to pieces of JSON or to the objects in them. Field names
and texts are the clients' own. Knows nothing of parents, times and files; `recorder.py` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from toolspan.runtime.profiles import Profile, TranscriptShape
from toolspan.session.recording.chain import encode_json
from toolspan.types.events import Content, Decided, Finished, HookContext, HookRan

Fields = dict[str, object]

INTERRUPTED = "[Request interrupted by user]"
INTERRUPTED_TOOL = "[Request interrupted by user for tool use]"

_NO_USAGE = {"input_tokens": 0, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 0}
_LAST_PROMPT_LENGTH = 200
_BLOCKING_EXIT_CODE = 2
"""The exit code of a handler that says no."""
_OUTPUT_TO_MODEL_EVENTS = frozenset({"UserPromptSubmit", "SessionStart"})
"""Points at which plain output is for the model."""
_EXTRA_OUTCOMES = frozenset({"context", "message", "stopped", "deferred"})
"""Outcomes that are told beside how the handler itself ended."""


def prompt_fields(shape: TranscriptShape, permission_mode: str, turn: int) -> Fields:
    """What a prompt's line says after its time."""
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
    """The same for a turn that work in the background has begun by its end."""
    extra: Fields = {"origin": {"kind": "task-notification"}} if shape.prompt_source else {}
    if shape.turn_position:
        extra |= {"promptSource": "system", "turnOrigin": "task_notification"}
    return fields | extra


def message_fields(message: Mapping[str, object]) -> Fields:
    """A message as the lines of its blocks hold it; `content` and the end are each line's own."""
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
    """What a line of the model's side tells."""
    encoded = b',"message":' + encode_json(message)
    if position is not None:
        encoded += b',"apiBlockIndex":%d' % position
    if request_id:
        encoded += b',"requestId":' + encode_json(request_id)
    return encoded + b',"type":"assistant"'


def last_prompt_fields(shape: TranscriptShape, prompt: str, leaf: str) -> Fields | None:
    """The line that helps people to find the session again; None where clients write none."""
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
    """The message of a result; clients order its keys by whether it is an error."""
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
    """What a result's line says after its time; `source` is the line that asked for it."""
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
    """How it was refused; for a command that was let run, that nothing confined it."""
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
    """How the question of consent was answered, and what the answer rests on."""
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
    """What is attached for a handler; None where clients attach nothing."""
    if event.outcome == "success" and not (event.stdout or event.stderr or event.text):
        return None  # clients leave out handlers that said nothing
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
            return None  # the call's result says it
        case _ if event.point == "Stop" and event.exit_code == _BLOCKING_EXIT_CODE:
            return None  # the words to the model say it
        case _:
            message = event.text if event.text is not None else event.stderr
            error = {"blockingError": message or "", "command": event.command or event.name}
            return {"type": "hook_blocking_error", **common, "blockingError": error}


def _command_fields(event: HookRan) -> Fields:
    return {"command": event.command or event.name, "durationMs": round(event.duration_ms or 0)}


def deferred_attachment(event: HookRan, tool: str, input: object, permission_mode: str) -> Fields:
    """A handler put the call off: it gets no result in this session."""
    call: Fields = {"toolUseID": event.call_id, "toolName": tool, "toolInput": input}
    hook_fields = {"hookName": hook_name(event, tool), "hookEvent": event.point}
    return {"type": "hook_deferred_tool", **call, **hook_fields, "permissionMode": permission_mode}


def hook_name(event: HookRan, tool: str) -> str:
    """As clients name a hook: the point, and the tool if it is about one."""
    if event.name.startswith(event.point):
        return event.name
    return f"{event.point}:{tool}" if tool else event.point


def render_attachment(attachment: Fields) -> str | None:
    """The words that an attachment puts before the model; None when it puts none."""
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
    """News of a background task, as it is put between the results and the next reply."""
    kind = "task-notification"
    return {
        "type": "queued_command",
        "prompt": text,
        "commandMode": kind,
        "origin": {"kind": kind, "producer": "session-task"},
    }


def hook_progress(event: HookRan, tool: str) -> Fields | None:
    """The progress line of a handler, where clients wrote those; one for each handler."""
    if event.outcome in _EXTRA_OUTCOMES:
        return None
    command = event.command or event.name
    data = {"type": "hook_progress", "hookEvent": event.point}
    data |= {"hookName": hook_name(event, tool), "command": command}
    return {"data": data, "parentToolUseID": event.call_id, "toolUseID": event.call_id}


def context_event(context: HookContext, finished: Finished) -> HookRan:
    """What a hook adds for the model, as the event that tells it."""
    return HookRan(
        call_id=finished.call_id,
        point=context.point,
        name=context.name,
        outcome="context",
        text=context.text,
        at=finished.at,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StopSummary:
    """What the handlers at the end of a turn did."""

    handlers: tuple[tuple[str, float | None], ...]
    """Each with its duration; none for one that objected."""
    errors: tuple[str, ...] = ()
    contexts: tuple[str, ...] = ()
    stop: str | None = None
    has_output: bool = False
    report_id: str
    """The id their attachments have."""


def stop_summary_fields(summary: StopSummary) -> Fields:
    """The end of a turn."""
    infos: list[Fields] = []
    for command, duration in summary.handlers:
        took = {} if duration is None else {"durationMs": round(duration)}
        infos.append({"command": command, **took})
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedPrompt:
    """A prompt that a handler took away."""

    prompt: str
    message: str
    """As the handler's objection reads."""
    reason: str
    """The objection alone."""
    is_stop: bool = False
    """It did not object, it ended the turn."""


def refused_prompt_fields(refused: RefusedPrompt, profile: Profile) -> Fields:
    """A prompt that does not count."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """A conversation that goes on from a summary of itself."""

    summary: str
    trigger: str
    """`auto` or `manual`."""
    tokens_before: int
    duration_ms: float


def compaction_fields(compaction: Compaction, last_uuid: str | None) -> Fields:
    """Where the conversation was cut; `last` is the line before."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFailure:
    """A request to the model that failed."""

    message: str
    kind: str
    status: int | None = None
    attempt: int = 0
    """Which retry follows; 0 when none does."""
    max_retries: int = 0
    wait_s: float = 0.0


def retry_fields(failure: RequestFailure) -> Fields:
    """A request that is made again."""
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
    """What stands in the place of a reply that there is none of."""
    status = {} if failure.status is None else {"apiErrorStatus": failure.status}
    return {"error": failure.kind, "isApiErrorMessage": True, **status}
