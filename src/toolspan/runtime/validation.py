"""Is there such a tool, and does the input fit? What is found before any hook is asked."""

from __future__ import annotations

from msgspec import structs

from toolspan.errors import ToolError
from toolspan.runtime.outcome import Outcome, error_record, exception_outcome, refused_outcome, tool_error_outcome
from toolspan.runtime.pending_call import PendingCall, PreparedCall, RunnerContext
from toolspan.runtime.schema.issues import Invalid, explain_issues, explain_unparsed, unparsed_text
from toolspan.runtime.tool import Input
from toolspan.types.error_kinds import kind_of


def unknown_tool_outcome(name: str, context: RunnerContext) -> Outcome:
    """Nobody has such a tool, or it is switched off."""
    refusals = context.profile.refusals
    text = refusals.unknown_tool.format(name=name)
    other = context.tools.find_other_case(name)
    if name in context.profile.availability.optional_tools or name in context.profile.availability.tools:
        text += refusals.disabled_tool.format(name=name)
    elif other:
        text += refusals.other_case.format(other=other)
    return refused_outcome(text, kind="unknown_tool", reason="no such tool")


def truncated_call_outcome(pending: PendingCall) -> Outcome:
    """The reply ended in the middle of the call."""
    text = (
        f"{pending.call.tool} was not run: the reply ended (max_tokens) before the call was complete."
        " Ask for it again, in smaller pieces."
    )
    return refused_outcome(text, kind="invalid_input", reason="the reply was cut")


def invalid_input_outcome(pending: PendingCall, invalid: Invalid, context: RunnerContext) -> Outcome:
    """The input does not fit, or is no JSON at all."""
    style = context.profile.issues
    raw = unparsed_text(pending.body_store.arguments_) if style.reports_unparsed else None
    if raw is None:
        explanation = explain_issues(pending.call.tool, invalid, style=style)
    else:
        explanation = explain_unparsed(pending.call.tool, raw)
    return refused_outcome(
        explanation.text, kind="invalid_input", reason="the input does not fit", record=explanation.record
    )


async def run_tool_check(pending: PendingCall, prepared: PreparedCall, context: RunnerContext) -> Outcome | None:
    """The tool's own check, before anything is done."""
    validate = prepared.tool.validate
    if validate is None:
        return None
    try:
        check = validate(prepared.valid.value, prepared.tool_context)
        refusal = await context.run_check(check, "check", pending)
    except ToolError as error:
        return tool_error_outcome(prepared.tool.name, error)
    except Exception as error:  # noqa: BLE001 - a tool's own check failed: so does the call
        return exception_outcome(prepared.tool.name, error)
    if refusal is None:
        return None
    kind = refusal.kind or kind_of(prepared.tool.name, refusal.text)
    if kind == "unknown":
        kind = "invalid_input"
    if refusal.wrapped:
        return refused_outcome(refusal.text, kind=kind, reason="the tool's own check", record=refusal.structured)
    record = error_record(refusal.text) if refusal.structured is None else refusal.structured
    return Outcome(
        state="failed", content=refusal.text, structured=record, is_error=True, kind=kind, reason="the tool's own check"
    )


def drop_unknown_keys(prepared: PreparedCall, arguments: Input) -> Input:
    """An input without what its tool does not know: who consents may answer for any tool."""
    parsed = prepared.tool.parse(arguments)
    if not isinstance(parsed, Invalid):
        return arguments
    unknown = {issue.path[0] for issue in parsed.issues if issue.code == "unexpected"}
    return {key: value for key, value in arguments.items() if key not in unknown}


def replace_input(
    pending: PendingCall, prepared: PreparedCall, arguments: Input | None, context: RunnerContext
) -> PreparedCall | Outcome:
    """The same call with another input, if there is one and it fits."""
    if arguments is None:
        return prepared
    parsed = prepared.tool.parse(arguments)
    if isinstance(parsed, Invalid):
        return invalid_input_outcome(pending, parsed, context)
    return structs.replace(prepared, valid=parsed)
