"""Hooks that are Python functions.

    hooks = Hooks()

    @hooks.pre_tool_use("Bash")
    async def no_force_push(call: Call) -> Deny | None: ...

    @hooks.at("Stop")
    def continue_once(event: SessionHookEvent) -> HookEffects | str | None: ...

A function may be sync or async; sync functions run in the event loop and must not block. None means no opinion.
Before a call, a function may return a decision or `PreToolDecision`; elsewhere, a string for the model, `Deny` or
`HookEffects`. At points where no call can be denied, `Deny` is an objection: the model reads the reason with the
result, a prompt is rejected, or a turn continues.

The functions at a point run concurrently. Deny takes precedence over ask, and ask over allow. If
several functions return a new input, the input from the last registered function is used.
"""

from __future__ import annotations

import fnmatch
import inspect
import logging
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import NoneType
from typing import NamedTuple, TypeVar, get_args

import anyio
import msgspec
from msgspec import structs

from toolspan.errors import ToolspanError, exception_text
from toolspan.runtime.hooks.events import (
    HookEffects,
    HookPoint,
    HookRunner,
    PreToolDecision,
    SessionHookEvent,
    ToolHookEvent,
)
from toolspan.runtime.hooks.merge import combine_effects, combine_pre_tool_decisions, run_concurrently
from toolspan.runtime.isolation import current_task_cancelled
from toolspan.types.decision import Allow, Ask, Decision, Deny
from toolspan.types.events import HookReport
from toolspan.types.span import Call, Span

PreToolAnswer = PreToolDecision | Decision | None
PostToolAnswer = HookEffects | Deny | str | None
PreHandler = Callable[[Call], PreToolAnswer | Awaitable[PreToolAnswer]]
PostHandler = Callable[[Call, ToolHookEvent], PostToolAnswer | Awaitable[PostToolAnswer]]
BatchHandler = Callable[[Sequence[Span]], PostToolAnswer | Awaitable[PostToolAnswer]]
SessionEventHandler = Callable[[SessionHookEvent], PostToolAnswer | Awaitable[PostToolAnswer]]

_Pre = TypeVar("_Pre", bound=PreHandler)
_Post = TypeVar("_Post", bound=PostHandler)
_Batch = TypeVar("_Batch", bound=BatchHandler)
_SessionEvent = TypeVar("_SessionEvent", bound=SessionEventHandler)
_Handler = TypeVar("_Handler", bound=Callable[..., object])

_TOOL_POINTS = frozenset({
    "PreToolUse", "PostToolUse", "PostToolUseFailure", "PostToolBatch", "PermissionRequest",
})  # fmt: skip
_DECIDING_POINTS = frozenset({"PreToolUse", "PermissionRequest"})  # the points at which a call can be denied
_COMMON_NAME = re.compile(r"[\w-]+")
_PRE_TOOL_ANSWER_TYPES = (NoneType, Allow, Deny, Ask, PreToolDecision)
_POST_TOOL_ANSWER_TYPES = (NoneType, str, Deny, HookEffects)


@dataclass(frozen=True, slots=True)
class _RegisteredCallback:
    point: str
    matcher: str
    function: Callable[..., object]
    name: str

    def matches_tool(self, tool: str) -> bool:
        if self.matcher in ("", "*"):
            return True
        if _COMMON_NAME.fullmatch(self.matcher):
            return self.matcher == tool
        if "*" in self.matcher and not set(self.matcher) & set("|()[].+?^$"):
            return fnmatch.fnmatchcase(tool, self.matcher)
        return re.fullmatch(self.matcher, tool) is not None


class Hooks(HookRunner):
    """The Python functions registered at a runner's hook points."""

    def __init__(self, *, fail_closed: bool = False) -> None:
        """Create an empty registry.

        A function that raises or returns an invalid value is reported and otherwise ignored, as in
        the clients. With `fail_closed`, such a function denies the call if it runs before one.
        """
        self._handlers: list[_RegisteredCallback] = []
        self._fail_closed = fail_closed
        self._logged_handlers: list[_RegisteredCallback] = []

    @property
    def is_empty(self) -> bool:
        """True if no function is registered."""
        return not self._handlers

    def has_handler(self, point: HookPoint) -> bool:
        """Return whether a function is registered at this point."""
        return any(handler.point == point for handler in self._handlers)

    def pre_tool_use(self, matcher: str = "*") -> Callable[[_Pre], _Pre]:
        """Register a function to run before each call to a tool that matches `matcher`: a name, `A|B`, or a regex."""
        return self._register_handler("PreToolUse", matcher)

    def post_tool_use(self, matcher: str = "*") -> Callable[[_Post], _Post]:
        """Register a function to run after each successful call."""
        return self._register_handler("PostToolUse", matcher)

    def post_tool_use_failure(self, matcher: str = "*") -> Callable[[_Post], _Post]:
        """Register a function to run after each call that ran and failed."""
        return self._register_handler("PostToolUseFailure", matcher)

    def post_tool_batch(self) -> Callable[[_Batch], _Batch]:
        """Register a function to run when all calls in a message have results."""
        return self._register_handler("PostToolBatch", "*")

    def permission_request(self, matcher: str = "*") -> Callable[[_Pre], _Pre]:
        """Register a function to run before the user is asked. Its decision, if any, replaces the user's."""
        return self._register_handler("PermissionRequest", matcher)

    def at(self, point: HookPoint, matcher: str = "*") -> Callable[[_SessionEvent], _SessionEvent]:
        """Register a function for a point that is not about a call, such as a prompt or the end of a turn.

        Raises:
            ToolspanError: there is no such point, or it is about calls; each of those points has its own method.
        """
        if point in _TOOL_POINTS:
            raise ToolspanError(f"{point} concerns calls: use the method named after it")
        if point not in get_args(HookPoint):
            raise ToolspanError(f"there is no hook point {point!r}; the points are {', '.join(get_args(HookPoint))}")
        return self._register_handler(point, matcher)

    async def run_pre_tool_use(self, tool_event: ToolHookEvent) -> PreToolDecision:
        """Run the PreToolUse functions."""
        return _merge_pre_tool_results(await self._run_handlers("PreToolUse", tool_event.tool, tool_event.call))

    async def run_post_tool_use(self, tool_event: ToolHookEvent) -> HookEffects:
        """Run the PostToolUse functions."""
        return _merge_effects(await self._run_handlers("PostToolUse", tool_event.tool, tool_event.call, tool_event))

    async def run_post_tool_use_failure(self, tool_event: ToolHookEvent) -> HookEffects:
        """Run the PostToolUseFailure functions."""
        results = await self._run_handlers("PostToolUseFailure", tool_event.tool, tool_event.call, tool_event)
        return _merge_effects(results)

    async def run_post_tool_batch(self, spans: Sequence[Span]) -> HookEffects:
        """Run the PostToolBatch functions."""
        return _merge_effects(await self._run_handlers("PostToolBatch", "*", spans))

    async def run_permission_request(self, tool_event: ToolHookEvent) -> PreToolDecision:
        """Run the PermissionRequest functions."""
        results = await self._run_handlers("PermissionRequest", tool_event.tool, tool_event.call)
        merged = _merge_pre_tool_results(results)
        if merged.input is not None and isinstance(merged.decision, Allow):
            # At this point, the input is part of the approval.
            allow = structs.replace(merged.decision, input=merged.input)
            return structs.replace(merged, decision=allow)
        return merged

    async def run_session_event(self, session_event: SessionHookEvent) -> HookEffects:
        """Run the functions for a point that is not about a call, such as Stop."""
        results = await self._run_handlers(session_event.point, session_event.subject or "", session_event)
        return _merge_effects(results)

    def _register_handler(self, point: str, matcher: str) -> Callable[[_Handler], _Handler]:
        if not isinstance(matcher, str):
            raise ToolspanError(
                "register a hook with parentheses, such as @hooks.pre_tool_use() or @hooks.pre_tool_use('Bash')"
            )

        def register(handler: _Handler) -> _Handler:
            name = getattr(handler, "__qualname__", repr(handler))
            registered = _RegisteredCallback(point, matcher, handler, name)
            try:
                registered.matches_tool("")
            except re.error as error:
                raise ToolspanError(f"{matcher!r} is not a valid matcher: {error}") from error
            self._handlers.append(registered)
            return handler

        return register

    async def _run_handlers(self, point: str, tool: str, *arguments: object) -> list[_CallbackResult]:
        handlers = [handler for handler in self._handlers if handler.point == point and handler.matches_tool(tool)]
        return await run_concurrently([partial(self._run_handler, handler, arguments) for handler in handlers])

    async def _run_handler(self, handler: _RegisteredCallback, arguments: tuple[object, ...]) -> _CallbackResult:
        started_at = time.perf_counter()
        value: object = None
        failure: BaseException | None = None
        try:
            value = handler.function(*arguments)
            if inspect.isawaitable(value):
                value = await value
            value = _validate_answer(value, handler.point)
        except anyio.get_cancelled_exc_class() as error:
            if current_task_cancelled():
                raise
            failure = error
        except Exception as error:  # noqa: BLE001 - an error of user code must not fail the call
            failure = error
        error_text = None if failure is None else f"{type(failure).__name__}: {exception_text(failure)}"
        if failure is not None:
            denies = self._fail_closed and handler.point in _DECIDING_POINTS
            if handler not in self._logged_handlers:  # once per function, because every call may fail
                self._logged_handlers.append(handler)
                effect = "the call is denied" if denies else "it has no effect"
                logging.getLogger("toolspan").warning(
                    "the %s hook %s failed, and %s: %s", handler.point, handler.name, effect, error_text
                )
            value = Deny(f"The hook {handler.name} failed: {error_text}", "hook") if denies else None
        report = HookReport(
            point=handler.point,
            name=handler.name,
            outcome="success" if failure is None else "error",
            text=error_text,
            duration_ms=(time.perf_counter() - started_at) * 1e3,
        )
        return _CallbackResult(value, report)


class _CallbackResult(NamedTuple):
    value: object
    report: HookReport


def _validate_answer(value: object, point: str) -> object:
    """Return `value` if a function may return it at this point.

    Raises:
        TypeError: the value has the wrong type.
        msgspec.ValidationError: one of its fields is invalid.
    """
    accepted_types = _PRE_TOOL_ANSWER_TYPES if point in _DECIDING_POINTS else _POST_TOOL_ANSWER_TYPES
    if not isinstance(value, accepted_types):
        names = " or ".join(answer_type.__name__ for answer_type in accepted_types if answer_type is not NoneType)
        raise TypeError(f"a handler at {point} answers with {names}, not {type(value).__name__}")
    if isinstance(value, PreToolDecision | HookEffects):  # msgspec does not check fields on construction
        fields = structs.asdict(value)
        # An input that violates the tool's schema fails the call, not the handler.
        unchecked = {"input": fields.pop("input")} if "input" in fields else {}
        return structs.replace(msgspec.convert(fields, type(value)), **unchecked)
    return value


def _merge_pre_tool_results(results: list[_CallbackResult]) -> PreToolDecision:
    merged = PreToolDecision()
    for value, report in results:
        answer = value if isinstance(value, PreToolDecision) else PreToolDecision()
        decision = value if isinstance(value, Allow | Deny | Ask) else answer.decision
        new_input = answer.input
        if new_input is None and isinstance(decision, Allow):
            new_input = decision.input
        reports = [report, *answer.reports]
        if isinstance(decision, Deny):
            reports[0] = structs.replace(report, outcome="blocked", text=decision.reason)
        if answer.defer:
            reports.insert(1, structs.replace(reports[0], outcome="deferred"))
        addition = structs.replace(
            answer, decision=_as_hook_decision(decision), input=new_input, reports=tuple(reports)
        )
        merged = combine_pre_tool_decisions(merged, addition)
    return merged


def _as_hook_decision(decision: Decision | None) -> Decision | None:
    """Mark a decision as made by a hook, and drop its input, which is merged separately."""
    if decision is None:
        return None
    source = "hook" if decision.source == "config" else decision.source
    match decision:
        case Allow(reason):
            return Allow(reason, source)
        case Deny(reason, _, stop):
            return Deny(reason, source, stop)
        case Ask(reason, _):
            return Ask(reason, source)


def _merge_effects(results: list[_CallbackResult]) -> HookEffects:
    merged = HookEffects()
    for value, report in results:
        match value:
            case HookEffects():
                effects = value
            case str():
                effects = HookEffects(contexts=(value,))
            case Deny(reason):
                effects = HookEffects(feedback=(reason or "Blocked by hook",))
            case _:
                effects = HookEffects()
        if effects.feedback:
            report = structs.replace(report, outcome="blocked", text="\n".join(effects.feedback))  # noqa: PLW2901
        reported_effects = structs.replace(
            effects,
            feedback_sources=effects.feedback_sources or (report.name,) * len(effects.feedback),
            wake_messages=(),  # functions cannot be interrupted
            reports=(report, *effects.reports),
        )
        merged = combine_effects(merged, reported_effects)
    return merged
