"""The protocol of hook handlers: the JSON object they read, and the meaning of their output.

`tool_input`, `batch_input` and `session_input` build a `HookInput`; `HookOutputParser` converts a
`HookOutput` to a `HookResponse`. Field names, messages and defaults are those of the client version
in `HookValues`.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Protocol

import msgspec
from msgspec import UNSET, Struct, UnsetType

from toolspan.runtime.hooks.events import HookEnvironment, HookPoint, SessionHookEvent, ToolHookEvent
from toolspan.runtime.profiles import HookValues
from toolspan.types.decision import Allow, Ask, Decision, Deny
from toolspan.types.span import Span

BLOCKING_EXIT_CODE = 2
"""The exit code by which a handler objects."""
CONTEXT_POINTS: frozenset[HookPoint] = frozenset({"UserPromptSubmit", "SessionStart"})
"""Points at which plain output is passed to the model."""
MAX_TEXT_LENGTH = 10_000
_PREVIEW_LENGTH = 2_000
_NO_STDERR = "No stderr output"
_FILE_KINDS = frozenset({"read", "edit", "write"})
_WITHOUT_PERMISSION_MODE = frozenset({
    "SessionStart", "SessionEnd", "PreCompact", "PostCompact", "Notification", "SubagentStart",
    "CwdChanged", "TaskCreated", "TaskCompleted", "StopFailure", "WorktreeCreate",
    "FileChanged",
})  # fmt: skip
_WITHOUT_EFFORT = (_WITHOUT_PERMISSION_MODE - {"StopFailure"}) | {"UserPromptSubmit"}

HandlerStatus = Literal["ended", "failed", "timed_out"]


@dataclass(frozen=True, slots=True)
class HookInput:
    """The input for the handlers of one event."""

    point: HookPoint
    fields: Mapping[str, object]
    data: bytes  # the fields as JSON
    hook_environment: HookEnvironment
    extra_env: Mapping[str, str] = field(default_factory=dict)  # additional environment variables for a command

    def with_fields(self, changes: Mapping[str, object]) -> HookInput:
        """Return the input with some fields replaced."""
        fields = {**self.fields, **changes}
        return replace(self, fields=fields, data=_encode_fields(fields))


class DetachedHandler(Protocol):
    """An asynchronous handler that is still running."""

    @property
    def exit_code(self) -> int | None:
        """The exit code; None while the handler is running."""
        ...

    async def wait_for_output(self) -> HookOutput:
        """Wait until the handler ends and return its output."""
        ...

    async def terminate(self) -> None:
        """Terminate the handler and all processes that it started."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HookOutput:
    """A handler's final status and its output."""

    status: HandlerStatus = "ended"
    stdout: str = ""
    stderr: str = ""
    exit_code: int | None = None  # the exit code; None if the handler is not a process
    problem: str | None = None  # the reason why the handler could not run
    detached: DetachedHandler | None = None  # the running handler, if it is asynchronous


@dataclass(frozen=True, slots=True, kw_only=True)
class HookResponse:
    """The parsed form of a handler's output."""

    decision: Decision | None = None
    from_exit_code: bool = False  # the objection comes from the exit code, not from the JSON output
    defer: bool = False
    input: Mapping[str, object] | None = None
    permission_updates: tuple[Mapping[str, object], ...] = ()
    contexts: tuple[str, ...] = ()
    output: object | UnsetType = UNSET
    mcp_output: object | UnsetType = UNSET
    block: str | None = None  # the reason for an objection at a point where no decision can be made
    watch_paths: tuple[str, ...] | None = None  # the files to watch from now on; None leaves them unchanged
    retry: bool = False  # the model may request a denied call again
    stop: str | None = None
    message: str | None = None  # a message for the user
    plain_text: str | None = None  # the output, if it is not JSON
    error: str | None = None  # a failure that does not block anything
    is_json: bool = False

    @property
    def is_broken_json(self) -> bool:
        """True if the output begins like JSON but is not a JSON object, for example because it was cut off."""
        return (self.plain_text or "").lstrip(_WHITESPACE).startswith(("{", "["))

    @property
    def is_objection(self) -> bool:
        """True if the handler blocks or denies the event."""
        return self.block is not None or isinstance(self.decision, Deny)

    @property
    def restricts(self) -> bool:
        """True if the handler denies, asks, defers or stops, or blocks the event."""
        return self.is_objection or isinstance(self.decision, Ask) or self.defer or self.stop is not None


def tool_input(
    point: HookPoint, tool_event: ToolHookEvent, hook_environment: HookEnvironment, values: HookValues
) -> HookInput:
    """Build the input for a hook point around a call."""
    fields: dict[str, object] = {
        "tool_name": tool_event.tool,
        "tool_input": _with_absolute_path(tool_event, hook_environment, values),
    }
    if point == "PermissionRequest":
        if tool_event.suggestions:
            fields["permission_suggestions"] = [dict(suggestion) for suggestion in tool_event.suggestions]
        return _build_input(point, fields, hook_environment, values, tool_event.cwd)
    if point == "PostToolUse":
        fields["tool_response"] = tool_event.output
    fields["tool_use_id"] = tool_event.call.id
    if point == "PostToolUseFailure":
        fields |= {"error": tool_event.error or "", "is_interrupt": tool_event.interrupted}
    if point != "PreToolUse":
        fields["duration_ms"] = round(tool_event.duration_ms or 0)
    server = tool_event.tool.split("__")[1:2] if tool_event.tool.startswith("mcp__") else []
    if server:
        fields["mcp_server"] = {"name": server[0], "source": "dynamic"}
    return _build_input(point, fields, hook_environment, values, tool_event.cwd)


def _with_absolute_path(
    tool_event: ToolHookEvent, hook_environment: HookEnvironment, values: HookValues
) -> dict[str, object]:
    """Return the input of a call with the absolute path of its file, as the client passes it to hooks."""
    fields = dict(tool_event.input)
    name = fields.get("file_path")
    if tool_event.kind in _FILE_KINDS and isinstance(name, str):
        if name.startswith("~/") and (values.expands_home or tool_event.kind == "write"):
            name = hook_environment.env_vars.get("HOME", "~") + name[1:]
        fields["file_path"] = os.path.normpath(tool_event.cwd / name)
    return fields


def batch_input(spans: Sequence[Span], hook_environment: HookEnvironment, values: HookValues) -> HookInput:
    """Build the input for PostToolBatch."""
    calls = [
        {
            "tool_name": span.tool,
            "tool_input": dict(span.call.arguments),
            "tool_use_id": span.id,
            "tool_response": span.result.content if span.result else None,
        }
        for span in spans
    ]
    return _build_input("PostToolBatch", {"tool_calls": calls}, hook_environment, values, hook_environment.cwd())


def session_input(session_event: SessionHookEvent, hook_environment: HookEnvironment, values: HookValues) -> HookInput:
    """Build the input for a point that is not about a call, such as Stop."""
    return _build_input(session_event.point, session_event.fields, hook_environment, values, hook_environment.cwd())


def _build_input(
    point: HookPoint,
    event_fields: Mapping[str, object],
    hook_environment: HookEnvironment,
    values: HookValues,
    cwd: Path,
) -> HookInput:
    """Build the input from the fields common to all points, in the client's order, and the fields
    specific to the event.
    """
    fields: dict[str, object] = {
        "session_id": hook_environment.session_id or "",
        "transcript_path": str(hook_environment.transcript_path or ""),
        "cwd": str(cwd),
    }
    if hook_environment.prompt_id is not None:
        fields["prompt_id"] = hook_environment.prompt_id
    if point not in _WITHOUT_PERMISSION_MODE:
        fields["permission_mode"] = hook_environment.permission_mode()
    if hook_environment.agent_id is not None:
        fields |= {"agent_id": hook_environment.agent_id, "agent_type": hook_environment.agent_type or ""}
    effort = hook_environment.effort or values.effort
    if effort is not None and point not in _WITHOUT_EFFORT:
        fields["effort"] = {"level": effort}
    fields["hook_event_name"] = point
    fields |= event_fields
    supported = {key: value for key, value in fields.items() if key not in values.omitted_fields}
    return HookInput(point, supported, _encode_fields(supported), hook_environment)


def _encode_fields(fields: Mapping[str, object]) -> bytes:
    try:
        return msgspec.json.encode(fields, enc_hook=str) + b"\n"
    except (UnicodeEncodeError, TypeError, ValueError):  # a lone surrogate, or a key that is not a string
        return json.dumps(fields, default=str).encode() + b"\n"


_Destination = Literal["userSettings", "projectSettings", "localSettings", "session", "cliArg"]


class _UpdatedRule(Struct, rename="camel"):
    tool_name: str
    rule_content: str | UnsetType = UNSET


class _RulesUpdate(Struct):
    type: Literal["addRules", "replaceRules", "removeRules"]
    rules: list[_UpdatedRule]
    behavior: Literal["allow", "deny", "ask"]
    destination: _Destination


class _ModeUpdate(Struct):
    type: Literal["setMode"]
    mode: Literal["default", "acceptEdits", "plan", "dontAsk", "bypassPermissions", "auto", "manual"]
    destination: _Destination


class _FoldersUpdate(Struct):
    type: Literal["addDirectories", "removeDirectories"]
    directories: list[str]
    destination: _Destination


_UPDATE_TYPES: Mapping[str, type[Struct]] = {
    "addRules": _RulesUpdate,
    "replaceRules": _RulesUpdate,
    "removeRules": _RulesUpdate,
    "setMode": _ModeUpdate,
    "addDirectories": _FoldersUpdate,
    "removeDirectories": _FoldersUpdate,
}
_PERMISSION_POINTS: frozenset[HookPoint] = frozenset({"PreToolUse", "PermissionRequest"})
_PRE_TOOL_FIELDS = frozenset({"permissionDecision", "permissionDecisionReason", "updatedInput", "additionalContext"})
_ANSWER_FIELDS = {
    "allow": frozenset({"behavior", "updatedInput", "updatedPermissions"}),
    "deny": frozenset({"behavior", "message", "interrupt"}),
}
"""The fields of a permission hook's decision, by behavior. The client ignores all other fields."""


class _PermissionAnswer(Struct, rename="camel"):
    behavior: Literal["allow", "deny"]
    updated_input: dict[str, object] | None = None
    updated_permissions: list[dict[str, object]] = []
    message: str | None = None
    interrupt: bool = False


class _EventSpecificOutput(Struct, rename="camel"):
    hook_event_name: str
    permission_decision: Literal["allow", "deny", "ask", "defer"] | None = None
    permission_decision_reason: str | None = None
    updated_input: dict[str, object] | None = None
    additional_context: str | None = None
    updated_tool_output: object | UnsetType = UNSET
    updated_mcp: object | UnsetType = msgspec.field(default=UNSET, name="updatedMCPToolOutput")
    decision: _PermissionAnswer | None = None
    retry: bool = False
    watch_paths: list[str] | None = None
    action: Literal["accept", "decline", "cancel"] | None = None
    content: dict[str, object] | None = None

    @property
    def new_output(self) -> object | UnsetType:
        """The output that replaces a tool's, or the answer to a server's request for input."""
        if self.action is None:
            return self.updated_tool_output
        return {"action": self.action, "content": self.content}


class _HookJson(Struct, rename="camel"):
    continue_: bool = msgspec.field(default=True, name="continue")
    stop_reason: str | None = None
    suppress_output: bool = False
    system_message: str | None = None
    decision: Literal["approve", "allow", "block"] | None = None
    reason: str | None = None
    additional_context: object = None
    hook_specific_output: _EventSpecificOutput | None = None


@dataclass(frozen=True, slots=True)
class HookOutputParser:
    """A parser for the output of one handler at one hook point."""

    point: HookPoint
    handler_name: str
    tool: str
    values: HookValues = field(repr=False)

    def parse_hook_output(self, output: HookOutput) -> HookResponse:
        """Convert a handler's output to a response.

        Output that begins with `{` is JSON, in its current or older form; anything else is plain
        text. Exit code 2 is an objection, regardless of the output.
        """
        if output.status != "ended":
            if output.exit_code == BLOCKING_EXIT_CODE and self.point != "PermissionRequest":
                return self._build_objection(output)  # the output is lost, but the objection is not
            return HookResponse(error=f"Failed to run: {output.problem or 'it did not end in time'}")
        try:
            document = _parse_json_object(output.stdout)
        except RecursionError:  # it may contain an objection
            return self.blocking_response("The output is nested too deeply to be read.")
        if document is None and not output.exit_code:
            text = output.stdout.strip()
            contexts = (text,) if text and self.point in CONTEXT_POINTS else ()
            return HookResponse(plain_text=text or None, contexts=contexts)
        if document is None:
            if output.exit_code == BLOCKING_EXIT_CODE:
                return self._build_objection(output)
            text = output.stderr.strip() or _NO_STDERR
            return HookResponse(error=f"Failed with non-blocking status code: {text}")
        try:
            answer = self._validate_answer(document)
        except ValueError as error:
            if output.exit_code == BLOCKING_EXIT_CODE and self.values.exit_2_wins:
                return self._build_objection(output)
            return HookResponse(error=str(error))
        response = self._interpret_answer(answer)
        null_field = _find_null(document, self.point)
        if null_field is not None and not response.restricts and self.point in _PERMISSION_POINTS:
            # The client ignores the whole output. An objection counts nevertheless.
            response = HookResponse(error=f"Hook JSON output validation failed: `{null_field}` is null")
        if output.exit_code == BLOCKING_EXIT_CODE and self.values.exit_2_wins and not response.is_objection:
            objection = self._build_objection(output)
            return replace(
                response,
                decision=objection.decision,
                block=objection.block,
                from_exit_code=True,
                input=None,
                defer=False,
            )
        return response

    def blocking_response(self, message: str) -> HookResponse:
        """Return an objection with this message. Also used for handlers that fail closed."""
        plain = f"[{self.handler_name}]: {message}"
        text = f"PreToolUse:{self.tool} hook error: {plain}" if self.values.exit_2_names_tool else plain
        match self.point:
            case "PreToolUse":
                return HookResponse(decision=Deny(text, "hook"), from_exit_code=True)
            case "PermissionRequest":
                return HookResponse(decision=Deny(plain, "hook"), from_exit_code=True)
            case _:
                return HookResponse(block=plain, from_exit_code=True)

    def _build_objection(self, output: HookOutput) -> HookResponse:
        if self.point == "PermissionRequest":
            return HookResponse()  # only JSON output counts there
        return self.blocking_response(output.stderr or _NO_STDERR)

    def _validate_answer(self, document: Mapping[str, object]) -> _HookJson:
        """Validate and convert JSON output.

        Raises:
            ValueError: the output is invalid in this client version, or meant for another point.
        """
        try:
            fields = _select_fields(document, self.point)
            answer = msgspec.convert(_without_nulls(fields) if self.point in _PERMISSION_POINTS else fields, _HookJson)
            specific = answer.hook_specific_output
            for update in specific.decision.updated_permissions if specific and specific.decision else ():
                msgspec.convert(update, _UPDATE_TYPES.get(str(update.get("type")), _RulesUpdate))
        except msgspec.ValidationError as error:
            raise ValueError(f"Hook JSON output validation failed: {error}") from error
        if answer.decision == "allow" and not self.values.flat_decision:
            raise ValueError("Hook JSON output validation failed: `decision`: Invalid value 'allow'")
        if specific and specific.permission_decision == "defer" and not self.values.honours_ask:
            raise ValueError("Hook JSON output validation failed: Invalid value 'defer'")
        if specific and specific.hook_event_name != self.point:
            raise ValueError(
                f"Failed to run: Hook returned incorrect event name: expected '{self.point}' but"
                f" got '{specific.hook_event_name}'. Full stdout: {json.dumps(document, indent=2)}"
            )
        return answer

    def _interpret_answer(self, answer: _HookJson) -> HookResponse:
        stop = None
        if not answer.continue_:
            stop = answer.stop_reason or f"Execution stopped by {self.point} hook"
        specific = answer.hook_specific_output or _EventSpecificOutput(self.point)
        contexts: tuple[str, ...] = ()
        if specific.additional_context:
            contexts = (specific.additional_context,)
        elif self.values.flat_decision and isinstance(answer.additional_context, str):
            contexts = (answer.additional_context,)
        response = HookResponse(stop=stop, message=answer.system_message, is_json=True, contexts=contexts)
        if self.point == "PreToolUse":
            return self._interpret_pre_tool_use(response, answer, specific)
        if self.point != "PermissionRequest":
            return replace(
                response,
                block=(answer.reason or "Blocked by hook") if answer.decision == "block" else None,
                output=specific.new_output,
                mcp_output=specific.updated_mcp,
                retry=specific.retry,
                watch_paths=None if specific.watch_paths is None else tuple(specific.watch_paths),
            )
        permission = specific.decision
        if permission is None:
            return response
        if permission.behavior == "deny":
            return replace(response, decision=Deny(permission.message, "hook", permission.interrupt))
        return replace(
            response,
            decision=Allow(permission.message, "hook", permission.updated_input),
            permission_updates=tuple(permission.updated_permissions),
        )

    def _interpret_pre_tool_use(
        self, response: HookResponse, answer: _HookJson, specific: _EventSpecificOutput
    ) -> HookResponse:
        decision: Decision | None = None
        reason = specific.permission_decision_reason
        match specific.permission_decision or answer.decision:
            case "allow" | "approve":
                decision = Allow(reason or answer.reason, "hook")
            case "deny" | "block":
                decision = Deny(reason or answer.reason or None, "hook")
            case "ask":
                decision = Ask(reason, "hook")
            case _:
                pass
        decides = decision is not None and (self.values.honours_ask or not isinstance(decision, Ask))
        keeps_input = decides or not self.values.input_needs_decision
        return replace(
            response,
            decision=decision,
            input=specific.updated_input if keeps_input else None,
            defer=specific.permission_decision == "defer",
        )


_MAX_DIGITS = 400
"""The maximum length of an integer; a longer one is infinite as a floating-point number, as in the client."""
_WHITESPACE = "\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(map(chr, range(0x2000, 0x200B)))
"""The characters that the client removes around output, among them a byte order mark."""


def _parse_json_object(text: str) -> dict[str, object] | None:
    """Parse the text as a JSON object, or return None if it is not one.

    Objects that the client accepts must be accepted, because they may be objections. Therefore this function uses the
    standard library, which accepts huge numbers and surrogates that have no partner.

    Raises:
        RecursionError: the text is nested too deeply.
    """
    text = text.strip(_WHITESPACE)
    if not text.startswith("{"):
        return None
    try:
        value = json.loads(text, parse_constant=_reject_constant, parse_int=_parse_integer)
    except ValueError:
        return None
    if "\\ud" in text.lower():  # replace surrogates, which cannot be written to a transcript
        value = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    return value if isinstance(value, dict) else None


def _reject_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _parse_integer(digits: str) -> float:
    return int(digits) if len(digits) < _MAX_DIGITS else float(digits)


def _select_fields(document: Mapping[str, object], point: HookPoint) -> Mapping[str, object]:
    """Return the output without fields that do not belong to the hook point, which may contain anything."""
    specific = document.get("hookSpecificOutput")
    if not isinstance(specific, Mapping):
        return document
    decision = specific.get("decision")
    if point == "PreToolUse":
        names = _PRE_TOOL_FIELDS
    elif point == "PermissionRequest":
        names = frozenset({"decision"})
        if isinstance(decision, Mapping) and decision.get("behavior") in ("allow", "deny"):
            answer_names = _ANSWER_FIELDS[str(decision["behavior"])]
            specific = {**specific, "decision": {key: decision[key] for key in decision.keys() & answer_names}}
    else:
        names = frozenset(specific) - _PRE_TOOL_FIELDS - {"decision"} | {"additionalContext"}
    selected = {key: value for key, value in specific.items() if key in names or key == "hookEventName"}
    return {**document, "hookSpecificOutput": selected}


_TOP_FIELDS = ("continue", "stopReason", "suppressOutput", "systemMessage", "decision", "reason", "hookSpecificOutput")


def _without_nulls(document: Mapping[str, object]) -> dict[str, object]:
    """Return the output without fields that are null, so that a denial beside them counts."""
    fields = {key: value for key, value in document.items() if value is not None}
    for key in ("hookSpecificOutput", "decision"):
        inner = fields.get(key)
        if isinstance(inner, Mapping):
            fields[key] = _without_nulls(inner)
    return fields


def _find_null(document: Mapping[str, object], point: HookPoint) -> str | None:
    """Return a field of the output that is null, which the client does not accept, or None if there is none."""
    top = next((key for key in _TOP_FIELDS if document.get(key, ...) is None), None)
    specific = _select_fields(document, point).get("hookSpecificOutput")
    if top is not None or not isinstance(specific, Mapping):
        return top
    decision = specific.get("decision")
    fields = {**specific, **(decision if isinstance(decision, Mapping) else {})}
    return next((key for key, value in fields.items() if value is None), None)


def spill_long_text(text: str, folder: Path) -> str:
    """Save text that is too long to a file, and return its beginning and the path. Return other text unchanged."""
    if len(text) <= MAX_TEXT_LENGTH:
        return text
    path = folder / "hook-results" / f"{uuid.uuid4()}.txt"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        return f"{text[:MAX_TEXT_LENGTH]}\n[{len(text) - MAX_TEXT_LENGTH} characters dropped; not kept: {error}]"
    return (
        f"<persisted-output>\nOutput too large ({len(text)} characters)."
        f" Full output saved to: {path}\n\nPreview:\n{text[:_PREVIEW_LENGTH]}\n...\n</persisted-output>"
    )
