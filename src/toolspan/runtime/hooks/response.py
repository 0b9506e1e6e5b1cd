"""What a handler means: from what it printed to decisions, words and objections.

In: a `Heard`, the point it was at, and the client version's ways. Out: a `Said`. Output that begins
with `{` is an answer in JSON, in its current or its older form; anything else is text. Exit code 2
objects, whatever was printed; others do not count beside an answer. Pure. Read `understand` first.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from toolspan.runtime.hooks.events import HookPoint
from toolspan.runtime.hooks.handlers import HookOutput
from toolspan.runtime.profiles import HookValues
from toolspan.types.decision import Allow, Ask, Decision, Deny

BLOCKING_EXIT_CODE = 2
"""The exit code of a handler that says no."""
_NO_STDERR = "No stderr output"
CONTEXT_POINTS: frozenset[HookPoint] = frozenset({"UserPromptSubmit", "SessionStart"})
"""Points at which plain output is for the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookResponse:
    """What one handler said, understood."""

    decision: Decision | None = None
    from_exit_code: bool = False
    """The decision is its exit code's, not its answer's."""
    defer: bool = False
    input: Mapping[str, object] | None = None
    permission_updates: tuple[Mapping[str, object], ...] = ()
    contexts: tuple[str, ...] = ()
    output: object | UnsetType = UNSET
    mcp_output: object | UnsetType = UNSET
    block: str | None = None
    """It objects, for this reason."""
    watch_paths: tuple[str, ...] | None = None
    """Files that it wants to hear of; None: it says nothing of that."""
    retry: bool = False
    """A call that was refused may be asked for again."""
    stop: str | None = None
    message: str | None = None
    """For the person."""
    plain_text: str | None = None
    """What it printed, when that is no answer in JSON."""
    error: str | None = None
    """It failed in a way that stops nothing."""
    is_json: bool = False
    """It gave an answer in JSON."""


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
    """Understands what the handlers of one point say."""

    point: HookPoint
    handler_name: str
    """The handler's."""
    tool: str
    values: HookValues = field(repr=False)

    def parse_hook_output(self, output: HookOutput) -> HookResponse:
        """What the handler means."""
        if output.status != "ended":
            if output.exit_code == BLOCKING_EXIT_CODE and self.point != "PermissionRequest":
                return self._build_objection(output)  # its answer is lost, its objection is not
            return HookResponse(error=f"Failed to run: {output.problem or 'it did not end in time'}")
        document = _parse_json_object(output.stdout)
        if document is None:
            return self._parse_plain_text(output)
        try:
            answer = self._validate_answer(document)
        except ValueError as error:
            if output.exit_code == BLOCKING_EXIT_CODE and self.values.exit_2_wins:
                return self._build_objection(output)
            return HookResponse(error=str(error))
        response = self._interpret_answer(answer)
        is_objection = response.block is not None or isinstance(response.decision, Deny)
        if output.exit_code == BLOCKING_EXIT_CODE and self.values.exit_2_wins and not is_objection:
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
        """The objection of a handler that could not give one: it failed, and that must not pass."""
        text = self.values.blocked_text.format(command=self.handler_name, tool=self.tool, words=message)
        plain = f"[{self.handler_name}]: {message}"
        match self.point:
            case "PreToolUse":
                return HookResponse(decision=Deny(text, "hook"), from_exit_code=True)
            case "PermissionRequest":
                return HookResponse(decision=Deny(plain, "hook"), from_exit_code=True)
            case _:
                return HookResponse(block=plain, from_exit_code=True)

    def _parse_plain_text(self, output: HookOutput) -> HookResponse:
        if not output.exit_code:
            text = output.stdout.strip()
            contexts = (text,) if text and self.point in CONTEXT_POINTS else ()
            return HookResponse(plain_text=text or None, contexts=contexts)
        if output.exit_code == BLOCKING_EXIT_CODE:
            return self._build_objection(output)
        text = output.stderr.strip() or _NO_STDERR
        return HookResponse(error=f"Failed with non-blocking status code: {text}")

    def _build_objection(self, output: HookOutput) -> HookResponse:
        if self.point == "PermissionRequest":
            return HookResponse()  # only its answer counts there
        return self.blocking_response(output.stderr or _NO_STDERR)

    def _validate_answer(self, document: Mapping[str, object]) -> _HookJson:
        """The answer.

        Raises:
            ValueError: it has not the form of one, or is for another point.
        """
        try:
            answer = msgspec.convert(document, _HookJson)
        except msgspec.ValidationError as error:
            raise ValueError(f"Hook JSON output validation failed: {error}") from error
        if answer.decision == "allow" and not self.values.flat_decision:
            raise ValueError("Hook JSON output validation failed: `decision`: Invalid value 'allow'")
        specific = answer.hook_specific_output
        if specific and specific.permission_decision == "defer" and not self.values.honours_defer:
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
        response = HookResponse(stop=stop, message=answer.system_message, is_json=True)
        specific = answer.hook_specific_output
        if specific is not None and specific.additional_context:
            response = replace(response, contexts=(specific.additional_context,))
        elif self.values.flat_decision and isinstance(answer.additional_context, str):
            response = replace(response, contexts=(answer.additional_context,))
        match self.point:
            case "PreToolUse":
                return self._interpret_pre_tool_use(response, answer, specific or _EventSpecificOutput(self.point))
            case "PermissionRequest":
                return _interpret_permission_answer(response, specific.decision if specific else None)
            case _:
                return _interpret_effects(response, answer, specific or _EventSpecificOutput(self.point))

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
            case "ask" if self.values.honours_ask:
                decision = Ask(reason, "hook")
            case _:
                pass
        new_input = specific.updated_input
        if self.values.input_needs_decision and decision is None:
            new_input = None
        defer = specific.permission_decision == "defer"
        return replace(response, decision=decision, input=new_input, defer=defer)


def _interpret_permission_answer(response: HookResponse, permission: _PermissionAnswer | None) -> HookResponse:
    if permission is None:
        return response
    if permission.behavior == "deny":
        return replace(response, decision=Deny(permission.message, "hook", permission.interrupt))
    return replace(
        response,
        decision=Allow(permission.message, "hook", permission.updated_input),
        permission_updates=tuple(permission.updated_permissions),
    )


def _interpret_effects(response: HookResponse, answer: _HookJson, specific: _EventSpecificOutput) -> HookResponse:
    block = (answer.reason or "Blocked by hook") if answer.decision == "block" else None
    return replace(
        response,
        block=block,
        output=specific.updated_tool_output,
        mcp_output=specific.updated_mcp,
        retry=specific.retry,
        watch_paths=None if specific.watch_paths is None else tuple(specific.watch_paths),
    )


def _parse_json_object(text: str) -> dict[str, object] | None:
    """The JSON object that was printed, if it is one."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        value = msgspec.json.decode(text.encode())
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


MAX_TEXT_LENGTH = 10_000
_PREVIEW_LENGTH = 2_000


def spill_long_text(text: str, folder: Path) -> str:
    """The text; over the limit its beginning, and where the rest is."""
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
