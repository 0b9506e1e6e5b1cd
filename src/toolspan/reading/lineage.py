"""Decide which copy of a call counts, which session a file belongs to, and when a session ran.

Clients copy records when they resume or fork a session, write subagents to separate files, and sometimes do not record
the session. Every command uses these rules, so that their sums agree. Start at `group_sessions` and `merge_copies`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence, Set
from datetime import datetime
from pathlib import PurePath
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from msgspec import Struct

from toolspan.formats.registry import parse_file_name
from toolspan.types.session import SessionInfo, Tokens
from toolspan.types.span import parse_timestamp

if TYPE_CHECKING:
    from toolspan.reading.rows import CallRow

_STATE_STRENGTH = {"succeeded": 3, "interrupted": 1, "cancelled": 1, "never_answered": 0, "orphan_result": -1}
"""The precedence of the states when copies of a call are merged: the copy with the highest value is used.

All states that are not listed have the value 2.
"""
_SEEN_BITS = 1 << 28
"""The size of a bit set in which the numbers of a million files seldom share a bit."""
_OFFSET_PREFIX = "byte-"
"""The prefix of ids that are made from an offset, which files that are not related may share."""


class FileFacts(Protocol):
    """The properties of a file that determine the session to which it belongs."""

    @property
    def file(self) -> str:
        """The path of the file."""

    @property
    def info(self) -> SessionInfo:
        """The metadata of the session, as recorded in the file."""

    @property
    def has_content(self) -> bool:
        """True if the file contains calls or requests."""


F = TypeVar("F", bound=FileFacts)
N = TypeVar("N", bound=Hashable)
T = TypeVar("T")


class _LinkedGroups(Generic[N]):
    """Disjoint groups of linked items."""

    def __init__(self) -> None:
        self.parents: dict[N, N] = {}
        """For items that are linked to others, an item of the same group. perf: most files are alone."""

    def link(self, item: N, other: N) -> None:
        """Join the groups of two items."""
        self.parents[self.find_top(item)] = self.find_top(other)

    def find_top(self, item: N) -> N:
        """Return the item that represents the group of `item`."""
        top = item
        while self.parents.get(top, top) != top:
            top = self.parents[top]
        while self.parents.get(item, item) != top:  # path compression: shorten the chain for the next lookup
            self.parents[item], item = top, self.parents.get(item, top)
        return top


class Lineages:
    """Groups of files that share sessions, lines or calls."""

    def __init__(self) -> None:
        self._groups = _LinkedGroups[str]()
        self._files_by_session: dict[str, str] = {}
        self._files_by_root: dict[str, str] = {}
        self._files_by_call: dict[str, str] = {}
        """The first file with each session, root and call."""
        self._ranks: dict[str, tuple[bool, str, str, str]] = {}

    def add(self, file: str, info: SessionInfo, call_keys: Iterable[str] = ()) -> None:
        """Add a file, the metadata of its session, and the keys of its calls (see `call_key`)."""
        self._ranks[file] = rank_file(file, info)
        sessions = {*info.session_ids, parse_file_name(file).session_id, info.forked_from}
        others = {self._files_by_session.setdefault(session, file) for session in sessions if session}
        others.update(self._files_by_call.setdefault(key, file) for key in call_keys if key)
        if info.root:
            others.add(self._files_by_root.setdefault(info.root, file))
        others.discard(file)
        for other in sorted(others):
            self._groups.link(file, other)

    def group_of(self, file: str) -> Hashable:
        """Return the group that a file belongs to."""
        return self._groups.find_top(file) if file in self._groups.parents else file  # perf: most files are alone

    def rank(self, file: str) -> tuple[bool, str, str, str]:
        """Return the sort key of a file (see `rank_file`). Files that were not added come last."""
        return self._ranks.get(file) or (False, "~", "~", file)


class FileLinks:
    """Numbers that files share, to split very many files into parts that have nothing in common.

    The numbers are checksums, which take 4 bytes each. Files whose different keys have the same checksum are in one
    part by chance, which does no harm.
    """

    def __init__(self) -> None:
        self._numbers = array("I")
        self._ends = array("Q")
        """The count of numbers up to the end of each file's."""
        self._seen_bits = bytearray(_SEEN_BITS >> 3)
        self._repeated: set[int] = set()
        """The numbers that may occur more than once, because their bits were set before."""

    def add(self, numbers: Iterable[int]) -> None:
        """Add the next file with its different numbers (see `checksum_keys`)."""
        for number in numbers:
            self._numbers.append(number)
            place, bit = (number & _SEEN_BITS - 1) >> 3, 1 << (number & 7)
            if self._seen_bits[place] & bit:
                self._repeated.add(number)
            else:
                self._seen_bits[place] |= bit
        self._ends.append(len(self._numbers))

    def split(
        self, count: int, choose: Callable[[Set[int]], Iterable[int]] | None = None
    ) -> Iterator[tuple[list[int], bool]]:
        """Yield the numbers of the files in parts of at least `count`, and whether some have common keys.

        Files with common keys are in one part. `choose` gets the numbers of all such files, and returns the numbers of
        the other files that are wanted, by default all.
        """
        groups = self._find_groups()
        linked = {n for members in groups for n in members}
        yield from _fill_parts(groups, count, are_linked=True)
        others = (n for n in range(len(self._ends)) if n not in linked) if choose is None else choose(linked)
        yield from _fill_parts(([n] for n in others), count, are_linked=False)

    def _find_groups(self) -> list[list[int]]:
        """Return the numbers of the files that have common keys, by group."""
        groups = _LinkedGroups[int]()
        firsts: dict[int, int] = {}
        repeated = self._repeated
        start = 0
        for n, end in enumerate(self._ends):
            for number in self._numbers[start:end]:
                if number in repeated and (first := firsts.setdefault(number, n)) != n:
                    groups.link(n, first)
            start = end
        members: dict[int, list[int]] = {}
        for n in sorted({*groups.parents, *groups.parents.values()}):
            members.setdefault(groups.find_top(n), []).append(n)
        return list(members.values())


def _fill_parts(groups: Iterable[list[int]], count: int, *, are_linked: bool) -> Iterator[tuple[list[int], bool]]:
    part: list[int] = []
    for members in groups:
        part += members
        if len(part) >= count:
            yield sorted(part), are_linked
            part = []
    if part:
        yield sorted(part), are_linked


def rank_file(file: str, info: SessionInfo) -> tuple[bool, str, str, str]:
    """Return a sort key that puts the originals before the files that copied from them."""
    return info.forked_from is not None, info.started_at or "~", info.ended_at or "~", file


def call_key(call_id: str, batch: str | None) -> str:
    """Return a key that the copies of a call share and other calls do not; empty if nothing identifies it."""
    return f"{call_id} {batch}" if batch and not batch.startswith(_OFFSET_PREFIX) else ""


def merge_copies(rows: Iterable[CallRow], lineages: Lineages) -> list[CallRow]:
    """Merge copies of each call into one row: the best copy, at the position of the first."""
    firsts: dict[tuple[str, Hashable], CallRow] = {}
    others: dict[tuple[str, Hashable], list[CallRow]] = {}  # perf: most calls have no copies
    for row in rows:
        key = (row.id, lineages.group_of(row.file))
        if firsts.setdefault(key, row) is not row:
            others.setdefault(key, []).append(row)

    def rank(row: CallRow) -> tuple[int, bool, bool, str, tuple[bool, str, str, str]]:
        """Return a sort key that puts the best copy first. Old clients give copies new, later times."""
        is_in_own_session = row.session is not None and parse_file_name(row.file).session_id == row.session
        strength = _STATE_STRENGTH.get(row.state, 2)
        knows_more = row.error_group is not None  # a copy may lack the notification that the background command failed
        return -strength, not knows_more, not is_in_own_session, row.requested or "~", lineages.rank(row.file)

    for key, copies in others.items():
        firsts[key] = min(firsts[key], *copies, key=rank)
    return list(firsts.values())


class SessionFiles(Struct, Generic[F], frozen=True, kw_only=True):
    """A session and its files."""

    id: str
    file: F
    """The file of the main conversation, or the first one of a subagent if only subagents are left."""
    continued: list[F] = []
    """Other files of the main conversation."""
    agents: list[F] = []
    """Files of subagents."""
    has_main: bool = True
    """False if only the files of subagents are left."""

    @property
    def files(self) -> list[F]:
        """The session's own files and those of its subagents."""
        return [self.file, *self.continued, *self.agents]

    @property
    def started_at(self) -> str | None:
        """The earliest start time recorded in any of the files."""
        return find_extreme(min, (file.info.started_at for file in self.files))

    @property
    def ended_at(self) -> str | None:
        """The latest end time recorded in any of the files."""
        return find_extreme(max, (file.info.ended_at for file in self.files))

    @property
    def cwd(self) -> str | None:
        """The first working folder recorded in any of the files."""
        return next((file.info.cwd for file in self.files if file.info.cwd), None)

    def overlaps(self, since: datetime | None, until: datetime | None) -> bool:
        """Return whether any part of the session is within a period. None means that the period has no limit."""
        if since is None and until is None:
            return True
        start, end = parse_timestamp(self.started_at), parse_timestamp(self.ended_at)
        start, end = start or end, end or start
        if start is None or end is None:
            return False
        return (since is None or max(start, end) >= since) and (until is None or min(start, end) < until)


def find_extreme(
    choose: Callable[[Iterable[tuple[datetime, str]]], tuple[datetime, str]], times: Iterable[str | None]
) -> str | None:
    """Return the earliest or latest of these timestamps, or None if there is none."""
    parsed = [(time, at) for at in times if at and (time := parse_timestamp(at))]
    return choose(parsed)[1] if parsed else None


def group_sessions(files: Sequence[F]) -> list[SessionFiles[F]]:
    """Group files into sessions, each with its own id, oldest first.

    A subagent's file belongs to the session that it names, or in whose folder it is. Files without any record of a
    conversation do not belong to a session.
    """
    parent_sessions = {file.info.agent_id: file.info.session_id for file in files}
    mains: dict[str, list[F]] = {}
    ids_by_stem: dict[str, str] = {}
    agent_files: list[F] = []
    for file in files:
        info, name = file.info, parse_file_name(file.file)
        if not (info.session_ids or info.root or info.title or file.has_content):
            continue  # not every `.jsonl` file contains a conversation
        if info.agent_id is not None or name.role == "agent":
            agent_files.append(file)
            continue
        session = _main_session(file)
        mains.setdefault(session, []).append(file)
        ids_by_stem.setdefault(name.session_id or name.stem, session)
    agents: dict[str, list[F]] = {}
    for file in agent_files:
        name = parse_file_name(file.file)
        recorded = _top_session(file.info.session_id, parent_sessions)
        candidates = [session for session in (recorded, name.session_id) if session]
        known = [session for session in candidates if session in mains]
        known += [ids_by_stem[session] for session in candidates if session in ids_by_stem]
        agents.setdefault((known or candidates or [name.stem])[0], []).append(file)
    sessions = [_make_session(session, members, agents.pop(session, [])) for session, members in mains.items()]
    sessions += [_make_session(session, [], members) for session, members in agents.items()]
    return sorted(sessions, key=lambda session: (session.started_at or "", session.id))


def link_keys(file: FileFacts, call_keys: Iterable[str], messages: Iterable[str]) -> set[str]:
    """Return keys of a file, such that files without a common key neither share a session nor affect each other's.

    These are all names by which `group_sessions`, `Lineages` and `CallTable.tokens_by_session` relate files.
    """
    info, name = file.info, parse_file_name(file.file)
    sessions = {*info.session_ids, _main_session(file), info.agent_id, info.forked_from, name.session_id, name.stem}
    keys = {key for key in (*sessions, info.root, *call_keys) if key}
    keys.update(message for message in messages if not message.startswith("#"))
    return keys


def _main_session(file: FileFacts) -> str:
    """Return the id of the session that a file of a main conversation records, or else names."""
    return file.info.session_id or PurePath(file.file).name.partition(".")[0]


def sessions_named(sessions: Sequence[SessionFiles[F]], prefix: str) -> list[SessionFiles[F]]:
    """Return the sessions whose id begins with `prefix`, or else those that contain records of such a session."""
    named = [session for session in sessions if session.id.startswith(prefix)]
    return named or [
        session
        for session in sessions
        if any(name.startswith(prefix) for file in session.files for name in file.info.session_ids)
    ]


def _make_session(session: str, mains: Sequence[F], agents: Sequence[F]) -> SessionFiles[F]:
    def rank(file: F) -> tuple[bool, str, str]:
        return parse_file_name(file.file).session_id != session, file.info.started_at or "~", file.file

    members = mains or agents
    first, *others = sorted(members, key=rank) if len(members) > 1 else members
    if not mains:
        return SessionFiles(id=session, file=first, agents=others, has_main=False)
    return SessionFiles(id=session, file=first, continued=others, agents=list(agents))


def _top_session(session: str | None, parent_sessions: dict[str | None, str | None]) -> str | None:
    """Return the top-level session. The recorded parent of a nested subagent may itself be a subagent."""
    seen: set[str | None] = {None}
    while session not in seen and parent_sessions.get(session):
        seen.add(session)
        session = parent_sessions[session]
    return session


def sum_tokens(files: Iterable[dict[str, Tokens]]) -> Tokens:
    """Sum tokens over many files, counting each message once with the largest value of each field."""
    messages: dict[str, Tokens] = {}
    nameless = Tokens()
    for file_tokens in files:
        for name, tokens in file_tokens.items():
            if name.startswith("#"):
                nameless += tokens
            else:
                before = messages.get(name)
                messages[name] = tokens if before is None else before.max_with(tokens)
    return sum(messages.values(), nameless)


class CopyTracker:
    """The keys seen so far, to detect the slices and calls that resumed and forked sessions copied."""

    def __init__(self, lineages: Lineages) -> None:
        self._lineages = lineages
        self._seen: dict[Hashable, set[Hashable]] = {}

    def take_new(self, file: str, items: Iterable[T], key: Callable[[T], Hashable]) -> Iterator[T]:
        """Yield the items of a file whose key is new in the group of files that share sessions with it."""
        seen = self._seen.setdefault(self._lineages.group_of(file), set())
        for item in items:
            name = key(item)
            if name not in seen:
                seen.add(name)
                yield item
