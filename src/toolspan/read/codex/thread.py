"""Whose line is it? A rollout may begin with a copy of another thread's history.

In: records in file order. Out: who owns the line, which turn it belongs to, which threads the file
speaks of. A fork or a subagent names itself in the first line; the lines of those it was copied
from follow, each history under its own `session_meta`, and end where the first turn of its own
begins. Pure. Read `Thread.add` first.
"""

import msgspec
from msgspec import Struct

from toolspan.wire.codex import Item, Record
from toolspan.wire.views import UNFIT, text_of

_TURNS = frozenset({"task_started", "turn_started"})


class _Spawn(Struct, gc=False):
    parent_thread_id: str | None = None
    agent_nickname: str | None = None
    agent_role: str | None = None


class _Subagent(Struct, gc=False):
    thread_spawn: _Spawn | None = None


class _Source(Struct, gc=False):
    subagent: _Subagent | str | None = None


_SOURCE = msgspec.json.Decoder(_Source | str)


class Thread:
    """The thread of one file, and the ones it was copied from."""

    def __init__(self) -> None:
        self.own: str | None = None
        """The file's own thread."""
        self.owner: str | None = None
        """Whose lines are being read: the own thread's, or an ancestor's."""
        self.turn: str | None = None
        self.parent: str | None = None
        """The thread that started this one as its subagent."""
        self.forked_from: str | None = None
        self.session: str | None = None
        """The session that the thread and its subagents make up."""
        self.role: str | None = None
        self.known: dict[str, None] = {}
        """All threads and sessions the file names as its own or as ancestors."""
        self._start: int | None = None

    @property
    def agent_id(self) -> str | None:
        """The subagent that speaks; None for a main conversation and for copied history."""
        return self.own if self.parent is not None and self.owner == self.own else None

    @property
    def speaker(self) -> str | None:
        """The session whose line it is."""
        return self.session if self.owner == self.own else self.owner

    def add(self, record: Record) -> None:
        """One record, before anybody else reads it."""
        item = record.payload
        if item is not None:
            if record.type == "session_meta":
                self._meta(item)
            elif record.type == "turn_context" or item.type in _TURNS:
                self._begin_turn(item.turn_id)
        elif record.is_header and self.own is None:
            self.own = self.owner = self.session = record.id
            self.known[record.id or ""] = None
        if self._start is not None and record.ordinal is not None and record.ordinal >= self._start:
            self.owner = self.own

    def _meta(self, meta: Item) -> None:
        if meta.id is None:
            return
        if self.own is None:
            self._introduce(meta)
        self.owner = meta.id
        self.known[meta.id] = None

    def _introduce(self, meta: Item) -> None:
        """The first `session_meta` is the file's own."""
        spawn = _spawn(meta)
        self.own = meta.id
        self.parent = meta.parent_thread_id or (spawn.parent_thread_id if spawn else None)
        base = meta.history_base.thread_id if meta.history_base else None
        self.forked_from = meta.forked_from_id or (base if base != meta.id else None)
        self.session = text_of(meta.session_id) or self.parent or meta.id
        self.role = meta.agent_role or meta.agent_nickname
        self._start = meta.history_start
        for name in (meta.id, self.session, self.parent, self.forked_from):
            if name:
                self.known[name] = None

    def _begin_turn(self, turn: str | None) -> None:
        if turn is None:
            return
        self.turn = turn
        if self.owner != self.own and _later(turn, self.own):
            self.owner = self.own


def _spawn(meta: Item) -> _Spawn | None:
    if not meta.source:
        return None
    try:
        found = _SOURCE.decode(meta.source)
    except UNFIT:
        return None
    inner = found.subagent if isinstance(found, _Source) else None
    return inner.thread_spawn if isinstance(inner, _Subagent) else None


_VERSION = 14
"""Where a uuid says of which version it is; those of version 7 begin with their time."""


def _later(turn: str, thread: str | None) -> bool:
    """Whether a turn began after a thread did, as far as their names tell."""
    if thread is None or len(turn) != len(thread) or len(turn) <= _VERSION:
        return False
    return turn[_VERSION] == thread[_VERSION] == "7" and turn > thread
