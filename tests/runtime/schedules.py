"""Play a schedule on a real runner and report violations.

No clock and no sleep: tools wait for gates that the schedule opens. `play` returns what happened;
`faults` compares it with what must hold for every schedule.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import cast

import anyio
import anyio.lowlevel
import msgspec

from tests.limits import PATIENCE
from tests.strategies_run import ENDLESS, Plan, Schedule, Silence, Step
from toolspan.errors import ToolError
from toolspan.runtime.batch import Batch
from toolspan.runtime.context import CallContext, ToolContext
from toolspan.runtime.hooks import HookEffects, Hooks, PreToolDecision
from toolspan.runtime.hooks.events import ReplacedOutput, ToolHookEvent
from toolspan.runtime.pending_call import parse_tool_use
from toolspan.runtime.permissions.decide import PermissionRequest
from toolspan.runtime.profiles import profile
from toolspan.runtime.runner import Runner
from toolspan.runtime.schema.check import compile_checker
from toolspan.runtime.tool import Output, Refusal, Tool, ToolFailure
from toolspan.testing import check_history
from toolspan.types import events as live
from toolspan.types.decision import Allow, Ask, Deny
from toolspan.types.events import Finished, LiveEvent
from toolspan.types.ids import CallId
from toolspan.types.span import Call

SCHEMA: Mapping[str, object] = {
    "type": "object",
    "properties": {"n": {"type": "number"}, "note": {"type": "string"}},
    "required": ["n"],
    "additionalProperties": False,
}
"""Seconds after which a schedule counts as stuck."""
GRACE = 0.005


class Odd(str):
    """A string that is none to a strict encoder."""

    __slots__ = ()


class MuteError(Exception):
    """An exception that cannot even say its name."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


@dataclass
class ScheduleRun:
    schedule: Schedule
    events: list[LiveEvent] = field(default_factory=list)
    gates: dict[str, anyio.Event] = field(default_factory=dict)
    accepted: list[str] = field(default_factory=list)
    entered: list[str] = field(default_factory=list)
    """The calls whose tool began."""
    inside: dict[str, bool] = field(default_factory=dict)
    """The calls that run in their tool now, and whether each is exclusive."""
    returned: set[str] = field(default_factory=set)
    """The calls whose tool returned or raised according to its plan."""
    asked_to_end: set[str] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    handed: list[str] = field(default_factory=list)
    results: list[Finished] = field(default_factory=list)
    trail: tuple[str, ...] = ()
    remaining_tasks: list[str] = field(default_factory=list)
    batch: Batch | None = None
    runner: Runner | None = None

    def plan(self, call_id: str) -> Plan:
        return self.schedule.plans[int(call_id.removeprefix("toolu_"))]

    async def gate(self, call_id: str) -> None:
        await self.gates[call_id].wait()

    async def ignore(self, call_id: str) -> None:
        """Wait for the gate and ignore cancellation."""
        while not self.gates[call_id].is_set():
            with suppress(asyncio.CancelledError):
                await self.gate(call_id)

    async def be_silent(self, call_id: str, way: Silence) -> None:
        match way:
            case "waits":
                await self.gate(call_id)
            case "stray cancel":
                raise asyncio.CancelledError
            case "ignores":
                await self.ignore(call_id)
            case "none":
                pass

    def is_over(self, call_id: str) -> bool:
        return any(isinstance(event, Finished) and event.call_id == call_id for event in self.events)

    def was_abandoned(self, call_id: str) -> bool:
        faults = _faulted(self, "and was abandoned")
        return any(item.where == "tool" and item.call_id == call_id for item in faults)


def name_of(position: int) -> str:
    return f"toolu_{position}"


def is_exclusive(plan: Plan) -> bool:
    is_known = plan.tool not in ("off", "missing")
    valid = plan.input in ("good", "surrogate")
    return is_known and not (plan.tool in ("safe", "limited", "asks") and valid)


# The tools


def tools_of(progress: ScheduleRun) -> list[Tool]:
    async def run(value: object, ctx: ToolContext) -> Output | ToolFailure:
        call_id = str(ctx.call.id)
        plan = progress.plan(call_id)
        progress.entered.append(call_id)
        alone = is_exclusive(plan)
        beside = [item for item in progress.inside if not progress.is_over(item)]  # or abandoned
        if beside and (alone or any(progress.inside[item] for item in beside)):
            progress.wrong.append(f"{call_id} runs beside {sorted(beside)}")
        progress.inside[call_id] = alone
        try:
            _show(ctx, plan)
            await _flow(progress, plan, ctx)
            if not progress.is_over(call_id) and not progress.was_abandoned(call_id):
                progress.returned.add(call_id)
            return _outcome(plan, call_id)
        finally:
            del progress.inside[call_id]

    async def validate(value: object, ctx: ToolContext) -> Refusal | None:
        call_id = str(ctx.call.id)
        match progress.plan(call_id).veto:
            case "refuses":
                return Refusal("not like this")
            case "tells":
                raise ToolError("cannot be checked")
            case "crashes":
                raise ValueError("the check fell over")
            case "waits" | "ignores" | "none" as way:
                await progress.be_silent(call_id, way)
        return None

    def overlaps(value: Mapping[str, object]) -> bool:
        return value["n"] == 1

    base = Tool(
        name="unsafe",
        description="For tests.",
        input_schema=SCHEMA,
        parse=compile_checker(SCHEMA, coerce=False),
        run=run,
        validate=validate,
        output_limit=1000,
        grace=GRACE,
    )
    return [
        base,
        replace(base, name="safe", concurrent=True),
        replace(base, name="asks", concurrent=overlaps),
        replace(base, name="block", interrupt="block"),
        replace(base, name="limited", concurrent=True, timeout=1e-9),
        replace(base, name="Bash"),
        replace(base, name="off", enabled=False),
    ]


def _show(ctx: ToolContext, plan: Plan) -> None:
    def crash() -> str:
        raise RuntimeError("nothing to show")

    match plan.partial:
        case "some":
            ctx.partial = lambda: "half of \ud800 it"
        case "crashes":
            ctx.partial = crash
        case "garbage":
            ctx.partial = cast("type[str]", lambda: 7)
        case "none":
            pass


async def _flow(progress: ScheduleRun, plan: Plan, ctx: ToolContext) -> None:
    call_id = str(ctx.call.id)
    match plan.flow:
        case "at once":
            return
        case "gate":
            await progress.gate(call_id)
        case "news":
            ctx.progress("other", step=1)
            ctx.progress("other", step=2)
            await progress.gate(call_id)
            ctx.progress("other", step=3)
        case "hang":
            await anyio.sleep_forever()
        case "cleans up":
            try:
                await anyio.sleep_forever()
            finally:
                with anyio.CancelScope(shield=True):
                    await anyio.lowlevel.checkpoint()
        case "swallows":
            with anyio.CancelScope(shield=True):
                await progress.gate(call_id)
        case "ignores":
            await progress.ignore(call_id)
        case "never":
            while True:
                with suppress(asyncio.CancelledError):
                    await anyio.sleep_forever()
        case "turns":
            try:
                await anyio.sleep_forever()
            except anyio.get_cancelled_exc_class():
                raise ValueError("turned into something else") from None


def _outcome(  # noqa: PLR0912 - a table
    plan: Plan, call_id: str
) -> Output | ToolFailure:
    modify = _modify(plan, call_id)
    nested: object = 1
    match plan.outcome:
        case "text":
            return Output(f"did {call_id}", {"n": 1}, modify=modify)
        case "blank":
            return Output(" \n", modify=modify)
        case "blocks":
            return Output([{"type": "text", "text": ""}, {"type": "text", "text": "x\ud800"}])
        case "picture":
            return Output([{"type": "image", "source": {"type": "base64", "data": "aGk="}}])
        case "surrogates":
            return Output("a\udfffb", {"\ud800": ["\ud800"]}, modify=modify)
        case "nan":
            return Output("n", {"a": [math.nan, math.inf]}, structured_output={"b": math.nan})
        case "huge":
            return Output("x" * 5000, modify=modify)
        case "subclass":
            return Output(Odd("odd"), {"a": Odd("b")}, companions=(Odd("c"),))
        case "deep":
            for _ in range(5000):
                nested = [nested]
            return Output("deep", nested)
        case "bad companion":
            return Output("c", companions=cast("tuple[str, ...]", (7,)))
        case "bad answer":
            return Output("s", structured_output={"a": b"bytes", "b": {1, 2}})
        case "flagged":
            source = {"type": "base64", "media_type": "image/png", "data": ""}
            return Output([{"type": "image", "source": source}], flag=True)
        case "bad block":
            return Output([{"type": "audio", "data": ""}])
        case "nothing" | "number" | "bytes":
            bad = {"nothing": None, "number": 7, "bytes": b"x"}
            return cast("Output", bad[plan.outcome])
        case "failure":
            return ToolFailure("it failed", exit_code=2, modify=modify)
        case "odd failure":
            return ToolFailure("odd \ud800", structured={"a": {1, 2}, "b": math.nan})
        case "long failure":
            return ToolFailure("y" * 30_000)
        case _:
            raise _error(plan)


def _error(plan: Plan) -> BaseException:
    match plan.outcome:
        case "tool error":
            return ToolError("said so")
        case "odd tool error":
            return ToolError("\ud800" * 20_000, kind="no such kind", wrapped=True)
        case "group":
            return ExceptionGroup("several", [ValueError("a"), ToolError("b")])
        case "exit":
            return SystemExit(3)
        case "stray cancel":
            return asyncio.CancelledError("of something else")
        case "mute error":
            return MuteError()
        case "timeout error":
            return TimeoutError("inside")
        case _:
            return ValueError("a \ud800 value")


def _modify(plan: Plan, call_id: str):  # type: ignore[no-untyped-def]  # as tool authors write it
    def mark(context: CallContext) -> CallContext:
        trail = cast("tuple[str, ...]", context.values.get("trail", ()))
        return replace(context, values={**context.values, "trail": (*trail, call_id)})

    def crash(context: CallContext) -> CallContext:
        raise RuntimeError("the modifier fell over")

    match plan.modify:
        case "marks":
            return mark
        case "crashes":
            return crash
        case "garbage":
            return lambda context: None
        case "none":
            pass
    return None


# Hooks, policies and sinks around the calls


def hooks_of(progress: ScheduleRun) -> Hooks:
    hooks = Hooks()

    async def before(call: Call) -> PreToolDecision | Allow | Deny | Ask | None:
        return await _before(progress, str(call.id))

    async def after(call: Call, moment: ToolHookEvent) -> HookEffects | str | None:
        return await _after(progress, str(call.id))

    async def mute(*of: object) -> None:
        await anyio.lowlevel.checkpoint()

    if progress.schedule.hooks:
        hooks.pre_tool_use()(before)
        hooks.post_tool_use()(after)
        hooks.post_tool_use_failure()(after)
        hooks.post_tool_batch()(mute)
    if progress.schedule.hooks > 1:
        hooks.pre_tool_use()(mute)
        hooks.post_tool_use()(mute)
    return hooks


async def _before(  # noqa: PLR0912 - a table
    progress: ScheduleRun, call_id: str
) -> PreToolDecision | Allow | Deny | Ask | None:
    match progress.plan(call_id).before:
        case "allows":
            return Allow("fine")
        case "denies":
            return Deny("no \ud800 way")
        case "denies and stops":
            return Deny(None, "hook", stop=True)
        case "asks":
            return Ask("is it?")
        case "crashes":
            raise RuntimeError("the hook fell over")
        case "garbage":
            return cast("None", 7)
        case "input":
            return PreToolDecision(input={"n": 2})
        case "bad input":
            return Allow(input={"m": 2})
        case "odd input":
            return PreToolDecision(input=cast("dict[str, object]", ["n"]))
        case "stops":
            return PreToolDecision(stop="enough")
        case "tells":
            return PreToolDecision(contexts=("mind \ud800",))
        case "odd tells":
            return PreToolDecision(contexts=cast("tuple[str, ...]", (7,)))
        case "cancels":
            progress.asked_to_end.add(call_id)
            assert progress.batch is not None
            progress.batch.cancel(CallId(call_id))
        case "waits" | "stray cancel" | "ignores" | "none" as way:
            await progress.be_silent(call_id, way)
    return None


async def _after(progress: ScheduleRun, call_id: str) -> HookEffects | str | None:
    match progress.plan(call_id).after:
        case "crashes":
            raise RuntimeError("the hook fell over")
        case "garbage":
            return cast("None", Allow())
        case "replaces":
            return HookEffects(output=ReplacedOutput("instead \ud800", {"a": math.nan}))
        case "replaces badly":
            return HookEffects(output=ReplacedOutput(cast("str", 7), {1, 2}))
        case "tells":
            return "noted"
        case "odd tells":
            return HookEffects(contexts=cast("tuple[str, ...]", (7,)))
        case "stops":
            return HookEffects(stop="enough")
        case "waits" | "stray cancel" | "ignores" | "none" as way:
            await progress.be_silent(call_id, way)
    return None


def policy_of(progress: ScheduleRun):  # type: ignore[no-untyped-def]  # a policy, as users write it
    async def policy(question: PermissionRequest) -> Allow | Deny | Ask | None:
        call_id = str(question.call.id)
        match progress.plan(call_id).policy:
            case "allows":
                return Allow()
            case "denies":
                return Deny("not \ud800 here")
            case "ends all":
                return Deny(None, "user", stop=True)
            case "asks":
                return Ask()
            case "crashes":
                raise RuntimeError("the policy fell over")
            case "garbage":
                return cast("None", "allow")
            case "input":
                return Allow(input={"n": 3})
            case "bad input":
                return Allow(input={"n": "x"})
            case "waits" | "stray cancel" | "ignores" | "none" as way:
                await progress.be_silent(call_id, way)
        return None

    return policy


def approver_of(progress: ScheduleRun):  # type: ignore[no-untyped-def]  # an approver, as users write it
    async def approve(question: PermissionRequest, ask: Ask) -> Allow | Deny:
        call_id = str(question.call.id)
        match progress.plan(call_id).approver:
            case "denies":
                return Deny(None, "user_reject", stop=True)
            case "words":
                return Deny("rather \ud800 not", "user_reject")
            case "crashes":
                raise RuntimeError("the approver fell over")
            case "garbage":
                return cast("Allow", Ask())
            case "waits, denies":
                await progress.gate(call_id)
                return Deny(None, "user_reject")
            case "waits" | "ignores" as way:
                await progress.be_silent(call_id, way)
            case "allows":
                pass
        return Allow(None, "user_temporary")

    return approve


def runner_of(progress: ScheduleRun) -> Runner:
    async def crashes(event: LiveEvent) -> None:
        raise RuntimeError("the sink fell over")

    async def cancels_itself(event: LiveEvent) -> None:
        raise asyncio.CancelledError

    async def slow(event: LiveEvent) -> None:
        await anyio.lowlevel.checkpoint()

    def crashes_directly(event: LiveEvent) -> None:
        raise RuntimeError("the watcher fell over")

    kinds = progress.schedule.sinks
    waiting = {"crashes": crashes, "slow": slow, "cancels itself": cancels_itself}
    direct = [progress.events.append]
    if "crashes directly" in kinds:
        direct = [crashes_directly, progress.events.append, crashes_directly]
    client = profile()
    offer = replace(client.availability, siblings=progress.schedule.siblings, max_concurrent=progress.schedule.cap)
    return Runner(
        tools_of(progress),
        profile=replace(client, availability=offer),
        hooks=hooks_of(progress),
        policies=[policy_of(progress)] if progress.schedule.policies else [],
        approver=approver_of(progress),
        sinks=[waiting[kind] for kind in kinds if kind in waiting],
        direct=direct,
        grace=GRACE,
        hook_grace=GRACE,
    )


# Playing


def block_of(position: int, plan: Plan) -> dict[str, object]:
    fields: object = {"n": 1}
    match plan.input:
        case "wrong":
            fields = {"n": "one \ud800"}
        case "extra":
            fields = {"n": 1, "m": 2}
        case "unparsed":
            fields = '{"n": 1'
        case "surrogate":
            fields = {"n": 1, "note": "\ud800"}
        case "good":
            pass
    return {"type": "tool_use", "id": name_of(position), "name": plan.tool, "input": fields}


async def play(schedule: Schedule) -> ScheduleRun:
    """Play a schedule to its end, however it ends."""
    progress = ScheduleRun(schedule)
    for position in range(len(schedule.plans)):
        progress.gates[name_of(position)] = anyio.Event()
    around = asyncio.all_tasks()
    if schedule.host == "task":
        task = asyncio.create_task(_perform(progress))
        await asyncio.wait([task], timeout=PATIENCE)
        if not task.done():
            progress.wrong.append("stuck")
            task.cancel()
        elif not task.cancelled() and task.exception() is not None:
            progress.wrong.append(f"raised {task.exception()!r}")
    else:
        with anyio.move_on_after(PATIENCE) as limit:
            try:
                await _perform(progress)
            except Exception as error:  # noqa: BLE001 - reported with the schedule
                progress.wrong.append(f"raised {error!r}")
        if limit.cancelled_caught:
            progress.wrong.append("stuck")
    await _let_tasks_of_hooks_end(progress)
    progress.remaining_tasks = [repr(task) for task in asyncio.all_tasks() - around if not task.done()]
    return progress


async def _perform(progress: ScheduleRun) -> None:
    runner = runner_of(progress)
    progress.runner = runner
    driver = cast("asyncio.Task[None]", asyncio.current_task())
    try:
        async with anyio.create_task_group() as hands:
            with anyio.CancelScope() as host:
                async with runner, runner.batch() as batch:
                    progress.batch = batch
                    end = host.cancel if progress.schedule.host == "scope" else driver.cancel
                    own_steps, others = _shared_out(progress.schedule)
                    await _take_steps(progress, batch, own_steps, end)
                    if progress.schedule.drains:
                        hands.start_soon(_help, progress, batch, others, end)
                        await batch.drain()
                    else:
                        _open_all(progress, batch)
                        async for finished in batch.remaining():
                            _take(progress, [finished])
    finally:
        _look_around(progress, runner)


async def _let_tasks_of_hooks_end(progress: ScheduleRun) -> None:
    for gate in progress.gates.values():
        gate.set()
    for _ in range(5):
        await anyio.lowlevel.checkpoint()


def _look_around(progress: ScheduleRun, runner: Runner) -> None:
    batch = progress.batch
    assert batch is not None
    progress.results = batch.results
    progress.trail = cast("tuple[str, ...]", runner.context.values.get("trail", ()))
    if runner.in_progress or batch.in_progress:
        progress.wrong.append(f"still in progress: {batch.in_progress}")


def _shared_out(schedule: Schedule) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    if not schedule.drains:
        return schedule.steps, ()
    last = max(n for n, step in enumerate(schedule.steps) if step.act == "add")
    return schedule.steps[: last + 1], schedule.steps[last + 1 :]


async def _help(progress: ScheduleRun, batch: Batch, steps: tuple[Step, ...], end: Callable[[], object]) -> None:
    await _take_steps(progress, batch, steps, end)
    _open_all(progress, batch)


async def _take_steps(progress: ScheduleRun, batch: Batch, steps: tuple[Step, ...], end: Callable[[], object]) -> None:
    for step in steps:
        _take_step(progress, batch, step, end)
        for _ in range(step.breaths):
            await anyio.lowlevel.checkpoint()


def _take_step(progress: ScheduleRun, batch: Batch, step: Step, end: Callable[[], object]) -> None:
    call_id = name_of(step.call)
    match step.act:
        case "add":
            plan = progress.schedule.plans[step.call]
            if not _add(progress.schedule, batch, block_of(step.call, plan), cut=plan.cut):
                progress.wrong.append(f"{call_id} was not accepted")
            progress.accepted.append(call_id)
        case "again":
            if batch.add(block_of(step.call, progress.schedule.plans[step.call])):
                progress.wrong.append(f"{call_id} was accepted twice")
        case "release":
            progress.gates[call_id].set()
        case "cancel":
            progress.asked_to_end.add(call_id)
            batch.cancel(CallId(call_id))
        case "cancel all":
            progress.asked_to_end.update(progress.accepted)
            batch.cancel()
        case "take":
            _take(progress, batch.completed())
        case "host":
            _let_stubborn_ones_end(progress)
            progress.asked_to_end.update(progress.accepted)
            end()
        case "wait":
            pass


def _add(schedule: Schedule, batch: Batch, block: dict[str, object], *, cut: bool) -> bool:
    if not (schedule.drains and schedule.in_task):
        return batch.add(block, truncated=cut)
    job = batch.accept(parse_tool_use(block), truncated=cut)
    if job is not None:
        batch.enqueue(job)
    return job is not None


def _take(progress: ScheduleRun, finished: list[Finished]) -> None:
    ids = [str(item.call_id) for item in finished]
    if ids != sorted(ids, key=progress.accepted.index):
        progress.wrong.append(f"handed out in the order {ids}")
    progress.handed += ids


def _let_stubborn_ones_end(progress: ScheduleRun) -> None:
    for position, plan in enumerate(progress.schedule.plans):
        if plan.tool == "block":
            progress.gates[name_of(position)].set()


def _open_all(progress: ScheduleRun, batch: Batch) -> None:
    for gate in progress.gates.values():
        gate.set()
    for call_id in progress.accepted:
        plan = progress.plan(call_id)
        if plan.flow in ENDLESS and plan.tool != "limited":
            progress.asked_to_end.add(call_id)
            batch.cancel(CallId(call_id))


# Checks


def faults(progress: ScheduleRun) -> list[str]:
    return [
        *progress.wrong,
        *(f"a task remains: {task}" for task in progress.remaining_tasks),
        *_event_faults(progress),
        *_order_faults(progress),
        *_result_faults(progress),
        *_state_faults(progress),
    ]


def _call_id(event: LiveEvent) -> str | None:
    match event:
        case live.Requested():
            return str(event.call.id)
        case Finished():
            return str(event.span.id)
        case (
            live.HookRan()
            | live.PermissionRequested()
            | live.Decided()
            | live.Started()
            | live.Progressed()
            | live.Slow()
        ):
            return str(event.call_id)
        case _:
            return None


def _event_faults(progress: ScheduleRun) -> list[str]:
    result: list[str] = []
    for call_id in progress.accepted:
        own_events = [event for event in progress.events if _call_id(event) == call_id]
        kinds = [type(event) for event in own_events]
        if kinds.count(live.Requested) != 1 or kinds.count(Finished) != 1:
            result.append(f"{call_id}: {kinds.count(live.Requested)} requested,"
                         f" {kinds.count(Finished)} finished")  # fmt: skip
        elif kinds[0] is not live.Requested or kinds[-1] is not Finished:
            result.append(f"{call_id}: events in the order {[kind.__name__ for kind in kinds]}")
        if kinds.count(live.PermissionRequested) > kinds.count(live.Decided):
            result.append(f"{call_id}: asked without an answer")
        if kinds.count(live.Started) != progress.entered.count(call_id):
            result.append(f"{call_id}: {kinds.count(live.Started)} started, but the tool"
                         f" {progress.entered.count(call_id)}")  # fmt: skip
    repeats = sum(step.act == "again" for step in progress.schedule.steps)
    reported = sum(isinstance(event, live.Duplicate) for event in progress.events)
    if progress.schedule.host == "none" and repeats != reported:
        result.append(f"{repeats} duplicates, {reported} reported")
    abandoned = Counter(event.call_id for event in _faulted(progress, "and was abandoned"))
    ended = _faulted(progress, "ended after it was abandoned") + _faulted(progress, "closed when the runner exited")
    if abandoned != Counter(event.call_id for event in ended):
        result.append(f"abandoned: {abandoned}, ended: {ended}")
    crashed = sum(isinstance(event, live.Faulted) and event.where == "context modifier" for event in progress.events)
    bad = sum(progress.plan(item).modify in ("crashes", "garbage") for item in _modifying(progress))
    if crashed != bad:
        result.append(f"{bad} modifiers failed, {crashed} reported")
    return result


def _faulted(progress: ScheduleRun, text: str) -> list[live.Faulted]:
    return [event for event in progress.events if isinstance(event, live.Faulted) and text in event.reason]


def _modifying(progress: ScheduleRun) -> list[str]:
    giving = ("text", "blank", "surrogates", "huge", "failure")
    return [item for item in progress.accepted
            if item in progress.returned and progress.plan(item).outcome in giving]  # fmt: skip


def _order_faults(progress: ScheduleRun) -> list[str]:
    result: list[str] = []
    begun: list[str] = []
    finished: set[str] = set()
    for event in progress.events:
        call_id = _call_id(event)
        if isinstance(event, Finished):
            finished.add(str(call_id))
        elif isinstance(event, live.Started):
            begun.append(str(call_id))
            result += _overtaken(progress, str(call_id), finished)
    cap = progress.schedule.cap
    if cap == 1 and begun != sorted(begun, key=progress.accepted.index):
        result.append(f"started in the order {begun}")
    return result


def _overtaken(progress: ScheduleRun, call_id: str, finished: set[str]) -> list[str]:
    before = progress.accepted[: progress.accepted.index(call_id)]
    alone = is_exclusive(progress.plan(call_id))
    open_calls = [earlier for earlier in before if earlier not in finished]
    if alone and open_calls:
        return [f"{call_id} is exclusive and started before the end of {open_calls}"]
    barriers = [earlier for earlier in open_calls if is_exclusive(progress.plan(earlier))]
    return [f"{call_id} overtook {barriers}"] if barriers else []


def _result_faults(progress: ScheduleRun) -> list[str]:
    result: list[str] = []
    ids = [str(item.call_id) for item in progress.results]
    if ids != progress.accepted:
        result.append(f"results of {ids}, accepted {progress.accepted}")
    undisturbed = progress.schedule.host == "none" and not progress.schedule.drains
    if undisturbed and sorted(progress.handed) != sorted(progress.accepted):
        result.append(f"handed out {progress.handed}")
    for finished in progress.results:
        result += _unsendable(finished)
    calls: list[dict[str, object]] = [
        {"type": "tool_use", "id": name_of(n), "name": plan.tool, "input": {}}
        for n, plan in enumerate(progress.schedule.plans)
        if name_of(n) in progress.accepted
    ]
    answers = [_answer(item) for item in progress.results]
    history = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": calls},
        {"role": "user", "content": answers},
    ]
    return result + (check_history(history) if calls else [])


def _answer(finished: Finished) -> dict[str, object]:
    block: dict[str, object] = {
        "type": "tool_result",
        "tool_use_id": str(finished.call_id),
        "content": finished.content,
    }
    result = finished.span.result
    assert result is not None
    return {**block, "is_error": True} if result.is_error else block


def _unsendable(finished: Finished) -> list[str]:
    displayed: object = [
        finished.content, finished.structured, finished.companions, finished.contexts,
        finished.structured_output, finished.stop, finished.span.message, finished.cwd,
        [context.text for context in finished.contexts],
    ]  # fmt: skip
    try:
        msgspec.json.encode(displayed)
        json.dumps([finished.content, finished.structured], allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        return [f"{finished.call_id} cannot be sent: {error}"]
    return []


_GOOD = frozenset({
    "text", "blank", "blocks", "picture", "surrogates", "nan", "huge", "subclass", "flagged",
})  # fmt: skip
_HOOK_REFUSES = ("denies", "denies and stops", "bad input", "cancels", "odd input")
_POLICY_REFUSES = ("denies", "ends all", "crashes", "garbage", "bad input", "stray cancel")
_PERSON_REFUSES = ("denies", "words", "crashes", "garbage", "waits, denies")
_REFUSED = frozenset({"cancelled", "denied", "blocked_by_hook", "failed"})


def _state_faults(progress: ScheduleRun) -> list[str]:
    result: list[str] = []
    for finished in progress.results:
        call_id, plan = str(finished.call_id), progress.plan(str(finished.call_id))
        state = finished.span.state
        if call_id not in progress.entered and state not in _REFUSED:
            result.append(f"{call_id} is {state} though its tool never ran")
        if call_id in progress.entered:
            result += [f"{call_id} ran though {why}" for why in _reasons_not_to(progress, plan)]
        if call_id in progress.entered and plan.tool == "block" and call_id not in progress.returned:
            result.append(f"{call_id} was interrupted though it may not be")
        if call_id in progress.returned and plan.outcome in _GOOD and state != "succeeded":
            result.append(f"{call_id} is {state}, but its tool gave {plan.outcome}")
        if call_id in progress.returned and plan.outcome not in _GOOD and state == "succeeded":
            result.append(f"{call_id} succeeded, but its tool gave {plan.outcome}")
        if (
            call_id in progress.entered
            and plan.tool == "limited"
            and call_id not in progress.asked_to_end
            and call_id not in progress.returned
        ):
            result += [f"{call_id} is {state}, not timed out"] if state not in (
                "timed_out", "interrupted", "cancelled") else []  # fmt: skip
        result += _wrong_words(progress, finished, plan)
    marked = [item for item in _modifying(progress) if progress.plan(item).modify == "marks"]
    if progress.trail != tuple(marked):
        result.append(f"modifiers of {marked} came as {progress.trail}")
    return result


def _reasons_not_to(progress: ScheduleRun, plan: Plan) -> list[str]:
    reasons = {
        "there is no such tool": plan.tool in ("missing", "off"),
        "its input does not fit": plan.input not in ("good", "surrogate"),
        "it was cut": plan.cut,
        "the tool refused": plan.veto in ("refuses", "tells", "crashes"),
    }
    if progress.schedule.hooks:
        reasons["a hook refused"] = plan.before in _HOOK_REFUSES
    if progress.schedule.policies:
        reasons["a policy refused"] = plan.policy in _POLICY_REFUSES
        if plan.policy == "asks":
            reasons["a person refused"] = plan.approver in _PERSON_REFUSES
    return [reason for reason, holds in reasons.items() if holds]


def _wrong_words(progress: ScheduleRun, finished: Finished, plan: Plan) -> list[str]:
    call_id = str(finished.call_id)
    hooked = progress.schedule.hooks and plan.after == "replaces"
    if call_id not in progress.returned or hooked:
        return []
    expected = {"text": f"did {call_id}", "tool error": "said so", "failure": "it failed"}
    text = expected.get(plan.outcome)
    if text is not None and finished.content != text:
        return [f"{call_id} gave {text!r}, the model reads {finished.content!r}"]
    return []
