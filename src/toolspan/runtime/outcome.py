"""How a call ended, before it is written down: where every way through the pipeline leads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from msgspec import Struct, structs

from toolspan.errors import ToolError, ToolspanError, exception_text
from toolspan.runtime.context import CallContext
from toolspan.runtime.output_limits import ERROR_LIMIT, UnfitOutputError, sanitize_json, sanitize_text, truncate_middle
from toolspan.runtime.permissions.decide import PermissionRequest
from toolspan.runtime.profiles import Refusals
from toolspan.runtime.tool import ToolFailure
from toolspan.types.decision import Ask, Deny, MissingPermissions
from toolspan.types.error_kinds import ERROR_KINDS, ErrorKind, find_timeout_text, kind_of
from toolspan.types.events import Content, HookContext
from toolspan.types.state import State
from toolspan.types.tool_kinds import tool_kind

DID_NOT_STOP = "it did not stop when it was told to"
_ERROR_TAG_START, _ERROR_TAG_END = "<tool_use_error>", "</tool_use_error>"


class Outcome(Struct, frozen=True, kw_only=True):
    """One result to be, with its state."""

    state: State
    content: Content
    structured: object | None = None
    is_error: bool | None = None
    """`is_error` as it is written."""
    kind: ErrorKind | None = None
    reason: str
    """What the state rests on."""
    denial_kind: str | None = None
    exit_code: int | None = None
    background_task: str | None = None
    agent: str | None = None
    """The subagent that the call started."""
    persisted: Path | None = None
    extra_keys: Mapping[str, object] = {}
    """Further keys of the result's record."""
    modify: Callable[[CallContext], CallContext] | None = None
    companions: tuple[Content, ...] = ()
    contexts: tuple[HookContext, ...] = ()
    structured_output: object | None = None
    stop: str | None = None
    """The turn ends here, for this reason."""
    deferred: bool = False
    """There is no result: the call was put off."""

    @property
    def is_failure(self) -> bool:
        """Whether the model is told of an error."""
        return self.is_error is True


def refused_outcome(text: str, *, kind: ErrorKind, reason: str, record: str | None = None) -> Outcome:
    """Not run: the text goes into the tags that mark a refusal."""
    text = sanitize_text(text)
    return Outcome(
        state="failed",
        content=add_error_tags(text),
        structured=error_record(text) if record is None else sanitize_text(record),
        is_error=True,
        kind=kind,
        reason=reason,
    )


def add_error_tags(text: str) -> str:
    """A text in the tags of errors that are not the tool's own output."""
    return f"{_ERROR_TAG_START}{text}{_ERROR_TAG_END}"


def strip_error_tags(text: str) -> str:
    """A text without the tags that it may have."""
    return text.removeprefix(_ERROR_TAG_START).removesuffix(_ERROR_TAG_END)


def error_record(text: str) -> str:
    """What is recorded beside an error text: the same, once prefixed."""
    return text if text.startswith("Error: ") else f"Error: {text}"


def timed_out_outcome(name: str, seconds: float, *, still_running: bool) -> Outcome:
    """The tool's time limit passed; `left`: it did not stop then."""
    text = f"Error calling tool ({name}): request timed out after {seconds:g}s"
    return Outcome(
        state="timed_out",
        content=add_error_tags(text),
        structured=error_record(text),
        is_error=True,
        kind=kind_of(name, text),
        reason="the tool's time limit passed" + (f", and {DID_NOT_STOP}" if still_running else ""),
    )


def tool_error_outcome(name: str, error: ToolError) -> Outcome:
    """What a tool says went wrong."""
    text = sanitize_text(truncate_middle(error.message, ERROR_LIMIT)) or "The tool failed without a word"
    content = add_error_tags(text) if error.wrapped else text
    return _reclassify_timeout(
        name,
        text,
        Outcome(
            state="failed",
            content=content,
            structured=error_record(text),
            is_error=True,
            kind=_find_error_kind(error.kind) or kind_of(name, text),
            reason="the tool reported an error",
        ),
    )


def _find_error_kind(kind: str | None) -> ErrorKind | None:
    """The error kind of this name, if there is one."""
    return next((candidate for candidate in ERROR_KINDS if candidate == kind), None)


def exception_outcome(name: str, error: BaseException) -> Outcome:
    """An exception that a tool did not mean to raise."""
    message = exception_text(error)
    kind = type(error).__name__
    text = message if isinstance(error, OSError | ToolspanError) else f"{kind}: {message}" if message else kind
    text = sanitize_text(truncate_middle(text, ERROR_LIMIT))
    return _reclassify_timeout(
        name,
        text,
        Outcome(
            state="failed",
            content=text,
            structured=error_record(text),
            is_error=True,
            kind=kind_of(name, text),
            reason=f"the tool raised {type(error).__name__}",
        ),
    )


def failure_outcome(name: str, failed: ToolFailure) -> Outcome:
    """A bad end that the tool tells of."""
    text = sanitize_text(failed.text) or "The tool failed without a word"
    kind = failed.kind or kind_of(name, text)
    if kind == "unknown" and failed.exit_code:
        kind = "command_failed"
    return _reclassify_timeout(
        name,
        text,
        Outcome(
            state="timed_out" if failed.timed_out else "failed",
            content=text,
            structured=_failure_record(failed, text),
            is_error=True,
            kind=kind,
            exit_code=failed.exit_code,
            modify=failed.modify,
            reason="the tool reported an error",
        ),
    )


def _reclassify_timeout(name: str, text: str, outcome: Outcome) -> Outcome:
    """An error that says that time ran out is read as one that did; a command's output may."""
    if outcome.state != "failed" or tool_kind(name) == "shell" or not find_timeout_text(name, text):
        return outcome
    kind = "permission_timeout" if outcome.kind == "permission_timeout" else "mcp_timeout"
    return structs.replace(outcome, state="timed_out", kind=kind)


def _failure_record(failed: ToolFailure, text: str) -> object:
    """What a tool records beside its failure; the text, if that is nothing JSON can hold."""
    if failed.structured is None:
        return error_record(text)
    try:
        return sanitize_json(failed.structured)
    except (UnfitOutputError, RecursionError):
        return error_record(text)


def content_text(content: Content) -> str:
    """The texts of a content, joined."""
    if isinstance(content, str):
        return content
    return "\n".join(str(block["text"]) for block in content if block["type"] == "text")


USER_SOURCES = frozenset({"user", "user_reject", "user_abort", "user_temporary"})


@dataclass(frozen=True, slots=True)
class DenialText:
    """The texts of a refusal: for the model, and beside it."""

    text: str
    record: str


def denied_outcome(request: PermissionRequest, decision: Deny, refusals: Refusals) -> Outcome:
    """Somebody said no."""
    if decision.source in ("hook", "permission_hook"):
        return _blocked_by_hook(request, decision, refusals)
    if decision.source in USER_SOURCES:
        return _rejected_by_user(decision, refusals)
    text = _policy_text(request, decision, refusals)
    if _is_denied_file(request, decision):
        texts = DenialText(add_error_tags(text), error_record(text))
        return _make_denied_outcome(texts, "rule_denied", None, decision)
    denial_kind = "automode-unavailable" if decision.basis == "classifier" else "permission-rule"
    return _make_denied_outcome(DenialText(text, error_record(text)), "rule_denied", denial_kind, decision)


def not_granted_outcome(request: PermissionRequest, ask: Ask, refusals: Refusals) -> Outcome:
    """Somebody would have to be asked, and nobody is there."""
    text = approval_message(request, ask, refusals)
    texts = DenialText(text, error_record(text))
    return _make_denied_outcome(texts, "not_granted", "user-rejected", Deny(text, ask.source))


def approval_message(request: PermissionRequest, ask: Ask, refusals: Refusals) -> str:
    """What somebody is asked, or told when nobody is there to be asked."""
    if ask.source == "mode" and refusals.plan_mode:
        return refusals.plan_mode.format(path=_input_path(request))
    if ask.needs is not None:
        return _needs_text(ask.needs, refusals)
    if ask.reason is not None and ask.source != "mode":
        return ask.reason
    return _not_granted_text(request, refusals)


def _needs_text(needs: MissingPermissions, refusals: Refusals) -> str:
    """Why a command line is asked about: the place it reaches, or the commands in it."""
    reach = needs.reach
    if reach is not None and not (needs.leaves and refusals.leaving_names_parts):
        inside = refusals.redirect_inside if reach.program is None else refusals.reach_inside
        outside = refusals.redirect if reach.program is None else refusals.reach
        text = inside if reach.inside else outside
        if text is not None:
            return text.format(what=reach.program, path=reach.path)
    if needs.of <= 1:
        return "This command requires approval"
    several = len(needs.parts) > 1
    parts = "parts require" if several else "part requires"
    return f"This Bash command contains multiple operations. The following {parts} approval: {', '.join(needs.parts)}"


def _is_denied_file(request: PermissionRequest, decision: Deny) -> bool:
    """A rule about paths said so, not one about the whole tool."""
    about_paths = decision.rule is not None and "(" in decision.rule
    return about_paths and tool_kind(request.tool) in ("read", "edit", "write")


def _make_denied_outcome(texts: DenialText, kind: ErrorKind, denial_kind: str | None, decision: Deny) -> Outcome:
    return Outcome(
        state="denied",
        content=sanitize_text(texts.text),
        structured=sanitize_text(texts.record),
        is_error=True,
        kind=kind,
        denial_kind=denial_kind,
        reason=f"refused by {decision.source}",
        stop="refused by the user" if decision.stop else None,
    )


def _rejected_by_user(decision: Deny, refusals: Refusals) -> Outcome:
    text = refusals.rejected
    if decision.reason:
        text = refusals.rejected_with_message.format(words=decision.reason)
    texts = DenialText(text, refusals.rejected_record)
    return _make_denied_outcome(texts, "user_denied", "user-rejected", decision)


def _blocked_by_hook(request: PermissionRequest, decision: Deny, refusals: Refusals) -> Outcome:
    text = refusals.hook_denied_silently.format(name=request.tool)
    if decision.source == "permission_hook":  # it speaks in a person's place
        text = sanitize_text(decision.reason or text)
    elif decision.reason:
        text = sanitize_text(refusals.hook_denied.format(name=request.tool, reason=decision.reason))
    return Outcome(
        state="blocked_by_hook",
        content=text,
        structured=error_record(text),
        is_error=True,
        kind="hook_blocked",
        denial_kind="permission-rule",
        reason="a hook refused",
        stop="refused by a hook" if decision.stop else None,
    )


def _policy_text(request: PermissionRequest, decision: Deny, refusals: Refusals) -> str:
    if decision.source == "mode" and decision.reason == "dontAsk":
        return refusals.dont_ask.format(name=request.tool)
    if decision.reason:
        return decision.reason
    if _is_denied_file(request, decision):
        return refusals.denied_file
    command = request.input.get("command")
    if request.tool == "Bash" and isinstance(command, str):
        return f"Permission to use Bash with command {command} has been denied."
    return refusals.denied.format(name=request.tool)


def _not_granted_text(request: PermissionRequest, refusals: Refusals) -> str:
    kind = tool_kind(request.tool)
    path = _input_path(request)
    if path and kind in ("edit", "write"):
        return refusals.not_granted_write.format(path=path)
    if path and kind in ("read", "search"):
        return refusals.not_granted_read.format(path=path)
    return refusals.not_granted.format(name=request.tool)


def _input_path(request: PermissionRequest) -> str | None:
    for key in ("file_path", "notebook_path", "path"):
        value = request.input.get(key)
        if isinstance(value, str):
            return str(request.cwd / value)
    return None


def cancelled_outcome(refusals: Refusals) -> Outcome:
    """It never started, because something else ended first."""
    return Outcome(
        state="cancelled",
        content=refusals.cancelled,
        structured=refusals.rejected_record,
        is_error=True,
        kind="cancelled",
        denial_kind="cancelled",
        reason="ended before it started",
    )


def interrupted_outcome(refusals: Refusals, partial: str | None) -> Outcome:
    """It was running when somebody ended it; what it had to show is kept."""
    text = refusals.interrupted
    record = refusals.rejected_record
    if refusals.interrupted_keeps_output:
        text = f"Exit code 137\n{refusals.interrupt_note}" if partial is not None else text
        text = f"{text}\n{partial}" if partial else text
        record = error_record(text)
    elif partial:
        text = f"{text}\n\nWhat it had printed until then:\n{partial}"
    return Outcome(
        state="interrupted",
        content=text,
        structured=record,
        is_error=True,
        kind="interrupted",
        denial_kind="interrupted",
        reason="ended while it ran",
    )


def sibling_failed_outcome() -> Outcome:
    """A parallel call failed, and the policy is that one failure ends all."""
    return _dropped_outcome("Sibling tool call errored", "sibling_error", "a sibling failed")


def discarded_outcome() -> Outcome:
    """The reply that asked for the call was streamed anew."""
    text = "Error: Streaming fallback - tool execution discarded"
    return _dropped_outcome(text, "stream_discarded", "the reply was streamed anew")


def _dropped_outcome(text: str, kind: ErrorKind, reason: str) -> Outcome:
    """Nobody wants its result any more."""
    return Outcome(
        state="cancelled",
        content=add_error_tags(text),
        structured=error_record(text),
        is_error=True,
        kind=kind,
        reason=reason,
    )
