"""Outcomes of calls: one function for each way in which a call can end, and `finalize_call`, which
builds the result.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from toolspan.errors import ToolError, ToolspanError, exception_text
from toolspan.runtime.output_limits import ERROR_LIMIT, UnfitOutputError, sanitize_json, sanitize_text, truncate_middle
from toolspan.runtime.profiles.messages import INTERRUPT_NOTE, REJECTED, STOP, UNRESOLVED_LINK
from toolspan.runtime.schema.issues import Invalid, explain_issues, explain_unparsed, unparsed_text
from toolspan.types.decision import Ask, Deny, MissingPermissions
from toolspan.types.error_kinds import ERROR_KINDS, ErrorKind, denial_message, find_error_kind, find_timeout_text
from toolspan.types.events import Content, Finished, HookContext
from toolspan.types.ids import SourceLocation
from toolspan.types.span import Event, Evidence, Hook, Permission, Result, Span
from toolspan.types.state import State

if TYPE_CHECKING:
    from toolspan.runtime.context import CallContext, RunnerContext
    from toolspan.runtime.pending_call import PendingCall
    from toolspan.runtime.permissions.decide import PermissionRequest
    from toolspan.runtime.profiles import Messages, Profile, Refusals
    from toolspan.runtime.tool import Refusal, Tool, ToolFailure


_REJECTED_RECORD = "User rejected tool use"
_NOT_GRANTED = "Claude requested permissions to {}, but you haven't granted it yet."
_SENSITIVE_FILE = "Claude requested permissions to edit {} which is a sensitive file."
NO_MESSAGE = "The tool failed without a message."
DID_NOT_STOP = "it did not stop after it was cancelled"
_PATH_FIELDS = ("file_path", "notebook_path", "path")
_OWN_SETTINGS = re.compile(r"\.claude/(?:settings(?:\.local)?\.json$|(?:commands|agents|skills)/)")
"""The protected files of a project that belong to the client's settings."""
_EXIT_REASON = re.compile(r"\[.*\]: ")
"""The prefix of the reason if a handler blocked a call with its exit code."""
_ERROR_TAG_START, _ERROR_TAG_END = "<tool_use_error>", "</tool_use_error>"


class Outcome(Struct, frozen=True, kw_only=True):
    """The way in which a call ended, with all data needed for its result."""

    state: State
    content: Content
    structured: object | None = None
    is_error: bool | None = None  # the recorded error flag; None to omit it
    kind: ErrorKind | None = None
    reason: str  # the evidence for the state
    denial_kind: str | None = None
    exit_code: int | None = None
    background_task: str | None = None
    agent: str | None = None  # the id of the subagent that the call started, if any
    persisted: Path | None = None
    extra_keys: Mapping[str, object] = {}  # additional keys for the recorded result
    modify: Callable[[CallContext], CallContext] | None = None
    companions: tuple[Content, ...] = ()
    contexts: tuple[HookContext, ...] = ()
    structured_output: object | None = None
    stop: str | None = None  # the reason why the turn ends with this call, if any
    deferred: bool = False  # a hook deferred the call, which therefore has no result yet

    @property
    def is_failure(self) -> bool:
        """True if the model reads the result as an error."""
        return self.is_error is True


def refused_outcome(text: str, *, kind: ErrorKind, reason: str, record: str | None = None) -> Outcome:
    """Return the outcome of a call that did not run. `text` is wrapped in error tags."""
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
    """Wrap text in the tags used for errors that do not come from a tool's output."""
    return f"{_ERROR_TAG_START}{text}{_ERROR_TAG_END}"


def strip_error_tags(text: str) -> str:
    """Remove the error tags from the text, if present."""
    return text.removeprefix(_ERROR_TAG_START).removesuffix(_ERROR_TAG_END)


def error_record(text: str) -> str:
    """Return the structured record for an error message: the message with one `Error: ` prefix."""
    return text if text.startswith("Error: ") else f"Error: {text}"


def unknown_tool_outcome(name: str, context: RunnerContext) -> Outcome:
    """Return the outcome of a call to a tool that does not exist or is disabled."""
    text = context.profile.messages.unknown_tool.format(name=name)
    availability, other = context.profile.availability, context.tools.find_other_case(name)
    if availability.explains_unknown and name in availability.tools | availability.optional_tools:
        text += f". {name} exists but is not enabled in this context."
    elif availability.explains_unknown and other:
        text += f". Tool names are case-sensitive: call {other} instead."
    return refused_outcome(text, kind="unknown_tool", reason="no such tool")


def truncated_call_outcome(pending: PendingCall) -> Outcome:
    """Return the outcome of a call that was cut off at the end of the reply."""
    text = (
        f"{pending.call.tool} was not run, because the reply reached its token limit before the call was complete."
        " Repeat the call in smaller parts."
    )
    return refused_outcome(text, kind="invalid_input", reason="the reply was cut off")


def invalid_input_outcome(pending: PendingCall, invalid: Invalid, context: RunnerContext) -> Outcome:
    """Return the outcome of a call whose input does not match the schema or is not JSON."""
    style = context.profile.issues
    raw = unparsed_text(pending.body_store.arguments_) if style.validator == "zod 4" else None
    name = pending.call.tool if pending.tool is None else pending.tool.name
    explanation = explain_issues(name, invalid, style=style) if raw is None else explain_unparsed(name, raw)
    return refused_outcome(
        explanation.text, kind="invalid_input", reason="the input does not match the schema", record=explanation.record
    )


def invalid_rewrite_outcome(tool: str, invalid: Invalid, context: RunnerContext) -> Outcome:
    """Return the outcome of a call whose input, replaced by a hook, does not match the schema."""
    explanation = explain_issues(tool, invalid, style=context.profile.issues)
    issues = explanation.text.removeprefix("InputValidationError: ")
    text = (
        f"PreToolUse hook for {tool} returned updatedInput that failed schema validation: {issues}\n"
        "The tool input from the model was valid; the hook's rewrite of it was not."
    )
    reason = "the input from a hook does not match the schema"
    return Outcome(
        state="failed",
        content=text,
        structured=error_record(text),
        is_error=True,
        kind="invalid_input",
        reason=reason,
    )


def check_refused_outcome(tool: Tool, refusal: Refusal) -> Outcome:
    """Return the outcome of a call that the tool's own check refused."""
    reason = "the tool's own check"
    kind = refusal.kind or find_error_kind(tool.kind, refusal.text)
    if kind == "unknown":
        kind = "invalid_input"
    if refusal.wrapped:
        return refused_outcome(refusal.text, kind=kind, reason=reason, record=refusal.structured)
    record = error_record(refusal.text) if refusal.structured is None else refusal.structured
    return Outcome(state="failed", content=refusal.text, structured=record, is_error=True, kind=kind, reason=reason)


def deferred_outcome() -> Outcome:
    """Return the outcome of a call that a hook deferred: neither run nor refused."""
    return Outcome(state="never_answered", content="", reason="a hook deferred it", stop="tool_deferred", deferred=True)


def timed_out_outcome(tool: Tool, seconds: float, *, still_running: bool) -> Outcome:
    """Return the outcome of a tool that exceeded its timeout. `still_running` means that it has not stopped."""
    text = f"Error calling tool ({tool.name}): request timed out after {seconds:g}s"
    return Outcome(
        state="timed_out",
        content=add_error_tags(text),
        structured=error_record(text),
        is_error=True,
        kind=find_error_kind(tool.kind, text),
        reason="the tool exceeded its timeout" + (f", and {DID_NOT_STOP}" if still_running else ""),
    )


def tool_error_outcome(tool: Tool, error: ToolError) -> Outcome:
    """Return the outcome of a tool that raised `ToolError`."""
    text = _error_text(truncate_middle(error.message, ERROR_LIMIT))
    kind = next((kind for kind in ERROR_KINDS if kind == error.kind), None)
    outcome = _failed_outcome(tool, text, kind, "the tool reported an error")
    return structs.replace(outcome, content=add_error_tags(text)) if error.wrapped else outcome


def exception_outcome(tool: Tool, error: BaseException) -> Outcome:
    """Return the outcome of a tool that raised an unexpected exception."""
    message, class_name = exception_text(error), type(error).__name__
    if not message.strip():
        message = class_name
    elif not isinstance(error, OSError | ToolspanError):
        message = f"{class_name}: {message}"
    text = _error_text(truncate_middle(message, ERROR_LIMIT))
    return _failed_outcome(tool, text, None, f"the tool raised {class_name}")


def failure_outcome(tool: Tool, failed: ToolFailure) -> Outcome:
    """Return the outcome of a tool that returned a failure."""
    text = _error_text(failed.text)
    kind = failed.kind or find_error_kind(tool.kind, text)
    if kind == "unknown" and failed.exit_code:
        kind = "command_failed"
    structured: object = error_record(text)
    if failed.structured is not None:
        with suppress(UnfitOutputError, RecursionError):  # keeps the error message
            structured = sanitize_json(failed.structured)
    outcome = _failed_outcome(tool, text, kind, "the tool reported an error", timed_out=failed.timed_out)
    return structs.replace(
        outcome,
        structured=structured,
        exit_code=failed.exit_code,
        modify=failed.modify,
        extra_keys=dict(failed.beside),
    )


def _error_text(text: str) -> str:
    """Return an error message that the model can receive. The API rejects a message that is only whitespace."""
    return sanitize_text(text) if text.strip() else NO_MESSAGE


def _failed_outcome(tool: Tool, text: str, kind: ErrorKind | None, reason: str, *, timed_out: bool = False) -> Outcome:
    """Return the outcome of a tool that failed with this message. A message that reports a timeout makes
    it a timeout, except for shell commands.
    """
    kind = kind or find_error_kind(tool.kind, text)
    if not timed_out and tool.kind != "shell" and find_timeout_text(tool.kind, text):
        timed_out = True
        kind = "permission_timeout" if kind == "permission_timeout" else "mcp_timeout"
    state: State = "timed_out" if timed_out else "failed"
    return Outcome(state=state, content=text, structured=error_record(text), is_error=True, kind=kind, reason=reason)


def content_text(content: Content) -> str:
    """Join the text blocks in the content."""
    if isinstance(content, str):
        return content
    return "\n".join(str(block["text"]) for block in content if block["type"] == "text")


USER_SOURCES = frozenset({"user", "user_reject", "user_abort", "user_temporary"})
LIMIT_SOURCE = "limit"
"""The source of the decision on a call that a limit prevents."""


def denied_outcome(request: PermissionRequest, decision: Deny, profile: Profile) -> Outcome:
    """Return the outcome of a call that a hook, a user or a rule denied."""
    refusals = profile.refusals
    if decision.source in ("hook", "permission_hook"):
        return _hook_outcome(request, decision, profile.messages)
    if decision.source in USER_SOURCES:
        text = REJECTED + STOP
        if decision.reason:
            text = f"{REJECTED} To tell you how to proceed, the user said:\n{decision.reason}"
        return _make_denied_outcome(text, _REJECTED_RECORD, "user_denied", "user-rejected", decision)
    # A rule for paths, as opposed to a rule for the whole tool.
    about_paths = decision.rule is not None and "(" in decision.rule
    kind, reports_file = request.kind, reports_denied_files(request)
    raw = next((value for key in _PATH_FIELDS if isinstance(value := request.input.get(key), str)), None)
    is_denied_file = about_paths and reports_file
    is_change = reports_file and kind != "read"
    by_reading = is_change and refusals.read_rules_bind_changes and re.match(r"Read\b", decision.rule or "")
    command = request.input.get("command")
    if decision.source == "mode" and decision.reason == "dontAsk":
        text = profile.messages.dont_ask.format(name=request.tool)
    elif decision.reason:
        text = decision.reason
    elif by_reading:
        is_denied_file = True
        done = "edited" if kind == "edit" else "written"
        text = f"File is covered by a Read deny rule in your permission settings and cannot be {done}."
    elif is_denied_file:
        text = "File is in a directory that is denied by your permission settings."
    elif about_paths and raw is not None and kind in ("search", "edit"):
        action = "read" if kind == "search" else "edit"
        text = f"Permission to {action} {_shown_path(request, raw, refusals)} has been denied."
    elif kind == "shell" and isinstance(command, str):
        text = f"Permission to use {request.tool} with command {command} has been denied."
    else:
        text = f"Permission to use {request.tool} has been denied."
    if is_denied_file:
        return _make_denied_outcome(add_error_tags(text), error_record(text), "rule_denied", None, decision)
    denial_kind = "automode-unavailable" if decision.basis == "classifier" else "permission-rule"
    error_kind: ErrorKind = "limit_reached" if decision.source == LIMIT_SOURCE else "rule_denied"
    return _make_denied_outcome(text, error_record(text), error_kind, denial_kind, decision)


def reports_denied_files(request: PermissionRequest) -> bool:
    """Return whether the tool itself refuses files that rules deny."""
    return request.definition is not None and request.definition.reports_denied_files


def _hook_outcome(request: PermissionRequest, decision: Deny, messages: Messages) -> Outcome:
    """Return the outcome of a call that a hook denied."""
    text = messages.hook_denied_silently.format(name=request.tool)
    if decision.source == "permission_hook":  # it answers in place of a user, so its reason is the whole message
        text = sanitize_text(decision.reason or text)
    elif _is_respelled(request) and not _EXIT_REASON.match(decision.reason or ""):
        text = sanitize_text(decision.reason or f"Hook PreToolUse:{request.tool} denied this tool")
    elif decision.reason:
        text = sanitize_text(messages.hook_denied.format(name=request.tool, reason=decision.reason))
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


def not_granted_outcome(request: PermissionRequest, ask: Ask, refusals: Refusals) -> Outcome:
    """Return the outcome of a call that needs approval when there is no approver."""
    text = approval_message(request, ask, refusals)
    return _make_denied_outcome(text, error_record(text), "not_granted", "user-rejected", Deny(text, ask.source))


def _names_tool(request: PermissionRequest, path: str, refusals: Refusals, *, writes: bool) -> bool:
    """Return whether the question names the tool instead of the file, because a rule covers the whole tool."""
    return not refusals.precise_questions or (not writes and request.path_scope().contains_path(path, reading=True))


def approval_message(request: PermissionRequest, ask: Ask, refusals: Refusals) -> str:
    """Return the question for an approver, which is also the refusal message if there is no approver."""
    raw = next((value for key in _PATH_FIELDS if isinstance(value := request.input.get(key), str)), None)
    if ask.source == "mode" and refusals.precise_questions:
        path = None if raw is None else expand_path(request, raw)
        return f"Cannot write to {path} while in plan mode."
    if ask.needs is not None:
        return _needs_text(request, ask.needs, refusals)
    if ask.reason is not None and ask.source != "mode":
        return ask.reason
    kind = request.kind
    if raw is None or kind not in ("edit", "write", "read", "search"):
        return _NOT_GRANTED.format(f"use {request.tool}")
    path = _shown_path(request, raw, refusals)
    is_write = kind in ("edit", "write")
    if ask.basis == "rule" and "(" not in (ask.rule or "(") and _names_tool(request, path, refusals, writes=is_write):
        return _NOT_GRANTED.format(f"use {request.tool}")
    text = _NOT_GRANTED.format(f"write to {path}" if is_write else f"read from {path}")
    if is_write and _is_sensitive(request, path, refusals):
        return _SENSITIVE_FILE.format(path)
    if re.search(refusals.suspicious_path, path, re.IGNORECASE):
        problem = "which contains a suspicious Windows path pattern that requires manual approval."
        text = f"Claude requested permissions to {'write to' if is_write else 'read from'} {path}, {problem}"
    target = request.links.resolve(path) if refusals.precise_questions else path
    roots = (request.project, *request.folders)
    was_inside, is_inside = (any(Path(name).is_relative_to(root) for root in roots) for name in (path, target))
    if was_inside and not is_inside:
        text += f" {path} resolves through a symlink to {target}, which is outside the allowed working directories."
    return text


def _is_sensitive(request: PermissionRequest, path: str, refusals: Refusals) -> bool:
    """Return whether clients call a file sensitive: it is protected, but not part of their own settings."""
    if not refusals.precise_questions or not request.path_scope().is_protected(path):
        return False
    return not _OWN_SETTINGS.match(os.path.relpath(path, request.project))


def _shown_path(request: PermissionRequest, raw: str, refusals: Refusals) -> str:
    subject = None if request.definition is None else request.definition.subject
    has_pattern = subject is not None and subject.pattern is not None  # such a tool resolves its folder first
    return raw if not refusals.precise_questions and not has_pattern else expand_path(request, raw)


def expand_path(request: PermissionRequest, path: str) -> str:
    """Return a path as clients show it: absolute, without `..`, keeping a trailing slash."""
    expanded = os.path.normpath(request.cwd / Path(path).expanduser())
    return expanded + "/" if path.endswith("/") and expanded != "/" else expanded


def _is_respelled(request: PermissionRequest) -> bool:
    """Return whether hooks see a different spelling of the path than the model wrote."""
    path = request.call.arguments.get("file_path")
    is_file_tool = request.kind in ("read", "edit", "write")
    return is_file_tool and isinstance(path, str) and path != expand_path(request, path.strip())


def refuse_link(request: PermissionRequest, profile: Profile) -> Deny | None:
    """Return the refusal to write a symbolic link or to read an unresolvable one, if the client refuses links."""
    raw = next((value for key in _PATH_FIELDS if isinstance(value := request.input.get(key), str)), None)
    kind = request.kind
    if raw is None or not profile.files.refuses_links:
        return None
    path = expand_path(request, raw)
    if kind in ("edit", "write") and os.path.islink(path.rstrip("/")):  # noqa: PTH114 - may be invalid
        target = os.path.realpath(path)
        advice = f"it is a symbolic link. Write to the link's target path instead: {target}."
        return Deny(f"Refusing to write {path}: {advice}", "link")
    if kind in ("read", "search"):
        try:
            os.stat(path)  # noqa: PTH116
        except OSError as error:
            if error.errno == errno.ELOOP:
                return Deny(UNRESOLVED_LINK.format(path=path), "link")
        except ValueError:
            return None
    return None


def _needs_text(request: PermissionRequest, needs: MissingPermissions, refusals: Refusals) -> str:
    """Return the reason why a command line needs approval: a path that it accesses, or its commands."""
    reach = needs.reach
    if reach is not None and refusals.precise_questions and request.path_scope().is_protected(reach.path):
        if _is_sensitive(request, reach.path, refusals):
            return _SENSITIVE_FILE.format(reach.path)
        return _NOT_GRANTED.format(f"write to {reach.path}")
    if reach is not None and not (needs.leaves and refusals.precise_questions):
        subject = "Output redirection to" if reach.program is None else f"{reach.program} in"
        verb = "needs approval" if reach.inside and refusals.precise_questions else "was blocked"
        if reach.program is None or not reach.inside or refusals.precise_questions:
            return f"{subject} '{reach.path}' {verb}."
    if refusals.precise_questions and needs.not_understood is not None:
        return f"{needs.not_understood} in this command can't be checked before it runs"
    if needs.of <= 1:
        return "This command requires approval"
    several = len(needs.parts) > 1
    parts = "parts require" if several else "part requires"
    return f"This Bash command contains multiple operations. The following {parts} approval: {', '.join(needs.parts)}"


def _make_denied_outcome(text: str, record: str, kind: ErrorKind, denial_kind: str | None, decision: Deny) -> Outcome:
    return Outcome(
        state="denied",
        content=sanitize_text(text),
        structured=sanitize_text(record),
        is_error=True,
        kind=kind,
        denial_kind=denial_kind,
        reason=f"refused by {decision.source}",
        stop="refused by the user" if decision.stop else None,
    )


def stopped_outcome(pending: PendingCall, context: RunnerContext) -> Outcome:
    """Return the outcome of a cancelled call, which depends on its stage and the source of the cancellation."""
    messages = context.profile.messages
    if pending.cancelled_by == "sibling":
        return _dropped_outcome("Sibling tool call errored", "sibling_error", "a sibling failed")
    if pending.cancelled_by == "discarded":
        text = "Error: Streaming fallback - tool execution discarded"
        return _dropped_outcome(text, "stream_discarded", "the reply was streamed again")
    if pending.started_at is None:
        return Outcome(
            state="cancelled",
            content=messages.cancelled,
            structured=_REJECTED_RECORD,
            is_error=True,
            kind="cancelled",
            denial_kind="cancelled",
            reason="cancelled before it started",
        )
    partial: str | None = None  # the output so far, if the tool provides it
    if pending.tool_context is not None and pending.tool_context.partial is not None:
        with suppress(Exception):  # a function of the tool
            partial = sanitize_text(pending.tool_context.partial())
    text, record = messages.interrupted, _REJECTED_RECORD
    if context.profile.shell.interrupted_keeps_output:
        text = f"Exit code 137\n{INTERRUPT_NOTE}" if partial is not None else text
        text = f"{text}\n{partial}" if partial else text
        record = error_record(text)
    elif partial:
        text = f"{text}\n\nOutput before the interruption:\n{partial}"
    is_abandoned = context.isolated_tasks.is_abandoned(pending.call.id)
    return Outcome(
        state="interrupted",
        content=text,
        structured=record,
        is_error=True,
        kind="interrupted",
        denial_kind="interrupted",
        reason="interrupted while it ran" + (f"; {DID_NOT_STOP}" if is_abandoned else ""),
    )


def _dropped_outcome(text: str, kind: ErrorKind, reason: str) -> Outcome:
    return Outcome(
        state="cancelled",
        content=add_error_tags(text),
        structured=error_record(text),
        is_error=True,
        kind=kind,
        reason=reason,
    )


def internal_error_outcome(pending: PendingCall, error: BaseException) -> Outcome:
    """Return the outcome of a call for which the runner itself failed."""
    text = f"Tool execution error: {type(error).__name__}: {exception_text(error)}"
    return refused_outcome(sanitize_text(text), kind="internal", reason=f"the runner failed on {pending.call.tool}")


def finalize_call(pending: PendingCall, outcome: Outcome, context: RunnerContext) -> Finished:
    """Build and emit the result of a call. Must be called exactly once per call."""
    at, call, body_store, persisted = context.clock(), pending.call, pending.body_store, outcome.persisted
    cwd = context.call_context.cwd
    if outcome.is_error and not content_text(outcome.content).strip():
        # Refusals of checks, hooks and policies come here, too. The API rejects every later request with an empty one.
        outcome = structs.replace(outcome, content=NO_MESSAGE, structured=outcome.structured or NO_MESSAGE)
    if outcome.modify is not None:
        with suppress(Exception):  # the modifier is applied later, in call order; a fault is reported then
            cwd = outcome.modify(context.call_context).cwd
    body_store.content_ = outcome.content
    body_store.structured_ = outcome.structured
    result = Result(
        id=call.id,
        tool=call.tool,
        at=0,
        finished_at=format_timestamp(round(at * 1_000)),
        is_error=outcome.is_error,
        exit_code=outcome.exit_code,
        denial_kind=outcome.denial_kind,
        persisted_path=None if persisted is None else str(persisted),
        truncated=persisted is not None,
        background_task=outcome.background_task,
        body_store=body_store,
    )
    message = denial_message(strip_error_tags(content_text(outcome.content)).strip()) if outcome.is_error else None
    span = Span(
        call=call,
        result=result,
        state=outcome.state,
        evidence=_make_evidence(outcome.reason),
        error_kind=outcome.kind,
        message=message[:240] if message else None,
        events=_span_events(pending, outcome) if outcome.contexts or pending.decision_event else (),
        background=outcome.background_task is not None,
        agent=outcome.agent,
    )
    if outcome.deferred:
        span = structs.replace(span, result=None, deferred=True)
    finished = Finished(
        span=span,
        content=outcome.content,
        structured=outcome.structured,
        decision=pending.decision_event,
        companions=outcome.companions,
        contexts=outcome.contexts,
        structured_output=outcome.structured_output,
        beside=_extra_keys(pending, outcome),
        stop=outcome.stop,
        cwd=str(cwd),
        duration_ms=(at - (pending.started_at or pending.requested_at)) * 1e3,
        at=at,
    )
    if pending.held_progress is not None:
        context.emit(pending.held_progress)
    pending.modify = outcome.modify
    pending.finished = finished
    pending.tool_context = None  # breaks a reference cycle through the batch
    context.emit(finished)
    return finished


def _extra_keys(pending: PendingCall, outcome: Outcome) -> Mapping[str, object]:
    """Return the additional keys for the recorded result. For an allowed command, they state where it ran."""
    decision = pending.decision_event
    if pending.tool is None or not pending.tool.sandboxed or decision is None or not decision.allowed:
        return outcome.extra_keys
    return outcome.extra_keys if outcome.denial_kind else {"sandboxed": False, **outcome.extra_keys}


@lru_cache(maxsize=16)
def _make_evidence(reason: str) -> tuple[Evidence, ...]:
    return (Evidence(reason),)


_LIVE_LOCATION = SourceLocation("live", 0, 0, 0)


def _span_events(pending: PendingCall, outcome: Outcome) -> tuple[Event, ...]:
    """Return the hook and permission events in the form that a transcript reader produces."""
    hooks = [
        Hook(
            point=hook_context.point,
            name=hook_context.name,
            outcome="blocked" if hook_context.model_text else "context",
            text=hook_context.text,
            place=_LIVE_LOCATION,
        )
        for hook_context in outcome.contexts
    ]
    if pending.decision_event is None:
        return tuple(hooks)
    decision = "accept" if pending.decision_event.allowed else "reject"
    return (*hooks, Permission(decision=decision, source=pending.decision_event.source, place=_LIVE_LOCATION))


@lru_cache(maxsize=4)
def format_timestamp(milliseconds: int) -> str:
    """Format a time, in milliseconds since the epoch, as transcripts do."""
    second, thousandth = divmod(milliseconds, 1_000)
    return f"{datetime.fromtimestamp(second, UTC).isoformat()[:-6]}.{thousandth:03}Z"
