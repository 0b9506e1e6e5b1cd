"""What hooks see of a call, and what becomes of what they say.

In: a call that ran, and its ending. Out: the ending with what hooks put in its place or beside it.
Every handler that ran is told of, whatever it said.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from msgspec import structs

from toolspan.runtime.hooks.events import HookEffects, PreToolDecision, ReplacedOutput, ToolHookEvent
from toolspan.runtime.outcome import Outcome, content_text
from toolspan.runtime.output_limits import UnfitOutputError, sanitize_content, sanitize_json, sanitize_text
from toolspan.runtime.pending_call import NO_DECISION, PendingCall, PreparedCall, RunnerContext
from toolspan.runtime.schema.check import type_name
from toolspan.runtime.schema.issues import Issue, issue_json
from toolspan.runtime.tool import Tool
from toolspan.types.events import Content, HookContext, HookRan, HookReport
from toolspan.types.ids import CallId


async def run_post_hooks(
    pending: PendingCall, prepared: PreparedCall, outcome: Outcome, context: RunnerContext
) -> Outcome:
    """Fire the hooks after a call, and take in what they say."""
    tool_event = make_tool_event(pending, prepared)
    duration = (context.clock() - (pending.started_at or pending.requested_at)) * 1e3
    if outcome.is_failure:
        tool_event = structs.replace(tool_event, error=content_text(outcome.content), duration_ms=duration)
        effects = await context.run_hook(context.hooks.run_post_tool_use_failure(tool_event), pending)
    else:
        output = outcome.content if outcome.structured is None else outcome.structured
        tool_event = structs.replace(tool_event, output=output, duration_ms=duration)
        effects = await context.run_hook(context.hooks.run_post_tool_use(tool_event), pending)
    emit_hook_reports(pending.call.id, effects.reports, context)
    return add_hook_effects(pending, _apply_replaced_output(pending, prepared.tool, outcome, effects, context), effects)


def _apply_replaced_output(
    pending: PendingCall, tool: Tool, outcome: Outcome, effects: HookEffects, context: RunnerContext
) -> Outcome:
    """The ending with the output that a hook put in place of the tool's."""
    if effects.output is None or outcome.is_failure:
        return outcome
    try:
        replacement = _replacement_output(tool, outcome, effects.output, context)
        content = sanitize_content(replacement.content) or f"({pending.call.tool} completed)"
        structured = sanitize_json(replacement.structured)
    except (UnfitOutputError, RecursionError) as error:
        emit_hook_reports(pending.call.id, (_unfit_output_report(effects, tool, str(error)),), context)
        return outcome  # a hook's mistake: the tool's own output stays
    return structs.replace(outcome, content=content, structured=structured)


class _ReplacementOutput(NamedTuple):
    content: Content
    structured: object


def _replacement_output(
    tool: Tool, outcome: Outcome, output: ReplacedOutput, context: RunnerContext
) -> _ReplacementOutput:
    """The output that a hook wants, in the shape that the tool's own has.

    Raises:
        Unfit: it has another one.
    """
    if output.content is not None:
        return _ReplacementOutput(output.content, output.structured)
    issues = list(_shape_issues(output.structured, outcome.structured))
    if issues:
        issues_json = issue_json(issues, context.profile.issues)
        raise UnfitOutputError(
            f"PostToolUse hook returned updatedToolOutput that does not match {tool.name}'s output"
            f" shape; using original output. {issues_json}"
        )
    return _ReplacementOutput(_render_result(tool, output.structured), output.structured)


def _shape_issues(new: object, old: object, path: tuple[str | int, ...] = ()) -> list[Issue]:
    """Where the new value is of another kind than the old one; what is left out is left out."""
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


def _render_result(tool: Tool, structured: object) -> Content:
    """What the model reads of a result."""
    if tool.render_result is not None:
        try:
            return tool.render_result(structured)
        except Exception as error:  # a tool's own function, with a hook's value
            raise UnfitOutputError(f"{tool.name} cannot show what a hook put in its place: {error}") from error
    return structured if isinstance(structured, str) else msgspec.json.encode(structured).decode()


def _unfit_output_report(effects: HookEffects, tool: Tool, text: str) -> HookReport:
    last = effects.reports[-1] if effects.reports else None
    name = last.name if last else f"PostToolUse:{tool.name}"
    return HookReport(point="PostToolUse", name=name, outcome="error", text=text, fault=True)


def add_hook_effects(pending: PendingCall, outcome: Outcome, effects: HookEffects | None = None) -> Outcome:
    """The ending with what hooks want the model to read, and whether they stop the turn."""
    pre_tool_decision: PreToolDecision = pending.pre_tool_decision
    if pre_tool_decision is NO_DECISION and effects is None:
        return outcome
    contexts = _hook_contexts("PreToolUse", pending.call.tool, pre_tool_decision.contexts)
    if effects is not None:
        point = "PostToolUseFailure" if outcome.is_failure else "PostToolUse"
        contexts += _hook_contexts(point, pending.call.tool, effects.contexts)
        contexts += _objection_contexts(point, pending.call.tool, effects)
    stop = outcome.stop or pre_tool_decision.stop or (effects.stop if effects else None)
    if not contexts and stop == outcome.stop:
        return outcome
    return structs.replace(outcome, contexts=contexts, stop=stop)


def _hook_contexts(point: str, tool: str, texts: tuple[str, ...]) -> tuple[HookContext, ...]:
    if not texts:
        return ()
    return tuple(HookContext(point=point, name=f"{point}:{tool}", text=sanitize_text(t)) for t in texts)


def _objection_contexts(point: str, tool: str, effects: HookEffects) -> tuple[HookContext, ...]:
    """An objection is recorded with its handler; the model reads who objects."""
    if not effects.feedback:
        return ()
    name = f"{point}:{tool}"
    contexts = []
    for text, by in zip(effects.feedback, effects.feedback_sources, strict=False):
        message = sanitize_text(f'{name} hook blocking error from command: "{by}": {text}')
        contexts.append(HookContext(point=point, name=name, text=sanitize_text(text), model_text=message))
    return tuple(contexts)


def is_only_call(pending: PendingCall) -> bool:
    """Whether the message has no other call."""
    content = (pending.message or {}).get("content")
    blocks = content if isinstance(content, list) else []
    return len([block for block in blocks if block.get("type") == "tool_use"]) <= 1


def deferred_outcome() -> Outcome:
    """Neither run nor refused: somebody will come back to it."""
    return Outcome(state="never_answered", content="", reason="a hook put it off", stop="tool_deferred", deferred=True)


def make_tool_event(pending: PendingCall, prepared: PreparedCall) -> ToolHookEvent:
    """The call as hooks see it."""
    return ToolHookEvent(
        call=pending.call, input=prepared.valid.recorded, cwd=prepared.tool_context.cwd, known_as=prepared.tool.name
    )


def emit_hook_reports(call_id: CallId, reports: tuple[HookReport, ...], context: RunnerContext) -> None:
    """Tell of every handler that was run."""
    for hook_report in reports:
        context.emit(HookRan(**structs.asdict(hook_report), call_id=call_id, at=context.clock()))
