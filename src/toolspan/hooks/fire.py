"""Handlers of settings files at work.

In: a point. Out: what its handlers say together. All that match are run at the same time, each of
those that do the same only once; or, with `compose="chain"`, one after the other, each with the
input that the one before left. A handler that hangs is ended when its time is over; one that fails
is told of and otherwise ignored, unless it is to fail closed. Read `_run` first.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import anyio
import msgspec
from msgspec import UNSET, structs

from toolspan.errors import words_of
from toolspan.hooks.heard import Handler, Heard, Told
from toolspan.hooks.late import LateHandlers
from toolspan.hooks.long import shortened
from toolspan.hooks.match import Matches
from toolspan.hooks.merge import Ran, merge_after, merge_before, reports_on
from toolspan.hooks.points import After, Before, Moment, Occasion, Point, Report
from toolspan.hooks.said import Ear, Said
from toolspan.hooks.scene import Scene
from toolspan.hooks.stray import is_cancelled
from toolspan.hooks.tell import tell_batch, tell_call, tell_occasion
from toolspan.hooks.variables import NAME, WRITING, Variables
from toolspan.hooks.watched import Watched
from toolspan.model.decision import Deny
from toolspan.model.span import Span
from toolspan.profile import HookValues

Compose = Literal["parallel", "chain"]
GUARDS: frozenset[Point] = frozenset({
    "PreToolUse", "PermissionRequest", "UserPromptSubmit", "PreCompact", "PostToolUse",
    "PostToolUseFailure", "PostToolBatch", "TaskCreated", "TaskCompleted",
})  # fmt: skip
"""Points at which a handler that failed can be taken for one that objects."""
END_BUDGET = 1.5
"""Seconds that handlers at the end of a session have, unless one of them asks for more."""
END_MOST = 60.0
_PROMPT_TIMEOUT = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A handler at a point."""

    point: Point
    matches: Matches
    handler: Handler
    source: str
    """The scope of its settings file."""
    speaks_of: Callable[[Moment, Scene], bool] | None = None
    """Whether it wants to hear of this call; it has no interest in points without one."""
    timeout: float | None = None
    closed: bool = False
    """Failing, it objects."""
    wakes: bool = False
    """Nobody waits for it; but the model is to hear of it if it objects."""
    names: tuple[str, ...] = ()
    """Files in the session's folder that it wants to hear of."""
    once: bool = False
    """It is run for the first call that it is for, and no other."""


class SettingsHooks:
    """Handlers of settings files."""

    def __init__(
        self,
        registered: Sequence[Registered],
        values: HookValues,
        *,
        scene: Scene | None = None,
        compose: Compose = "parallel",
        fail_closed: bool = False,
    ) -> None:
        self._registered = tuple(registered)
        self._points = frozenset(one.point for one in registered)
        self._values = values
        self._scene = scene
        self._compose = compose
        self._fail_closed = fail_closed
        self._late = LateHandlers()
        self._spent: set[int] = set()
        """The places of those that were to run once, and did."""
        self._variables = Variables()
        self._watched = self._watch() if scene is not None and scene.agent_id is None else None

    def _watch(self) -> Watched | None:
        """The files that are looked at; an agent below leaves that to the session."""
        if "FileChanged" not in self._points:
            return None
        names = [name for one in self._registered for name in one.names]
        return Watched(names, self._stage.project)

    @property
    def silent(self) -> bool:
        """Whether there is no handler."""
        return not self._registered

    def listens(self, point: Point) -> bool:
        """Whether there is a handler at this point."""
        return point in self._points

    def bind(self, scene: Scene) -> "SettingsHooks":
        """The same handlers for a session."""
        if self._scene is not None:
            return self
        return SettingsHooks(
            self._registered,
            self._values,
            scene=scene,
            compose=self._compose,
            fail_closed=self._fail_closed,
        )

    async def before(self, moment: Moment) -> Before:
        """Fire PreToolUse."""
        seen = await self._look() if self._watched is not None else ()
        if "PreToolUse" not in self._points:
            return Before(reports=seen)
        before = merge_before(await self._at_call("PreToolUse", moment), self._values)
        return structs.replace(before, reports=(*seen, *before.reports)) if seen else before

    async def after(self, moment: Moment) -> After:
        """Fire PostToolUse."""
        if "PostToolUse" not in self._points:
            return After()
        return merge_after(await self._at_call("PostToolUse", moment), self._values)

    async def after_failure(self, moment: Moment) -> After:
        """Fire PostToolUseFailure."""
        if "PostToolUseFailure" not in self._points:
            return After()
        return merge_after(await self._at_call("PostToolUseFailure", moment), self._values)

    async def permission(self, moment: Moment) -> Before:
        """Fire PermissionRequest."""
        if "PermissionRequest" not in self._points or not self._values.asks_permission_headless:
            return Before()
        return merge_before(await self._at_call("PermissionRequest", moment), self._values)

    async def after_batch(self, spans: Sequence[Span]) -> After:
        """Fire PostToolBatch; an objection ends the turn."""
        seen = await self._look() if self._watched is not None else ()
        ran: list[Ran] = []
        if "PostToolBatch" in self._points:
            fields = tell_batch(spans, self._stage, self._values)
            ran = await self._run(_Firing("PostToolBatch", None, fields))
        after = merge_after([*ran, *await self._ended()], self._values)
        if after.stop is None and after.feedback:
            stopped = _as_stops(after.reports)
            after = structs.replace(after, stop=after.feedback[0], reports=stopped)
        after = structs.replace(after, feedback=(), by=(), reports=(*seen, *after.reports))
        if not self._late.calls:
            return after
        woken = await self.wake()
        reports = (*after.reports, *woken.reports)
        return structs.replace(after, news=woken.news, reports=reports)

    async def fire(self, occasion: Occasion) -> After:
        """Fire any other point."""
        if not self.listens(occasion.point):
            return After()
        return merge_after(await self._at(occasion), self._values)

    async def _at(self, occasion: Occasion) -> list[Ran]:
        point = occasion.point
        fields = tell_occasion(occasion, self._stage, self._values)
        fired = _Firing(point, occasion.about, fields, occasion.moment, self._budget(point))
        ran = await self._run(fired)
        match point:
            case "SessionStart" | "CwdChanged" | "FileChanged":
                self._follow(ran)
                files = [one.variables for one in ran if one.variables is not None]
                await self._variables.take(point, files, self._stage)
                return ran
            case "UserPromptSubmit":
                return [*ran, *await self._ended()]
            case _:
                return ran

    def _follow(self, ran: Sequence[Ran]) -> None:
        named = [one.said.watches for one in ran if one.said.watches is not None]
        if named and self._watched is not None:
            self._watched.follow(path for paths in named for path in paths)

    async def _look(self) -> tuple[Report, ...]:
        """Tell of files that have changed since the last look; handlers have no say there."""
        found: list[Ran] = []
        for path, change in self._watched.changes() if self._watched is not None else ():
            fields = {"file_path": str(path), "event": change}
            found += await self._at(Occasion(point="FileChanged", about=path.name, fields=fields))
        return tuple(report for one in found for report in reports_on(one))

    def _budget(self, point: Point) -> float | None:
        """Seconds that all handlers of a point have together."""
        if point != "SessionEnd":
            return None
        asked = [one.timeout for one in self._registered if one.point == point]
        return min(max((END_BUDGET, *(one for one in asked if one))), END_MOST)

    @property
    def calls(self) -> bool:
        """Whether a handler that nobody waited for wants the model to be woken."""
        return self._late.calls

    async def called(self) -> bool:
        """Wait for one that wants that, unless none runs that could."""
        await self._late.wait()
        return self._late.calls

    async def wake(self) -> After:
        """Hear those that want it now."""
        woken = await self._late.calling()
        return After(
            news=tuple(shortened(text, self._stage.folder) for _, text in woken),
            reports=tuple(report for ran, _ in woken for report in reports_on(ran)),
        )

    async def _ended(self) -> list[Ran]:
        """What handlers say that nobody waited for."""
        ended = await self._late.ended()
        return [replace(one, said=self._fitted(one.said)) for one in ended]

    @property
    def _stage(self) -> Scene:
        if self._scene is None:
            raise RuntimeError("handlers of settings files are run in a session: bind them to one")
        return self._scene

    async def _at_call(self, point: Point, moment: Moment) -> list[Ran]:
        fields = tell_call(point, moment, self._stage, self._values)
        return await self._run(_Firing(point, moment.tool, fields, moment))

    async def _run(self, fired: "_Firing") -> list[Ran]:
        chosen = self._chosen(fired)
        if self._compose == "chain":
            return await self._in_turn(chosen, fired)
        slots: list[Ran | None] = [None] * len(chosen)
        data = _encoded(fired.fields)

        async def fill(position: int) -> None:
            slots[position] = await self._one(chosen[position], fired, data)

        if len(chosen) == 1:
            await fill(0)
        elif chosen:
            async with anyio.create_task_group() as group:
                for position in range(len(chosen)):
                    group.start_soon(fill, position)
        return [ran for ran in slots if ran is not None]

    async def _in_turn(self, chosen: Sequence[Registered], fired: "_Firing") -> list[Ran]:
        """One after the other, until one says no; each is told what the one before changed."""
        done: list[Ran] = []
        fields = dict(fired.fields)
        for one in chosen:
            ran = await self._one(one, replace(fired, fields=fields), _encoded(fields))
            done.append(ran)
            if ran.said.input is not None:
                fields["tool_input"] = ran.said.input
            if ran.said.output is not UNSET:
                fields["tool_response"] = ran.said.output
            if isinstance(ran.said.decision, Deny):
                break
        return done

    def _chosen(self, fired: "_Firing") -> list[Registered]:
        """The handlers that want to hear of it, each once."""
        chosen: dict[object, Registered] = {}
        for place, one in enumerate(self._registered):
            if one.point != fired.point or place in self._spent:
                continue
            if fired.matches(one) and self._wants(one, fired):
                chosen.setdefault((type(one.handler), one.handler.key), one)
                if one.once:
                    self._spent.add(place)
        return list(chosen.values())

    def _wants(self, one: Registered, fired: "_Firing") -> bool:
        if one.speaks_of is None:
            return True
        return fired.moment is not None and one.speaks_of(fired.moment, self._stage)

    async def _one(self, one: Registered, fired: "_Firing", data: bytes) -> Ran:
        began = time.perf_counter()
        seconds = self._seconds(one, fired)
        file = self._variables.new_file(self._stage) if fired.point in WRITING else None
        more = {} if file is None else {NAME: str(file)}
        told = Told(fired.point, fired.fields, data, self._stage, more)
        heard = await _heard(one.handler, told, seconds)
        ear = Ear(fired.point, one.handler.name, fired.about or "", self._values)
        ran = Ran(
            point=fired.point,
            name=f"{fired.point}:{fired.about}" if fired.about else fired.point,
            command=one.handler.name,
            source=one.source,
            heard=heard,
            said=self._fitted(self._judged(one, ear, heard)),
            duration_ms=(time.perf_counter() - began) * 1e3,
            timeout_ms=seconds * 1e3,
            variables=file,
        )
        if heard.later is not None:
            self._late.watch(ran, heard.later, ear, wakes=one.wakes)
        return ran

    def _judged(self, one: Registered, ear: Ear, heard: Heard) -> Said:
        """What it means; a failure is an objection where hooks fail closed."""
        said = ear.understand(heard)
        closed = one.closed or (self._fail_closed and ear.point in GUARDS)
        if said.error is None or not closed:
            return said
        course = "timed out" if heard.end == "timed_out" else "failed"
        why = 'onFailure is "block"' if one.closed else "hooks fail closed here"
        detail = heard.stderr.strip() or heard.problem or ""
        words = f"{course}; blocking because {why}" + (f"\n{detail}" if detail else "")
        return replace(ear.blocked(words), error=said.error)

    def _seconds(self, one: Registered, fired: "_Firing") -> float:
        usual = _PROMPT_TIMEOUT if fired.point == "UserPromptSubmit" else self._values.timeout
        seconds = one.timeout if one.timeout is not None else usual
        return seconds if fired.budget is None else min(seconds, fired.budget)

    def _fitted(self, said: Said) -> Said:
        """With words that are not too long for whoever reads them."""
        if not said.contexts and said.block is None and said.message is None:
            return said
        folder = self._stage.folder
        contexts = tuple(shortened(text, folder) for text in said.contexts)
        block = None if said.block is None else shortened(said.block, folder)
        message = None if said.message is None else shortened(said.message, folder)
        return replace(said, contexts=contexts, block=block, message=message)


@dataclass(frozen=True, slots=True)
class _Firing:
    """One point, fired once."""

    point: Point
    about: str | None
    fields: Mapping[str, object]
    moment: Moment | None = None
    budget: float | None = None
    """Seconds that all handlers have together."""

    def matches(self, one: Registered) -> bool:
        """Whether the handler is for this; a call by its tool's own name and by the one used."""
        used = self.moment.call.tool if self.moment is not None else self.about
        return one.matches(self.about) or one.matches(used)


async def _heard(handler: Handler, told: Told, seconds: float) -> Heard:
    """What a handler leaves, within its time; its faults are its own."""
    with anyio.move_on_after(seconds):
        try:
            return await handler.run(told)
        except anyio.get_cancelled_exc_class() as error:
            if is_cancelled():
                raise
            return Heard(end="failed", problem=f"it was cut off: {words_of(error)}")
        except Exception as error:  # noqa: BLE001 - whatever it is, the call must have its result
            return Heard(end="failed", problem=f"{type(error).__name__}: {words_of(error)}")
    return Heard(end="timed_out")


def _encoded(fields: Mapping[str, object]) -> bytes:
    try:
        return msgspec.json.encode(fields, enc_hook=str) + b"\n"
    except (UnicodeEncodeError, TypeError, ValueError):  # half a letter, or a key of another kind
        return json.dumps(fields, default=str).encode() + b"\n"


def _as_stops(reports: Sequence[Report]) -> tuple[Report, ...]:
    """An objection after a batch is told as the end of the turn."""
    return tuple(
        structs.replace(report, outcome="stopped") if report.outcome == "blocked" else report
        for report in reports
    )
