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

import fnmatch
import inspect
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import NamedTuple, Self, TypeVar

import anyio
import msgspec
from msgspec import structs

from toolspan.errors import ToolspanError, words_of
from toolspan.hooks.merge import both_after, both_before
from toolspan.hooks.points import After, Before, Moment, Occasion, Point, Report
from toolspan.hooks.scene import Scene
from toolspan.hooks.stray import is_cancelled
from toolspan.model.decision import Allow, Ask, Decision, Deny
from toolspan.model.span import Call, Span

BeforeAnswer = Before | Decision | None
AfterAnswer = After | Deny | str | None
OccasionAnswer = AfterAnswer
PreHandler = Callable[[Call], BeforeAnswer | Awaitable[BeforeAnswer]]
PostHandler = Callable[[Call, Moment], AfterAnswer | Awaitable[AfterAnswer]]
BatchHandler = Callable[[Sequence[Span]], AfterAnswer | Awaitable[AfterAnswer]]
OccasionHandler = Callable[[Occasion], OccasionAnswer | Awaitable[OccasionAnswer]]

_Pre = TypeVar("_Pre", bound=PreHandler)
_Post = TypeVar("_Post", bound=PostHandler)
_Batch = TypeVar("_Batch", bound=BatchHandler)
_Occasion = TypeVar("_Occasion", bound=OccasionHandler)
_Handler = TypeVar("_Handler", bound=Callable[..., object])

_ABOUT_CALLS = frozenset({
    "PreToolUse", "PostToolUse", "PostToolUseFailure", "PostToolBatch", "PermissionRequest",
})  # fmt: skip
_GUARDS = frozenset({"PreToolUse", "PermissionRequest"})
"""The points at which a call can be refused."""
_PLAIN = re.compile(r"[\w-]+")
_BEFORE = (NoneType, Allow, Deny, Ask, Before)
_AFTER = (NoneType, str, Deny, After)


@dataclass(frozen=True, slots=True)
class _Registered:
    """A handler and the tools it is for."""

    point: str
    matcher: str
    run: Callable[..., object]
    name: str

    def matches(self, tool: str) -> bool:
        if self.matcher in ("", "*"):
            return True
        if _PLAIN.fullmatch(self.matcher):
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
        self._handlers: list[_Registered] = []
        self._fail_closed = fail_closed

    @property
    def silent(self) -> bool:
        """Whether nobody has registered."""
        return not self._handlers

    def listens(self, point: Point) -> bool:
        """Whether somebody has registered at this point."""
        return any(handler.point == point for handler in self._handlers)

    def bind(self, scene: Scene) -> Self:  # noqa: ARG002 - functions have what they need
        """The same functions."""
        return self

    def pre_tool_use(self, matcher: str = "*") -> Callable[[_Pre], _Pre]:
        """Call the function before each call of the tools that match: a name, `A|B`, or a regex."""
        return self._register("PreToolUse", matcher)

    def post_tool_use(self, matcher: str = "*") -> Callable[[_Post], _Post]:
        """Call the function after each call that succeeded."""
        return self._register("PostToolUse", matcher)

    def post_tool_use_failure(self, matcher: str = "*") -> Callable[[_Post], _Post]:
        """Call the function after each call that ran and failed."""
        return self._register("PostToolUseFailure", matcher)

    def post_tool_batch(self) -> Callable[[_Batch], _Batch]:
        """Call the function when all calls of a message have their results."""
        return self._register("PostToolBatch", "*")

    def permission_request(self, matcher: str = "*") -> Callable[[_Pre], _Pre]:
        """Call the function when somebody would have to be asked; its decision is the answer."""
        return self._register("PermissionRequest", matcher)

    def at(self, point: Point, matcher: str = "*") -> Callable[[_Occasion], _Occasion]:
        """Call the function at a point that is about no call: a prompt, the end of a turn, …

        Raises:
            ToolspanError: the point is about calls; there is a method for each of those.
        """
        if point in _ABOUT_CALLS:
            raise ToolspanError(f"{point} is about calls: use the method that is named after it")
        return self._register(point, matcher)

    async def before(self, moment: Moment) -> Before:
        """Fire PreToolUse."""
        answers = await self._fire("PreToolUse", moment.tool, (moment.call,))
        return _merge_before(answers)

    async def after(self, moment: Moment) -> After:
        """Fire PostToolUse."""
        return _merge_after(await self._fire("PostToolUse", moment.tool, (moment.call, moment)))

    async def after_failure(self, moment: Moment) -> After:
        """Fire PostToolUseFailure."""
        return _merge_after(
            await self._fire("PostToolUseFailure", moment.tool, (moment.call, moment))
        )

    async def after_batch(self, spans: Sequence[Span]) -> After:
        """Fire PostToolBatch."""
        return _merge_after(await self._fire("PostToolBatch", "*", (spans,)))

    async def permission(self, moment: Moment) -> Before:
        """Fire PermissionRequest."""
        answers = await self._fire("PermissionRequest", moment.tool, (moment.call,))
        merged = _merge_before(answers)
        if merged.input is not None and isinstance(merged.decision, Allow):
            # Whoever gives consent says what to: there the input is part of the answer.
            allow = structs.replace(merged.decision, input=merged.input)
            return structs.replace(merged, decision=allow)
        return merged

    async def fire(self, occasion: Occasion) -> After:
        """Fire any other point."""
        answers = await self._fire(occasion.point, occasion.about or "", (occasion,))
        return _merge_after(answers)

    @property
    def calls(self) -> bool:
        """Functions are always waited for."""
        return False

    async def called(self) -> bool:
        """Functions are always waited for."""
        return False

    async def wake(self) -> After:
        """Functions are always waited for."""
        return After()

    def _register(self, point: str, matcher: str) -> Callable[[_Handler], _Handler]:
        if not isinstance(matcher, str):
            raise ToolspanError(
                "a hook is registered with brackets, such as @hooks.pre_tool_use() or"
                " @hooks.pre_tool_use('Bash')"
            )

        def add(handler: _Handler) -> _Handler:
            name = getattr(handler, "__qualname__", repr(handler))
            registered = _Registered(point, matcher, handler, name)
            try:
                registered.matches("")
            except re.error as error:
                raise ToolspanError(f"{matcher!r} is no pattern for tools: {error}") from error
            self._handlers.append(registered)
            return handler

        return add

    async def _fire(self, point: str, tool: str, arguments: tuple[object, ...]) -> list["_Answer"]:
        chosen = [h for h in self._handlers if h.point == point and h.matches(tool)]
        if not chosen:
            return []
        if len(chosen) == 1:
            return [await self._ask(chosen[0], arguments)]
        answers: list[_Answer | None] = [None] * len(chosen)

        async def ask(position: int, handler: _Registered) -> None:
            answers[position] = await self._ask(handler, arguments)

        async with anyio.create_task_group() as group:
            for position, handler in enumerate(chosen):
                group.start_soon(ask, position, handler)
        return [answer for answer in answers if answer is not None]

    async def _ask(self, handler: _Registered, arguments: tuple[object, ...]) -> "_Answer":
        """What a handler says; one that fails says no where it is to."""
        answer = await _ask(handler, arguments)
        if self._fail_closed and handler.point in _GUARDS and answer.report.outcome == "error":
            said = Deny(f"The hook {handler.name} failed: {answer.report.text}", "hook")
            return _Answer(said, answer.report)
        return answer


class _Answer(NamedTuple):
    """What one handler said, and how it went."""

    said: object
    report: Report


async def _ask(handler: _Registered, arguments: tuple[object, ...]) -> _Answer:
    began = time.perf_counter()
    said: object = None
    failed: BaseException | None = None
    try:
        said = handler.run(*arguments)
        if said is not None:
            if inspect.isawaitable(said):
                said = await said
            said = _fit(said, handler.point)
    except anyio.get_cancelled_exc_class() as error:
        if is_cancelled():
            raise
        failed = error
    except Exception as error:  # noqa: BLE001 - user code; its fault must not become the call's
        failed = error
    report = Report(
        point=handler.point,
        name=handler.name,
        outcome="success" if failed is None else "error",
        text=None if failed is None else f"{type(failed).__name__}: {words_of(failed)}",
        duration_ms=(time.perf_counter() - began) * 1e3,
    )
    return _Answer(said if failed is None else None, report)


def _fit(said: object, point: str) -> object:
    """An answer that is one at this point.

    Raises:
        TypeError: it is none.
        msgspec.ValidationError: it would be, with other values in it.
    """
    wanted = _BEFORE if point in _GUARDS else _AFTER
    if not isinstance(said, wanted):
        names = " or ".join(one.__name__ for one in wanted if one is not NoneType)
        raise TypeError(f"a handler at {point} answers with {names}, not {type(said).__name__}")
    if isinstance(said, Before | After):  # nobody has checked what it was made of
        given = structs.asdict(said)
        # An input that does not fit the tool's schema is the call's end, not the handler's fault.
        kept = {"input": given.pop("input")} if "input" in given else {}
        return structs.replace(msgspec.convert(given, type(said)), **kept)
    return said


_NOTHING_BEFORE = Before()
_NOTHING_AFTER = After()


def _merge_before(answers: list[_Answer]) -> Before:
    merged = _NOTHING_BEFORE
    for answer in answers:
        merged = _joined_before(merged, _as_before(answer.said), answer.report)
    return merged


def _as_before(said: object) -> Before:
    match said:
        case Before(decision=Allow() | Deny() | Ask() as decision):
            given = decision.input if isinstance(decision, Allow) else None
            return structs.replace(
                said,
                decision=_from_hook(decision),
                input=given if said.input is None else said.input,
            )
        case Before():
            return said
        case Allow() | Deny() | Ask():
            return _as_before(Before(decision=said))
        case _:
            return _NOTHING_BEFORE


def _from_hook(decision: Decision) -> Decision:
    """The decision as a hook's; its input stands beside it, where the last one counts."""
    source = "hook" if decision.source == "config" else decision.source
    match decision:
        case Allow(reason):
            return Allow(reason, source)
        case Deny(reason, _, stop):
            return Deny(reason, source, stop)
        case Ask(reason, _):
            return Ask(reason, source)


def _joined_before(merged: Before, one: Before, report: Report) -> Before:
    if isinstance(one.decision, Deny):
        report = structs.replace(report, outcome="blocked", text=one.decision.reason)
    off = (structs.replace(report, outcome="deferred"),) if one.defer else ()
    return both_before(merged, structs.replace(one, reports=(report, *off, *one.reports)))


def _merge_after(answers: list[_Answer]) -> After:
    merged = _NOTHING_AFTER
    for answer in answers:
        one, report = _as_after(answer.said), answer.report
        if one.feedback:
            report = structs.replace(report, outcome="blocked", text="\n".join(one.feedback))
        own = structs.replace(
            one,
            by=one.by or (report.name,) * len(one.feedback),
            news=(),  # somebody waited for it
            reports=(report, *one.reports),
        )
        merged = both_after(merged, own)
    return merged


def _as_after(said: object) -> After:
    match said:
        case After():
            return said
        case str():
            return After(contexts=(said,))
        case Deny(reason):
            return After(feedback=(reason or "Blocked by hook",))
        case _:
            return _NOTHING_AFTER
