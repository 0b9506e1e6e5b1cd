"""The life of one call, from request to result.

In: a `Job` (one accepted call) and a `Desk` (what the session has). Out: a `Finished`, exactly one,
whatever the call does. The order: look up, cancelled?, valid?, the tool's own veto, hooks before,
consent, the tool, size, hooks after, wrap. Read `run_call` first; queueing is in `batch.py`.
"""

import asyncio
from collections.abc import Awaitable, Mapping
from pathlib import Path

import anyio
import anyio.lowlevel

from toolspan.errors import ToolError
from toolspan.hooks.stray import is_cancelled
from toolspan.model.decision import Deny
from toolspan.model.live import Content, Finished, Started
from toolspan.run import denial
from toolspan.run.consent import consent, is_asked, note_decision, question_of
from toolspan.run.context import Bench, ToolContext
from toolspan.run.desk import Desk, Job, Prepared
from toolspan.run.ending import Ending, failure, raised, text_of, timed_out, told
from toolspan.run.limits import spill
from toolspan.run.outbound import Unfit, fit_content, fit_json
from toolspan.run.review import is_alone, moment_of, put_off, report, review, with_hooks
from toolspan.run.settle import broken, cut_short, settle
from toolspan.run.tool import Failure, Output, Valid
from toolspan.run.valid import incomplete, invalid_input, unknown_tool, veto, with_input
from toolspan.schema.issue import Invalid

_ENDS = (KeyboardInterrupt, GeneratorExit)
"""What ends the program, or this coroutine; whatever else code raises ends a call at most."""


async def run_call(job: Job, desk: Desk, bench: Bench) -> Finished:
    """Take one call from request to result; what the call did never raises.

    Only a cancellation from outside passes through, after the result was emitted.
    """
    ending: Ending | None = None
    try:
        ending = await _live(job, desk, bench)
    except anyio.get_cancelled_exc_class() as error:
        if is_cancelled():
            job.cancelled = job.cancelled or "host"
            settle(job, job.ending or cut_short(job, desk), desk)
            await anyio.lowlevel.checkpoint_if_cancelled()  # raises ours; this may be the tool's
            raise
        ending = job.ending or (None if job.cancelled else broken(job, error))
    except _ENDS:
        raise
    except BaseException as error:  # noqa: BLE001 - our fault costs no call its result
        ending = job.ending or broken(job, error)
    finished = settle(job, ending or cut_short(job, desk), desk)
    if job.cancelled == "host" and is_cancelled():
        await anyio.lowlevel.checkpoint_if_cancelled()  # a scope's; else it was the task's
        raise asyncio.CancelledError  # the tool had the last word; the host is gone all the same
    return finished


async def _live(job: Job, desk: Desk, bench: Bench) -> Ending:
    prepared = _look_up(job, desk, bench)
    if isinstance(prepared, Prepared) and _is_guarded(job, prepared, desk):
        prepared = await prepare(job, prepared, desk)
    if isinstance(prepared, Ending):
        return with_hooks(job, prepared)
    if job.cancelled:
        return cut_short(job, desk)
    job.ending = await run_tool(job, prepared, desk)
    if desk.hooks.silent:
        return job.ending
    return await review(job, prepared, job.ending, desk)


# Before the tool


def _is_guarded(job: Job, prepared: Prepared, desk: Desk) -> bool:
    """Whether anybody is to be asked before the tool runs."""
    if prepared.tool.validate is not None or not desk.hooks.silent:
        return True
    return is_asked(job, prepared, desk)


async def prepare(job: Job, prepared: Prepared, desk: Desk) -> Prepared | Ending:
    """The tool's own check, the hooks, consent."""
    if prepared.tool.validate is not None:
        refusal = await veto(job, prepared, desk)
        if refusal is not None:
            return refusal
    if not desk.hooks.silent:
        hooked = await _fire_before(job, prepared, desk)
        if isinstance(hooked, Ending):
            return hooked
        prepared = hooked
    return await consent(job, prepared, desk) if is_asked(job, prepared, desk) else prepared


def _look_up(job: Job, desk: Desk, bench: Bench) -> Prepared | Ending:
    """Is there such a tool, is the call still wanted, does its input fit?"""
    if job.tool is None:
        return unknown_tool(job.call.tool, desk)
    if job.cancelled:
        return cut_short(job, desk)
    if job.cut:
        return incomplete(job)
    if not isinstance(job.parsed, Valid):
        return invalid_input(job, job.parsed or Invalid(()), desk)
    job.view = ToolContext(
        call=job.call,
        context=desk.context,
        workspace=desk.workspace,
        profile=desk.profile,
        bench=bench,
        message=job.message,
    )
    return Prepared(job.tool, job.parsed, job.view)


async def _fire_before(job: Job, prepared: Prepared, desk: Desk) -> Prepared | Ending:
    fired = desk.hooks.before(moment_of(job, prepared))
    before = await desk.hooked(fired, job)
    job.before = before
    report(job.call.id, before.reports, desk)
    if isinstance(before.decision, Deny):
        note_decision(job, before.decision, desk, waited=0.0)
        return denial.denied(
            question_of(job, prepared, desk), before.decision, desk.profile.refusals
        )
    if before.defer and is_alone(job) and desk.approver is None:
        return put_off()
    return with_input(job, prepared, before.input, desk)


# The tool


async def run_tool(job: Job, prepared: Prepared, desk: Desk) -> Ending:
    """Run the tool itself; its exceptions become endings."""
    _note_start(job, prepared, desk)
    tool = prepared.tool
    try:
        if tool.timeout is None and tool.interrupt == "cancel":
            work = tool.run(prepared.valid.value, prepared.view)
            output = await desk.rooms.run(work, tool.grace, "tool", job)
        else:
            with anyio.CancelScope(shield=tool.interrupt == "block"):
                output = await _limited(job, prepared, desk)
    except _LimitPassedError:
        left = desk.rooms.is_left(job.call.id)
        return timed_out(tool.name, tool.timeout or 0.0, left=left)
    except ToolError as error:
        return told(tool.name, error)
    except BaseException as error:
        if isinstance(error, _ENDS) or _is_ours(error, job):
            raise
        return raised(tool.name, error)  # a tool's fault is the call's result
    if isinstance(output, Failure):
        return failure(tool.name, output)
    return _success(job, prepared, output, desk)


def _is_ours(error: BaseException, job: Job) -> bool:
    """Whether it is a cancellation, and not one of something that the tool waited for."""
    if not isinstance(error, anyio.get_cancelled_exc_class()):
        return False
    return job.cancelled is not None or is_cancelled()


def _note_start(job: Job, prepared: Prepared, desk: Desk) -> None:
    tool, journal = prepared.tool, desk.workspace.journal
    if journal is not None and not (tool.read_only or tool.announces):
        journal.begin(job.call.id, tool.name, prepared.valid.recorded)
    job.started = desk.clock()
    if Started in desk.hears:
        desk.emit(Started(call_id=job.call.id, at=job.started))


class _LimitPassedError(Exception):
    """The tool's own time limit, and not some timeout inside it."""


def _in_room(job: Job, prepared: Prepared, desk: Desk) -> Awaitable[Output | Failure]:
    tool = prepared.tool
    work = tool.run(prepared.valid.value, prepared.view)
    return desk.rooms.run(work, tool.grace, "tool", job)


async def _limited(job: Job, prepared: Prepared, desk: Desk) -> Output | Failure:
    tool = prepared.tool
    if tool.timeout is None:
        return await _in_room(job, prepared, desk)
    with anyio.move_on_after(tool.timeout):
        return await _in_room(job, prepared, desk)
    raise _LimitPassedError


def _success(job: Job, prepared: Prepared, output: Output, desk: Desk) -> Ending:
    tool = prepared.tool
    try:
        if not isinstance(output, Output):
            raise Unfit(f"a tool gives an Output or a Failure, not {type(output).__name__}")
        given = fit_content(output.content)
        content = given or desk.profile.refusals.no_output.format(name=tool.name) or given
        structured = None if output.structured is None else fit_json(output.structured)
        answer = None if output.structured_output is None else fit_json(output.structured_output)
        companions = _companions(output.companions) if output.companions else ()
        beside = _beside(output.beside) if output.beside else {}
    except (Unfit, RecursionError) as error:
        return told(tool.name, ToolError(f"{tool.name} gave an output no model takes: {error}"))
    persisted = output.persisted
    if tool.output_limit is not None and len(text_of(content)) > tool.output_limit:
        content, persisted = _spilled(content, tool.output_limit, job, desk)
    return Ending(
        state="succeeded",
        content=content,
        structured=structured,
        flag=False if output.flag is False else None,  # an error is a Failure, or raised
        reason="the tool ran",
        exit_code=output.exit_code,
        background_task=output.background_task,
        agent=output.agent,
        persisted=persisted,
        modify=output.modify,
        companions=companions,
        structured_output=answer,
        beside=beside,
    )


def _companions(given: tuple[Content, ...]) -> tuple[Content, ...]:
    return tuple(fitted for fitted in map(fit_content, given) if fitted)


def _beside(given: Mapping[str, object]) -> dict[str, object]:
    return {key: fit_json(value) for key, value in given.items()}


def _spilled(content: Content, most: int, job: Job, desk: Desk) -> tuple[Content, Path | None]:
    """The text in a file and its head in the result; what is no text stays beside it."""
    folder = desk.workspace.results_folder
    text, path = spill(text_of(content), folder, job.call.id, most=most)
    if isinstance(content, str):
        return text, path
    others = [block for block in content if block["type"] != "text"]
    return [{"type": "text", "text": text}, *others] if others else text, path
