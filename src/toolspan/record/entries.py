"""What single lines tell: results, decisions, hooks.

Pure functions from what the runner emitted to pieces of JSON or to the objects in them. Field names
and texts are the clients' own. Knows nothing of parents, times and files; `recorder.py` does.
"""

from collections.abc import Mapping

from toolspan.model.live import Content, Context, Decided, Finished, HookRan
from toolspan.profile import Shape
from toolspan.record.encode import encode

Fields = dict[str, object]

INTERRUPTED = "[Request interrupted by user]"
INTERRUPTED_TOOL = "[Request interrupted by user for tool use]"

_NO_USAGE = {
    "input_tokens": 0,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "output_tokens": 0,
}
_LAST_PROMPT = 200
_OBJECTS = 2
"""The exit code of a handler that says no."""
_SPEAKS = frozenset({"UserPromptSubmit", "SessionStart"})
"""Points at which plain output is for the model."""
_ADDITIONAL = frozenset({"context", "message", "stopped", "deferred"})
"""Outcomes that are told beside how the handler itself ended."""


def prompt_fields(shape: Shape, permission_mode: str, turn: int) -> Fields:
    """What a prompt's line says after its time."""
    told: Fields = {}
    if shape.prompt_ids:
        told["permissionMode"] = permission_mode
    if shape.prompt_source:
        told["promptSource"] = "sdk"
    if shape.turn_position:
        told["turnOrigin"] = "sdk"
        told["turnPosition"] = {"promptIndex": 0, "turnIndex": turn}
    return told


def news_fields(shape: Shape, told: Fields) -> Fields:
    """The same for a turn that work in the background has begun by its end."""
    more: Fields = {"origin": {"kind": "task-notification"}} if shape.prompt_source else {}
    if shape.turn_position:
        more |= {"promptSource": "system", "turnOrigin": "task_notification"}
    return told | more


def message_fields(message: Mapping[str, object]) -> Fields:
    """A message as the lines of its blocks hold it; `content` and the end are each line's own."""
    told: Fields = {
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
        if key not in told:
            told[key] = message[key]
    return told


def reply_fields(message: Fields, position: int | None, request_id: str | None) -> bytes:
    """What a line of the model's side tells."""
    told = b',"message":' + encode(message)
    if position is not None:
        told += b',"apiBlockIndex":%d' % position
    if request_id:
        told += b',"requestId":' + encode(request_id)
    return told + b',"type":"assistant"'


def last_prompt(shape: Shape, words: str, leaf: str) -> Fields | None:
    """The line that helps people to find the session again; None where clients write none."""
    flat = " ".join(words.split())
    cut = flat if len(flat) <= _LAST_PROMPT else f"{flat[:_LAST_PROMPT]}…"
    match shape.last_prompt:
        case "none":
            return None
        case "words":
            return {"type": "last-prompt", "lastPrompt": cut}
        case "leaf":
            return {"type": "last-prompt", "lastPrompt": cut, "leafUuid": leaf}


def result_message(call_id: str, content: Content, *, is_error: bool | None) -> bytes:
    """The message of a result; clients order its keys by whether it is an error."""
    block: Fields
    if is_error:
        block = {
            "type": "tool_result",
            "content": content,
            "is_error": True,
            "tool_use_id": call_id,
        }
    else:
        block = {"tool_use_id": call_id, "type": "tool_result", "content": content}
        if is_error is not None:
            block["is_error"] = False
    return encode({"role": "user", "content": [block]})


def beside_result(
    finished: Finished, source: str | None, shape: Shape, *, sidechain: bool
) -> bytes:
    """What a result's line says after its time; `source` is the line that asked for it."""
    told = b""
    if finished.structured is not None and _has_companion(finished, shape, sidechain=sidechain):
        told += b',"toolUseResult":' + encode(finished.structured)
    if finished.beside:
        for key, value in finished.beside.items():
            told += b",%s:%s" % (encode(key), encode(value))
    result = finished.span.result
    if shape.decisions and (finished.decision or (result and result.denial_kind)):
        told += _denial(finished)
    if source and shape.parent_is_own_call:
        told += b',"sourceToolAssistantUUID":"%s"' % source.encode()
    if finished.decision and shape.decisions:
        told += b',"permissionDecision":' + encode(consent(finished.decision))
    return told


def _has_companion(finished: Finished, shape: Shape, *, sidechain: bool) -> bool:
    result = finished.span.result
    return not sidechain or shape.companions_aside or bool(result and result.is_error)


def _denial(finished: Finished) -> bytes:
    """How it was refused; for a command that was let run, that nothing confined it."""
    result, decided = finished.span.result, finished.decision
    if result and result.denial_kind:
        return b',"toolDenialKind":' + encode(result.denial_kind)
    ran = decided and decided.allowed and finished.span.tool == "Bash"
    return b',"sandboxed":false' if ran else b""


_REASONS: Mapping[str, str] = {
    "rule": "rule",
    "parts": "subcommandResults",
    "mode": "mode",
    "hook": "hook",
    "classifier": "classifier",
}
_CODES: Mapping[str, str] = {
    "outside": "workingDir",
    "plan": "mode:plan",
    "hook": "hook:PreToolUse",
    "classifier": "classifier:auto-mode:unavailable",
}

_SOURCES: Mapping[str, str] = {"user_session": "user_temporary", "permission_hook": "hook"}
_SCOPES: Mapping[str, str] = {
    "user_temporary": "once",
    "user_session": "session",
    "user_permanent": "always",
}


def consent(decided: Decided) -> Fields:
    """How the question of consent was answered, and what the answer rests on."""
    source = decided.source
    told: Fields = {
        "decision": "accept" if decided.allowed else "reject",
        "source": _SOURCES.get(source, source),
    }
    if source == "permission_hook":
        code = "unknown" if decided.allowed else "hook:PermissionRequest"
        return told | {"reasonType": "hook", "reasonCode": code}
    basis = "hook" if source == "hook" else decided.basis
    if basis is not None and basis in _REASONS and not decided.asked:
        told["reasonType"] = _REASONS[basis]
    if decided.origin and not (decided.allowed and basis == "parts"):
        told["ruleSource"] = decided.origin
    if source in _SCOPES:
        told["grantScope"] = _SCOPES[source]
    if decided.asked or not decided.allowed:
        told["reasonCode"] = _code(decided, basis)
    return told


def _code(decided: Decided, basis: str | None) -> str:
    if basis in ("rule", "parts"):
        return f"rule:{decided.origin}" if decided.origin else "unknown"
    if basis == "mode":
        return f"mode:{decided.reason or 'default'}"
    if decided.missed is not None:
        return f"bashMiss:{decided.missed}"
    return _CODES.get(basis or "", "unknown")


def hook_attachment(ran: HookRan, tool: str) -> Fields | None:
    """What is attached for a handler; None where clients attach nothing."""
    if ran.outcome == "success" and not (ran.stdout or ran.stderr or ran.text):
        return None  # clients leave out handlers that said nothing
    name = hook_name(ran, tool)
    return _attachment(ran, {"hookName": name, "toolUseID": ran.call_id, "hookEvent": ran.point})


def _attachment(ran: HookRan, about: Fields) -> Fields | None:
    match ran.outcome:
        case "context":
            return {"type": "hook_additional_context", "content": [ran.text or ""], **about}
        case "message":
            return {"type": "hook_system_message", "content": ran.text or "", **about}
        case "stopped":
            return {"type": "hook_stopped_continuation", "message": ran.text or "", **about}
        case "error" | "cancelled" | "blocked":
            return _unhappy(ran, about)
        case "decision" if ran.point == "PermissionRequest":
            about.pop("hookName")
            return {"type": "hook_permission_decision", "decision": ran.text or "", **about}
        case "success" | "decision":
            return _happy(ran, about)
        case "started" | "deferred":
            return None


def _happy(ran: HookRan, about: Fields) -> Fields | None:
    if ran.outcome == "decision" and not (ran.stdout or ran.stderr):
        return None
    words = ran.text if ran.outcome == "success" else None
    told = {"content": words or "", "stdout": ran.stdout or "", "stderr": ran.stderr or ""}
    ended = {"exitCode": ran.exit_code or 0, **_command(ran)}
    return {"type": "hook_success", **about, **told, **ended}


def _unhappy(ran: HookRan, about: Fields) -> Fields | None:
    match ran.outcome:
        case "error" if ran.fault:
            return {"type": "hook_error_during_execution", "content": ran.text or "", **about}
        case "error":
            words = ran.stderr if ran.text is None else ran.text
            told: Fields = {"stderr": words or "", "stdout": ran.stdout or ""}
            code = {"exitCode": 1 if ran.exit_code is None else ran.exit_code}
            return {"type": "hook_non_blocking_error", **about, **told, **code, **_command(ran)}
        case "cancelled":
            limit: Fields = {"timedOut": True, "timeoutMs": round(ran.timeout_ms or 0)}
            return {
                "type": "hook_cancelled",
                **about,
                **_command(ran),
                **(limit if ran.timed_out else {}),
            }
        case _ if ran.point == "PreToolUse":
            return None  # the call's result says it
        case _ if ran.point == "Stop" and ran.exit_code == _OBJECTS:
            return None  # the words to the model say it
        case _:
            words = ran.text if ran.text is not None else ran.stderr
            error = {"blockingError": words or "", "command": ran.command or ran.name}
            return {"type": "hook_blocking_error", **about, "blockingError": error}


def _command(ran: HookRan) -> Fields:
    return {"command": ran.command or ran.name, "durationMs": round(ran.duration_ms or 0)}


def deferred(ran: HookRan, tool: str, input: object, permission_mode: str) -> Fields:
    """A handler put the call off: it gets no result in this session."""
    call: Fields = {"toolUseID": ran.call_id, "toolName": tool, "toolInput": input}
    about = {"hookName": hook_name(ran, tool), "hookEvent": ran.point}
    return {"type": "hook_deferred_tool", **call, **about, "permissionMode": permission_mode}


def hook_name(ran: HookRan, tool: str) -> str:
    """As clients name a hook: the point, and the tool if it is about one."""
    if ran.name.startswith(ran.point):
        return ran.name
    return f"{ran.point}:{tool}" if tool else ran.point


def rendered(attachment: Fields) -> str | None:
    """The words that an attachment puts before the model; None when it puts none."""
    name = attachment.get("hookName")
    match attachment:
        case {"type": "hook_additional_context", "content": [text]}:
            return f"{name} hook additional context: {text}"
        case {"type": "hook_success", "hookEvent": event, "content": str(text)} if (
            text and event in _SPEAKS
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


def hook_progress(ran: HookRan, tool: str) -> Fields | None:
    """The progress line of a handler, where clients wrote those; one for each handler."""
    if ran.outcome in _ADDITIONAL:
        return None
    command = ran.command or ran.name
    data = {"type": "hook_progress", "hookEvent": ran.point}
    data |= {"hookName": hook_name(ran, tool), "command": command}
    return {"data": data, "parentToolUseID": ran.call_id, "toolUseID": ran.call_id}


def as_hook(context: Context, finished: Finished) -> HookRan:
    """What a hook adds for the model, as the event that tells it."""
    return HookRan(
        call_id=finished.call_id,
        point=context.point,
        name=context.name,
        outcome="context",
        text=context.text,
        at=finished.at,
    )
