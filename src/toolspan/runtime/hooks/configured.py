"""Run the hook handlers configured in settings files.

Every event takes the same path, from `ConfiguredHooks.run_…` down to `_run_handler`: build the
input (`protocol.py`), run the matching handlers (`handlers.py`), parse their output (`protocol.py`)
and merge the responses (`merge.py`). Handlers run concurrently, or one after the other with
`compose="chain"`. A handler that fails or exceeds its timeout is reported and otherwise ignored,
unless it fails closed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import anyio
from msgspec import UNSET, structs

from toolspan.errors import exception_text
from toolspan.runtime.hooks.events import (
    HookEffects,
    HookEnvironment,
    HookPoint,
    HookRunner,
    PreToolDecision,
    SessionHookEvent,
    ToolHookEvent,
)
from toolspan.runtime.hooks.handlers import HookHandler
from toolspan.runtime.hooks.merge import (
    HandlerRun,
    merge_effect_runs,
    merge_pre_tool_runs,
    reports_of_runs,
    run_concurrently,
)
from toolspan.runtime.hooks.protocol import (
    HookInput,
    HookOutput,
    HookOutputParser,
    HookResponse,
    batch_input,
    session_input,
    spill_long_text,
    tool_input,
)
from toolspan.runtime.hooks.session_state import (
    ENV_FILE_POINTS,
    ENV_FILE_VARIABLE,
    AsyncHandlers,
    HookVariables,
    WatchedFiles,
)
from toolspan.runtime.isolation import current_task_cancelled
from toolspan.runtime.profiles import HookValues
from toolspan.types.decision import Deny
from toolspan.types.events import HookReport
from toolspan.types.span import Span

Compose = Literal["parallel", "chain"]
BLOCKING_POINTS: frozenset[HookPoint] = frozenset({
    "PreToolUse", "PermissionRequest", "UserPromptSubmit", "PreCompact", "PostToolUse",
    "PostToolUseFailure", "PostToolBatch", "TaskCreated", "TaskCompleted",
})  # fmt: skip
"""Points at which a failed handler can be treated as an objection."""
SESSION_END_TIMEOUT = 1.5
"""The timeout in seconds shared by all handlers at the end of a session, unless one of them has a longer timeout."""
MAX_SESSION_END_TIMEOUT = 60.0
_PROMPT_TIMEOUT = 30.0
_MAX_DETAIL_LENGTH = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredHandler:
    """A hook handler and the events that it applies to."""

    point: HookPoint
    matches: Callable[[str | None], bool]
    """A function that returns whether the matcher accepts a tool name or another subject."""
    handler: HookHandler
    source: str  # the settings scope that contains the handler
    condition: Callable[[ToolHookEvent, HookEnvironment], bool] | None = None
    """A function that returns whether the handler applies to a call. A handler with a condition
    ignores events without a call.
    """
    timeout: float | None = None
    fail_closed: str | None = None  # the reason to treat a failure as an objection
    wakes_model: bool = False  # run asynchronously, and wake the model if the handler objects
    watched_names: tuple[str, ...] = ()  # files in the project folder whose changes fire FileChanged
    run_once: bool = False  # run only for the first matching event


@dataclass(frozen=True, slots=True)
class _HookEvent:
    """One event at a hook point, with the input for its handlers."""

    hook_input: HookInput
    subject: str | None = None
    tool_event: ToolHookEvent | None = None
    shared_timeout: float | None = None  # the timeout in seconds shared by all handlers

    @property
    def point(self) -> HookPoint:
        return self.hook_input.point

    def concerns(self, entry: ConfiguredHandler) -> bool:
        """Return whether the handler's matcher accepts the event. A call matches by tool name or alias."""
        alias = self.tool_event.call.tool if self.tool_event is not None else self.subject
        if entry.point != self.point or not (entry.matches(self.subject) or entry.matches(alias)):
            return False
        if entry.condition is None:
            return True
        return self.tool_event is not None and entry.condition(self.tool_event, self.hook_input.hook_environment)


class ConfiguredHooks(HookRunner):
    """The hook handlers from settings files. `bind` them to a session before running them."""

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
        self._already_run: set[int] = set()  # the indexes of the run-once handlers that have already run
        self._async_handlers = AsyncHandlers()
        self._variables = HookVariables()
        self._watched_files: WatchedFiles | None = None
        if "FileChanged" in self._points and hook_environment is not None and hook_environment.agent_id is None:
            # Only the main session watches files.
            names = [name for entry in self._handlers for name in entry.watched_names]
            self._watched_files = WatchedFiles(names, hook_environment.project)

    @property
    def is_empty(self) -> bool:
        """True if there are no handlers."""
        return not self._handlers

    def has_handler(self, point: HookPoint) -> bool:
        """Return whether there is a handler at this point."""
        return point in self._points

    def bind(self, hook_environment: HookEnvironment) -> ConfiguredHooks:
        """Return the same handlers, bound to a session."""
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
        """Run the PreToolUse handlers, after reporting changed files."""
        change_reports = await self._report_file_changes()
        decision = merge_pre_tool_runs(await self._run_tool_event("PreToolUse", tool_event), self._values)
        return structs.replace(decision, reports=(*change_reports, *decision.reports)) if change_reports else decision

    async def run_permission_request(self, tool_event: ToolHookEvent) -> PreToolDecision:
        """Run the PermissionRequest handlers."""
        if not self._values.asks_permission_headless:
            return PreToolDecision()
        return merge_pre_tool_runs(await self._run_tool_event("PermissionRequest", tool_event), self._values)

    async def run_post_tool_use(self, tool_event: ToolHookEvent) -> HookEffects:
        """Run the PostToolUse handlers."""
        return merge_effect_runs(await self._run_tool_event("PostToolUse", tool_event), self._values)

    async def run_post_tool_use_failure(self, tool_event: ToolHookEvent) -> HookEffects:
        """Run the PostToolUseFailure handlers."""
        return merge_effect_runs(await self._run_tool_event("PostToolUseFailure", tool_event), self._values)

    async def run_post_tool_batch(self, spans: Sequence[Span]) -> HookEffects:
        """Run the PostToolBatch handlers and collect finished asynchronous handlers. An objection ends the turn."""
        change_reports = await self._report_file_changes()
        runs: list[HandlerRun] = []
        if "PostToolBatch" in self._points:
            runs = await self._run_event(_HookEvent(batch_input(spans, self._bound_environment, self._values)))
        effects = merge_effect_runs([*runs, *await self._collect_finished()], self._values)
        if effects.stop is None and effects.feedback:
            stop_reports = tuple(
                structs.replace(report, outcome="stopped") if report.outcome == "blocked" else report
                for report in effects.reports
            )
            effects = structs.replace(effects, stop=effects.feedback[0], reports=stop_reports)
        wake = await self.collect_wake_requests()
        return structs.replace(
            effects,
            feedback=(),
            feedback_sources=(),
            wake_messages=wake.wake_messages,
            reports=(*change_reports, *effects.reports, *wake.reports),
        )

    async def run_session_event(self, session_event: SessionHookEvent) -> HookEffects:
        """Run the handlers for a point that is not about a call, such as Stop."""
        if not self.has_handler(session_event.point):
            return HookEffects()
        runs = await self._run_session_event(session_event)
        if session_event.point == "UserPromptSubmit":
            runs += await self._collect_finished()
        return merge_effect_runs(runs, self._values)

    @property
    def has_wake_request(self) -> bool:
        """True if an asynchronous handler requests that the model be woken."""
        return self._async_handlers.has_wake_request

    async def wait_for_wake_request(self) -> bool:
        """Wait for a wake request, or return False if no running handler can make one."""
        await self._async_handlers.wait_for_wake_request()
        return self._async_handlers.has_wake_request

    async def collect_wake_requests(self) -> HookEffects:
        """Return the pending wake messages, each once."""
        requests = await self._async_handlers.collect_wake_requests()
        if not requests:
            return HookEffects()
        folder = self._bound_environment.session_folder
        return HookEffects(
            wake_messages=tuple(spill_long_text(text, folder) for _, text in requests),
            reports=reports_of_runs([run for run, _ in requests]),
        )

    async def _run_tool_event(self, point: HookPoint, tool_event: ToolHookEvent) -> list[HandlerRun]:
        if point not in self._points:
            return []
        hook_input = tool_input(point, tool_event, self._bound_environment, self._values)
        return await self._run_event(_HookEvent(hook_input, tool_event.tool, tool_event))

    async def _run_session_event(self, session_event: SessionHookEvent) -> list[HandlerRun]:
        point = session_event.point
        hook_input = session_input(session_event, self._bound_environment, self._values)
        timeout = None
        if point == "SessionEnd":
            timeouts = [entry.timeout for entry in self._handlers if entry.point == "SessionEnd" and entry.timeout]
            timeout = min(max((SESSION_END_TIMEOUT, *timeouts)), MAX_SESSION_END_TIMEOUT)
        runs = await self._run_event(_HookEvent(hook_input, session_event.subject, session_event.tool_event, timeout))
        if point in ENV_FILE_POINTS:
            path_lists = [run.response.watch_paths for run in runs if run.response.watch_paths is not None]
            if path_lists and self._watched_files is not None:
                self._watched_files.watch_paths(path for paths in path_lists for path in paths)
            files = [run.env_file for run in runs if run.env_file is not None]
            await self._variables.export_files(point, files, self._bound_environment)
        return runs

    async def _run_event(self, event: _HookEvent) -> list[HandlerRun]:
        """Run the handlers for an event, and return their runs in settings order."""
        unique: dict[object, ConfiguredHandler] = {}
        for index, entry in enumerate(self._handlers):
            if index not in self._already_run and event.concerns(entry):
                unique.setdefault((type(entry.handler), entry.handler.dedup_key), entry)
                if entry.run_once:
                    self._already_run.add(index)
        selected = list(unique.values())
        if self._compose == "parallel":
            return await run_concurrently([partial(self._run_handler, entry, event) for entry in selected])
        runs: list[HandlerRun] = []
        for entry in selected:  # each handler sees the changes made by those before it, until one denies
            run = await self._run_handler(entry, event)
            runs.append(run)
            if isinstance(run.response.decision, Deny):
                break
            changes: dict[str, object] = {}
            if run.response.input is not None:
                changes["tool_input"] = run.response.input
            if run.response.output is not UNSET:
                changes["tool_response"] = run.response.output
            if changes:
                event = replace(event, hook_input=event.hook_input.with_fields(changes))
        return runs

    async def _run_handler(self, entry: ConfiguredHandler, event: _HookEvent) -> HandlerRun:
        """Run one handler and parse its output."""
        started_at = time.perf_counter()
        hook_input, env_file = event.hook_input, None
        if event.point in ENV_FILE_POINTS:
            env_file = self._variables.new_file(self._bound_environment)
            hook_input = replace(hook_input, extra_env={ENV_FILE_VARIABLE: str(env_file)})
        default_timeout = _PROMPT_TIMEOUT if event.point == "UserPromptSubmit" else self._values.timeout
        timeout = entry.timeout if entry.timeout is not None else default_timeout
        if event.shared_timeout is not None:
            timeout = min(timeout, event.shared_timeout)
        output = await _run_with_timeout(entry.handler, hook_input, timeout)
        parser = HookOutputParser(event.point, entry.handler.name, event.subject or "", self._values)
        response = self._shorten_response(self._parse_output(entry, parser, output))
        run = HandlerRun(
            point=event.point,
            name=f"{event.point}:{event.subject}" if event.subject else event.point,
            command=entry.handler.name,
            source=entry.source,
            output=output,
            response=response,
            duration_ms=(time.perf_counter() - started_at) * 1e3,
            timeout_ms=timeout * 1e3,
            env_file=env_file,
        )
        if output.detached is not None:
            self._async_handlers.add(run, output.detached, parser, wakes_model=entry.wakes_model)
        return run

    def _parse_output(self, entry: ConfiguredHandler, parser: HookOutputParser, output: HookOutput) -> HookResponse:
        """Parse a handler's output, and convert a failure to an objection if the handler fails closed."""
        response = parser.parse_hook_output(output)
        reason = entry.fail_closed
        if reason is None and self._fail_closed and parser.point in BLOCKING_POINTS:
            reason = "hooks fail closed here"
        if reason is None or not (response.error or response.is_broken_json):
            return response
        failure = "timed out" if output.status == "timed_out" else "failed"
        detail = output.stderr.strip() or output.problem or (response.plain_text or "")[:_MAX_DETAIL_LENGTH]
        message = f"{failure}; blocking because {reason}" + (f"\n{detail}" if detail else "")
        error = response.error or "Hook output begins like JSON but is not a JSON object"
        return replace(parser.blocking_response(message), error=error)

    def _shorten_response(self, response: HookResponse) -> HookResponse:
        """Save messages that are too long to files, and replace them with previews."""
        if not response.contexts and response.block is None and response.message is None:
            return response
        folder = self._bound_environment.session_folder
        return replace(
            response,
            contexts=tuple(spill_long_text(text, folder) for text in response.contexts),
            block=None if response.block is None else spill_long_text(response.block, folder),
            message=None if response.message is None else spill_long_text(response.message, folder),
        )

    async def _report_file_changes(self) -> tuple[HookReport, ...]:
        """Fire FileChanged for watched files that have changed, and return only the handlers' reports."""
        if self._watched_files is None:
            return ()
        runs: list[HandlerRun] = []
        for path, change in self._watched_files.poll_changes():
            fields = {"file_path": str(path), "event": change}
            runs += await self._run_session_event(
                SessionHookEvent(point="FileChanged", subject=path.name, fields=fields)
            )
        return reports_of_runs(runs)

    async def _collect_finished(self) -> list[HandlerRun]:
        runs = await self._async_handlers.collect_finished()
        return [replace(run, response=self._shorten_response(run.response)) for run in runs]

    @property
    def _bound_environment(self) -> HookEnvironment:
        if self._hook_environment is None:
            raise RuntimeError("bind the hooks of settings files to a session before running them")
        return self._hook_environment


async def _run_with_timeout(handler: HookHandler, hook_input: HookInput, seconds: float) -> HookOutput:
    """Run a handler, and convert an exception or a timeout to an output with that status."""
    with anyio.move_on_after(seconds):
        try:
            return await handler.run(hook_input)
        except anyio.get_cancelled_exc_class() as error:
            if current_task_cancelled():
                raise
            return HookOutput(status="failed", problem=f"it was cancelled: {exception_text(error)}")
        except Exception as error:  # noqa: BLE001 - the call must get its result, whatever a handler raises
            return HookOutput(status="failed", problem=f"{type(error).__name__}: {exception_text(error)}")
    return HookOutput(status="timed_out")
