"""Is there such a tool, and does the input fit? What is found before any hook is asked."""

from msgspec import structs

from toolspan.errors import ToolError
from toolspan.model.kind import kind_of
from toolspan.run.desk import Desk, Job, Prepared
from toolspan.run.ending import Ending, error_record, raised, refused, told
from toolspan.run.tool import Input
from toolspan.schema.explain import explain, explain_unparsed, raw_of
from toolspan.schema.issue import Invalid


def unknown_tool(name: str, desk: Desk) -> Ending:
    """Nobody has such a tool, or it is switched off."""
    refusals = desk.profile.refusals
    text = refusals.unknown_tool.format(name=name)
    other = desk.tools.closest(name)
    if name in desk.profile.offer.known or name in desk.profile.offer.tools:
        text += refusals.known_but_off.format(name=name)
    elif other:
        text += refusals.other_case.format(other=other)
    return refused(text, kind="unknown_tool", reason="no such tool")


def incomplete(job: Job) -> Ending:
    """The reply ended in the middle of the call."""
    text = (
        f"{job.call.tool} was not run: the reply ended (max_tokens) before the call was complete."
        " Ask for it again, in smaller pieces."
    )
    return refused(text, kind="invalid_input", reason="the reply was cut")


def invalid_input(job: Job, invalid: Invalid, desk: Desk) -> Ending:
    """The input does not fit, or is no JSON at all."""
    style = desk.profile.issues
    raw = raw_of(job.shelf.arguments_) if style.tells_unparsed else None
    if raw is None:
        words = explain(job.call.tool, invalid, style=style)
    else:
        words = explain_unparsed(job.call.tool, raw)
    return refused(
        words.text, kind="invalid_input", reason="the input does not fit", record=words.record
    )


async def veto(job: Job, prepared: Prepared, desk: Desk) -> Ending | None:
    """The tool's own check, before anything is done."""
    validate = prepared.tool.validate
    if validate is None:
        return None
    try:
        check = validate(prepared.valid.value, prepared.view)
        refusal = await desk.checked(check, "check", job)
    except ToolError as error:
        return told(prepared.tool.name, error)
    except Exception as error:  # noqa: BLE001 - a tool's own check failed: so does the call
        return raised(prepared.tool.name, error)
    if refusal is None:
        return None
    kind = refusal.kind or kind_of(prepared.tool.name, refusal.text)
    if kind == "unknown":
        kind = "invalid_input"
    if refusal.wrapped:
        return refused(
            refusal.text, kind=kind, reason="the tool's own check", record=refusal.structured
        )
    record = error_record(refusal.text) if refusal.structured is None else refusal.structured
    return Ending(
        state="failed",
        content=refusal.text,
        structured=record,
        flag=True,
        kind=kind,
        reason="the tool's own check",
    )


def known_keys(prepared: Prepared, given: Input) -> Input:
    """An input without what its tool does not know: who consents may answer for any tool."""
    parsed = prepared.tool.parse(given)
    if not isinstance(parsed, Invalid):
        return given
    unknown = {one.path[0] for one in parsed.issues if one.code == "unexpected"}
    return {key: value for key, value in given.items() if key not in unknown}


def with_input(job: Job, prepared: Prepared, given: Input | None, desk: Desk) -> Prepared | Ending:
    """The same call with another input, if there is one and it fits."""
    if given is None:
        return prepared
    parsed = prepared.tool.parse(given)
    if isinstance(parsed, Invalid):
        return invalid_input(job, parsed, desk)
    return structs.replace(prepared, valid=parsed)
