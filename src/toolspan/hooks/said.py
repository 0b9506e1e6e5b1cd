"""What a handler means: from what it printed to decisions, words and objections.

In: a `Heard`, the point it was at, and the client version's ways. Out: a `Said`. Output that begins
with `{` is an answer in JSON, in its current or its older form; anything else is text. Exit code 2
objects, whatever was printed; others do not count beside an answer. Pure. Read `understand` first.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from toolspan.hooks.heard import Heard
from toolspan.hooks.points import Point
from toolspan.model.decision import Allow, Ask, Decision, Deny
from toolspan.profile import HookValues

OBJECTS = 2
"""The exit code of a handler that says no."""
_SILENT = "No stderr output"
SPEAKS_TO_MODEL: frozenset[Point] = frozenset({"UserPromptSubmit", "SessionStart"})
"""Points at which plain output is for the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What one handler said, understood."""

    decision: Decision | None = None
    by_exit: bool = False
    """The decision is its exit code's, not its answer's."""
    defer: bool = False
    input: Mapping[str, object] | None = None
    updates: tuple[Mapping[str, object], ...] = ()
    contexts: tuple[str, ...] = ()
    output: object | UnsetType = UNSET
    mcp_output: object | UnsetType = UNSET
    block: str | None = None
    """It objects, for this reason."""
    watches: tuple[str, ...] | None = None
    """Files that it wants to hear of; None: it says nothing of that."""
    retry: bool = False
    """A call that was refused may be asked for again."""
    stop: str | None = None
    message: str | None = None
    """For the person."""
    words: str | None = None
    """What it printed, when that is no answer in JSON."""
    error: str | None = None
    """It failed in a way that stops nothing."""
    answered: bool = False
    """It gave an answer in JSON."""


class _Permit(Struct, rename="camel"):
    behavior: Literal["allow", "deny"]
    updated_input: dict[str, object] | None = None
    updated_permissions: list[dict[str, object]] = []
    message: str | None = None
    interrupt: bool = False


class _Specific(Struct, rename="camel"):
    hook_event_name: str
    permission_decision: Literal["allow", "deny", "ask", "defer"] | None = None
    permission_decision_reason: str | None = None
    updated_input: dict[str, object] | None = None
    additional_context: str | None = None
    updated_tool_output: object | UnsetType = UNSET
    updated_mcp: object | UnsetType = msgspec.field(default=UNSET, name="updatedMCPToolOutput")
    decision: _Permit | None = None
    retry: bool = False
    watch_paths: list[str] | None = None


class _Answer(Struct, rename="camel"):
    continue_: bool = msgspec.field(default=True, name="continue")
    stop_reason: str | None = None
    suppress_output: bool = False
    system_message: str | None = None
    decision: Literal["approve", "allow", "block"] | None = None
    reason: str | None = None
    additional_context: object = None
    hook_specific_output: _Specific | None = None


@dataclass(frozen=True, slots=True)
class Ear:
    """Understands what the handlers of one point say."""

    point: Point
    name: str
    """The handler's."""
    tool: str
    values: HookValues = field(repr=False)

    def understand(self, heard: Heard) -> Said:
        """What the handler means."""
        if heard.end != "ended":
            if heard.exit_code == OBJECTS and self.point != "PermissionRequest":
                return self._objection(heard)  # its answer is lost, its objection is not
            return Said(error=f"Failed to run: {heard.problem or 'it did not end in time'}")
        document = _document(heard.stdout)
        if document is None:
            return self._plain(heard)
        try:
            answer = self._checked(document)
        except ValueError as error:
            if heard.exit_code == OBJECTS and self.values.exit_2_wins:
                return self._objection(heard)
            return Said(error=str(error))
        said = self._meant(answer)
        objects = said.block is not None or isinstance(said.decision, Deny)
        if heard.exit_code == OBJECTS and self.values.exit_2_wins and not objects:
            objection = self._objection(heard)
            return replace(
                said,
                decision=objection.decision,
                block=objection.block,
                by_exit=True,
                input=None,
                defer=False,
            )
        return said

    def blocked(self, words: str) -> Said:
        """The objection of a handler that could not give one: it failed, and that must not pass."""
        text = self.values.blocked.format(command=self.name, tool=self.tool, words=words)
        plain = f"[{self.name}]: {words}"
        match self.point:
            case "PreToolUse":
                return Said(decision=Deny(text, "hook"), by_exit=True)
            case "PermissionRequest":
                return Said(decision=Deny(plain, "hook"), by_exit=True)
            case _:
                return Said(block=plain, by_exit=True)

    def _plain(self, heard: Heard) -> Said:
        if not heard.exit_code:
            words = heard.stdout.strip()
            told = (words,) if words and self.point in SPEAKS_TO_MODEL else ()
            return Said(words=words or None, contexts=told)
        if heard.exit_code == OBJECTS:
            return self._objection(heard)
        words = heard.stderr.strip() or _SILENT
        return Said(error=f"Failed with non-blocking status code: {words}")

    def _objection(self, heard: Heard) -> Said:
        if self.point == "PermissionRequest":
            return Said()  # only its answer counts there
        return self.blocked(heard.stderr or _SILENT)

    def _checked(self, document: Mapping[str, object]) -> _Answer:
        """The answer.

        Raises:
            ValueError: it has not the form of one, or is for another point.
        """
        try:
            answer = msgspec.convert(document, _Answer)
        except msgspec.ValidationError as error:
            raise ValueError(f"Hook JSON output validation failed: {error}") from error
        if answer.decision == "allow" and not self.values.flat_decision:
            raise ValueError(
                "Hook JSON output validation failed: `decision`: Invalid value 'allow'"
            )
        given = answer.hook_specific_output
        if given and given.permission_decision == "defer" and not self.values.honours_defer:
            raise ValueError("Hook JSON output validation failed: Invalid value 'defer'")
        if given and given.hook_event_name != self.point:
            raise ValueError(
                f"Failed to run: Hook returned incorrect event name: expected '{self.point}' but"
                f" got '{given.hook_event_name}'. Full stdout: {json.dumps(document, indent=2)}"
            )
        return answer

    def _meant(self, answer: _Answer) -> Said:
        stop = None
        if not answer.continue_:
            stop = answer.stop_reason or f"Execution stopped by {self.point} hook"
        said = Said(stop=stop, message=answer.system_message, answered=True)
        given = answer.hook_specific_output
        if given is not None and given.additional_context:
            said = replace(said, contexts=(given.additional_context,))
        elif self.values.flat_decision and isinstance(answer.additional_context, str):
            said = replace(said, contexts=(answer.additional_context,))
        match self.point:
            case "PreToolUse":
                return self._before(said, answer, given or _Specific(self.point))
            case "PermissionRequest":
                return _permit(said, given.decision if given else None)
            case _:
                return _after(said, answer, given or _Specific(self.point))

    def _before(self, said: Said, answer: _Answer, given: _Specific) -> Said:
        decision: Decision | None = None
        reason = given.permission_decision_reason
        match given.permission_decision or answer.decision:
            case "allow" | "approve":
                decision = Allow(reason or answer.reason, "hook")
            case "deny" | "block":
                decision = Deny(reason or answer.reason or None, "hook")
            case "ask" if self.values.honours_ask:
                decision = Ask(reason, "hook")
            case _:
                pass
        wanted = given.updated_input
        if self.values.input_needs_decision and decision is None:
            wanted = None
        defer = given.permission_decision == "defer"
        return replace(said, decision=decision, input=wanted, defer=defer)


def _permit(said: Said, permit: _Permit | None) -> Said:
    if permit is None:
        return said
    if permit.behavior == "deny":
        return replace(said, decision=Deny(permit.message, "hook", permit.interrupt))
    return replace(
        said,
        decision=Allow(permit.message, "hook", permit.updated_input),
        updates=tuple(permit.updated_permissions),
    )


def _after(said: Said, answer: _Answer, given: _Specific) -> Said:
    block = (answer.reason or "Blocked by hook") if answer.decision == "block" else None
    return replace(
        said,
        block=block,
        output=given.updated_tool_output,
        mcp_output=given.updated_mcp,
        retry=given.retry,
        watches=None if given.watch_paths is None else tuple(given.watch_paths),
    )


def _document(text: str) -> dict[str, object] | None:
    """The JSON object that was printed, if it is one."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        found = msgspec.json.decode(text.encode())
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
