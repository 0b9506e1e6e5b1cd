"""The life of one call, from request to result.

In: a `Job` (one accepted call) and a `Desk` (what the session has). Out: a `Finished`, exactly one,
whatever the call does. The order: look up, cancelled?, valid?, the tool's own veto, hooks before,
consent, the tool, size, hooks after, wrap. Read `run_call` first; queueing is in `batch.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from pathlib import Path

import anyio
import anyio.lowlevel

from toolspan.errors import ToolError
from toolspan.runtime import outcome as denial
from toolspan.runtime.authorization import authorize_call, make_permission_request, needs_authorization, record_decision
from toolspan.runtime.context import CallServices, ToolContext
from toolspan.runtime.finalize import finalize_call, internal_error_outcome, stopped_outcome
from toolspan.runtime.hooks.callbacks import current_task_cancelled
from toolspan.runtime.outcome import (
    Outcome,
    content_text,
    exception_outcome,
    failure_outcome,
    timed_out_outcome,
    tool_error_outcome,
)
from toolspan.runtime.output_limits import UnfitOutputError, sanitize_content, sanitize_json, spill_text
from toolspan.runtime.pending_call import PendingCall, PreparedCall, RunnerContext
from toolspan.runtime.post_hooks import (
    add_hook_effects,
    deferred_outcome,
    emit_hook_reports,
    is_only_call,
    make_tool_event,
    run_post_hooks,
)
from toolspan.runtime.schema.issues import Invalid, Valid
from toolspan.runtime.tool import Output, ToolFailure
from toolspan.runtime.validation import (
    invalid_input_outcome,
    replace_input,
    run_tool_check,
    truncated_call_outcome,
    unknown_tool_outcome,
)
from toolspan.types.decision import Deny
from toolspan.types.events import Content, Finished, Started

_EXIT_EXCEPTIONS = (KeyboardInterrupt, GeneratorExit)
"""What ends the program, or this coroutine; whatever else code raises ends a call at most."""


async def run_call(pending: PendingCall, context: RunnerContext, services: CallServices) -> Finished:
    """Take one call from request to result; what the call did never raises.

    Only a cancellation from outside passes through, after the result was emitted.
    """
    outcome: Outcome | None = None
    try:
        outcome = await _run_stages(pending, context, services)
    except anyio.get_cancelled_exc_class() as error:
        if current_task_cancelled():
            pending.cancelled_by = pending.cancelled_by or "host"
            finalize_call(pending, pending.outcome or stopped_outcome(pending, context), context)
            await anyio.lowlevel.checkpoint_if_cancelled()  # raises ours; this may be the tool's
            raise
        outcome = pending.outcome or (None if pending.cancelled_by else internal_error_outcome(pending, error))
    except _EXIT_EXCEPTIONS:
        raise
    except BaseException as error:  # noqa: BLE001 - our fault costs no call its result
        outcome = pending.outcome or internal_error_outcome(pending, error)
    finished = finalize_call(pending, outcome or stopped_outcome(pending, context), context)
    if pending.cancelled_by == "host" and current_task_cancelled():
        await anyio.lowlevel.checkpoint_if_cancelled()  # a scope's; else it was the task's
        raise asyncio.CancelledError  # the tool had the last word; the host is gone all the same
    return finished


async def _run_stages(pending: PendingCall, context: RunnerContext, services: CallServices) -> Outcome:
    prepared = _resolve_call(pending, context, services)
    if isinstance(prepared, PreparedCall) and _has_checks(pending, prepared, context):
        prepared = await prepare_call(pending, prepared, context)
    if isinstance(prepared, Outcome):
        return add_hook_effects(pending, prepared)
    if pending.cancelled_by:
        return stopped_outcome(pending, context)
    pending.outcome = await run_tool(pending, prepared, context)
    if context.hooks.is_empty:
        return pending.outcome
    return await run_post_hooks(pending, prepared, pending.outcome, context)


# Before the tool


def _has_checks(pending: PendingCall, prepared: PreparedCall, context: RunnerContext) -> bool:
    """Whether anybody is to be asked before the tool runs."""
    if prepared.tool.validate is not None or not context.hooks.is_empty:
        return True
    return needs_authorization(pending, prepared, context)


async def prepare_call(pending: PendingCall, prepared: PreparedCall, context: RunnerContext) -> PreparedCall | Outcome:
    """The tool's own check, the hooks, consent."""
    if prepared.tool.validate is not None:
        refusal = await run_tool_check(pending, prepared, context)
        if refusal is not None:
            return refusal
    if not context.hooks.is_empty:
        checked = await _run_pre_hooks(pending, prepared, context)
        if isinstance(checked, Outcome):
            return checked
        prepared = checked
    return (
        await authorize_call(pending, prepared, context)
        if needs_authorization(pending, prepared, context)
        else prepared
    )


def _resolve_call(pending: PendingCall, context: RunnerContext, services: CallServices) -> PreparedCall | Outcome:
    """Is there such a tool, is the call still wanted, does its input fit?"""
    if pending.tool is None:
        return unknown_tool_outcome(pending.call.tool, context)
    if pending.cancelled_by:
        return stopped_outcome(pending, context)
    if pending.truncated:
        return truncated_call_outcome(pending)
    if not isinstance(pending.parsed, Valid):
        return invalid_input_outcome(pending, pending.parsed or Invalid(()), context)
    pending.tool_context = ToolContext(
        call=pending.call,
        context=context.call_context,
        workspace=context.workspace,
        profile=context.profile,
        services=services,
        message=pending.message,
    )
    return PreparedCall(pending.tool, pending.parsed, pending.tool_context)


async def _run_pre_hooks(
    pending: PendingCall, prepared: PreparedCall, context: RunnerContext
) -> PreparedCall | Outcome:
    hook_run = context.hooks.run_pre_tool_use(make_tool_event(pending, prepared))
    before = await context.run_hook(hook_run, pending)
    pending.pre_tool_decision = before
    emit_hook_reports(pending.call.id, before.reports, context)
    if isinstance(before.decision, Deny):
        record_decision(pending, before.decision, context, waited_ms=0.0)
        return denial.denied_outcome(
            make_permission_request(pending, prepared, context), before.decision, context.profile.refusals
        )
    if before.defer and is_only_call(pending) and context.approver is None:
        return deferred_outcome()
    return replace_input(pending, prepared, before.input, context)


# The tool


async def run_tool(pending: PendingCall, prepared: PreparedCall, context: RunnerContext) -> Outcome:
    """Run the tool itself; its exceptions become endings."""
    _record_start(pending, prepared, context)
    tool = prepared.tool
    try:
        if tool.timeout is None and tool.interrupt == "cancel":
            work = tool.run(prepared.valid.value, prepared.tool_context)
            output = await context.isolated_tasks.run(work, tool.grace, "tool", pending)
        else:
            with anyio.CancelScope(shield=tool.interrupt == "block"):
                output = await _run_with_timeout(pending, prepared, context)
    except _ToolTimeoutError:
        still_running = context.isolated_tasks.is_abandoned(pending.call.id)
        return timed_out_outcome(tool.name, tool.timeout or 0.0, still_running=still_running)
    except ToolError as error:
        return tool_error_outcome(tool.name, error)
    except BaseException as error:
        if isinstance(error, _EXIT_EXCEPTIONS) or _is_own_cancellation(error, pending):
            raise
        return exception_outcome(tool.name, error)  # a tool's fault is the call's result
    if isinstance(output, ToolFailure):
        return failure_outcome(tool.name, output)
    return _success_outcome(pending, prepared, output, context)


def _is_own_cancellation(error: BaseException, pending: PendingCall) -> bool:
    """Whether it is a cancellation, and not one of something that the tool waited for."""
    if not isinstance(error, anyio.get_cancelled_exc_class()):
        return False
    return pending.cancelled_by is not None or current_task_cancelled()


def _record_start(pending: PendingCall, prepared: PreparedCall, context: RunnerContext) -> None:
    tool, intent_log = prepared.tool, context.workspace.intent_log
    if intent_log is not None and not (tool.read_only or tool.records_intent):
        intent_log.begin(pending.call.id, tool.name, prepared.valid.recorded)
    pending.started_at = context.clock()
    if Started in context.observed_events:
        context.emit(Started(call_id=pending.call.id, at=pending.started_at))


class _ToolTimeoutError(Exception):
    """The tool's own time limit, and not some timeout inside it."""


def _run_isolated(
    pending: PendingCall, prepared: PreparedCall, context: RunnerContext
) -> Awaitable[Output | ToolFailure]:
    tool = prepared.tool
    work = tool.run(prepared.valid.value, prepared.tool_context)
    return context.isolated_tasks.run(work, tool.grace, "tool", pending)


async def _run_with_timeout(
    pending: PendingCall, prepared: PreparedCall, context: RunnerContext
) -> Output | ToolFailure:
    tool = prepared.tool
    if tool.timeout is None:
        return await _run_isolated(pending, prepared, context)
    with anyio.move_on_after(tool.timeout):
        return await _run_isolated(pending, prepared, context)
    raise _ToolTimeoutError


def _success_outcome(pending: PendingCall, prepared: PreparedCall, output: Output, context: RunnerContext) -> Outcome:
    tool = prepared.tool
    try:
        if not isinstance(output, Output):
            raise UnfitOutputError(f"a tool gives an Output or a Failure, not {type(output).__name__}")
        sanitized = sanitize_content(output.content)
        content = sanitized or context.profile.refusals.no_output.format(name=tool.name) or sanitized
        structured = None if output.structured is None else sanitize_json(output.structured)
        answer = None if output.structured_output is None else sanitize_json(output.structured_output)
        companions = _sanitize_companions(output.companions) if output.companions else ()
        extra_keys = _sanitize_extra_keys(output.beside) if output.beside else {}
    except (UnfitOutputError, RecursionError) as error:
        return tool_error_outcome(tool.name, ToolError(f"{tool.name} gave an output no model takes: {error}"))
    persisted = output.persisted
    if tool.output_limit is not None and len(content_text(content)) > tool.output_limit:
        content, persisted = _spill_content(content, tool.output_limit, pending, context)
    return Outcome(
        state="succeeded",
        content=content,
        structured=structured,
        is_error=False if output.flag is False else None,  # an error is a Failure, or raised
        reason="the tool ran",
        exit_code=output.exit_code,
        background_task=output.background_task,
        agent=output.agent,
        persisted=persisted,
        modify=output.modify,
        companions=companions,
        structured_output=answer,
        extra_keys=extra_keys,
    )


def _sanitize_companions(contents: tuple[Content, ...]) -> tuple[Content, ...]:
    return tuple(sanitized for sanitized in map(sanitize_content, contents) if sanitized)


def _sanitize_extra_keys(extra_keys: Mapping[str, object]) -> dict[str, object]:
    return {key: sanitize_json(value) for key, value in extra_keys.items()}


def _spill_content(
    content: Content, limit: int, pending: PendingCall, context: RunnerContext
) -> tuple[Content, Path | None]:
    """The text in a file and its head in the result; what is no text stays beside it."""
    folder = context.workspace.results_folder
    text, path = spill_text(content_text(content), folder, pending.call.id, limit=limit)
    if isinstance(content, str):
        return text, path
    others = [block for block in content if block["type"] != "text"]
    return [{"type": "text", "text": text}, *others] if others else text, path
