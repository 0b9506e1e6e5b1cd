"""Handlers that are Python functions.

    hooks = Hooks()

    @hooks.pre_tool_use("Bash")
    async def no_force_push(call: Call) -> Deny | None: ...

    @hooks.at("Stop")
    def once_more(occasion: Occasion) -> After | str | None: ...

A handler may be sync or async; sync ones run in the event loop and must not block. It answers with
None (no opinion), before a call with a decision or `Before`, elsewhere with a text, `Deny` or
`After`. One that raises, or answers with anything else, is reported and otherwise ignored, as
clients do, unless the hooks are made with `fail_closed=True`: then it refuses the call. Handlers of
one point run at the same time; deny wins over ask, ask over allow, and of several new inputs the
last registered counts.
Where no call can be refused a `Deny` objects: the result is doubted, the prompt does not count, the
turn does not end.
"""

from __future__ import annotations

import asyncio
import fnmatch
import inspect
import math
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import NamedTuple, Self, TypeVar

import anyio
import msgspec
from msgspec import structs

from toolspan.errors import ToolspanError, exception_text
from toolspan.runtime.hooks.events import (
    HookEffects,
    HookEnvironment,
    HookPoint,
    PreToolDecision,
    SessionHookEvent,
    ToolHookEvent,
)
from toolspan.runtime.hooks.merge import combine_effects, combine_pre_tool_decisions
from toolspan.types.decision import Allow, Ask, Decision, Deny
from toolspan.types.events import HookReport
from toolspan.types.span import Call, Span


def current_task_cancelled() -> bool:
    """Whether somebody wants the current task to end."""
    if anyio.current_effective_deadline() == -math.inf:
        return True
    try:
        task = asyncio.current_task()
    except RuntimeError:  # another backend, which has no tasks to cancel one by one
        return False
    return task is not None and task.cancelling() > 0


PreToolAnswer = PreToolDecision | Decision | None
PostToolAnswer = HookEffects | Deny | str | None
SessionEventAnswer = PostToolAnswer
PreHandler = Callable[[Call], PreToolAnswer | Awaitable[PreToolAnswer]]
PostHandler = Callable[[Call, ToolHookEvent], PostToolAnswer | Awaitable[PostToolAnswer]]
BatchHandler = Callable[[Sequence[Span]], PostToolAnswer | Awaitable[PostToolAnswer]]
SessionEventHandler = Callable[[SessionHookEvent], SessionEventAnswer | Awaitable[SessionEventAnswer]]

_Pre = TypeVar("_Pre", bound=PreHandler)
_Post = TypeVar("_Post", bound=PostHandler)
_Batch = TypeVar("_Batch", bound=BatchHandler)
_SessionEvent = TypeVar("_SessionEvent", bound=SessionEventHandler)
_Handler = TypeVar("_Handler", bound=Callable[..., object])

_TOOL_POINTS = frozenset({
    "PreToolUse", "PostToolUse", "PostToolUseFailure", "PostToolBatch", "PermissionRequest",
})  # fmt: skip
_BLOCKING_POINTS = frozenset({"PreToolUse", "PermissionRequest"})
"""The points at which a call can be refused."""
_PLAIN_NAME = re.compile(r"[\w-]+")
_PRE_TOOL_ANSWER_TYPES = (NoneType, Allow, Deny, Ask, PreToolDecision)
_POST_TOOL_ANSWER_TYPES = (NoneType, str, Deny, HookEffects)


@dataclass(frozen=True, slots=True)
class _RegisteredCallback:
    """A handler and the tools it is for."""

    point: str
    matcher: str
    function: Callable[..., object]
    name: str

    def matches_tool(self, tool: str) -> bool:
        if self.matcher in ("", "*"):
            return True
        if _PLAIN_NAME.fullmatch(self.matcher):
            return self.matcher == tool
        if "*" in self.matcher and not set(self.matcher) & set("|()[].+?^$"):
            return fnmatch.fnmatchcase(tool, self.matcher)
        return re.fullmatch(self.matcher, tool) is not None


class Hooks:
    """Python functions at the hook points of a runner."""

    def __init__(self, *, fail_closed: bool = False) -> None:
        """Make a place for functions.

        With `fail_closed`, a function before a call that raises, or answers with what is no answer,
        refuses the call; without, it is reported and has no say, as with the clients' own hooks.
        """
        self._handlers: list[_RegisteredCallback] = []
        self._fail_closed = fail_closed

    @property
    def is_empty(self) -> bool:
        """Whether nobody has registered."""
        return not self._handlers

    def has_handler(self, point: HookPoint) -> bool:
        """Whether somebody has registered at this point."""
        return any(handler.point == point for handler in self._handlers)

    def bind(self, hook_environment: HookEnvironment) -> Self:  # noqa: ARG002 - functions have what they need
        """The same functions."""
        return self

    def pre_tool_use(self, matcher: str = "*") -> Callable[[_Pre], _Pre]:
        """Call the function before each call of the tools that match: a name, `A|B`, or a regex."""
        return self._register_handler("PreToolUse", matcher)

    def post_tool_use(self, matcher: str = "*") -> Callable[[_Post], _Post]:
        """Call the function after each call that succeeded."""
        return self._register_handler("PostToolUse", matcher)

    def post_tool_use_failure(self, matcher: str = "*") -> Callable[[_Post], _Post]:
        """Call the function after each call that ran and failed."""
        return self._register_handler("PostToolUseFailure", matcher)

    def post_tool_batch(self) -> Callable[[_Batch], _Batch]:
        """Call the function when all calls of a message have their results."""
        return self._register_handler("PostToolBatch", "*")

    def permission_request(self, matcher: str = "*") -> Callable[[_Pre], _Pre]:
        """Call the function when somebody would have to be asked; its decision is the answer."""
        return self._register_handler("PermissionRequest", matcher)

    def at(self, point: HookPoint, matcher: str = "*") -> Callable[[_SessionEvent], _SessionEvent]:
        """Call the function at a point that is about no call: a prompt, the end of a turn, …

        Raises:
            ToolspanError: the point is about calls; there is a method for each of those.
        """
        if point in _TOOL_POINTS:
            raise ToolspanError(f"{point} is about calls: use the method that is named after it")
        return self._register_handler(point, matcher)

    async def run_pre_tool_use(self, tool_event: ToolHookEvent) -> PreToolDecision:
        """Fire PreToolUse."""
        answers = await self._run_handlers("PreToolUse", tool_event.tool, (tool_event.call,))
        return _merge_pre_tool_results(answers)

    async def run_post_tool_use(self, tool_event: ToolHookEvent) -> HookEffects:
        """Fire PostToolUse."""
        return _merge_effects(await self._run_handlers("PostToolUse", tool_event.tool, (tool_event.call, tool_event)))

    async def run_post_tool_use_failure(self, tool_event: ToolHookEvent) -> HookEffects:
        """Fire PostToolUseFailure."""
        return _merge_effects(
            await self._run_handlers("PostToolUseFailure", tool_event.tool, (tool_event.call, tool_event))
        )

    async def run_post_tool_batch(self, spans: Sequence[Span]) -> HookEffects:
        """Fire PostToolBatch."""
        return _merge_effects(await self._run_handlers("PostToolBatch", "*", (spans,)))

    async def run_permission_request(self, tool_event: ToolHookEvent) -> PreToolDecision:
        """Fire PermissionRequest."""
        answers = await self._run_handlers("PermissionRequest", tool_event.tool, (tool_event.call,))
        merged = _merge_pre_tool_results(answers)
        if merged.input is not None and isinstance(merged.decision, Allow):
            # Whoever gives consent says what to: there the input is part of the answer.
            allow = structs.replace(merged.decision, input=merged.input)
            return structs.replace(merged, decision=allow)
        return merged

    async def run_session_event(self, session_event: SessionHookEvent) -> HookEffects:
        """Fire any other point."""
        answers = await self._run_handlers(session_event.point, session_event.subject or "", (session_event,))
        return _merge_effects(answers)

    @property
    def has_wake_request(self) -> bool:
        """Functions are always waited for."""
        return False

    async def wait_for_wake_request(self) -> bool:
        """Functions are always waited for."""
        return False

    async def collect_wake_requests(self) -> HookEffects:
        """Functions are always waited for."""
        return HookEffects()

    def _register_handler(self, point: str, matcher: str) -> Callable[[_Handler], _Handler]:
        if not isinstance(matcher, str):
            raise ToolspanError(
                "a hook is registered with brackets, such as @hooks.pre_tool_use() or @hooks.pre_tool_use('Bash')"
            )

        def register(handler: _Handler) -> _Handler:
            name = getattr(handler, "__qualname__", repr(handler))
            registered = _RegisteredCallback(point, matcher, handler, name)
            try:
                registered.matches_tool("")
            except re.error as error:
                raise ToolspanError(f"{matcher!r} is no pattern for tools: {error}") from error
            self._handlers.append(registered)
            return handler

        return register

    async def _run_handlers(self, point: str, tool: str, arguments: tuple[object, ...]) -> list[_CallbackResult]:
        chosen = [h for h in self._handlers if h.point == point and h.matches_tool(tool)]
        if not chosen:
            return []
        if len(chosen) == 1:
            return [await self._run_handler(chosen[0], arguments)]
        answers: list[_CallbackResult | None] = [None] * len(chosen)

        async def run_into_slot(position: int, handler: _RegisteredCallback) -> None:
            answers[position] = await self._run_handler(handler, arguments)

        async with anyio.create_task_group() as group:
            for position, handler in enumerate(chosen):
                group.start_soon(run_into_slot, position, handler)
        return [answer for answer in answers if answer is not None]

    async def _run_handler(self, handler: _RegisteredCallback, arguments: tuple[object, ...]) -> _CallbackResult:
        """What a handler says; one that fails says no where it is to."""
        answer = await _call_handler(handler, arguments)
        if self._fail_closed and handler.point in _BLOCKING_POINTS and answer.report.outcome == "error":
            denial = Deny(f"The hook {handler.name} failed: {answer.report.text}", "hook")
            return _CallbackResult(denial, answer.report)
        return answer


class _CallbackResult(NamedTuple):
    """What one handler said, and how it went."""

    value: object
    report: HookReport


async def _call_handler(handler: _RegisteredCallback, arguments: tuple[object, ...]) -> _CallbackResult:
    started_at = time.perf_counter()
    value: object = None
    failure: BaseException | None = None
    try:
        value = handler.function(*arguments)
        if value is not None:
            if inspect.isawaitable(value):
                value = await value
            value = _validate_answer(value, handler.point)
    except anyio.get_cancelled_exc_class() as error:
        if current_task_cancelled():
            raise
        failure = error
    except Exception as error:  # noqa: BLE001 - user code; its fault must not become the call's
        failure = error
    report = HookReport(
        point=handler.point,
        name=handler.name,
        outcome="success" if failure is None else "error",
        text=None if failure is None else f"{type(failure).__name__}: {exception_text(failure)}",
        duration_ms=(time.perf_counter() - started_at) * 1e3,
    )
    return _CallbackResult(value if failure is None else None, report)


def _validate_answer(value: object, point: str) -> object:
    """An answer that is one at this point.

    Raises:
        TypeError: it is none.
        msgspec.ValidationError: it would be, with other values in it.
    """
    accepted_types = _PRE_TOOL_ANSWER_TYPES if point in _BLOCKING_POINTS else _POST_TOOL_ANSWER_TYPES
    if not isinstance(value, accepted_types):
        names = " or ".join(answer_type.__name__ for answer_type in accepted_types if answer_type is not NoneType)
        raise TypeError(f"a handler at {point} answers with {names}, not {type(value).__name__}")
    if isinstance(value, PreToolDecision | HookEffects):  # nobody has checked what it was made of
        fields = structs.asdict(value)
        # An input that does not fit the tool's schema is the call's end, not the handler's fault.
        unchecked = {"input": fields.pop("input")} if "input" in fields else {}
        return structs.replace(msgspec.convert(fields, type(value)), **unchecked)
    return value


_NO_DECISION = PreToolDecision()
_NO_EFFECTS = HookEffects()


def _merge_pre_tool_results(answers: list[_CallbackResult]) -> PreToolDecision:
    merged = _NO_DECISION
    for answer in answers:
        merged = _add_pre_tool_decision(merged, _to_pre_tool_decision(answer.value), answer.report)
    return merged


def _to_pre_tool_decision(value: object) -> PreToolDecision:
    match value:
        case PreToolDecision(decision=Allow() | Deny() | Ask() as decision):
            new_input = decision.input if isinstance(decision, Allow) else None
            return structs.replace(
                value, decision=_as_hook_decision(decision), input=new_input if value.input is None else value.input
            )
        case PreToolDecision():
            return value
        case Allow() | Deny() | Ask():
            return _to_pre_tool_decision(PreToolDecision(decision=value))
        case _:
            return _NO_DECISION


def _as_hook_decision(decision: Decision) -> Decision:
    """The decision as a hook's; its input stands beside it, where the last one counts."""
    source = "hook" if decision.source == "config" else decision.source
    match decision:
        case Allow(reason):
            return Allow(reason, source)
        case Deny(reason, _, stop):
            return Deny(reason, source, stop)
        case Ask(reason, _):
            return Ask(reason, source)


def _add_pre_tool_decision(merged: PreToolDecision, addition: PreToolDecision, report: HookReport) -> PreToolDecision:
    if isinstance(addition.decision, Deny):
        report = structs.replace(report, outcome="blocked", text=addition.decision.reason)
    deferred_reports = (structs.replace(report, outcome="deferred"),) if addition.defer else ()
    return combine_pre_tool_decisions(
        merged, structs.replace(addition, reports=(report, *deferred_reports, *addition.reports))
    )


def _merge_effects(answers: list[_CallbackResult]) -> HookEffects:
    merged = _NO_EFFECTS
    for answer in answers:
        effects, report = _to_hook_effects(answer.value), answer.report
        if effects.feedback:
            report = structs.replace(report, outcome="blocked", text="\n".join(effects.feedback))
        reported_effects = structs.replace(
            effects,
            feedback_sources=effects.feedback_sources or (report.name,) * len(effects.feedback),
            wake_messages=(),  # somebody waited for it
            reports=(report, *effects.reports),
        )
        merged = combine_effects(merged, reported_effects)
    return merged


def _to_hook_effects(value: object) -> HookEffects:
    match value:
        case HookEffects():
            return value
        case str():
            return HookEffects(contexts=(value,))
        case Deny(reason):
            return HookEffects(feedback=(reason or "Blocked by hook",))
        case _:
            return _NO_EFFECTS
