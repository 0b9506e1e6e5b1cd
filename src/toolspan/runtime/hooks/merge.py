"""Merge the responses from the handlers for one event, and report on each handler.

`merge_pre_tool_runs` and `merge_effect_runs` merge the handlers from settings files; `combine_hooks` joins several
hook runners into one. Deny takes precedence over defer, ask and allow. If several handlers return a new input, the
last one that supports the decision is used. All messages are kept, and every handler is reported, even one that had no
effect.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from typing import TypeVar

import anyio
from msgspec import UNSET, structs

from toolspan.runtime.hooks.events import (
    HookEffects,
    HookEnvironment,
    HookPoint,
    HookRunner,
    NoHooks,
    PreToolDecision,
    ReplacedOutput,
    SessionHookEvent,
    ToolHookEvent,
)
from toolspan.runtime.hooks.protocol import HookOutput, HookResponse
from toolspan.runtime.profiles import HookValues
from toolspan.types.decision import Allow, Ask, Decision, Deny
from toolspan.types.events import HookReport
from toolspan.types.span import Span


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerRun:
    """One run of a configured handler."""

    point: HookPoint
    name: str  # the hook point and its subject, such as `PreToolUse:Bash`
    command: str
    source: str
    output: HookOutput
    response: HookResponse
    duration_ms: float
    timeout_ms: float
    env_file: Path | None = None  # the file to which the handler could write variables for later commands


_DECISION_RANK: dict[type, int] = {Allow: 1, Ask: 2, Deny: 3}


def stronger_decision(first: Decision | None, second: Decision | None) -> Decision | None:
    """Return the decision that takes precedence: deny, ask, allow, None. Return `first` if they are equal."""
    if first is None or second is None:
        return first or second
    return second if _DECISION_RANK[type(second)] > _DECISION_RANK[type(first)] else first


def combine_pre_tool_decisions(first: PreToolDecision, second: PreToolDecision) -> PreToolDecision:
    """Combine two responses before a call. The input in `second` takes precedence."""
    decision = stronger_decision(first.decision, second.decision)
    return PreToolDecision(
        decision=decision,
        input=second.input if second.input is not None else first.input,
        defer=(first.defer or second.defer) and not isinstance(decision, Deny),
        permission_updates=first.permission_updates + second.permission_updates,
        contexts=first.contexts + second.contexts,
        stop=first.stop or second.stop,
        reports=first.reports + second.reports,
    )


def combine_effects(first: HookEffects, second: HookEffects) -> HookEffects:
    """Combine two responses after a call. The output in `second` takes precedence."""
    return HookEffects(
        output=second.output or first.output,
        contexts=first.contexts + second.contexts,
        feedback=first.feedback + second.feedback,
        feedback_sources=first.feedback_sources + second.feedback_sources,
        stop=first.stop or second.stop,
        retry=first.retry or second.retry,
        wake_messages=first.wake_messages + second.wake_messages,
        reports=first.reports + second.reports,
    )


def merge_pre_tool_runs(runs: Sequence[HandlerRun], values: HookValues) -> PreToolDecision:
    """Merge the handler runs for an event before a call."""
    decision: Decision | None = None
    # The first of equal decisions is used; prefer those with a reason to those from an exit code.
    for run in sorted(runs, key=lambda run: run.response.from_exit_code):
        decision = stronger_decision(decision, run.response.decision)
    if isinstance(decision, Ask) and not values.honours_ask:
        # The rules decide, as in that client, unless the question prevails over a handler that allows the call.
        decision = decision if any(isinstance(run.response.decision, Allow) for run in runs) else None
    if isinstance(decision, Deny) and values.uses_last_reason:
        last = runs[-1].response.decision
        decision = Deny(last.reason if isinstance(last, Deny) else None, "hook")
    new_input: dict[str, object] | None = None
    for response in (run.response for run in runs):
        agrees = response.decision is None or type(response.decision) is type(decision)
        if response.input is not None and agrees:
            new_input = dict(response.input)
    return PreToolDecision(
        decision=decision,
        input=new_input,
        defer=any(run.response.defer for run in runs) and not isinstance(decision, Deny),
        permission_updates=tuple(update for run in runs for update in run.response.permission_updates),
        contexts=tuple(text for run in runs for text in run.response.contexts),
        stop=next((run.response.stop for run in runs if run.response.stop), None),
        reports=reports_of_runs(runs),
    )


def merge_effect_runs(runs: Sequence[HandlerRun], values: HookValues) -> HookEffects:
    """Merge the handler runs for any other event."""
    effects = HookEffects()
    for run in runs:
        response = run.response
        addition = HookEffects(
            output=_replaced_output(run, values),
            contexts=response.contexts,
            feedback=() if response.block is None else (response.block,),
            feedback_sources=() if response.block is None else (run.command,),
            stop=response.stop,
            retry=response.retry,
            reports=reports_of_runs([run]),
        )
        effects = combine_effects(effects, addition)
    return effects


def _replaced_output(run: HandlerRun, values: HookValues) -> ReplacedOutput | None:
    mcp = run.name.partition(":")[2].startswith("mcp__")
    value = run.response.output if values.updates_output else UNSET
    if value is UNSET and mcp:
        value = run.response.mcp_output
    if value is UNSET:
        return None
    is_content = isinstance(value, str) or (
        isinstance(value, list) and all(isinstance(block, dict) and "type" in block for block in value)
    )
    return ReplacedOutput(value if mcp and is_content else None, value)  # type: ignore[arg-type]  # checked just above


def reports_of_runs(runs: Sequence[HandlerRun]) -> tuple[HookReport, ...]:
    """Return a report on each run."""
    return tuple(report for run in runs for report in _reports_of_run(run))


def _reports_of_run(run: HandlerRun) -> Iterator[HookReport]:
    output, response = run.output, run.response
    failed = response.error is not None or output.status != "ended"
    decision = _decision_name(response)
    report = HookReport(
        point=run.point,
        name=run.name,
        outcome="success",
        command=run.command,
        exit_code=output.exit_code,
        duration_ms=run.duration_ms,
        stdout=output.stdout,
        stderr=output.stderr,
        decision=decision,
        source=run.source,
    )
    if output.status == "timed_out":
        error = response.error
        yield structs.replace(report, outcome="cancelled", timed_out=True, timeout_ms=run.timeout_ms, text=error)
    elif failed and not response.is_objection:
        yield structs.replace(report, outcome="error", text=response.error)
    if run.point == "PermissionRequest" and response.decision is not None:
        yield structs.replace(report, outcome="decision", text=decision)
    else:
        # If a handler stops the turn after a call, clients report only that.
        stops_after_call = response.stop is not None and run.point.startswith("PostToolUse")
        if response.is_json and (response.from_exit_code or not response.is_objection) and not stops_after_call:
            yield structs.replace(report, outcome="decision" if run.point != "PermissionRequest" else "success")
        if response.is_objection:
            reason = response.decision.reason if isinstance(response.decision, Deny) else response.block
            yield structs.replace(report, outcome="blocked", text=reason)
        elif not response.is_json and not failed:
            yield structs.replace(report, text=response.plain_text)
    if response.message:
        yield structs.replace(report, outcome="message", text=response.message)
    if response.stop:
        yield structs.replace(report, outcome="stopped", text=response.stop)
    if response.defer:
        yield structs.replace(report, outcome="deferred", name=run.source)


def _decision_name(response: HookResponse) -> str | None:
    if response.defer:
        return "defer"
    if response.decision is not None:
        return type(response.decision).__name__.lower()
    return "block" if response.block is not None else None


_T = TypeVar("_T")


async def run_concurrently(functions: Sequence[Callable[[], Awaitable[_T]]]) -> list[_T]:
    """Await all functions concurrently and return their results in order."""
    if len(functions) <= 1:
        return [await function() for function in functions]
    results: dict[int, _T] = {}

    async def run(index: int) -> None:
        results[index] = await functions[index]()

    async with anyio.create_task_group() as group:
        for index in range(len(functions)):
            group.start_soon(run, index)
    return [results[index] for index in sorted(results)]


def combine_hooks(*sources: HookRunner | None) -> HookRunner:
    """Join several runners into one, omitting None and `NoHooks`."""
    runners = [runner for runner in sources if runner is not None and not isinstance(runner, NoHooks)]
    match runners:
        case []:
            return NoHooks()
        case [runner]:
            return runner
        case _:
            return CombinedHooks(runners)


class CombinedHooks(HookRunner):
    """A hook runner that runs several others concurrently."""

    def __init__(self, runners: Sequence[HookRunner]) -> None:
        self._runners = tuple(runners)

    @property
    def is_empty(self) -> bool:
        """True if none of the runners has handlers."""
        return all(runner.is_empty for runner in self._runners)

    def has_handler(self, point: HookPoint) -> bool:
        """Return whether any runner has a handler at this point."""
        return any(runner.has_handler(point) for runner in self._runners)

    def bind(self, hook_environment: HookEnvironment) -> CombinedHooks:
        """Return the same handlers, bound to a session."""
        return CombinedHooks([runner.bind(hook_environment) for runner in self._runners])

    async def run_pre_tool_use(self, tool_event: ToolHookEvent) -> PreToolDecision:
        """Run the PreToolUse handlers."""
        return await self._combine_decisions(lambda runner: runner.run_pre_tool_use(tool_event))

    async def run_post_tool_use(self, tool_event: ToolHookEvent) -> HookEffects:
        """Run the PostToolUse handlers."""
        return await self._combine_effects(lambda runner: runner.run_post_tool_use(tool_event))

    async def run_post_tool_use_failure(self, tool_event: ToolHookEvent) -> HookEffects:
        """Run the PostToolUseFailure handlers."""
        return await self._combine_effects(lambda runner: runner.run_post_tool_use_failure(tool_event))

    async def run_post_tool_batch(self, spans: Sequence[Span]) -> HookEffects:
        """Run the PostToolBatch handlers."""
        return await self._combine_effects(lambda runner: runner.run_post_tool_batch(spans))

    async def run_permission_request(self, tool_event: ToolHookEvent) -> PreToolDecision:
        """Run the PermissionRequest handlers."""
        return await self._combine_decisions(lambda runner: runner.run_permission_request(tool_event))

    async def run_session_event(self, session_event: SessionHookEvent) -> HookEffects:
        """Run the handlers for a point that is not about a call, such as Stop."""
        return await self._combine_effects(lambda runner: runner.run_session_event(session_event))

    @property
    def has_wake_request(self) -> bool:
        """True if an asynchronous handler requests that the model be woken."""
        return any(runner.has_wake_request for runner in self._runners)

    async def wait_for_wake_request(self) -> bool:
        """Wait for the first wake request from any runner, or return False if none can make one."""

        async def wait_for_runner(runner: HookRunner, scope: anyio.CancelScope) -> None:
            if await runner.wait_for_wake_request():
                scope.cancel()

        async with anyio.create_task_group() as group:
            for runner in self._runners:
                group.start_soon(wait_for_runner, runner, group.cancel_scope)
        return self.has_wake_request

    async def collect_wake_requests(self) -> HookEffects:
        """Return the pending wake messages from all runners."""
        return await self._combine_effects(lambda runner: runner.collect_wake_requests())

    async def _combine_decisions(self, run: Callable[[HookRunner], Awaitable[PreToolDecision]]) -> PreToolDecision:
        decisions = await run_concurrently([partial(run, runner) for runner in self._runners])
        return reduce(combine_pre_tool_decisions, decisions, PreToolDecision())

    async def _combine_effects(self, run: Callable[[HookRunner], Awaitable[HookEffects]]) -> HookEffects:
        effects = await run_concurrently([partial(run, runner) for runner in self._runners])
        return reduce(combine_effects, effects, HookEffects())
