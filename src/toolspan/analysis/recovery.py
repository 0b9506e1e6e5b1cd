"""Whether failures were recovered, for those who only ask about failures.

In: a path. Out: the facts of the calls that did not succeed, as a survey of failures gives them,
and what became of each. Reads no messages, tokens or titles. Read `file_recovery` first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain as flatten
from pathlib import Path
from typing import Literal, get_args

from msgspec import Struct

from toolspan.analysis.call_targets import (
    CallKey,
    call_key,
    command_mentions,
    is_lookup_command,
    may_write_files,
    normalize_path,
    tool_key,
)
from toolspan.analysis.phases import to_epoch_ms
from toolspan.analysis.stats import RecoveryStatus
from toolspan.errors import SourceError
from toolspan.formats.registry import get_format
from toolspan.reading.rows import CallRow, make_call_row
from toolspan.reading.scan import FileSummary, unreadable_summary
from toolspan.reading.transcript import read_calls
from toolspan.types.error_kinds import ErrorKind
from toolspan.types.span import Span
from toolspan.types.state import OPEN_STATES, State
from toolspan.types.tokens import Tokens
from toolspan.types.tool_kinds import tools_of_kinds

LinkRole = Literal["attempt", "support"]

_MAX_DISTANCE = 10
"""Calls that may lie between a failure and its retry in another turn."""
_PRUNE_INTERVAL = 16
"""After so many calls, chains that are too far back are let go."""
_MAX_EDITS = 50
"""Edits between two runs of a command that a chain names."""
_EDIT_KINDS = frozenset({"edit", "write"})
_EDIT_TOOLS = tools_of_kinds("edit", "write")
REFUSED_STATES: frozenset[State] = frozenset({"denied", "blocked_by_hook"})
_RAN_STATES: frozenset[State] = frozenset({"succeeded", "failed", "timed_out"})


class OpenChain:
    """A chain that is not finished."""

    def __init__(self, n: int, span: Span, key: CallKey) -> None:
        self.start = span
        self.key = key
        self.last_index = n
        """Where in the agent's calls its latest call stands."""
        self.attempts = [span]
        self.refusals: dict[str, Span] = {}
        """The last refusal of each tool."""
        self._note_refusal(span)
        self.siblings: list[str] = []
        self.links: list[tuple[Span, LinkRole]] = []
        self.recovered = False
        self.evasion = False

    def _note_refusal(self, span: Span) -> None:
        if span.state in REFUSED_STATES:
            self.refusals[span.tool] = span

    @property
    def failures(self) -> list[tuple[str, str | None]]:
        """Id and message of each call that failed."""
        batch = self.start.call.message_id
        beside = [(name, batch) for name in (self.start.id, *self.siblings)]
        linked = [span for span, _ in self.links if span.state != "succeeded"]
        return beside + [(span.id, span.call.message_id) for span in linked]

    def is_sibling(self, span: Span) -> bool:
        """Whether a call was asked for together with the one that failed, not because of it."""
        return span.call.message_id == self.start.call.message_id

    def can_switch_tool(self, n: int) -> bool:
        """Whether another tool may still take it up."""
        return n - self.last_index <= _MAX_DISTANCE and not self.recovered

    def is_near(self, n: int, span: Span) -> bool:
        """Whether a call may still belong to it."""
        return n - self.last_index <= _MAX_DISTANCE or self.is_same_turn(span)

    def is_same_turn(self, span: Span) -> bool:
        """Whether a call is of the turn in which it failed."""
        turn = span.call.prompt_id
        return turn is not None and turn == self.start.call.prompt_id

    def add_attempt(self, n: int, span: Span, turns: Mapping[str, str]) -> None:
        """A call tries the same thing again."""
        others = (refusal for tool, refusal in self.refusals.items() if tool != span.tool)
        turn = _turn_of(span, turns)
        if turn and span.state in _RAN_STATES and any(_turn_of(refusal, turns) == turn for refusal in others):
            self.evasion = True
        self._note_refusal(span)
        self.links.append((span, "attempt"))
        self.attempts.append(span)
        self.last_index = n
        self.recovered = span.state == "succeeded"

    def add_support(self, n: int, span: Span) -> None:
        """A call prepares a further attempt."""
        self.links.append((span, "support"))
        self.last_index = n


def _turn_of(span: Span, turns: Mapping[str, str]) -> str:
    """The turn of a call; empty when nobody knows."""
    return span.call.prompt_id or turns.get(span.id, "")


class RecoveryTracker:
    """Goes through one agent's calls and keeps the chains that are open."""

    def __init__(self, turns: Mapping[str, str]) -> None:
        self._turns = turns
        self._open_chains: dict[CallKey, OpenChain] = {}
        self._recent_chains: list[OpenChain] = []
        """Chains that another tool could take up: only for a few calls."""
        self._edits: list[tuple[int, Span]] = []
        self._chains: list[OpenChain] = []

    def track_all(self, spans: Sequence[Span]) -> list[OpenChain]:
        """All chains."""
        for n, span in enumerate(spans):
            if self._open_chains or span.state != "succeeded":
                self.add_call(n, span)
            elif span.call.tool in _EDIT_TOOLS:
                self._edits.append((n, span))
        return self._chains

    def add_call(self, n: int, span: Span) -> None:
        """The agent's next call, which failed or may take up one that did."""
        if span.state in OPEN_STATES:
            return
        if n % _PRUNE_INTERVAL == 0:
            self._open_chains = {
                key: open_chain for key, open_chain in self._open_chains.items() if open_chain.is_near(n, span)
            }
        key = call_key(span)
        chain = self._find_chain(n, span, key)
        if chain is not None:
            self._extend_chain(n, span, chain)
        elif span.state != "succeeded":
            self._start_chain(n, span, key)
        if span.state == "succeeded" and span.call.tool in _EDIT_TOOLS:
            self._edits.append((n, span))

    def _extend_chain(self, n: int, span: Span, chain: OpenChain) -> None:
        if chain.is_sibling(span):
            if span.state != "succeeded":
                chain.siblings.append(span.id)
        elif _is_preparation(span, chain):
            chain.add_support(n, span)
        else:
            self._add_attempt(n, span, chain)

    def _start_chain(self, n: int, span: Span, key: CallKey) -> None:
        opened = OpenChain(n, span, key)
        self._open_chains[key] = opened
        self._recent_chains.append(opened)
        self._chains.append(opened)

    def _add_attempt(self, n: int, span: Span, chain: OpenChain) -> None:
        if span.call.kind == "shell" == chain.start.call.kind:
            edits = self._edits_since(chain.last_index)
            if edits and not _is_lookup_call(span):
                for at, edit in edits:
                    chain.add_support(at, edit)
        chain.add_attempt(n, span, self._turns)
        if chain.recovered and self._open_chains.get(chain.key) is chain:
            del self._open_chains[chain.key]

    def _edits_since(self, n: int) -> list[tuple[int, Span]]:
        first = bisect_right(self._edits, n, key=lambda edit: edit[0])
        return self._edits[max(first, len(self._edits) - _MAX_EDITS) :]

    def _find_chain(self, n: int, span: Span, key: CallKey) -> OpenChain | None:
        """The open chain that a call takes up; chains too far back are let go."""
        if self._recent_chains:
            self._recent_chains = [candidate for candidate in self._recent_chains if candidate.can_switch_tool(n)]
        for candidate in (key, tool_key(span.tool)):
            chain = self._open_chains.get(candidate)
            if chain is not None and chain.is_near(n, span):
                return chain
            if chain is not None:
                del self._open_chains[candidate]
        if not self._recent_chains:
            return None
        return next((candidate for candidate in reversed(self._recent_chains) if _takes_up(span, key, candidate)), None)


def _takes_up(span: Span, key: CallKey, chain: OpenChain) -> bool:
    """Whether another tool does what failed: by a command that names it, or the other way round."""
    start = chain.start
    if chain.is_sibling(span):
        return False
    if start.call.kind == "shell":
        return _does_same_as_command(span, key, start.call.target or "")
    if span.call.kind == "shell":
        return command_mentions(span.call.target or "", chain.key)
    return span.tool == "Grep" and start.error_kind == "too_large" and _searches_path(span, chain.key)


def _does_same_as_command(span: Span, key: CallKey, command: str) -> bool:
    """Whether a tool reads what a command was to show, or changes what it was to change."""
    if not command_mentions(command, key):
        return False
    match span.call.kind:
        case "read" | "search":
            return is_lookup_command(command)
        case "edit" | "write":
            return may_write_files(command)
        case kind:
            return kind == "web"


def _searches_path(span: Span, key: CallKey) -> bool:
    path = call_arguments(span).get("path")
    return isinstance(path, str) and normalize_path(path) == key.name


def _is_lookup_call(span: Span) -> bool:
    return is_lookup_command(span.call.target or "")


def _is_preparation(span: Span, chain: OpenChain) -> bool:
    """Whether a call only looks at what a later one is to change."""
    if chain.start.call.kind not in _EDIT_KINDS:
        return False
    if span.call.kind == "shell":
        return _is_lookup_call(span)
    return span.call.kind in ("read", "search")


def call_arguments(span: Span) -> dict[str, object]:
    """A call's input without the words that describe it; empty when it cannot be read."""
    from toolspan.types.inputs import decode_json

    try:
        decoded = decode_json(span.call.raw_input)
    except (SourceError, ValueError):
        return {}
    tool_input = decoded if isinstance(decoded, dict) else {}
    return {key: value for key, value in tool_input.items() if key != "description"}


ChainName = Literal[
    "read_before_write", "reread_after_stale", "degradation", "retry_same", "retry_modified",
    "tool_switch", "paginate", "repair_command",
]  # fmt: skip
_TARGETED_KINDS = frozenset({"shell", "read", "edit", "write"})
"""Kinds whose calls are about something that their input names."""
_EDIT_TOOL_RANK = {"MultiEdit": 0, "Edit": 1, "Write": 2}
_TIMEOUT_KINDS: frozenset[ErrorKind] = frozenset(
    {"mcp_timeout", "permission_timeout", "command_timeout", "mcp_no_response", "network"}
)


def name_chain(chain: OpenChain) -> ChainName | None:
    """What the links of a chain amount to; the more special first."""
    start, attempts = chain.start, chain.attempts[1:]
    has_lookup = any(
        role == "support" and span.call.kind != "shell" and span.state == "succeeded" for span, role in chain.links
    )
    if has_lookup and start.error_kind == "read_required":
        return "read_before_write"
    if has_lookup and start.error_kind == "stale_file":
        return "reread_after_stale"
    if not attempts:
        return None
    if _is_degradation(chain.attempts):
        return "degradation"
    if start.error_kind == "too_large" and _reads_in_parts(attempts[-1]):
        return "paginate"
    if has_lookup and start.call.kind == "shell":
        return "repair_command"
    if attempts[-1].tool != start.tool:
        return "tool_switch"
    return "retry_same" if _same_input(start, attempts[-1]) else "retry_modified"


def _is_degradation(tried: Sequence[Span]) -> bool:
    """Each try after a timeout was a simpler tool: MultiEdit, Edit, Write."""
    steps = [_EDIT_TOOL_RANK.get(span.tool, -1) for span in tried]
    if -1 in steps or steps[0] == steps[-1] or steps != sorted(steps):
        return False
    return all(span.state == "timed_out" or span.error_kind in _TIMEOUT_KINDS for span in tried[:-1])


def _reads_in_parts(span: Span) -> bool:
    tool_input = call_arguments(span)
    return span.tool == "Grep" or bool(tool_input.keys() & {"offset", "limit", "pages"})


def _same_input(first: Span, second: Span) -> bool:
    if first.call.kind in _TARGETED_KINDS and first.call.target != second.call.target:
        return False  # told without reading either again
    first_input, second_input = call_arguments(first), call_arguments(second)
    return bool(first_input) and first_input == second_input


def group_by_agent(spans: Iterable[Span]) -> list[list[Span]]:
    """The spans of each agent by themselves, without results that nobody asked for."""
    threads: dict[str, list[Span]] = {}
    for span in spans:
        if span.state != "orphan_result":
            threads.setdefault(_agent_key(span), []).append(span)
    return list(threads.values())


def _agent_key(span: Span) -> str:
    """Who asked; old files of Claude name a subagent by the call that started it."""
    call = span.call
    inside = call.parent_call if get_format(call.dialect).inlines_agents else None
    return call.agent_id or inside or ""


CHAIN_NAMES: tuple[ChainName, ...] = get_args(ChainName)
ChainOutcome = Literal["recovered", "abandoned", "blocked"]


class ChainLink(Struct, frozen=True, kw_only=True, gc=False):
    """A call that took up a failure."""

    id: str
    tool: str
    state: State
    error_kind: ErrorKind | None
    role: LinkRole
    """An attempt at the same thing, or what prepared one: a Read, an edit."""
    target: str | None
    batch: str | None
    requested: str | None


class RecoveryChain(Struct, frozen=True, kw_only=True):
    """A failure and what was done about it."""

    name: ChainName | None
    """None when nothing was tried."""
    outcome: ChainOutcome
    evasion: bool
    """Another tool did, in the same turn, what had just been denied or blocked."""
    start: CallRow
    siblings: tuple[str, ...]
    """Calls of the same message and target that failed beside it."""
    links: tuple[ChainLink, ...]
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
        linked = [(link.id, link.batch) for link in self.links if link.state != "succeeded"]
        return [*beside, *linked, *self.forks]


def find_chains(
    spans: Iterable[Span],
    file: str = "",
    tokens: Mapping[str, Tokens] | None = None,
    turns: Mapping[str, str] | None = None,
) -> list[RecoveryChain]:
    """What was done about each failure, in the order of the failures.

    `tokens` are a transcript's `message_tokens`. `turns` names the turn of each call, by its id:
    whether a person spoke before a tool switch can only be told with them where the client did not
    record it.
    """
    open_chains = _track_chains(spans, turns or {})
    open_chains.sort(key=lambda opened: opened.start.call.at)
    return [_close_chain(opened, file, tokens or {}) for opened in open_chains]


class ChainEnding(Struct, frozen=True, kw_only=True, gc=False):
    """How a chain ended, for those who ask nothing else."""

    failures: list[tuple[str, str | None]]
    """Id and message of each call that failed."""
    recovered: bool
    by: ChainName | None
    """The chain's name, if it recovered."""


def chain_endings(spans: Iterable[Span]) -> list[ChainEnding]:
    """How the chains of these spans ended; cheaper than the chains themselves."""
    return [
        ChainEnding(
            failures=opened.failures, recovered=opened.recovered, by=name_chain(opened) if opened.recovered else None
        )
        for opened in _track_chains(spans, {})
    ]


def _track_chains(spans: Iterable[Span], turns: Mapping[str, str]) -> list[OpenChain]:
    return [opened for thread in group_by_agent(spans) for opened in RecoveryTracker(turns).track_all(thread)]


def _close_chain(opened: OpenChain, file: str, tokens: Mapping[str, Tokens]) -> RecoveryChain:
    outcome: ChainOutcome = "abandoned"
    if opened.recovered:
        outcome = "recovered"
    elif opened.attempts[-1].state in REFUSED_STATES:
        outcome = "blocked"
    name = name_chain(opened)
    return RecoveryChain(
        name=name,
        outcome=outcome,
        evasion=opened.evasion and name == "tool_switch",
        start=make_call_row(opened.start, file),
        siblings=tuple(opened.siblings),
        links=tuple(_chain_link(span, role) for span, role in opened.links),
        attempts=len(opened.attempts),
        wall_ms=_wall_ms([opened.start, *(span for span, _ in opened.links)]),
        tokens=_link_tokens([span for span, _ in opened.links], tokens),
    )


def _chain_link(span: Span, role: LinkRole) -> ChainLink:
    return ChainLink(
        id=span.id,
        tool=span.tool,
        state=span.state,
        error_kind=span.error_kind,
        role=role,
        target=span.call.target,
        batch=span.call.message_id,
        requested=span.call.requested_at,
    )


def _wall_ms(spans: Sequence[Span]) -> int | None:
    pairs = ((to_epoch_ms(span.requested), to_epoch_ms(span.finished)) for span in spans)
    times = [at for at in flatten.from_iterable(pairs) if at is not None]
    return max(times) - min(times) if times else None


def _link_tokens(spans: Sequence[Span], tokens: Mapping[str, Tokens]) -> Tokens | None:
    """The tokens of the messages these calls were asked for in."""
    messages = dict.fromkeys(span.call.message_id or "" for span in spans)
    costs = [tokens[name] for name in messages if name in tokens]
    return sum(costs, Tokens()) if costs else None


class FileRecovery(Struct, frozen=True, kw_only=True):
    """The failures of one file, and what was done about them."""

    facts: FileSummary
    endings: list[ChainEnding]

    @property
    def problem(self) -> str | None:
        """Why the file could not be read."""
        return self.facts.problem


def file_recovery(path: str) -> FileRecovery:
    """The failures of one file; a file that cannot be read is told, not raised."""
    return _read_recovery(path, everything=False)


def file_recovery_all(path: str) -> FileRecovery:
    """The same with the facts of all calls, for those who choose among them."""
    return _read_recovery(path, everything=True)


def _read_recovery(path: str, *, everything: bool) -> FileRecovery:
    try:
        transcript = read_calls(Path(path))
        spans = transcript.spans
    except SourceError as error:
        return FileRecovery(facts=unreadable_summary(path, error), endings=[])
    selected = spans if everything else [span for span in spans if span.state != "succeeded"]
    facts = FileSummary(
        file=transcript.file,
        info=transcript.info,
        counts=transcript.counts,
        calls=[make_call_row(span, transcript.file) for span in selected],
        message_tokens={},
        tokens_raw_sum=transcript.tokens_raw_sum,
        findings=transcript.findings,
        started=transcript.agent_starters,
        successes=[] if everything else transcript.success_keys,
    )
    return FileRecovery(facts=facts, endings=chain_endings(spans))


def failure_fates(endings: Iterable[ChainEnding]) -> dict[tuple[str, str | None], RecoveryStatus]:
    """What became of each failed call, by its id and message; of copies, the best that did."""
    fates: dict[tuple[str, str | None], RecoveryStatus] = {}
    for ending in endings:
        fate = RecoveryStatus(ending.recovered, ending.by)
        for name in ending.failures:
            if name not in fates or fate.recovered:
                fates[name] = fate
    return fates
