"""The processes of this machine, as one look at them gives.

In: nothing, or a process id. Out: `Process` values and the marks in their environments.
Which system call or library tells them is known to `procfs.py` and `portable.py` only.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import psutil

TAG_VARIABLE = "TOOLSPAN_CALL"
_TAG_SEPARATOR = ":"
_TOKEN_SEPARATOR = "@"
_TAG_ENTRY = TAG_VARIABLE.encode() + b"="


def new_tag(name: str) -> str:
    """A part for one command, or for the custody of many.

    Raises:
        ValueError: the mark is empty or holds a character that separates.
    """
    if not name or any(character in name for character in (_TAG_SEPARATOR, _TOKEN_SEPARATOR, "\0")):
        raise ValueError(f"a mark is not empty and has no ':', '@' or NUL in it, not {name!r}")
    return f"{name}{_TOKEN_SEPARATOR}{secrets.token_hex(6)}"


def add_env_tags(env: Mapping[str, str], tags: Sequence[str]) -> dict[str, str]:
    """The environment with these parts behind those of the runners around us."""
    outer = env.get(TAG_VARIABLE) or os.environ.get(TAG_VARIABLE)
    return {**env, TAG_VARIABLE: _TAG_SEPARATOR.join([outer, *tags] if outer else tags)}


def parse_env_tags(environment: bytes) -> frozenset[str]:
    """The parts in a block of NUL-separated `name=value` entries."""
    if _TAG_ENTRY not in environment:  # nearly always
        return frozenset()
    values = (
        entry.removeprefix(_TAG_ENTRY).decode(errors="replace")
        for entry in environment.split(b"\0")
        if entry.startswith(_TAG_ENTRY)
    )
    return frozenset(tag for value in values for tag in value.split(_TAG_SEPARATOR))


def has_tag(tags: frozenset[str], name: str) -> bool:
    """Is one of the parts this mark, with or without its token?"""
    return any(name in (tag, tag.partition(_TOKEN_SEPARATOR)[0]) for tag in tags)


class ProcessIdentity(NamedTuple):
    """One process for all time: its number may be used again, its number and start may not."""

    pid: int
    started: float


class ProcessInfo(NamedTuple):
    """What one look tells of a process."""

    pid: int
    parent: int
    group: int
    session: int
    """0 when it is not known."""
    started: float
    """In the table's own unit; good for comparing within one table only."""
    is_zombie: bool
    """It has ended and only waits to be collected by its parent."""

    @property
    def identity(self) -> ProcessIdentity:
        """Its number and start."""
        return ProcessIdentity(self.pid, self.started)


class ProcessTable(Protocol):
    """Who runs on this machine. May block for milliseconds; never raises for one that vanished."""

    def list_processes(self) -> Mapping[int, ProcessInfo]:
        """Every process that can be seen, by number."""
        ...

    def get_process(self, pid: int) -> ProcessInfo | None:
        """This process, or None when there is none of that number."""
        ...

    def env_tags(self, pid: int) -> frozenset[str]:
        """The parts of the mark in its environment; empty when it has none or may not be read."""
        ...


def is_alive(table: ProcessTable, identity: ProcessIdentity) -> bool:
    """Does this very process still run?"""
    process = table.get_process(identity.pid)
    return process is not None and process.identity == identity and not process.is_zombie


def find_tagged(table: ProcessTable, tag: str) -> list[int]:
    """The numbers of the living processes that carry this mark, in order."""
    processes = table.list_processes().values()
    return sorted(
        process.pid for process in processes if not process.is_zombie and has_tag(table.env_tags(process.pid), tag)
    )


_STAT_BYTES = 1024
_ENVIRONMENT_CHUNK = 1 << 17
# Places in /proc/PID/stat, counted behind the name in parentheses; see proc(5).
_STATE, _PARENT, _GROUP, _SESSION, _THREADS, _STARTED = 0, 1, 2, 3, 17, 19


class ProcFs:
    """The processes listed in /proc."""

    def list_processes(self) -> Mapping[int, ProcessInfo]:
        """Every process that can be seen, by number."""
        processes = (self.get_process(int(name)) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208 - three times as fast
        return {process.pid: process for process in processes if process is not None}

    def get_process(self, pid: int) -> ProcessInfo | None:
        """This process, or None when there is none of that number."""
        try:
            text = _read_proc_file(f"/proc/{pid}/stat", _STAT_BYTES)
        except OSError:
            return None
        # The name may hold spaces and parentheses; the last one closes it.
        field = text[text.rfind(b")") + 2 :].split()
        return ProcessInfo(
            pid=pid,
            parent=int(field[_PARENT]),
            group=int(field[_GROUP]),
            session=int(field[_SESSION]),
            started=int(field[_STARTED]),
            # A process whose first thread ended looks like a zombie while its others still run.
            is_zombie=field[_STATE] in b"ZX" and int(field[_THREADS]) <= 1,
        )

    def env_tags(self, pid: int) -> frozenset[str]:
        """The parts of the mark in its environment; empty when it has none or may not be read."""
        try:
            return parse_env_tags(_read_proc_file(f"/proc/{pid}/environ", _ENVIRONMENT_CHUNK))
        except OSError:
            return frozenset()


def _read_proc_file(path: str, chunk: int) -> bytes:
    """The whole file; `open` would cost more than the read does."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = os.read(descriptor, chunk)
        while len(text) % chunk == 0 and (more := os.read(descriptor, chunk)):
            text += more
        return text
    finally:
        os.close(descriptor)


class PsutilTable:
    """The processes psutil lists."""

    def list_processes(self) -> Mapping[int, ProcessInfo]:
        """Every process that can be seen, by number."""
        processes = (_read_psutil_process(process) for process in psutil.process_iter())
        return {process.pid: process for process in processes if process is not None}

    def get_process(self, pid: int) -> ProcessInfo | None:
        """This process, or None when there is none of that number."""
        try:
            return _read_psutil_process(psutil.Process(pid))
        except psutil.Error:
            return None

    def env_tags(self, pid: int) -> frozenset[str]:
        """The parts of the mark in its environment; empty when it has none or may not be read."""
        try:
            value = psutil.Process(pid).environ().get(TAG_VARIABLE)
        except (psutil.Error, OSError):
            return frozenset()
        return parse_env_tags(f"{TAG_VARIABLE}={value}".encode()) if value else frozenset()


def _read_psutil_process(process: psutil.Process) -> ProcessInfo | None:
    try:
        with process.oneshot():
            return ProcessInfo(
                pid=process.pid,
                parent=process.ppid(),
                group=os.getpgid(process.pid),
                session=os.getsid(process.pid),
                started=process.create_time(),
                is_zombie=process.status() == psutil.STATUS_ZOMBIE,
            )
    except (psutil.Error, OSError):
        return None


@dataclass
class ProcessTree:
    """What is known of the processes of one command, or of several."""

    since: float
    """When the first of them started; none of its processes can be older."""
    roots: set[int] = field(default_factory=set)
    """Processes we started and have not collected: nobody else can have their numbers."""
    orphaned_groups: set[int] = field(default_factory=set)
    """Groups of roots that were collected while somebody else was still in the group: as long as
    somebody is, nobody else can have the number."""
    tags: set[str] = field(default_factory=set)
    """The parts of the mark that were given to them."""
    last_members: set[ProcessIdentity] = field(default_factory=set)
    """Processes found to belong at the last look."""
    signaled: set[ProcessIdentity] = field(default_factory=set)
    """Processes that were asked to end; asking twice means something else to some programs."""

    def add_leftovers(self, other: ProcessTree) -> None:
        """Know whom the other one left; their marks must be among ours."""
        self.since = min(self.since, other.since)
        self.last_members |= other.last_members
        self.orphaned_groups |= other.orphaned_groups

    def mark_reaped(self, root: int, table: ProcessTable) -> None:
        """This root was taken out of the process table; remember whom it left."""
        if group_exists(root):
            self.find_members(table)
            self.orphaned_groups.add(root)
        self.roots.discard(root)

    def merge(self, other: ProcessTree) -> None:
        """Know what the other one knows."""
        self.add_leftovers(other)
        self.roots |= other.roots
        self.tags |= other.tags
        self.signaled |= other.signaled

    def find_members(self, table: ProcessTable) -> list[ProcessInfo]:
        """All its processes now, the dead that are not collected included; remembers them."""
        processes = table.list_processes().values()
        young = [process for process in processes if process.started >= self.since]
        members = _with_descendants({process for process in young if self._is_member(process)}, young)
        others = (process for process in young if process not in members and not process.is_zombie)
        tagged = {process for process in others if not self.tags.isdisjoint(table.env_tags(process.pid))}
        members = _with_descendants(members | tagged, young)
        self.last_members = {process.identity for process in members}
        # Somebody else lives in a group of that number: ours came to its end.
        self.orphaned_groups -= {
            process.group for process in processes if process not in members and not process.is_zombie
        }
        return sorted(members)

    def find_living(self, table: ProcessTable) -> list[ProcessInfo]:
        """Its processes that still run."""
        return [process for process in self.find_members(table) if not process.is_zombie]

    def _is_member(self, process: ProcessInfo) -> bool:
        return process.session in self.roots or process.pid in self.roots or process.identity in self.last_members


def group_exists(group: int) -> bool:
    """Is anybody, dead or alive, in the group of this number?"""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody is there, only not ours to signal
        return True
    return True


def _with_descendants(members: set[ProcessInfo], processes: Collection[ProcessInfo]) -> set[ProcessInfo]:
    """These, all in their sessions, all they started, and so on."""
    ours = {0, os.getsid(0)}
    size = -1
    while size != len(members):
        size = len(members)
        pids = {process.pid for process in members}
        sessions = {process.session for process in members} - ours
        members = members | {process for process in processes if process.session in sessions or process.parent in pids}
    return {process for process in members if process.pid != os.getpid()}
