"""What was done about a call that did not succeed.

In: spans in the order the model asked. Out: a `Chain` for each failure: the calls of the same agent
that took it up, in the same turn or at most ten calls later, on the same target, until one
succeeded or none followed. The rules are in docs/flows.md. Read `chains` first; `watch.py` goes
through the calls, `naming.py` finds the word for what it saw.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain as flatten
from typing import Literal, get_args

from msgspec import Struct

from toolspan.model.kind import ErrorKind
from toolspan.model.span import Span
from toolspan.model.state import State
from toolspan.model.tokens import Tokens
from toolspan.read.facts import CallFacts, facts_of
from toolspan.report.flow.agents import by_agent
from toolspan.report.flow.naming import ChainName, name_of
from toolspan.report.flow.watch import REFUSED, OpenChain, Role, Watch
from toolspan.report.time.phases import stamp

CHAIN_NAMES: tuple[ChainName, ...] = get_args(ChainName)
Outcome = Literal["recovered", "abandoned", "blocked"]


class Link(Struct, frozen=True, kw_only=True, gc=False):
    """A call that took up a failure."""

    id: str
    tool: str
    state: State
    error_kind: ErrorKind | None
    role: Role
    """An attempt at the same thing, or what prepared one: a Read, an edit."""
    target: str | None
    batch: str | None
    requested: str | None


class Chain(Struct, frozen=True, kw_only=True):
    """A failure and what was done about it."""

    name: ChainName | None
    """None when nothing was tried."""
    outcome: Outcome
    evasion: bool
    """Another tool did, in the same turn, what had just been denied or blocked."""
    start: CallFacts
    siblings: tuple[str, ...]
    """Calls of the same message and target that failed beside it."""
    links: tuple[Link, ...]
    forks: tuple[tuple[str, str | None], ...] = ()
    """Id and message of calls that failed where another session went on from the same failure."""
    attempts: int
    """How often it was tried, the first time included."""
    wall_ms: int | None
    """From the first request to the last result."""
    tokens: Tokens | None
    """What the messages of the links cost, when the transcript says."""

    @property
    def failures(self) -> list[tuple[str, str | None]]:
        """Id and message of each call that failed: the first, those beside it, links, forks."""
        beside = [(name, self.start.batch) for name in (self.start.id, *self.siblings)]
        linked = [(one.id, one.batch) for one in self.links if one.state != "succeeded"]
        return [*beside, *linked, *self.forks]


def chains(
    spans: Iterable[Span],
    file: str = "",
    tokens: Mapping[str, Tokens] | None = None,
    turns: Mapping[str, str] | None = None,
) -> list[Chain]:
    """What was done about each failure, in the order of the failures.

    `tokens` are a transcript's `message_tokens`. `turns` names the turn of each call, by its id:
    whether a person spoke before a tool switch can only be told with them where the client did not
    record it.
    """
    found = _watched(spans, turns or {})
    found.sort(key=lambda opened: opened.start.call.at)
    return [_closed(opened, file, tokens or {}) for opened in found]


class Ending(Struct, frozen=True, kw_only=True, gc=False):
    """How a chain ended, for those who ask nothing else."""

    failures: list[tuple[str, str | None]]
    """Id and message of each call that failed."""
    recovered: bool
    by: ChainName | None
    """The chain's name, if it recovered."""


def endings(spans: Iterable[Span]) -> list[Ending]:
    """How the chains of these spans ended; cheaper than the chains themselves."""
    return [
        Ending(
            failures=opened.failures,
            recovered=opened.recovered,
            by=name_of(opened) if opened.recovered else None,
        )
        for opened in _watched(spans, {})
    ]


def _watched(spans: Iterable[Span], turns: Mapping[str, str]) -> list[OpenChain]:
    return [opened for thread in by_agent(spans) for opened in Watch(turns).through(thread)]


def _closed(opened: OpenChain, file: str, tokens: Mapping[str, Tokens]) -> Chain:
    outcome: Outcome = "abandoned"
    if opened.recovered:
        outcome = "recovered"
    elif opened.tried[-1].state in REFUSED:
        outcome = "blocked"
    name = name_of(opened)
    return Chain(
        name=name,
        outcome=outcome,
        evasion=opened.evasion and name == "tool_switch",
        start=facts_of(opened.start, file),
        siblings=tuple(opened.siblings),
        links=tuple(_link(span, role) for span, role in opened.links),
        attempts=len(opened.tried),
        wall_ms=_wall([opened.start, *(span for span, _ in opened.links)]),
        tokens=_cost([span for span, _ in opened.links], tokens),
    )


def _link(span: Span, role: Role) -> Link:
    return Link(
        id=span.id,
        tool=span.tool,
        state=span.state,
        error_kind=span.error_kind,
        role=role,
        target=span.call.target,
        batch=span.call.message_id,
        requested=span.call.requested_at,
    )


def _wall(spans: Sequence[Span]) -> int | None:
    pairs = ((stamp(span.requested), stamp(span.finished)) for span in spans)
    times = [at for at in flatten.from_iterable(pairs) if at is not None]
    return max(times) - min(times) if times else None


def _cost(spans: Sequence[Span], tokens: Mapping[str, Tokens]) -> Tokens | None:
    """The tokens of the messages these calls were asked for in."""
    messages = dict.fromkeys(span.call.message_id or "" for span in spans)
    known = [tokens[name] for name in messages if name in tokens]
    return sum(known, Tokens()) if known else None
