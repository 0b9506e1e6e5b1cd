"""Recovery chains: a failed call and the later calls that retried it, prepared a retry or replaced it.

`find_chains` describes each chain in full (`toolspan flows`, `toolspan show`). `chain_endings` returns only the
outcome of each chain (`toolspan errors`). Calls are compared by their `CallKey`, never by their whole input.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import zip_longest
from pathlib import PurePosixPath
from typing import Literal, NamedTuple, get_args
from urllib.parse import urlsplit

from msgspec import Struct

from toolspan.errors import SourceError
from toolspan.formats.registry import get_format
from toolspan.reading.rows import CallRow, make_call_row
from toolspan.types.error_kinds import ErrorKind
from toolspan.types.inputs import decode_json
from toolspan.types.session import Tokens
from toolspan.types.span import Span, to_epoch_ms
from toolspan.types.state import OPEN_STATES, State
from toolspan.types.tool_kinds import tools_of_kinds

_PREFIXES = re.compile(r"\s*(?:cd\s+[^&;|]+(?:&&|;)\s*|(?:\w+=\S*|sudo|time|env|nohup|timeout\s+\S+)\s+)+")
"""Folder changes, variable assignments and wrappers in front of the program."""
_COMMAND_START = re.compile(r"[^\s;|&<>()]+(?:\s+[^\s;|&<>()]+){0,2}")
_TWO_PART_SUBCOMMANDS = frozenset({"run", "exec", "compose", "-m"})
"""Words that form a subcommand together with the next word, as in `npm run build`."""
_TWO_PART_PROGRAMS = frozenset({"aws", "az", "gcloud", "gh", "kubectl"})
_LOOKUP_KINDS = {
    **dict.fromkeys(("cat", "head", "tail", "nl", "bat", "less", "more", "sed"), "read"),
    **dict.fromkeys(("grep", "egrep", "fgrep", "rg", "ag"), "search"),
    **dict.fromkeys(("ls", "find", "fd", "tree"), "list"),
    **dict.fromkeys(("wc", "stat", "file", "diff", "awk", "sort", "uniq", "cut", "echo", "pwd", "cd"), "other"),
    **dict.fromkeys(("git diff", "git log", "git show", "git status", "git blame"), "other"),
}
_MAX_TARGET_CHARS = 160
"""Targets longer than this may have been truncated."""
_COMMAND_SEPARATOR = re.compile(r"&&|\|\||[;|\n]")
_WRITE_PATTERN = re.compile(r"\d?>(?!\s*(?:/dev/null|&\d))|\btee\b|\s-(?:i|delete|exec)\b")


class CallKey(NamedTuple):
    """A normalized target, by which calls are compared. Calls with the same key belong to the same chain."""

    kind: str
    name: str


def _call_key(span: Span) -> CallKey:
    target, tool = span.call.target, span.tool
    if target:
        match span.call.kind:
            case "read" | "edit" | "write":
                return CallKey("path", _normalize_path(target))
            case "search" if tool == "LS":
                return CallKey("path", _normalize_path(target))
            case "shell":
                return CallKey("command", _command_head(target))
            case "web":
                try:
                    host = urlsplit(target).hostname
                except ValueError:
                    host = None
                return CallKey("host", host) if host else CallKey(tool, target)
            case "mcp":
                return CallKey("server", tool.removeprefix("mcp__").partition("__")[0])
            case "search" | "agent":
                return CallKey(tool, target)
            case _:
                pass
    return CallKey("tool", tool)


def _normalize_path(path: str) -> str:
    path = path.replace("\\", "/")
    plain = "/./" not in path and "//" not in path and not path.endswith("/")
    return path if plain else str(PurePosixPath(path))


@lru_cache(maxsize=1_024)
def _command_head(command: str) -> str:
    """Return the program and subcommand of a command, such as `git push`, `npm run build` or `make test`."""
    start = _PREFIXES.match(command)
    match = _COMMAND_START.search(command, start.end() if start else 0)
    if match is None:
        return command.strip()
    first, *arguments = match[0].split()
    program = first.rpartition("/")[2]
    if program in _TWO_PART_PROGRAMS or (arguments[:1] and arguments[0] in _TWO_PART_SUBCOMMANDS):
        return " ".join([program, *arguments])
    return f"{program} {arguments[0]}" if arguments and not arguments[0].startswith("-") else program


def is_lookup(span: Span) -> bool:
    """Return whether a call, or the command it runs, only reads or searches."""
    if span.call.kind == "shell":
        return bool(lookup_kind(span.call.target or ""))
    return span.call.kind in ("read", "search") and span.tool not in ("ToolSearch", "tool_search")


def lookup_kind(command: str) -> str:
    """Return `read`, `search`, `list` or `other`, or an empty string if the command may do anything else.

    All its programs must be known. A separator inside quotes makes a program unknown.
    """
    if len(command) >= _MAX_TARGET_CHARS or _WRITE_PATTERN.search(command):
        return ""
    heads = [_command_head(piece) for piece in _COMMAND_SEPARATOR.split(command) if piece.strip()]
    kinds = [_LOOKUP_KINDS.get(head.partition(" ")[0]) or _LOOKUP_KINDS.get(head, "") for head in heads]
    return next((kind for kind in kinds if kind != "other"), "other") if all(kinds) else ""


def path_names_in(target: str) -> set[str]:
    """Return the last components of all paths in a target or command."""
    tokens = re.split(r"[\s'\"=:;|&()<>]+", target.replace("\\", "/"))
    return {word.rstrip("/").rpartition("/")[2] for word in tokens if "/" in word or "." in word}


def _command_mentions(command: str, key: CallKey) -> bool:
    if key.kind == "host":
        return key.name in command
    if key.kind != "path":
        return False
    name = key.name.rpartition("/")[2]
    if not name or name not in command:
        return False
    return key.name in command or bool(re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", command))


CallRef = tuple[str, str | None]
"""A call's id and the id of the message that requested it. Some clients reuse call ids."""
ChainName = Literal[
    "read_before_write", "reread_after_stale", "degradation", "retry_same", "retry_modified",
    "tool_switch", "paginate", "repair_command",
]  # fmt: skip
CHAIN_NAMES: tuple[ChainName, ...] = get_args(ChainName)
CHAIN_WORDS: dict[str, str] = {
    "read_before_write": "read the file first",
    "reread_after_stale": "read the changed file again",
    "degradation": "used a simpler tool",
    "retry_same": "retried unchanged",
    "retry_modified": "retried with changes",
    "tool_switch": "used another tool",
    "paginate": "read in parts",
    "repair_command": "repaired files and ran it again",
}
"""The names of chains as phrases, for display."""
ChainOutcome = Literal["recovered", "abandoned", "blocked"]

_MAX_DISTANCE = 10
_PRUNE_INTERVAL = 16
_MAX_EDITS = 50
_EDIT_TOOLS = tools_of_kinds("edit", "write")
_EDIT_TOOL_RANK = {"MultiEdit": 0, "Edit": 1, "Write": 2}
_TARGETED_KINDS = frozenset({"shell", "read", "edit", "write"})
"""Kinds of tools whose input states the target of the call."""
_REFUSED_STATES: frozenset[State] = frozenset({"denied", "blocked_by_hook"})
_RAN_STATES: frozenset[State] = frozenset({"succeeded", "failed", "timed_out"})
_TIMEOUT_KINDS: frozenset[ErrorKind] = frozenset(
    {"mcp_timeout", "permission_timeout", "command_timeout", "mcp_no_response", "network"}
)


class ChainLink(Struct, frozen=True, kw_only=True, gc=False):
    """A later call that belongs to the chain of a failure."""

    id: str
    tool: str
    state: State
    error_kind: ErrorKind | None
    role: Literal["attempt", "support"]
    """`attempt` for a retry; `support` for a call that prepares one, such as a Read or an edit."""
    target: str | None
    batch: str | None
    requested: str | None


class RecoveryChain(Struct, frozen=True, kw_only=True):
    """A failed call and the calls that tried to recover from it."""

    name: ChainName | None
    """The kind of recovery; None if nothing was tried."""
    outcome: ChainOutcome
    evasion: bool
    """True if another tool was used in the same turn to do what had just been denied or blocked."""
    start: CallRow
    siblings: tuple[str, ...]
    """Calls in the same message with the same target that failed as well."""
    links: tuple[ChainLink, ...]
    forks: tuple[CallRef, ...] = ()
    """Failed retries that occur only in other copies of the session."""
    attempts: int
    wall_ms: int | None
    tokens: Tokens | None
    """Tokens used by the messages that requested the links, if recorded."""

    @property
    def failures(self) -> list[CallRef]:
        """All failed calls: the first one, its siblings, failed links and forks."""
        first = [(call_id, self.start.batch) for call_id in (self.start.id, *self.siblings)]
        linked = [(link.id, link.batch) for link in self.links if not _is_success(link)]
        return [*first, *linked, *self.forks]


class ChainEnding(Struct, frozen=True, kw_only=True, gc=False):
    """The outcome of a chain, without its links."""

    failures: list[CallRef]
    recovered: bool
    by: ChainName | None
    """The chain's name if it led to a recovery."""
    lost_ms: int = 0
    """Time from the first failure to the last attempt: the failed calls, and those that prepared the next attempt,
    with the time of the model in between. Long gaps and refusals, in which a person was waited for, do not count.
    """
    lost_tokens: int = 0
    """Tokens of the requests that made the later calls, without those read from the cache."""


def _is_success(call: Span | ChainLink) -> bool:
    """Return whether a call did its work. A search that found nothing did."""
    return call.state == "succeeded" or call.error_kind == "nothing_found"


def find_chains(
    spans: Iterable[Span],
    file: str = "",
    tokens: Mapping[str, Tokens] | None = None,
    turns: Mapping[str, str] | None = None,
) -> list[RecoveryChain]:
    """Return the chain of each failure, in the order of the failures.

    Args:
        spans: the calls of one transcript.
        file: the path to put in the rows.
        tokens: the transcript's `message_tokens`.
        turns: the turn of each call, by call id. Needed to detect evasions where the client did not
            record the prompt of a call.
    """
    tokens = tokens or {}
    open_chains = [chain for thread in group_by_agent(spans) for chain in _RecoveryTracker(turns or {}).track(thread)]
    chains: list[RecoveryChain] = []
    for chain in sorted(open_chains, key=lambda chain: chain.start.call.at):
        outcome: ChainOutcome = "blocked" if chain.attempts[-1].state in _REFUSED_STATES else "abandoned"
        name = _name_chain(chain)
        calls = [chain.start, *(span for span, _ in chain.links)]
        times = [ms for span in calls for at in (span.requested, span.finished) if (ms := to_epoch_ms(at)) is not None]
        messages = dict.fromkeys(span.call.message_id or "" for span in calls[1:])
        costs = [tokens[message] for message in messages if message in tokens]
        links = [
            ChainLink(
                id=span.id,
                tool=span.tool,
                state=span.state,
                error_kind=span.error_kind,
                role="attempt" if is_attempt else "support",
                target=span.call.target,
                batch=span.call.message_id,
                requested=span.call.requested_at,
            )
            for span, is_attempt in chain.links
        ]
        chains.append(
            RecoveryChain(
                name=name,
                outcome="recovered" if chain.recovered else outcome,
                evasion=chain.evasion and name == "tool_switch",
                start=make_call_row(chain.start, file),
                siblings=tuple(chain.siblings),
                links=tuple(links),
                attempts=len(chain.attempts),
                wall_ms=max(times) - min(times) if times else None,
                tokens=sum(costs, Tokens()) if costs else None,
            )
        )
    return chains


def chain_endings(spans: Iterable[Span], tokens: Mapping[str, Tokens] | None = None) -> list[ChainEnding]:
    """Return the outcomes of the chains in these spans. This is faster than `find_chains`.

    `tokens` are the transcript's `message_tokens`.
    """
    endings: list[ChainEnding] = []
    for thread in group_by_agent(spans):
        for chain in _RecoveryTracker({}).track(thread):
            first = [(call_id, chain.start.call.message_id) for call_id in (chain.start.id, *chain.siblings)]
            linked = [(span.id, span.call.message_id) for span, _ in chain.links if not _is_success(span)]
            name = _name_chain(chain) if chain.recovered else None
            endings.append(
                ChainEnding(
                    failures=[*first, *linked],
                    recovered=chain.recovered,
                    by=name,
                    lost_ms=_lost_ms([chain.start, *(span for span, _ in chain.links)]),
                    lost_tokens=_lost_tokens(chain, tokens or {}),
                )
            )
    return endings


_MAX_THOUGHT_MS = 5 * 60_000
"""A longer gap between two calls is not the model's time: the session was idle."""


def _lost_ms(calls: Sequence[Span]) -> int:
    """Return the time that the calls of a chain took, without the last one if it succeeded."""
    lost = 0.0
    for call, following in zip_longest(calls, calls[1:]):
        if following is None and _is_success(call):
            break
        start, end = to_epoch_ms(call.requested), to_epoch_ms(call.finished)
        if call.state not in _REFUSED_STATES:
            lost += call.duration_ms or 0
        next_start = to_epoch_ms(following.requested) if following is not None else None
        thought = next_start - (end or start or next_start) if next_start is not None else 0
        lost += thought if 0 < thought <= _MAX_THOUGHT_MS else 0
    return round(lost)


def _lost_tokens(chain: _OpenChain, tokens: Mapping[str, Tokens]) -> int:
    messages = {span.call.message_id or "" for span, _ in chain.links} - {chain.start.call.message_id}
    used = [tokens[message] for message in messages if message in tokens]
    return sum(item.input_tokens + item.output_tokens + item.cache_creation_input_tokens for item in used)


def group_by_agent(spans: Iterable[Span]) -> list[list[Span]]:
    """Group spans by agent and drop orphan results."""
    threads: dict[str, list[Span]] = {}
    for span in spans:
        if span.state != "orphan_result":
            call = span.call
            # Old Claude Code files identify a subagent by the call that started it.
            starter = call.parent_call if get_format(call.client).inlines_agents else None
            threads.setdefault(call.agent_id or starter or "", []).append(span)
    return list(threads.values())


class _OpenChain:
    """A chain under construction."""

    def __init__(self, index: int, span: Span, key: CallKey) -> None:
        self.start = span
        self.key = key
        self.last_index = index
        """Index of the chain's latest call in the agent's calls."""
        self.attempts = [span]
        self.refusals = {span.tool: span} if span.state in _REFUSED_STATES else {}
        """The last refused call for each tool."""
        self.siblings: list[str] = []
        self.links: list[tuple[Span, bool]] = []
        """Later calls, and whether each is an attempt or only prepares one."""
        self.recovered = False
        self.evasion = False

    def is_near(self, index: int, span: Span) -> bool:
        """Return whether a call is close enough to the chain or in the same turn as the first failure."""
        if index - self.last_index <= _MAX_DISTANCE:
            return True
        turn = span.call.prompt_id
        return turn is not None and turn == self.start.call.prompt_id

    def add_link(self, index: int, span: Span, *, is_attempt: bool) -> None:
        self.links.append((span, is_attempt))
        self.last_index = index


class _RecoveryTracker:
    """A builder for the recovery chains in the calls of one agent."""

    def __init__(self, turns: Mapping[str, str]) -> None:
        self._turns = turns
        self._open_chains: dict[CallKey, _OpenChain] = {}
        self._recent_chains: list[_OpenChain] = []
        self._edits: list[tuple[int, Span]] = []
        self._chains: list[_OpenChain] = []

    def track(self, spans: Sequence[Span]) -> list[_OpenChain]:
        for index, span in enumerate(spans):
            if self._open_chains or not _is_success(span):
                self._add_call(index, span)
            elif span.call.tool in _EDIT_TOOLS:
                self._edits.append((index, span))
        return self._chains

    def _add_call(self, index: int, span: Span) -> None:
        """Start or continue a chain with a call, if it failed or belongs to an open chain."""
        if span.state in OPEN_STATES:
            return
        if index % _PRUNE_INTERVAL == 0:
            self._open_chains = {key: chain for key, chain in self._open_chains.items() if chain.is_near(index, span)}
        key = _call_key(span)
        chain = self._find_chain(index, span, key)
        if chain is None:
            if not _is_success(span):
                chain = self._open_chains[key] = _OpenChain(index, span, key)
                self._recent_chains.append(chain)
                self._chains.append(chain)
        elif span.call.message_id == chain.start.call.message_id:  # requested together, and so not in response to it
            if not _is_success(span):
                chain.siblings.append(span.id)
        elif chain.start.call.kind in ("edit", "write") and is_lookup(span):
            chain.add_link(index, span, is_attempt=False)
        else:
            self._add_attempt(index, span, chain)
        if span.state == "succeeded" and span.call.tool in _EDIT_TOOLS:
            self._edits.append((index, span))

    def _add_attempt(self, index: int, span: Span, chain: _OpenChain) -> None:
        # Edits between two runs of a command are the repair, unless the second command is only a lookup.
        if span.call.kind == "shell" == chain.start.call.kind and not lookup_kind(span.call.target or ""):
            first = bisect_right(self._edits, chain.last_index, key=lambda edit: edit[0])
            for edit_index, edit in self._edits[max(first, len(self._edits) - _MAX_EDITS) :]:
                chain.add_link(edit_index, edit, is_attempt=False)
        turn = self._turn_of(span)
        if turn and span.state in _RAN_STATES:
            chain.evasion |= any(
                self._turn_of(refusal) == turn for tool, refusal in chain.refusals.items() if tool != span.tool
            )
        if span.state in _REFUSED_STATES:
            chain.refusals[span.tool] = span
        chain.attempts.append(span)
        chain.add_link(index, span, is_attempt=True)
        chain.recovered = _is_success(span)
        if chain.recovered and self._open_chains.get(chain.key) is chain:
            del self._open_chains[chain.key]

    def _turn_of(self, span: Span) -> str:
        return span.call.prompt_id or self._turns.get(span.id, "")

    def _find_chain(self, index: int, span: Span, key: CallKey) -> _OpenChain | None:
        """Return the open chain that a call continues, or None. Chains that are too far away are dropped."""
        if self._recent_chains:
            self._recent_chains = [
                chain
                for chain in self._recent_chains
                if index - chain.last_index <= _MAX_DISTANCE and not chain.recovered
            ]
        for candidate in (key, CallKey("tool", span.tool)):
            chain = self._open_chains.get(candidate)
            if chain is not None and chain.is_near(index, span):
                return chain
            if chain is not None:
                del self._open_chains[candidate]
        return next((chain for chain in reversed(self._recent_chains) if _replaces(span, key, chain)), None)


def _replaces(span: Span, key: CallKey, chain: _OpenChain) -> bool:
    """Return whether a call to another tool replaces the failed call: a command instead of a tool, or the reverse."""
    start, kind = chain.start, span.call.kind
    if span.call.message_id == start.call.message_id:
        return False
    if start.call.kind == "shell":
        command = start.call.target or ""
        if not _command_mentions(command, key):
            return False
        if kind in ("read", "search"):
            return bool(lookup_kind(command))
        return bool(_WRITE_PATTERN.search(command)) if kind in ("edit", "write") else kind == "web"
    if kind == "shell":
        return _command_mentions(span.call.target or "", chain.key)
    if span.tool != "Grep" or start.error_kind != "too_large":
        return False
    path = _call_arguments(span).get("path")
    return isinstance(path, str) and _normalize_path(path) == chain.key.name


def _name_chain(chain: _OpenChain) -> ChainName | None:
    start, last = chain.start, chain.attempts[-1]
    has_lookup = any(
        not is_attempt and span.call.kind != "shell" and span.state == "succeeded" for span, is_attempt in chain.links
    )
    if has_lookup and start.error_kind == "read_required":
        return "read_before_write"
    if has_lookup and start.error_kind == "stale_file":
        return "reread_after_stale"
    if len(chain.attempts) == 1:
        return None
    ranks = [_EDIT_TOOL_RANK.get(span.tool, -1) for span in chain.attempts]
    if (
        (-1 not in ranks and ranks[0] != ranks[-1] and ranks == sorted(ranks))  # ever simpler tools
        and all(span.state == "timed_out" or span.error_kind in _TIMEOUT_KINDS for span in chain.attempts[:-1])
    ):
        return "degradation"
    if start.error_kind == "too_large" and (
        last.tool == "Grep" or _call_arguments(last).keys() & {"offset", "limit", "pages"}
    ):
        return "paginate"
    if has_lookup and start.call.kind == "shell":
        return "repair_command"
    if last.tool != start.tool:
        return "tool_switch"
    if start.call.kind in _TARGETED_KINDS and start.call.target != last.call.target:
        return "retry_modified"  # perf: decided without reading the two inputs again
    first_input = _call_arguments(start)
    return "retry_same" if first_input and first_input == _call_arguments(last) else "retry_modified"


def _call_arguments(span: Span) -> dict[str, object]:
    """Return a call's input without its description; empty if it cannot be read."""
    try:
        decoded = decode_json(span.call.raw_input)
    except (SourceError, ValueError):
        return {}
    tool_input = decoded if isinstance(decoded, dict) else {}
    return {key: value for key, value in tool_input.items() if key != "description"}
