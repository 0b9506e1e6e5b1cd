"""What hooks see of a call, and what becomes of what they say.

In: a call that ran, and its ending. Out: the ending with what hooks put in its place or beside it.
Every handler that ran is told of, whatever it said.
"""

from typing import NamedTuple

import msgspec
from msgspec import structs

from toolspan.hooks.points import After, Before, Moment, Replaced, Report
from toolspan.ids import CallId
from toolspan.model.live import Content, HookRan
from toolspan.model.live import Context as HookContext
from toolspan.run.desk import NO_OPINION, Desk, Job, Prepared
from toolspan.run.ending import Ending, text_of
from toolspan.run.outbound import Unfit, clean, fit_content, fit_json
from toolspan.run.tool import Tool
from toolspan.schema.check import type_name
from toolspan.schema.issue import Issue
from toolspan.schema.zod import issue_json


async def review(job: Job, prepared: Prepared, ending: Ending, desk: Desk) -> Ending:
    """Fire the hooks after a call, and take in what they say."""
    moment = moment_of(job, prepared)
    duration = (desk.clock() - (job.started or job.requested)) * 1e3
    if ending.failed:
        moment = structs.replace(moment, error=text_of(ending.content), duration_ms=duration)
        after = await desk.hooked(desk.hooks.after_failure(moment), job)
    else:
        shown = ending.content if ending.structured is None else ending.structured
        moment = structs.replace(moment, output=shown, duration_ms=duration)
        after = await desk.hooked(desk.hooks.after(moment), job)
    report(job.call.id, after.reports, desk)
    return with_hooks(job, _reviewed(job, prepared.tool, ending, after, desk), after)


def _reviewed(job: Job, tool: Tool, ending: Ending, after: After, desk: Desk) -> Ending:
    """The ending with the output that a hook put in place of the tool's."""
    if after.output is None or ending.failed:
        return ending
    try:
        new = _replaced(tool, ending, after.output, desk)
        content = fit_content(new.content) or f"({job.call.tool} completed)"
        structured = fit_json(new.structured)
    except (Unfit, RecursionError) as error:
        report(job.call.id, (_unfit(after, tool, str(error)),), desk)
        return ending  # a hook's mistake: the tool's own output stays
    return structs.replace(ending, content=content, structured=structured)


class _New(NamedTuple):
    content: Content
    structured: object


def _replaced(tool: Tool, ending: Ending, output: Replaced, desk: Desk) -> _New:
    """The output that a hook wants, in the shape that the tool's own has.

    Raises:
        Unfit: it has another one.
    """
    if output.content is not None:
        return _New(output.content, output.structured)
    issues = list(_issues(output.structured, ending.structured))
    if issues:
        told = issue_json(issues, desk.profile.issues)
        raise Unfit(
            f"PostToolUse hook returned updatedToolOutput that does not match {tool.name}'s output"
            f" shape; using original output. {told}"
        )
    return _New(_shown(tool, output.structured), output.structured)


def _issues(new: object, old: object, path: tuple[str | int, ...] = ()) -> list[Issue]:
    """Where the new value is of another kind than the old one; what is left out is left out."""
    if old is None or new is None:
        return []
    wanted, found = type_name(old), type_name(new)
    if wanted != found:
        message = f"expected {wanted}, not {found}"
        return [Issue("type", path, message, expected=wanted, received=found)]
    if isinstance(new, dict) and isinstance(old, dict):
        both = [key for key in new if key in old]
        return [one for key in both for one in _issues(new[key], old[key], (*path, key))]
    return []


def _shown(tool: Tool, structured: object) -> Content:
    """What the model reads of a result."""
    if tool.show is not None:
        try:
            return tool.show(structured)
        except Exception as error:  # a tool's own function, with a hook's value
            raise Unfit(f"{tool.name} cannot show what a hook put in its place: {error}") from error
    return structured if isinstance(structured, str) else msgspec.json.encode(structured).decode()


def _unfit(after: After, tool: Tool, text: str) -> Report:
    last = after.reports[-1] if after.reports else None
    name = last.name if last else f"PostToolUse:{tool.name}"
    return Report(point="PostToolUse", name=name, outcome="error", text=text, fault=True)


def with_hooks(job: Job, ending: Ending, after: After | None = None) -> Ending:
    """The ending with what hooks want the model to read, and whether they stop the turn."""
    before: Before = job.before
    if before is NO_OPINION and after is None:
        return ending
    contexts = _contexts("PreToolUse", job.call.tool, before.contexts)
    if after is not None:
        point = "PostToolUseFailure" if ending.failed else "PostToolUse"
        contexts += _contexts(point, job.call.tool, after.contexts)
        contexts += _objections(point, job.call.tool, after)
    stop = ending.stop or before.stop or (after.stop if after else None)
    if not contexts and stop == ending.stop:
        return ending
    return structs.replace(ending, contexts=contexts, stop=stop)


def _contexts(point: str, tool: str, texts: tuple[str, ...]) -> tuple[HookContext, ...]:
    if not texts:
        return ()
    return tuple(HookContext(point=point, name=f"{point}:{tool}", text=clean(t)) for t in texts)


def _objections(point: str, tool: str, after: After) -> tuple[HookContext, ...]:
    """An objection is recorded with its handler; the model reads who objects."""
    if not after.feedback:
        return ()
    name = f"{point}:{tool}"
    found = []
    for text, by in zip(after.feedback, after.by, strict=False):
        words = clean(f'{name} hook blocking error from command: "{by}": {text}')
        found.append(HookContext(point=point, name=name, text=clean(text), words=words))
    return tuple(found)


def is_alone(job: Job) -> bool:
    """Whether the message has no other call."""
    content = (job.message or {}).get("content")
    blocks = content if isinstance(content, list) else []
    return len([block for block in blocks if block.get("type") == "tool_use"]) <= 1


def put_off() -> Ending:
    """Neither run nor refused: somebody will come back to it."""
    return Ending(
        state="never_answered",
        content="",
        reason="a hook put it off",
        stop="tool_deferred",
        deferred=True,
    )


def moment_of(job: Job, prepared: Prepared) -> Moment:
    """The call as hooks see it."""
    return Moment(
        call=job.call,
        input=prepared.valid.recorded,
        cwd=prepared.view.cwd,
        known_as=prepared.tool.name,
    )


def report(about: CallId, reports: tuple[Report, ...], desk: Desk) -> None:
    """Tell of every handler that was run."""
    for one in reports:
        desk.emit(HookRan(**structs.asdict(one), call_id=about, at=desk.clock()))
