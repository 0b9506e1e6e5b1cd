"""Limits for the spending of an agent, and the meter that checks them.

A limit is checked before each request to the model and before each call with side effects, so that a turn ends between
two steps and its transcript can be resumed with a higher limit. Start at `SpendingMeter.find_reached`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from toolspan.formats.registry import recorded_format
from toolspan.prices import PriceTable, load_prices
from toolspan.reading.transcript import read
from toolspan.runtime.hooks.events import HookPoint, HookRunner, PreToolDecision, ToolHookEvent
from toolspan.runtime.outcome import LIMIT_SOURCE
from toolspan.types.decision import Deny
from toolspan.types.session import RequestUsage, Tokens
from toolspan.types.span import Permission, Span

LimitName = Literal["cost", "tokens", "seconds", "calls"]
LimitScope = Literal["turn", "session"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendingLimits:
    """The most that a turn or a session may spend, subagents included. None means no limit."""

    cost: float | None = None
    """US dollars. Requests to models without a price do not count; `Spending.unpriced_tokens` has their tokens."""
    tokens: int | None = None
    """Tokens of all requests: input, cached input and output."""
    seconds: float | None = None
    """Wall time of turns. The time between turns, and before a session was resumed, does not count."""
    calls: int | None = None

    def __post_init__(self) -> None:
        for name, limit in self:
            if not limit > 0:
                raise ValueError(f"the limit for {name} must be a number greater than 0, not {limit!r}")

    def __iter__(self) -> Iterator[tuple[LimitName, float]]:
        for item in fields(self):
            if (limit := getattr(self, item.name)) is not None:
                yield item.name, limit  # type: ignore[misc]  # the fields are those of LimitName


@dataclass(slots=True, kw_only=True)
class Spending:
    """The amounts that a turn or a session has spent."""

    cost: float = 0.0
    tokens: int = 0
    seconds: float = 0.0
    calls: int = 0
    """Calls that ran, if the agent has any limit; otherwise, calls are not counted."""
    unpriced_tokens: dict[str, int] = field(default_factory=dict)
    """Tokens of models without a known price, by model. Their cost is not in `cost`."""

    def add_request(self, model: str, tokens: int, cost: float | None) -> None:
        """Add a request to a model; `cost` is None if the model has no known price."""
        self.tokens += tokens
        if cost is None:
            self.unpriced_tokens[model] = self.unpriced_tokens.get(model, 0) + tokens
        else:
            self.cost += cost


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachedLimit:
    """A limit that was reached."""

    scope: LimitScope
    name: LimitName
    limit: float
    spent: float

    def describe(self) -> str:
        """Return the limit and the amount as one sentence without a full stop."""
        return (
            f"the {self.scope} has reached its limit of {_format_amount(self.name, self.limit)}"
            f" ({_format_amount(self.name, self.spent)} used)"
        )


def _format_amount(name: LimitName, amount: float) -> str:
    match name:
        case "cost":
            return f"${amount:,.2f}" if amount >= 0.01 else f"${amount:.4f}"
        case "seconds":
            return f"{amount:,.0f} seconds" if amount >= 10 else f"{amount:.1f} seconds"
        case "tokens" | "calls":
            return f"{amount:,.0f} {name}"


@dataclass(slots=True, kw_only=True)
class SpendingMeter:
    """Counts the spending of an agent and its subagents, and compares it with the limits."""

    turn_limits: SpendingLimits
    session_limits: SpendingLimits
    clock: Callable[[], float]
    prices: PriceTable = field(default_factory=load_prices)
    turn: Spending = field(default_factory=Spending)
    session: Spending = field(default_factory=Spending)
    _turn_started_at: float | None = None

    def warn_without_price(self, model: str) -> None:
        """Log a warning if a limit for the cost cannot count the requests to a model."""
        has_limit = self.turn_limits.cost is not None or self.session_limits.cost is not None
        if has_limit and self.prices.find(model) is None:
            logging.getLogger("toolspan").warning(
                "the price of %s is unknown: limits for the cost do not count its requests; limits for tokens do", model
            )

    def start_turn(self) -> None:
        """Begin to count a turn."""
        self.turn, self._turn_started_at = Spending(), self.clock()

    def end_turn(self) -> None:
        """Add the time of the turn to the session."""
        if self._turn_started_at is not None:
            self.turn.seconds = self.clock() - self._turn_started_at
            self.session.seconds += self.turn.seconds
            self._turn_started_at = None

    def add_request(self, model: str, usage: Mapping[str, object]) -> None:
        """Count a request with the usage of its reply, by API field name."""
        if any(isinstance(value, int) and value for value in usage.values()):
            request = _request_usage(model, usage)
            for spending in (self.turn, self.session):
                self._add(spending, request)

    def add_call(self) -> None:
        """Count a call."""
        self.turn.calls += 1
        self.session.calls += 1

    def add_transcript(self, path: Path) -> None:
        """Add the requests and calls of a transcript and of its subagents to those of the session.

        Raises:
            SourceError: a transcript cannot be read.
        """
        requests: dict[str, RequestUsage] = {}
        for file in (path, *recorded_format().agent_paths(path, ())):
            if not file.exists():
                continue
            transcript = read(file)
            requests |= transcript.requests
            self.session.calls += sum(not _was_refused(span) for span in transcript.spans)
        for request in requests.values():
            self._add(self.session, request)

    def _add(self, spending: Spending, request: RequestUsage) -> None:
        tokens, model = request.tokens, request.model or "unknown"
        count = tokens.input_tokens + tokens.output_tokens
        count += tokens.cache_creation_input_tokens + tokens.cache_read_input_tokens
        at = datetime.fromisoformat(request.at) if request.at else None
        cost = self.prices.cost(model, at, tokens, cache_write_1h=request.cache_write_1h, fast=request.fast)
        spending.add_request(model, count, cost)

    def find_reached(self) -> ReachedLimit | None:
        """Return the first limit that has been reached, or None."""
        running = 0.0 if self._turn_started_at is None else self.clock() - self._turn_started_at
        scopes: tuple[tuple[LimitScope, SpendingLimits, Spending], ...] = (
            ("turn", self.turn_limits, self.turn),
            ("session", self.session_limits, self.session),
        )
        for scope, limits, spending in scopes:
            for name, limit in limits:
                spent = getattr(spending, name) + (running if name == "seconds" else 0)
                if spent >= limit:
                    return ReachedLimit(scope=scope, name=name, limit=limit, spent=spent)
        return None


def _was_refused(span: Span) -> bool:
    """Return whether a limit has prevented a call, which counts as little as it did then."""
    return any(isinstance(event, Permission) and event.source == LIMIT_SOURCE for event in span.events)


def _request_usage(model: str, usage: Mapping[str, object]) -> RequestUsage:
    def count(fields: Mapping[str, object], name: str) -> int:
        value = fields.get(name)
        return value if isinstance(value, int) else 0

    creation = usage.get("cache_creation")
    return RequestUsage(
        at=datetime.now(UTC).isoformat(),
        model=model,
        tokens=Tokens(
            input_tokens=count(usage, "input_tokens"),
            output_tokens=count(usage, "output_tokens"),
            cache_creation_input_tokens=count(usage, "cache_creation_input_tokens"),
            cache_read_input_tokens=count(usage, "cache_read_input_tokens"),
        ),
        cache_write_1h=count(creation, "ephemeral_1h_input_tokens") if isinstance(creation, Mapping) else 0,
        fast=usage.get("speed") == "fast",
    )


class LimitHooks(HookRunner):
    """Counts calls, and denies calls with side effects once a limit has been reached."""

    is_empty = False

    def __init__(self, meter: SpendingMeter, on_reached: Callable[[ReachedLimit], None]) -> None:
        """Create hooks for a meter. `on_reached` is called each time that a call is denied."""
        self._meter, self._on_reached = meter, on_reached

    def has_handler(self, point: HookPoint) -> bool:
        """Return whether there is a handler at this point."""
        return point == "PreToolUse"

    async def run_pre_tool_use(self, tool_event: ToolHookEvent) -> PreToolDecision:
        """Count the call, or deny it. The turn ends before the next request, when other calls have ended."""
        reached = self._meter.find_reached()
        tool = tool_event.definition
        if reached is None or (tool is not None and tool.read_only):
            self._meter.add_call()
            return PreToolDecision()
        self._on_reached(reached)
        text = reached.describe()
        reason = f"{text[0].upper()}{text[1:]}, so this call was not run."
        return PreToolDecision(decision=Deny(reason, LIMIT_SOURCE))
