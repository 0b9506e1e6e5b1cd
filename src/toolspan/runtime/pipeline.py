"""The stages of one call, from request to result.

Start at `run_call`, which lists the stages. A call is looked up, then checked by its tool, by hooks
and by the permissions. Then the tool runs, followed by the hooks after it. `batch.py` decides when
a call runs.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import msgspec
from msgspec import structs

from toolspan.errors import ToolError, ToolspanError
from toolspan.runtime.authorization import (
    authorize_call,
    make_permission_request,
    record_decision,
    refuse_denied_file,
)
from toolspan.runtime.context import RunnerContext, ToolContext
from toolspan.runtime.hooks.events import HookEffects, ReplacedOutput, ToolHookEvent
from toolspan.runtime.isolation import current_task_cancelled
from toolspan.runtime.outcome import (
    Outcome,
    check_refused_outcome,
    content_text,
    deferred_outcome,
    denied_outcome,
    exception_outcome,
    failure_outcome,
    finalize_call,
    internal_error_outcome,
    invalid_input_outcome,
    invalid_rewrite_outcome,
    stopped_outcome,
    timed_out_outcome,
    tool_error_outcome,
    truncated_call_outcome,
    unknown_tool_outcome,
)
from toolspan.runtime.output_limits import (
    UnfitOutputError,
    sanitize_content,
    sanitize_json,
    sanitize_text,
    spill_text,
    utf16_length,
)
from toolspan.runtime.pending_call import NO_DECISION, PendingCall, PreparedCall
from toolspan.runtime.schema.check import type_name
from toolspan.runtime.schema.issues import Invalid, Issue, Valid, issue_json
from toolspan.runtime.tool import Output, Tool, ToolFailure, ValidateFunction
from toolspan.types.decision import Deny
from toolspan.types.events import Content, Finished, HookContext, HookReport, Started

if TYPE_CHECKING:
    from toolspan.runtime.batch import Batch
    from toolspan.runtime.context import IntentRecorder

_EXIT_EXCEPTIONS = (KeyboardInterrupt, GeneratorExit)
"""Exceptions that end the program or this coroutine. Any other exception ends at most its call."""


async def run_call(pending: PendingCall, context: RunnerContext, services: Batch) -> Finished:
    """Run one call and return its result. A failing call never raises.

    Only a cancellation of this task is raised, after the result has been emitted.
    """
    try:
        outcome = await _run_stages(pending, context, services)
    except anyio.get_cancelled_exc_class() as error:
        if current_task_cancelled():
            pending.cancelled_by = pending.cancelled_by or "host"
            finalize_call(pending, pending.outcome or stopped_outcome(pending, context), context)
            await anyio.lowlevel.checkpoint_if_cancelled()  # raises our own cancellation; this one may be the tool's
            raise
        outcome = pending.outcome or (
            stopped_outcome(pending, context) if pending.cancelled_by else internal_error_outcome(pending, error)
        )
    except _EXIT_EXCEPTIONS:
        raise
    except BaseException as error:  # noqa: BLE001 - a fault of the runner must not cost the call its result
        outcome = pending.outcome or internal_error_outcome(pending, error)
    finished = finalize_call(pending, outcome, context)
    if pending.cancelled_by == "host" and current_task_cancelled():  # the tool still returned a result
        await anyio.lowlevel.checkpoint_if_cancelled()
        raise asyncio.CancelledError
    return finished


async def _run_stages(pending: PendingCall, context: RunnerContext, services: Batch) -> Outcome:
    prepared: PreparedCall | Outcome
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
    prepared = PreparedCall(pending.tool, pending.parsed, pending.tool_context)
    if pending.tool.validate is not None:
        prepared = await _run_tool_check(pending, prepared, pending.tool.validate, context)
    if isinstance(prepared, PreparedCall) and not context.hooks.is_empty:
        prepared = await _run_pre_hooks(pending, prepared, context)
    has_policy = context.policies or context.fallback is not None or pending.pre_tool_decision.decision is not None
    if isinstance(prepared, PreparedCall) and (has_policy or (context.approver and pending.tool.approval_prompt)):
        prepared = await authorize_call(pending, prepared, context)
    if isinstance(prepared, Outcome):
        return _add_hook_effects(pending, prepared)
    if pending.cancelled_by:  # during the checks
        return stopped_outcome(pending, context)  # type: ignore[unreachable]
    pending.outcome = await run_tool(pending, prepared, context)
    if context.hooks.is_empty:
        return pending.outcome
    return await _run_post_hooks(pending, prepared, pending.outcome, context)


# Before the tool


async def _run_tool_check(
    pending: PendingCall, prepared: PreparedCall, validate: ValidateFunction, context: RunnerContext
) -> PreparedCall | Outcome:
    tool = prepared.tool
    try:
        refusal = await context.run_check(validate(prepared.valid.value, prepared.tool_context), "check", pending)
    except ToolError as error:
        outcome = tool_error_outcome(tool, error)
    except Exception as error:  # noqa: BLE001 - user code; the call fails with its check
        outcome = exception_outcome(tool, error)
    else:
        if refusal is None:
            return prepared
        outcome = check_refused_outcome(tool, refusal)
    if outcome.kind == "no_change" or not context.policies:
        return outcome
    return await refuse_denied_file(pending, prepared, context) or outcome


async def _run_pre_hooks(
    pending: PendingCall, prepared: PreparedCall, context: RunnerContext
) -> PreparedCall | Outcome:
    before = await context.run_hook(context.hooks.run_pre_tool_use(_tool_event(pending, prepared)), pending)
    pending.pre_tool_decision = before
    context.emit_hook_reports(pending.call.id, before.reports)
    if isinstance(before.decision, Deny):
        record_decision(pending, before.decision, context)
        request = make_permission_request(pending, prepared, context)
        return denied_outcome(request, before.decision, context.profile)
    if before.defer and context.approver is None:
        content = (pending.message or {}).get("content")
        blocks = content if isinstance(content, list) else []
        if sum(block.get("type") == "tool_use" for block in blocks) <= 1:  # only a single call can be deferred
            return deferred_outcome()
    if before.input is None or not context.profile.hooks.explains_rewrite:
        changed = prepared.with_input(before.input)
        return invalid_input_outcome(pending, changed, context) if isinstance(changed, Invalid) else changed
    changed = prepared.with_input(prepared.drop_unknown_keys(before.input))
    return invalid_rewrite_outcome(prepared.tool.name, changed, context) if isinstance(changed, Invalid) else changed


def _tool_event(pending: PendingCall, prepared: PreparedCall) -> ToolHookEvent:
    return ToolHookEvent(
        call=pending.call,
        input=prepared.valid.recorded,
        cwd=prepared.tool_context.cwd,
        known_as=prepared.tool.name,
        definition=prepared.tool,
    )


# The tool


async def run_tool(pending: PendingCall, prepared: PreparedCall, context: RunnerContext) -> Outcome:
    """Run the tool and convert its return value or exception to an outcome."""
    tool, intent_log, run = prepared.tool, context.workspace.intent_log, context.isolated_tasks.run
    if intent_log is not None and not tool.read_only:
        if intent_log.is_stored or not tool.records_intent:
            intent_log.begin(pending.call.id, tool.name)
        if intent_log.is_stored and (refusal := await _wait_until_stored(pending, prepared, intent_log, context)):
            return refusal
    pending.started_at = context.clock()
    if Started in context.observed_events:
        context.emit(Started(call_id=pending.call.id, at=pending.started_at))
    try:
        work = tool.run(prepared.valid.value, prepared.tool_context)
        if tool.timeout is None and tool.interrupt == "cancel":
            output = await run(work, tool.grace, "tool", pending)
        else:
            with anyio.CancelScope(shield=tool.interrupt == "block"), anyio.move_on_after(tool.timeout) as time_limit:
                output = await run(work, tool.grace, "tool", pending)
            if time_limit.cancelled_caught:
                still_running = context.isolated_tasks.is_abandoned(pending.call.id)
                return timed_out_outcome(tool, tool.timeout or 0.0, still_running=still_running)
    except ToolError as error:
        return tool_error_outcome(tool, error)
    except BaseException as error:
        if isinstance(error, _EXIT_EXCEPTIONS):
            raise
        # A cancellation is raised if it is meant for the call, as opposed to something that the tool was awaiting.
        if isinstance(error, anyio.get_cancelled_exc_class()) and (pending.cancelled_by or current_task_cancelled()):
            raise
        return exception_outcome(tool, error)
    if isinstance(output, ToolFailure):
        return failure_outcome(tool, output)
    return _success_outcome(pending, tool, output, context)


async def _wait_until_stored(
    pending: PendingCall, prepared: PreparedCall, intent_log: IntentRecorder, context: RunnerContext
) -> Outcome | None:
    """Wait until the store has the call's intent. Return an outcome if the call must not run."""
    try:
        await context.run_check(intent_log.wait_until_stored(pending.call.id), "store", pending)
    except ToolspanError as error:
        return tool_error_outcome(prepared.tool, ToolError(f"The call was not run: {error}"))
    return None


def _success_outcome(pending: PendingCall, tool: Tool, output: Output, context: RunnerContext) -> Outcome:
    try:
        if not isinstance(output, Output):
            raise UnfitOutputError(f"a tool must return an Output or a ToolFailure, not {type(output).__name__}")
        sanitized = sanitize_content(output.content)
        content = sanitized or context.profile.messages.no_output.format(name=tool.name) or sanitized
        structured = None if output.structured is None else sanitize_json(output.structured)
        answer = None if output.structured_output is None else sanitize_json(output.structured_output)
        companions = tuple(companion for companion in map(sanitize_content, output.companions) if companion)
        extra_keys = {key: sanitize_json(value) for key, value in (output.beside or {}).items()}
    except (UnfitOutputError, RecursionError) as error:
        message = f"{tool.name} returned output that the model cannot receive: {error}"
        return tool_error_outcome(tool, ToolError(message))
    persisted = output.persisted
    if tool.output_limit is not None and utf16_length(text := content_text(content)) > tool.output_limit:
        # Write the text blocks to a file, and return a preview with all other blocks.
        text, persisted = spill_text(text, context.workspace.results_folder, pending.call.id, limit=tool.output_limit)
        others = [] if isinstance(content, str) else [block for block in content if block["type"] != "text"]
        content = [{"type": "text", "text": text}, *others] if others else text
    return Outcome(
        state="succeeded",
        content=content,
        structured=structured,
        is_error=False if output.flag is False else None,  # an error is a ToolFailure, or raised
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


# After the tool


async def _run_post_hooks(
    pending: PendingCall, prepared: PreparedCall, outcome: Outcome, context: RunnerContext
) -> Outcome:
    tool_event = _tool_event(pending, prepared)
    if outcome.modify is not None:
        with suppress(Exception):  # the modifier is applied later, in call order; a fault is reported then
            tool_event = structs.replace(tool_event, cwd=outcome.modify(context.call_context).cwd)
    duration = (context.clock() - (pending.started_at or pending.requested_at)) * 1e3
    if outcome.is_failure:
        tool_event = structs.replace(tool_event, error=content_text(outcome.content), duration_ms=duration)
        effects = await context.run_hook(context.hooks.run_post_tool_use_failure(tool_event), pending)
    else:
        output = outcome.content if outcome.structured is None else outcome.structured
        tool_event = structs.replace(tool_event, output=output, duration_ms=duration)
        effects = await context.run_hook(context.hooks.run_post_tool_use(tool_event), pending)
    context.emit_hook_reports(pending.call.id, effects.reports)
    if effects.output is not None and not outcome.is_failure:
        outcome = _replace_output(pending, prepared.tool, outcome, effects, effects.output, context)
    return _add_hook_effects(pending, outcome, effects)


def _replace_output(
    pending: PendingCall,
    tool: Tool,
    outcome: Outcome,
    effects: HookEffects,
    output: ReplacedOutput,
    context: RunnerContext,
) -> Outcome:
    """Replace the tool's output with a hook's output. An invalid replacement is reported and ignored."""
    try:
        new_content = output.content
        if new_content is None:
            issues = _shape_issues(output.structured, outcome.structured)
            if issues:
                raise UnfitOutputError(
                    f"PostToolUse hook returned updatedToolOutput that does not match {tool.name}'s output"
                    f" shape; using original output. {issue_json(issues, context.profile.issues)}"
                )
            new_content = _render_structured(tool, output.structured)
        content = sanitize_content(new_content) or f"({pending.call.tool} completed)"
        structured = sanitize_json(output.structured)
    except (UnfitOutputError, RecursionError) as error:
        name = effects.reports[-1].name if effects.reports else f"PostToolUse:{tool.name}"
        report = HookReport(point="PostToolUse", name=name, outcome="error", text=str(error), fault=True)
        context.emit_hook_reports(pending.call.id, (report,))
        return outcome
    return structs.replace(outcome, content=content, structured=structured)


def _render_structured(tool: Tool, structured: object) -> Content:
    """Return the content for the model from a structured output that a hook returned.

    Raises:
        UnfitOutputError: the tool cannot render it.
    """
    if tool.render_result is not None:
        try:
            return tool.render_result(structured)
        except Exception as error:  # a function provided by the tool, called with a value from the hook
            raise UnfitOutputError(f"{tool.name} cannot render the output that a hook returned: {error}") from error
    return structured if isinstance(structured, str) else msgspec.json.encode(structured).decode()


def _shape_issues(new: object, old: object, path: tuple[str | int, ...] = ()) -> list[Issue]:
    """Return an issue for each value in `new` whose type differs from that in `old`. Missing keys are accepted."""
    if old is None or new is None:
        return []
    expected_type, received_type = type_name(old), type_name(new)
    if expected_type != received_type:
        message = f"expected {expected_type}, not {received_type}"
        return [Issue("type", path, message, expected=expected_type, received=received_type)]
    if isinstance(new, dict) and isinstance(old, dict):
        both = [key for key in new if key in old]
        return [issue for key in both for issue in _shape_issues(new[key], old[key], (*path, key))]
    return []


def _add_hook_effects(pending: PendingCall, outcome: Outcome, effects: HookEffects | None = None) -> Outcome:
    """Add the hooks' messages for the model, and their request to stop the turn, to the outcome."""
    before = pending.pre_tool_decision
    if before is NO_DECISION and effects is None:
        return outcome
    name = f"PreToolUse:{pending.call.tool}"
    contexts = [HookContext(point="PreToolUse", name=name, text=sanitize_text(text)) for text in before.contexts]
    if effects is not None:
        point = "PostToolUseFailure" if outcome.is_failure else "PostToolUse"
        name = f"{point}:{pending.call.tool}"
        contexts += [HookContext(point=point, name=name, text=sanitize_text(text)) for text in effects.contexts]
        for text, source in zip(effects.feedback, effects.feedback_sources, strict=False):
            message = sanitize_text(f'{name} hook blocking error from command: "{source}": {text}')
            contexts.append(HookContext(point=point, name=name, text=sanitize_text(text), model_text=message))
    stop = outcome.stop or before.stop or (effects.stop if effects else None)
    if not contexts and stop == outcome.stop:
        return outcome
    return structs.replace(outcome, contexts=tuple(contexts), stop=stop)
