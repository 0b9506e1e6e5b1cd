"""A session and a model: prompts in, turns out.

    async with Session(cwd=".") as session:
        agent = Agent(session, model)
        ended = await agent.prompt("Why does the build fail?")

A turn goes prompt, reply, results, reply, … until the model has nothing more to do, or somebody
ends it: a hook, a person, a limit. Whatever happens on the way, the session's history stays one
that a server takes, so the next prompt can come. Read `Agent.prompt` first.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Literal

import anyio

from toolspan.errors import BadCall
from toolspan.hooks.points import Occasion
from toolspan.llm.blocks import text_of
from toolspan.llm.history import blocks_of
from toolspan.llm.mended import mended
from toolspan.llm.model import (
    MAX_TOKENS,
    Model,
    ModelEvent,
    ModelFailed,
    Request,
    Retrying,
    Stopped,
    Stream,
    Usage,
)
from toolspan.llm.patient import complete
from toolspan.model.live import Content
from toolspan.record import Compacted
from toolspan.session.compaction import Budget, asking, opening, tokens_in
from toolspan.session.guarded import Guarded
from toolspan.session.session import INTERRUPTED_TURN, Session

Reason = Literal[
    "completed", "max_turns", "max_tokens", "refusal", "hook_stopped", "stop_hook_prevented",
    "prompt_blocked", "tool_deferred", "aborted_tools", "aborted_streaming", "model_error",
]  # fmt: skip
"""Why a turn is over; as far as clients have a word for it, it is theirs."""
Schema = dict[str, object]
"""A tool as a request offers it."""
_MOST_BREAKS = 5
"""How many replies in a row may break off after a call."""
_ERRORS = {
    "rate_limit_error": "rate_limit",
    "authentication_error": "authentication_failed",
    "permission_error": "authentication_failed",
    "billing_error": "billing_error",
    "overloaded_error": "server_error",
    "api_error": "server_error",
}
"""What hooks are told of a failure, in the client's words."""
_TOO_LONG = ("max_tokens", "model_context_window_exceeded")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How far a turn may go."""

    turns: int | None = None
    """How often the model may speak."""
    tokens: int = MAX_TOKENS
    """How long one reply may get."""
    budget: Budget = field(default_factory=Budget)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a turn went."""

    reason: Reason
    text: str
    """What the model said last."""
    error: str | None = None
    """What went wrong, in one line."""
    turns: int
    """How often the model has spoken."""
    tokens: Mapping[str, int]
    """What its replies used together, in the API's words."""
    stop_reason: str | None = None
    duration_ms: float
    api_ms: float
    """The part of it that the model took."""

    @property
    def is_error(self) -> bool:
        """Whether the turn did not come to its own end."""
        return self.reason != "completed"

    def and_then(self, later: "Ended") -> "Ended":
        """This turn and one after it, as one."""
        return replace(
            later,
            text=later.text or self.text,
            turns=self.turns + later.turns,
            tokens=dict(Counter(self.tokens) + Counter(later.tokens)),
            duration_ms=self.duration_ms + later.duration_ms,
            api_ms=self.api_ms + later.api_ms,
        )


@dataclass(slots=True)
class _Turn:
    """A turn that goes on."""

    since: float
    count: int = 0
    tokens: Counter[str] = field(default_factory=Counter)
    usage: dict[str, object] = field(default_factory=dict)
    """Of the reply that comes in."""
    stop_reason: str | None = None
    api_s: float = 0.0
    breaks: int = 0
    compacted: bool = False
    interrupted: bool = False
    """While no reply came in and no call ran."""
    error: str | None = None
    first: int = 0
    """How long the history was before."""


class Agent:
    """A session with a model that speaks in it."""

    def __init__(
        self,
        session: Session,
        model: Model,
        *,
        system: str = "",
        limits: Limits | None = None,
        heard: Callable[[ModelEvent], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take a session that is entered, or will be before the first prompt.

        `heard` is told of everything the model streams, as it comes. It must not raise.
        """
        self.session = session
        self.model = model
        self.system = system
        self.limits = limits or Limits()
        self.context_tokens = 0
        """How long the conversation was at the last reply."""
        self.usage: Mapping[str, object] = {}
        """What the last reply used, in the API's words."""
        self.below: Counter[str] = Counter()
        """What agents below this one have used and no turn has counted yet."""
        self.offer: Callable[[list[Schema]], list[Schema]] = _as_it_is
        """What the model is told of the tools, made of what the session says of them."""
        self._heard = heard
        self._clock = clock
        self._aside: anyio.CancelScope | None = None
        """Around work that is no reply: a summary, a wait for news."""

    async def prompt(self, content: Content) -> Ended:
        """Say something, and let the model work on it until the turn is over.

        What goes wrong with the model does not raise, whoever wrote it: the turn ends, and says
        why. Calls that it had asked for have their results.
        """
        turn = _Turn(self._clock(), first=self.session.length)
        if not await self.session.submit(content):
            turn.error = self.session.stopped
            cut = self.session.interrupted
            return self._end(turn, "aborted_streaming" if cut else "prompt_blocked")
        return await self._work(turn)

    async def finish(self, content: Content) -> Ended:
        """As `prompt`, and on until what it left in the background is done and it has heard of it.

        That are agents it sent off, and hooks that run on and may wake it.
        """
        ended = await self.prompt(content)
        while not ended.is_error and (more := await self.hear_news()) is not None:
            ended = ended.and_then(more)
        return ended

    async def hear_news(self) -> Ended | None:
        """Wait for agents in the background and hooks that run on; the turn that came of them.

        None when there is none to wait for. A wait that somebody interrupts is a turn that was.
        """
        turn = _Turn(self._clock(), first=self.session.length)
        came = False
        with anyio.CancelScope() as self._aside:
            came = await self.session.news_come()
        aside, self._aside = self._aside, None
        if aside.cancelled_caught:
            turn.interrupted = True
            return self._end(turn, self._why(turn))
        return await self._work(turn) if came else None

    async def work(self) -> Ended:
        """Let the model work on a turn that the session has begun, such as `Session.woken`."""
        return await self._work(_Turn(self._clock(), first=self.session.length))

    async def go_on(self) -> Ended:
        """Come back to a call that a hook put off, and let the model work on if it is run."""
        turn = _Turn(self._clock(), first=self.session.length)
        if not await self.session.run_deferred():
            return self._end(turn, self._why(turn))
        return await self._work(turn)

    async def _work(self, turn: _Turn) -> Ended:
        try:
            return self._end(turn, await self._replies(turn))
        except ModelFailed as error:
            failure = error
        except BadCall as error:
            failure = ModelFailed(f"the reply cannot be answered: {error}")
        self.session.failed(failure)
        turn.error = failure.told()
        await self._tell_failure(_ERRORS.get(failure.kind, "unknown"), turn.error)
        return self._end(turn, "model_error")

    async def _tell_failure(self, kind: str, words: str) -> None:
        """Hooks hear that a turn did not come to its end; they have no say."""
        fields = {"error": kind, "last_assistant_message": words}
        await self.session.fire(Occasion(point="StopFailure", about=kind, fields=fields))

    def interrupt(self) -> None:
        """End the turn; every call still gets its result."""
        self.session.interrupt()
        if self._aside is not None:
            self._aside.cancel()

    @property
    def is_busy(self) -> bool:
        """Whether there is something to interrupt: a reply, calls, hooks, a summary, a wait."""
        return self._aside is not None or self.session.is_busy

    async def _replies(self, turn: _Turn) -> Reason:
        """The model speaks until it has nothing more to do."""
        most = self.limits.turns
        while most is None or turn.count < most:
            if self.limits.budget.is_spent(self.context_tokens) and not await self._compact(turn):
                return self._why(turn)
            if not await self._goes_on(turn):
                return self._why(turn)
        self.session.turns_spent(most, turn.count)
        turn.error = f"the model has spoken {turn.count} times, and no more is allowed"
        return "max_turns"

    async def _goes_on(self, turn: _Turn) -> bool:
        """One reply and its calls; whether it is the model's turn again.

        Raises:
            ModelFailed: there is no reply.
        """
        turn.count += 1
        try:
            goes_on = await self._reply(turn)
        except ModelFailed as failure:
            turn.count -= 1
            if failure.too_long and not turn.compacted:
                return await self._compact(turn)
            raise
        broken = self.session.broken
        turn.breaks = turn.breaks + 1 if broken is not None else 0
        if broken is not None and turn.breaks > _MOST_BREAKS:
            raise broken
        return goes_on

    async def _reply(self, turn: _Turn) -> bool:
        session = self.session
        turn.usage, turn.stop_reason = {}, None
        request = Request(
            messages=session.messages,
            system=self.system,
            tools=self.offer(session.schemas()),
            max_tokens=self.limits.tokens,
        )
        try:
            async with aclosing(self._listen(request, turn)) as events:
                return await session.run(events)
        finally:
            self._count(turn)

    async def _listen(self, request: Request, turn: _Turn) -> Stream:
        """The model's stream, noted as it passes."""
        since = self._clock()
        try:
            async with aclosing(mended(Guarded(self.model), request)) as events:
                async for event in events:
                    match event:
                        case Usage():
                            turn.usage |= event.tokens
                        case Stopped():
                            turn.stop_reason = event.reason
                            turn.error = _refusal(event)
                        case Retrying():
                            turn.usage = {}
                        case _:
                            pass
                    self._heard(event)
                    yield event
        finally:
            turn.api_s += self._clock() - since

    def _count(self, turn: _Turn) -> None:
        self.context_tokens = tokens_in(turn.usage) or self.context_tokens
        self.usage = dict(turn.usage) or self.usage
        for name, value in turn.usage.items():
            if isinstance(value, int):
                turn.tokens[name] += value

    async def _compact(self, turn: _Turn) -> bool:
        """Put a summary in the place of the conversation; False when that was interrupted.

        When a hook objects, or the summary says nothing, the conversation goes on as it is.

        Raises:
            ModelFailed: there is no summary to be had.
        """
        since = self._clock()
        turn.compacted = True
        before, self.context_tokens = self.context_tokens, 0
        summary = ""
        with anyio.CancelScope() as self._aside:
            summary = "" if await self._objects() else await self._summary()
        aside, self._aside = self._aside, None
        if aside.cancelled_caught:
            turn.interrupted = True
            return False
        if summary:
            took = (self._clock() - since) * 1000
            words = opening(summary)
            await self.session.compact(
                Compacted(summary=words, trigger="auto", tokens_before=before, duration_ms=took)
            )
            told = {"trigger": "auto", "compact_summary": summary}
            await self.session.fire(Occasion(point="PostCompact", about="auto", fields=told))
        return True

    async def _objects(self) -> bool:
        """Whether a hook wants to keep the conversation as it is."""
        told = {"trigger": "auto", "custom_instructions": ""}
        after = await self.session.fire(Occasion(point="PreCompact", about="auto", fields=told))
        return bool(after.feedback) or after.stop is not None

    async def _summary(self) -> str:
        request = Request(
            messages=asking(self.session.messages),
            system=self.system,
            tools=self.offer(self.session.schemas()),
            max_tokens=self.limits.tokens,
        )
        blocks, _ = await complete(Guarded(self.model), request)
        said = [done.block for done in blocks if done.block["type"] == "text"]
        return text_of(said).strip()

    def _why(self, turn: _Turn) -> Reason:
        """Why the turn is over, when it is."""
        session = self.session
        asked = any(block["type"] == "tool_result" for block in blocks_of(session.since(-1)[0]))
        if turn.interrupted:
            turn.error = INTERRUPTED_TURN
            return "aborted_streaming"
        if session.deferred is not None:
            return "tool_deferred"
        if session.interrupted:
            turn.error = session.stopped
            return "aborted_tools" if asked else "aborted_streaming"
        if session.stopped is not None:
            turn.error = session.stopped
            return "hook_stopped" if asked else "stop_hook_prevented"
        if turn.stop_reason == "refusal":
            return "refusal"
        if turn.stop_reason in _TOO_LONG:
            turn.error = "the reply got too long and was cut"
            return "max_tokens"
        return "completed"

    def _end(self, turn: _Turn, reason: Reason) -> Ended:
        turn.tokens.update(self.below)
        self.below.clear()
        return Ended(
            reason=reason,
            text=self._last_words(turn),
            error=turn.error if reason != "completed" else None,
            turns=turn.count,
            tokens=dict(turn.tokens),
            stop_reason=turn.stop_reason,
            duration_ms=(self._clock() - turn.since) * 1000,
            api_ms=turn.api_s * 1000,
        )

    def _last_words(self, turn: _Turn) -> str:
        for message in reversed(self.session.since(turn.first)):
            if message["role"] == "assistant":
                said = [dict(block) for block in blocks_of(message) if block["type"] == "text"]
                return text_of(said)
        return ""


def _as_it_is(schemas: list[Schema]) -> list[Schema]:
    return schemas


def _refusal(stopped: Stopped) -> str | None:
    if stopped.reason != "refusal":
        return None
    told = (stopped.details or {}).get("explanation")
    return f"the model refused: {told}" if told else "the model refused to go on"
