"""Which calls take up a failure: the chains of one agent's calls, as they grow.

In: the calls of one agent in the order it asked for them. Out: an `OpenChain` for each failure. One
pass; how a chain ended and what it is called is not known here. Read `Watch.see` first.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Literal

from toolspan.errors import SourceError
from toolspan.model.span import Span
from toolspan.model.state import OPEN_STATES, State
from toolspan.model.toolkind import tools_of
from toolspan.report.flow.target import (
    Key,
    key_of,
    mentions,
    normal_path,
    shows_only,
    tool_key,
    writes,
)

Role = Literal["attempt", "support"]

_NEAR = 10
"""Calls that may lie between a failure and its retry in another turn."""
_TIDY = 16
"""After so many calls, chains that are too far back are let go."""
_MOST_EDITS = 50
"""Edits between two runs of a command that a chain names."""
_EDITING = frozenset({"edit", "write"})
_EDITORS = tools_of("edit", "write")
REFUSED: frozenset[State] = frozenset({"denied", "blocked_by_hook"})
_RAN: frozenset[State] = frozenset({"succeeded", "failed", "timed_out"})


class OpenChain:
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
        if span.state in REFUSED:
            self.refused[span.tool] = span

    @property
    def failures(self) -> list[tuple[str, str | None]]:
        """Id and message of each call that failed."""
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
        """Whether a call is of the turn in which it failed."""
        turn = span.call.prompt_id
        return turn is not None and turn == self.start.call.prompt_id

    def attempt(self, n: int, span: Span, turns: Mapping[str, str]) -> None:
        """A call tries the same thing again."""
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
        """A call prepares a further attempt."""
        self.links.append((span, "support"))
        self.last = n


def _turn(span: Span, turns: Mapping[str, str]) -> str:
    """The turn of a call; empty when nobody knows."""
    return span.call.prompt_id or turns.get(span.id, "")


class Watch:
    """Goes through one agent's calls and keeps the chains that are open."""

    def __init__(self, turns: Mapping[str, str]) -> None:
        self._turns = turns
        self._open: dict[Key, OpenChain] = {}
        self._recent: list[OpenChain] = []
        """Chains that another tool could take up: only for a few calls."""
        self._edits: list[tuple[int, Span]] = []
        self._found: list[OpenChain] = []

    def through(self, spans: Sequence[Span]) -> list[OpenChain]:
        """All chains."""
        for n, span in enumerate(spans):
            if self._open or span.state != "succeeded":
                self.see(n, span)
            elif span.call.tool in _EDITORS:
                self._edits.append((n, span))
        return self._found

    def see(self, n: int, span: Span) -> None:
        """The agent's next call, which failed or may take up one that did."""
        if span.state in OPEN_STATES:
            return
        if n % _TIDY == 0:
            self._open = {key: one for key, one in self._open.items() if one.near(n, span)}
        key = key_of(span)
        known = self._match(n, span, key)
        if known is not None:
            self._take_up(n, span, known)
        elif span.state != "succeeded":
            self._begin(n, span, key)
        if span.state == "succeeded" and span.call.tool in _EDITORS:
            self._edits.append((n, span))

    def _take_up(self, n: int, span: Span, known: OpenChain) -> None:
        if known.beside(span):
            if span.state != "succeeded":
                known.siblings.append(span.id)
        elif _prepares(span, known):
            known.support(n, span)
        else:
            self._attempt(n, span, known)

    def _begin(self, n: int, span: Span, key: Key) -> None:
        opened = OpenChain(n, span, key)
        self._open[key] = opened
        self._recent.append(opened)
        self._found.append(opened)

    def _attempt(self, n: int, span: Span, known: OpenChain) -> None:
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

    def _match(self, n: int, span: Span, key: Key) -> OpenChain | None:
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


def _takes_up(span: Span, key: Key, known: OpenChain) -> bool:
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
    path = arguments(span).get("path")
    return isinstance(path, str) and normal_path(path) == key.name


def _looks_only(span: Span) -> bool:
    return shows_only(span.call.target or "")


def _prepares(span: Span, known: OpenChain) -> bool:
    """Whether a call only looks at what a later one is to change."""
    if known.start.call.kind not in _EDITING:
        return False
    if span.call.kind == "shell":
        return _looks_only(span)
    return span.call.kind in ("read", "search")


def arguments(span: Span) -> dict[str, object]:
    """A call's input without the words that describe it; empty when it cannot be read."""
    from toolspan.model.inputs import decode_json  # a large module that few failures need

    try:
        found = decode_json(span.call.raw_input)
    except (SourceError, ValueError):
        return {}
    given = found if isinstance(found, dict) else {}
    return {key: value for key, value in given.items() if key != "description"}
