"""Handlers of settings files at work.

In: a point. Out: what its handlers say together. All that match are run at the same time, each of
those that do the same only once; or, with `compose="chain"`, one after the other, each with the
input that the one before left. A handler that hangs is ended when its time is over; one that fails
is told of and otherwise ignored, unless it is to fail closed. Read `_run` first.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import anyio
import msgspec
from msgspec import UNSET, structs

from toolspan.errors import exception_text
from toolspan.runtime.hooks.callbacks import current_task_cancelled
from toolspan.runtime.hooks.environment import ENV_FILE_POINTS, ENV_FILE_VARIABLE, HookVariables, WatchedFiles
from toolspan.runtime.hooks.events import (
    HookEffects,
    HookEnvironment,
    HookPoint,
    PreToolDecision,
    SessionHookEvent,
    ToolHookEvent,
)
from toolspan.runtime.hooks.handlers import DetachedHandler, HookHandler, HookInput, HookOutput
from toolspan.runtime.hooks.merge import HandlerRun, merge_effect_runs, merge_pre_tool_runs, reports_of_run
from toolspan.runtime.hooks.payload import batch_payload, session_payload, tool_payload
from toolspan.runtime.hooks.response import BLOCKING_EXIT_CODE, HookOutputParser, HookResponse, spill_long_text
from toolspan.runtime.profiles import HookValues
from toolspan.types.decision import Deny
from toolspan.types.events import HookReport
from toolspan.types.span import Span

_WAKE_NOTICE = """\
<task-notification>
<summary>Stop hook feedback</summary>
</task-notification>
<system-reminder>
Stop hook blocking error from command "{name}": {words}
</system-reminder>"""
"""What clients tell the model when it is woken, whichever point it was."""


@dataclass(frozen=True, slots=True)
class _AsyncRun:
    run: HandlerRun
    handler: DetachedHandler
    parser: HookOutputParser
    wakes_model: bool
    deadline: float
    """When its time is over."""

    @property
    def requests_wake(self) -> bool:
        """It has ended, and wants the model to hear of it."""
        return self.wakes_model and self.handler.exit_code == BLOCKING_EXIT_CODE

    @property
    def is_running(self) -> bool:
        """It has not ended."""
        return self.handler.exit_code is None

    async def finish(self) -> HandlerRun:
        """What it left; it is ended if it still runs."""
        if self.is_running:
            await self.handler.terminate()
            output = HookOutput(status="timed_out")
        else:
            output = await self.handler.wait_for_output()
        return replace(self.run, output=output, response=self._interpret_output(output))

    def _interpret_output(self, output: HookOutput) -> HookResponse:
        if self.wakes_model and output.exit_code == BLOCKING_EXIT_CODE:
            return HookResponse(plain_text=output.stderr.strip() or output.stdout.strip() or None)
        response = self.parser.parse_hook_output(output)
        return HookResponse(
            contexts=response.contexts, message=response.message, plain_text=response.plain_text, error=response.error
        )


class AsyncHandlers:
    """The handlers of a session that run on."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._async_runs: list[_AsyncRun] = []
        self._clock = clock

    def add(self, run: HandlerRun, handler: DetachedHandler, parser: HookOutputParser, *, wakes_model: bool) -> None:
        """Hear of it when it has ended."""
        deadline = self._clock() + run.timeout_ms / 1e3
        self._async_runs.append(_AsyncRun(run, handler, parser, wakes_model, deadline))

    @property
    def has_wake_request(self) -> bool:
        """Whether one wants the model to be woken now."""
        return any(run.requests_wake for run in self._async_runs)

    async def collect_finished(self) -> list[HandlerRun]:
        """What those say that have ended, or should have, and wake nobody."""
        now = self._clock()
        chosen = self._take_matching(lambda run: not run.requests_wake and (not run.is_running or run.deadline <= now))
        return [await run.finish() for run in chosen]

    async def collect_wake_requests(self) -> list[tuple[HandlerRun, str]]:
        """Those that want the model to be woken, with what it is to read."""
        chosen = [await run.finish() for run in self._take_matching(lambda run: run.requests_wake)]
        return [(run, _format_wake_notice(run)) for run in chosen]

    async def wait_for_wake_request(self) -> None:
        """Until one wants the model to be woken, or none is left that could."""
        while not self.has_wake_request:
            waking = [run for run in self._async_runs if run.wakes_model and run.is_running]
            remaining = [run.deadline - self._clock() for run in waking]
            if not remaining or max(remaining) <= 0:
                return
            with anyio.move_on_after(max(remaining)):
                async with anyio.create_task_group() as group:
                    for run in waking:
                        group.start_soon(_wait_until_finished, run.handler, group.cancel_scope)

    def _take_matching(self, predicate: Callable[[_AsyncRun], bool]) -> Iterator[_AsyncRun]:
        taken = [run for run in self._async_runs if predicate(run)]
        self._async_runs = [run for run in self._async_runs if run not in taken]
        return iter(taken)


async def _wait_until_finished(handler: DetachedHandler, scope: anyio.CancelScope) -> None:
    await handler.wait_for_output()
    scope.cancel()


def _format_wake_notice(run: HandlerRun) -> str:
    output = run.output
    text = output.stderr if output.stderr.strip() else output.stdout
    return _WAKE_NOTICE.format(name=run.name, words=text)


MatchFunction = Callable[[str | None], bool]


class InvalidMatcher(ValueError):  # noqa: N818 - reads as a noun where it is caught
    """A matcher is no regular expression."""


def compile_matcher(text: str, values: HookValues) -> MatchFunction:
    """What the text of a matcher matches; a point that is about nothing is always matched.

    Raises:
        BadMatcher: it is none.
    """
    if text.strip() in ("", "*"):
        return lambda _name: True
    if re.fullmatch(values.exact_matcher, text):
        names = {name.strip() for name in re.split(f"[{values.separators}]", text)}
        return lambda name: name is None or name in names
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise InvalidMatcher(f"{text!r} is no regular expression: {error}") from error
    return lambda name: name is None or pattern.search(name) is not None


Compose = Literal["parallel", "chain"]
BLOCKING_POINTS: frozenset[HookPoint] = frozenset({
    "PreToolUse", "PermissionRequest", "UserPromptSubmit", "PreCompact", "PostToolUse",
    "PostToolUseFailure", "PostToolBatch", "TaskCreated", "TaskCompleted",
})  # fmt: skip
"""Points at which a handler that failed can be taken for one that objects."""
SESSION_END_TIMEOUT = 1.5
"""Seconds that handlers at the end of a session have, unless one of them asks for more."""
MAX_SESSION_END_TIMEOUT = 60.0
_PROMPT_TIMEOUT = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredHandler:
    """A handler at a point."""

    point: HookPoint
    matches: MatchFunction
    handler: HookHandler
    source: str
    """The scope of its settings file."""
    condition: Callable[[ToolHookEvent, HookEnvironment], bool] | None = None
    """Whether it wants to hear of this call; it has no interest in points without one."""
    timeout: float | None = None
    fail_closed: bool = False
    """Failing, it objects."""
    wakes_model: bool = False
    """Nobody waits for it; but the model is to hear of it if it objects."""
    watched_names: tuple[str, ...] = ()
    """Files in the session's folder that it wants to hear of."""
    run_once: bool = False
    """It is run for the first call that it is for, and no other."""


class ConfiguredHooks:
    """Handlers of settings files."""

    def __init__(
        self,
        handlers: Sequence[ConfiguredHandler],
        values: HookValues,
        *,
        hook_environment: HookEnvironment | None = None,
        compose: Compose = "parallel",
        fail_closed: bool = False,
    ) -> None:
        self._handlers = tuple(handlers)
        self._points = frozenset(entry.point for entry in handlers)
        self._values = values
        self._hook_environment = hook_environment
        self._compose = compose
        self._fail_closed = fail_closed
        self._async_handlers = AsyncHandlers()
        self._already_run: set[int] = set()
        """The places of those that were to run once, and did."""
        self._variables = HookVariables()
        self._watched_files = (
            self._create_watched_files() if hook_environment is not None and hook_environment.agent_id is None else None
        )

    def _create_watched_files(self) -> WatchedFiles | None:
        """The files that are looked at; an agent below leaves that to the session."""
        if "FileChanged" not in self._points:
            return None
        names = [name for entry in self._handlers for name in entry.watched_names]
        return WatchedFiles(names, self._bound_environment.project)

    @property
    def is_empty(self) -> bool:
        """Whether there is no handler."""
        return not self._handlers

    def has_handler(self, point: HookPoint) -> bool:
        """Whether there is a handler at this point."""
        return point in self._points

    def bind(self, hook_environment: HookEnvironment) -> ConfiguredHooks:
        """The same handlers for a session."""
        if self._hook_environment is not None:
            return self
        return ConfiguredHooks(
            self._handlers,
            self._values,
            hook_environment=hook_environment,
            compose=self._compose,
            fail_closed=self._fail_closed,
        )

    async def run_pre_tool_use(self, tool_event: ToolHookEvent) -> PreToolDecision:
        """Fire PreToolUse."""
        change_reports = await self._report_file_changes() if self._watched_files is not None else ()
        if "PreToolUse" not in self._points:
            return PreToolDecision(reports=change_reports)
        decision = merge_pre_tool_runs(await self._run_tool_handlers("PreToolUse", tool_event), self._values)
        return structs.replace(decision, reports=(*change_reports, *decision.reports)) if change_reports else decision

    async def run_post_tool_use(self, tool_event: ToolHookEvent) -> HookEffects:
        """Fire PostToolUse."""
        if "PostToolUse" not in self._points:
            return HookEffects()
        return merge_effect_runs(await self._run_tool_handlers("PostToolUse", tool_event), self._values)

    async def run_post_tool_use_failure(self, tool_event: ToolHookEvent) -> HookEffects:
        """Fire PostToolUseFailure."""
        if "PostToolUseFailure" not in self._points:
            return HookEffects()
        return merge_effect_runs(await self._run_tool_handlers("PostToolUseFailure", tool_event), self._values)

    async def run_permission_request(self, tool_event: ToolHookEvent) -> PreToolDecision:
        """Fire PermissionRequest."""
        if "PermissionRequest" not in self._points or not self._values.asks_permission_headless:
            return PreToolDecision()
        return merge_pre_tool_runs(await self._run_tool_handlers("PermissionRequest", tool_event), self._values)

    async def run_post_tool_batch(self, spans: Sequence[Span]) -> HookEffects:
        """Fire PostToolBatch; an objection ends the turn."""
        change_reports = await self._report_file_changes() if self._watched_files is not None else ()
        runs: list[HandlerRun] = []
        if "PostToolBatch" in self._points:
            fields = batch_payload(spans, self._bound_environment, self._values)
            runs = await self._run_matching(_HookInvocation("PostToolBatch", None, fields))
        effects = merge_effect_runs([*runs, *await self._collect_finished()], self._values)
        if effects.stop is None and effects.feedback:
            stop_reports = _mark_as_stopped(effects.reports)
            effects = structs.replace(effects, stop=effects.feedback[0], reports=stop_reports)
        effects = structs.replace(
            effects, feedback=(), feedback_sources=(), reports=(*change_reports, *effects.reports)
        )
        if not self._async_handlers.has_wake_request:
            return effects
        wake_effects = await self.collect_wake_requests()
        reports = (*effects.reports, *wake_effects.reports)
        return structs.replace(effects, wake_messages=wake_effects.wake_messages, reports=reports)

    async def run_session_event(self, session_event: SessionHookEvent) -> HookEffects:
        """Fire any other point."""
        if not self.has_handler(session_event.point):
            return HookEffects()
        return merge_effect_runs(await self._run_session_handlers(session_event), self._values)

    async def _run_session_handlers(self, session_event: SessionHookEvent) -> list[HandlerRun]:
        point = session_event.point
        fields = session_payload(session_event, self._bound_environment, self._values)
        invocation = _HookInvocation(
            point, session_event.subject, fields, session_event.tool_event, self._shared_timeout(point)
        )
        runs = await self._run_matching(invocation)
        match point:
            case "SessionStart" | "CwdChanged" | "FileChanged":
                self._update_watched_files(runs)
                files = [run.env_file for run in runs if run.env_file is not None]
                await self._variables.export_files(point, files, self._bound_environment)
                return runs
            case "UserPromptSubmit":
                return [*runs, *await self._collect_finished()]
            case _:
                return runs

    def _update_watched_files(self, runs: Sequence[HandlerRun]) -> None:
        path_lists = [run.response.watch_paths for run in runs if run.response.watch_paths is not None]
        if path_lists and self._watched_files is not None:
            self._watched_files.watch_paths(path for paths in path_lists for path in paths)

    async def _report_file_changes(self) -> tuple[HookReport, ...]:
        """Tell of files that have changed since the last look; handlers have no say there."""
        runs: list[HandlerRun] = []
        for path, change in self._watched_files.poll_changes() if self._watched_files is not None else ():
            fields = {"file_path": str(path), "event": change}
            runs += await self._run_session_handlers(
                SessionHookEvent(point="FileChanged", subject=path.name, fields=fields)
            )
        return tuple(report for run in runs for report in reports_of_run(run))

    def _shared_timeout(self, point: HookPoint) -> float | None:
        """Seconds that all handlers of a point have together."""
        if point != "SessionEnd":
            return None
        timeouts = [entry.timeout for entry in self._handlers if entry.point == point]
        return min(max((SESSION_END_TIMEOUT, *(entry for entry in timeouts if entry))), MAX_SESSION_END_TIMEOUT)

    @property
    def has_wake_request(self) -> bool:
        """Whether a handler that nobody waited for wants the model to be woken."""
        return self._async_handlers.has_wake_request

    async def wait_for_wake_request(self) -> bool:
        """Wait for one that wants that, unless none runs that could."""
        await self._async_handlers.wait_for_wake_request()
        return self._async_handlers.has_wake_request

    async def collect_wake_requests(self) -> HookEffects:
        """Hear those that want it now."""
        requests = await self._async_handlers.collect_wake_requests()
        return HookEffects(
            wake_messages=tuple(spill_long_text(text, self._bound_environment.session_folder) for _, text in requests),
            reports=tuple(report for run, _ in requests for report in reports_of_run(run)),
        )

    async def _collect_finished(self) -> list[HandlerRun]:
        """What handlers say that nobody waited for."""
        runs = await self._async_handlers.collect_finished()
        return [replace(run, response=self._shorten_response(run.response)) for run in runs]

    @property
    def _bound_environment(self) -> HookEnvironment:
        if self._hook_environment is None:
            raise RuntimeError("handlers of settings files are run in a session: bind them to one")
        return self._hook_environment

    async def _run_tool_handlers(self, point: HookPoint, tool_event: ToolHookEvent) -> list[HandlerRun]:
        fields = tool_payload(point, tool_event, self._bound_environment, self._values)
        return await self._run_matching(_HookInvocation(point, tool_event.tool, fields, tool_event))

    async def _run_matching(self, invocation: _HookInvocation) -> list[HandlerRun]:
        chosen = self._select_handlers(invocation)
        if self._compose == "chain":
            return await self._run_chain(chosen, invocation)
        slots: list[HandlerRun | None] = [None] * len(chosen)
        data = _encode_fields(invocation.fields)

        async def run_into_slot(position: int) -> None:
            slots[position] = await self._run_handler(chosen[position], invocation, data)

        if len(chosen) == 1:
            await run_into_slot(0)
        elif chosen:
            async with anyio.create_task_group() as group:
                for position in range(len(chosen)):
                    group.start_soon(run_into_slot, position)
        return [run for run in slots if run is not None]

    async def _run_chain(self, chosen: Sequence[ConfiguredHandler], invocation: _HookInvocation) -> list[HandlerRun]:
        """One after the other, until one says no; each is told what the one before changed."""
        runs: list[HandlerRun] = []
        fields = dict(invocation.fields)
        for entry in chosen:
            run = await self._run_handler(entry, replace(invocation, fields=fields), _encode_fields(fields))
            runs.append(run)
            if run.response.input is not None:
                fields["tool_input"] = run.response.input
            if run.response.output is not UNSET:
                fields["tool_response"] = run.response.output
            if isinstance(run.response.decision, Deny):
                break
        return runs

    def _select_handlers(self, invocation: _HookInvocation) -> list[ConfiguredHandler]:
        """The handlers that want to hear of it, each once."""
        chosen: dict[object, ConfiguredHandler] = {}
        for index, entry in enumerate(self._handlers):
            if entry.point != invocation.point or index in self._already_run:
                continue
            if invocation.matches_handler(entry) and self._condition_holds(entry, invocation):
                chosen.setdefault((type(entry.handler), entry.handler.dedup_key), entry)
                if entry.run_once:
                    self._already_run.add(index)
        return list(chosen.values())

    def _condition_holds(self, entry: ConfiguredHandler, invocation: _HookInvocation) -> bool:
        if entry.condition is None:
            return True
        return invocation.tool_event is not None and entry.condition(invocation.tool_event, self._bound_environment)

    async def _run_handler(self, entry: ConfiguredHandler, invocation: _HookInvocation, data: bytes) -> HandlerRun:
        started_at = time.perf_counter()
        seconds = self._handler_timeout(entry, invocation)
        env_file = self._variables.new_file(self._bound_environment) if invocation.point in ENV_FILE_POINTS else None
        extra_env = {} if env_file is None else {ENV_FILE_VARIABLE: str(env_file)}
        hook_input = HookInput(invocation.point, invocation.fields, data, self._bound_environment, extra_env)
        output = await _run_with_timeout(entry.handler, hook_input, seconds)
        parser = HookOutputParser(invocation.point, entry.handler.name, invocation.subject or "", self._values)
        run = HandlerRun(
            point=invocation.point,
            name=f"{invocation.point}:{invocation.subject}" if invocation.subject else invocation.point,
            command=entry.handler.name,
            source=entry.source,
            output=output,
            response=self._shorten_response(self._interpret_output(entry, parser, output)),
            duration_ms=(time.perf_counter() - started_at) * 1e3,
            timeout_ms=seconds * 1e3,
            env_file=env_file,
        )
        if output.detached is not None:
            self._async_handlers.add(run, output.detached, parser, wakes_model=entry.wakes_model)
        return run

    def _interpret_output(self, entry: ConfiguredHandler, parser: HookOutputParser, output: HookOutput) -> HookResponse:
        """What it means; a failure is an objection where hooks fail closed."""
        response = parser.parse_hook_output(output)
        fail_closed = entry.fail_closed or (self._fail_closed and parser.point in BLOCKING_POINTS)
        if response.error is None or not fail_closed:
            return response
        course = "timed out" if output.status == "timed_out" else "failed"
        why = 'onFailure is "block"' if entry.fail_closed else "hooks fail closed here"
        detail = output.stderr.strip() or output.problem or ""
        message = f"{course}; blocking because {why}" + (f"\n{detail}" if detail else "")
        return replace(parser.blocking_response(message), error=response.error)

    def _handler_timeout(self, entry: ConfiguredHandler, invocation: _HookInvocation) -> float:
        usual = _PROMPT_TIMEOUT if invocation.point == "UserPromptSubmit" else self._values.timeout
        seconds = entry.timeout if entry.timeout is not None else usual
        return seconds if invocation.shared_timeout is None else min(seconds, invocation.shared_timeout)

    def _shorten_response(self, response: HookResponse) -> HookResponse:
        """With words that are not too long for whoever reads them."""
        if not response.contexts and response.block is None and response.message is None:
            return response
        folder = self._bound_environment.session_folder
        contexts = tuple(spill_long_text(text, folder) for text in response.contexts)
        block = None if response.block is None else spill_long_text(response.block, folder)
        message = None if response.message is None else spill_long_text(response.message, folder)
        return replace(response, contexts=contexts, block=block, message=message)


@dataclass(frozen=True, slots=True)
class _HookInvocation:
    """One point, fired once."""

    point: HookPoint
    subject: str | None
    fields: Mapping[str, object]
    tool_event: ToolHookEvent | None = None
    shared_timeout: float | None = None
    """Seconds that all handlers have together."""

    def matches_handler(self, entry: ConfiguredHandler) -> bool:
        """Whether the handler is for this; a call by its tool's own name and by the one used."""
        used = self.tool_event.call.tool if self.tool_event is not None else self.subject
        return entry.matches(self.subject) or entry.matches(used)


async def _run_with_timeout(handler: HookHandler, hook_input: HookInput, seconds: float) -> HookOutput:
    """What a handler leaves, within its time; its faults are its own."""
    with anyio.move_on_after(seconds):
        try:
            return await handler.run(hook_input)
        except anyio.get_cancelled_exc_class() as error:
            if current_task_cancelled():
                raise
            return HookOutput(status="failed", problem=f"it was cut off: {exception_text(error)}")
        except Exception as error:  # noqa: BLE001 - whatever it is, the call must have its result
            return HookOutput(status="failed", problem=f"{type(error).__name__}: {exception_text(error)}")
    return HookOutput(status="timed_out")


def _encode_fields(fields: Mapping[str, object]) -> bytes:
    try:
        return msgspec.json.encode(fields, enc_hook=str) + b"\n"
    except (UnicodeEncodeError, TypeError, ValueError):  # half a letter, or a key of another kind
        return json.dumps(fields, default=str).encode() + b"\n"


def _mark_as_stopped(reports: Sequence[HookReport]) -> tuple[HookReport, ...]:
    """An objection after a batch is told as the end of the turn."""
    return tuple(
        structs.replace(report, outcome="stopped") if report.outcome == "blocked" else report for report in reports
    )
