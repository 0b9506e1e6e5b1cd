"""What was done about a call that did not succeed.

In: spans in the order the model asked. Out: a `Chain` for each failure: the calls of the same agent
that took it up, in the same turn or at most ten calls later, on the same target, until one
succeeded or none followed. One pass; an input is read again only to tell a repetition from a
change. The rules are in docs/flows.md. Read `chains` first, then `_Watch.see`.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain as flatten
from typing import Literal, get_args

from msgspec import Struct

from toolspan.errors import SourceError
from toolspan.model.kind import ErrorKind
from toolspan.model.span import Span
from toolspan.model.state import OPEN_STATES, State
from toolspan.model.tokens import Tokens
from toolspan.read.facts import CallFacts, facts_of
from toolspan.report.flow.target import (
    Key,
    key_of,
    mentions,
    normal_path,
    shows_only,
    tool_key,
    writes,
)
from toolspan.report.time.phases import stamp

ChainName = Literal[
    "read_before_write", "reread_after_stale", "degradation", "retry_same", "retry_modified",
    "tool_switch", "paginate", "repair_command",
]  # fmt: skip
CHAIN_NAMES: tuple[ChainName, ...] = get_args(ChainName)
Outcome = Literal["recovered", "abandoned", "blocked"]
Role = Literal["attempt", "support"]

_NEAR = 10
"""Calls that may lie between a failure and its retry in another turn."""
_TIDY = 16
"""After so many calls, chains that are too far back are let go."""
_MOST_EDITS = 50
"""Edits between two runs of a command that a chain names."""
_EDITING = frozenset({"edit", "write"})
_TARGETED = frozenset({"shell", "read", "edit", "write"})
"""Kinds whose calls are about something that their input names."""
_REFUSED: frozenset[State] = frozenset({"denied", "blocked_by_hook"})
_RAN: frozenset[State] = frozenset({"succeeded", "failed", "timed_out"})
_LADDER = {"MultiEdit": 0, "Edit": 1, "Write": 2}
_TIMEOUTS: frozenset[ErrorKind] = frozenset(
    {"mcp_timeout", "permission_timeout", "command_timeout", "mcp_no_response", "network"}
)


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
    return [opened.closed(file, tokens or {}) for opened in found]


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
            by=_name(opened) if opened.recovered else None,
        )
        for opened in _watched(spans, {})
    ]


def _watched(spans: Iterable[Span], turns: Mapping[str, str]) -> "list[_Open]":
    return [opened for thread in by_agent(spans) for opened in _Watch(turns).through(thread)]


def by_agent(spans: Iterable[Span]) -> list[list[Span]]:
    """The spans of each agent by themselves, without results that nobody asked for."""
    threads: dict[str, list[Span]] = {}
    for span in spans:
        if span.state != "orphan_result":
            threads.setdefault(_agent(span), []).append(span)
    return list(threads.values())


def _agent(span: Span) -> str:
    """Who asked; old files of Claude name a subagent by the call that started it."""
    call = span.call
    inside = call.parent_call if call.dialect == "claude" else None
    return call.agent_id or inside or ""


class _Open:
    """A chain that is not finished."""

    def __init__(self, n: int, span: Span, key: Key) -> None:
        self.start = span
        self.key = key
        self.last = n
        """Where in the agent's calls its latest call stands."""
        self.tried = [span]
        self.refused: dict[str, Span] = {}
        """The last refusal of each tool."""
        self._note(span)
        self.siblings: list[str] = []
        self.links: list[tuple[Span, Role]] = []
        self.recovered = False
        self.evasion = False

    def _note(self, span: Span) -> None:
        if span.state in _REFUSED:
            self.refused[span.tool] = span

    @property
    def failures(self) -> list[tuple[str, str | None]]:
        batch = self.start.call.message_id
        beside = [(name, batch) for name in (self.start.id, *self.siblings)]
        linked = [span for span, _ in self.links if span.state != "succeeded"]
        return beside + [(span.id, span.call.message_id) for span in linked]

    def beside(self, span: Span) -> bool:
        """Whether a call was asked for together with the one that failed, not because of it."""
        return span.call.message_id == self.start.call.message_id

    def waits(self, n: int) -> bool:
        """Whether another tool may still take it up."""
        return n - self.last <= _NEAR and not self.recovered

    def near(self, n: int, span: Span) -> bool:
        """Whether a call may still belong to it."""
        return n - self.last <= _NEAR or self.same_turn(span)

    def same_turn(self, span: Span) -> bool:
        turn = span.call.prompt_id
        return turn is not None and turn == self.start.call.prompt_id

    def attempt(self, n: int, span: Span, turns: Mapping[str, str]) -> None:
        others = (one for tool, one in self.refused.items() if tool != span.tool)
        turn = _turn(span, turns)
        if turn and span.state in _RAN and any(_turn(one, turns) == turn for one in others):
            self.evasion = True
        self._note(span)
        self.links.append((span, "attempt"))
        self.tried.append(span)
        self.last = n
        self.recovered = span.state == "succeeded"

    def support(self, n: int, span: Span) -> None:
        self.links.append((span, "support"))
        self.last = n

    def closed(self, file: str, tokens: Mapping[str, Tokens]) -> Chain:
        outcome: Outcome = "abandoned"
        if self.recovered:
            outcome = "recovered"
        elif self.tried[-1].state in _REFUSED:
            outcome = "blocked"
        name = _name(self)
        return Chain(
            name=name,
            outcome=outcome,
            evasion=self.evasion and name == "tool_switch",
            start=facts_of(self.start, file),
            siblings=tuple(self.siblings),
            links=tuple(_link(span, role) for span, role in self.links),
            attempts=len(self.tried),
            wall_ms=_wall([self.start, *(span for span, _ in self.links)]),
            tokens=_cost([span for span, _ in self.links], tokens),
        )


def _turn(span: Span, turns: Mapping[str, str]) -> str:
    """The turn of a call; empty when nobody knows."""
    return span.call.prompt_id or turns.get(span.id, "")


class _Watch:
    """Goes through one agent's calls and keeps the chains that are open."""

    def __init__(self, turns: Mapping[str, str]) -> None:
        self._turns = turns
        self._open: dict[Key, _Open] = {}
        self._recent: list[_Open] = []
        """Chains that another tool could take up: only for a few calls."""
        self._edits: list[tuple[int, Span]] = []
        self._found: list[_Open] = []

    def through(self, spans: Sequence[Span]) -> list[_Open]:
        """All chains."""
        for n, span in enumerate(spans):
            self.see(n, span)
        return self._found

    def see(self, n: int, span: Span) -> None:
        """The agent's next call."""
        if span.state in OPEN_STATES:
            return
        if n % _TIDY == 0 and self._open:
            self._open = {key: one for key, one in self._open.items() if one.near(n, span)}
        if self._open or span.state != "succeeded":
            key = key_of(span)
            known = self._match(n, span, key)
            if known is not None:
                self._take_up(n, span, known)
            elif span.state != "succeeded":
                self._begin(n, span, key)
        if span.state == "succeeded" and span.call.kind in _EDITING:
            self._edits.append((n, span))

    def _take_up(self, n: int, span: Span, known: _Open) -> None:
        if known.beside(span):
            if span.state != "succeeded":
                known.siblings.append(span.id)
        elif _prepares(span, known):
            known.support(n, span)
        else:
            self._attempt(n, span, known)

    def _begin(self, n: int, span: Span, key: Key) -> None:
        opened = _Open(n, span, key)
        self._open[key] = opened
        self._recent.append(opened)
        self._found.append(opened)

    def _attempt(self, n: int, span: Span, known: _Open) -> None:
        if span.call.kind == "shell" == known.start.call.kind:
            edits = self._edits_since(known.last)
            if edits and not _looks_only(span):
                for at, edit in edits:
                    known.support(at, edit)
        known.attempt(n, span, self._turns)
        if known.recovered and self._open.get(known.key) is known:
            del self._open[known.key]

    def _edits_since(self, n: int) -> list[tuple[int, Span]]:
        first = bisect_right(self._edits, n, key=lambda edit: edit[0])
        return self._edits[max(first, len(self._edits) - _MOST_EDITS) :]

    def _match(self, n: int, span: Span, key: Key) -> _Open | None:
        """The open chain that a call takes up; chains too far back are let go."""
        if self._recent:
            self._recent = [one for one in self._recent if one.waits(n)]
        for one in (key, tool_key(span.tool)):
            known = self._open.get(one)
            if known is not None and known.near(n, span):
                return known
            if known is not None:
                del self._open[one]
        if not self._recent:
            return None
        return next((one for one in reversed(self._recent) if _takes_up(span, key, one)), None)


def _takes_up(span: Span, key: Key, known: _Open) -> bool:
    """Whether another tool does what failed: by a command that names it, or the other way round."""
    start = known.start
    if known.beside(span):
        return False
    if start.call.kind == "shell":
        return _does_the_same(span, key, start.call.target or "")
    if span.call.kind == "shell":
        return mentions(span.call.target or "", known.key)
    return span.tool == "Grep" and start.error_kind == "too_large" and _searched(span, known.key)


def _does_the_same(span: Span, key: Key, command: str) -> bool:
    """Whether a tool reads what a command was to show, or changes what it was to change."""
    if not mentions(command, key):
        return False
    match span.call.kind:
        case "read" | "search":
            return shows_only(command)
        case "edit" | "write":
            return writes(command)
        case kind:
            return kind == "web"


def _searched(span: Span, key: Key) -> bool:
    path = _arguments(span).get("path")
    return isinstance(path, str) and normal_path(path) == key.name


def _looks_only(span: Span) -> bool:
    return shows_only(span.call.target or "")


def _prepares(span: Span, known: _Open) -> bool:
    """Whether a call only looks at what a later one is to change."""
    if known.start.call.kind not in _EDITING:
        return False
    if span.call.kind == "shell":
        return _looks_only(span)
    return span.call.kind in ("read", "search")


def _name(chain: _Open) -> ChainName | None:
    """What the links of a chain amount to; the more special first."""
    start, attempts = chain.start, chain.tried[1:]
    looked = any(
        role == "support" and span.call.kind != "shell" and span.state == "succeeded"
        for span, role in chain.links
    )
    if looked and start.error_kind == "read_required":
        return "read_before_write"
    if looked and start.error_kind == "stale_file":
        return "reread_after_stale"
    if not attempts:
        return None
    if _degrades(chain.tried):
        return "degradation"
    if start.error_kind == "too_large" and _in_parts(attempts[-1]):
        return "paginate"
    if looked and start.call.kind == "shell":
        return "repair_command"
    if attempts[-1].tool != start.tool:
        return "tool_switch"
    return "retry_same" if _same_input(start, attempts[-1]) else "retry_modified"


def _degrades(tried: Sequence[Span]) -> bool:
    """Each try after a timeout was a simpler tool: MultiEdit, Edit, Write."""
    steps = [_LADDER.get(span.tool, -1) for span in tried]
    if -1 in steps or steps[0] == steps[-1] or steps != sorted(steps):
        return False
    return all(span.state == "timed_out" or span.error_kind in _TIMEOUTS for span in tried[:-1])


def _in_parts(span: Span) -> bool:
    given = _arguments(span)
    return span.tool == "Grep" or bool(given.keys() & {"offset", "limit", "pages"})


def _same_input(first: Span, second: Span) -> bool:
    if first.call.kind in _TARGETED and first.call.target != second.call.target:
        return False  # told without reading either again
    one, other = _arguments(first), _arguments(second)
    return bool(one) and one == other


def _arguments(span: Span) -> dict[str, object]:
    """A call's input without the words that describe it; empty when it cannot be read."""
    from toolspan.model.inputs import decode_json  # a large module that few failures need

    try:
        found = decode_json(span.call.raw_input)
    except (SourceError, ValueError):
        return {}
    given = found if isinstance(found, dict) else {}
    return {key: value for key, value in given.items() if key != "description"}


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
