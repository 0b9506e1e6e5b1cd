"""Find all processes that belong to a command, even those that changed their session or lost their parent.

Start at `ProcessTree.find_members`. Processes are recognised by session, ancestry and a tag in
their environment. The two process tables at the end of the module read these from /proc or with
psutil.
"""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

import psutil

TAG_VARIABLE = "TOOLSPAN_CALL"
TAG_SEPARATOR = ":"
_TOKEN_SEPARATOR = "@"
_TAG_ENTRY = TAG_VARIABLE.encode() + b"="


class ProcessIdentity(NamedTuple):
    """A pid and its start time, a combination that, unlike a pid alone, is never reused."""

    pid: int
    started: float


class ProcessInfo(NamedTuple):
    """One entry of the process table."""

    pid: int
    parent: int
    group: int
    session: int
    started: float  # the start time, in a unit that depends on the table
    is_zombie: bool

    @property
    def identity(self) -> ProcessIdentity:
        """The pid and start time."""
        return ProcessIdentity(self.pid, self.started)


class ProcessTable(Protocol):
    """A table of the processes on this machine.

    Its methods may block for milliseconds, and never raise for a process that has ended.
    """

    def list_processes(self) -> Mapping[int, ProcessInfo]:
        """Return all visible processes, keyed by pid."""
        ...

    def get_process(self, pid: int) -> ProcessInfo | None:
        """Return one process, or None if it does not exist."""
        ...

    def env_tags(self, pid: int) -> frozenset[str]:
        """Return the tags in a process's environment; empty if it cannot be read."""
        ...


@dataclass
class ProcessTree:
    """The data by which the processes of one or more commands are recognised."""

    since: float
    """The start time of the first command. No member is older."""
    roots: set[int] = field(default_factory=set)
    """Child processes that have not been reaped, so that their pids cannot be reused."""
    orphaned_groups: set[int] = field(default_factory=set)
    """Groups of reaped roots that still had members. A group id is not reused while the group has members."""
    tags: set[str] = field(default_factory=set)
    last_members: set[ProcessIdentity] = field(default_factory=set)  # the members found by the last scan
    signaled: set[ProcessIdentity] = field(default_factory=set)
    """Processes that have received SIGTERM. To some programs, a second one has another meaning."""
    spawned: Collection[int] | None = None
    """The children that this process has started itself, if its other children count as members: they are orphans
    that a subreaper has adopted, such as daemons that have cleared their environment.
    """

    def find_members(self, table: ProcessTable) -> list[ProcessInfo]:
        """Scan for all current members, including zombies, and remember them."""
        processes = table.list_processes().values()
        young = [process for process in processes if process.started >= self.since]
        known = {
            process
            for process in young
            if process.session in self.roots or process.pid in self.roots or process.identity in self.last_members
        }
        members = _with_descendants(known, young)
        others = (process for process in young if process not in members and not process.is_zombie)
        tagged: set[ProcessInfo] = set()
        for process in others:
            tags = table.env_tags(process.pid)
            if not self.tags.isdisjoint(tags) or (not tags and self._is_adopted(process)):
                tagged.add(process)
        members = _with_descendants(members | tagged, young)
        self.last_members = {process.identity for process in members}
        # A foreign process in a group with this number means that our group has ended. A process that has ended since
        # it was listed may be ours: its tags could not be read any more.
        self.orphaned_groups -= {
            process.group
            for process in processes
            if process.group in self.orphaned_groups and process not in members and is_alive(table, process.identity)
        }
        return sorted(members)

    def _is_adopted(self, process: ProcessInfo) -> bool:
        """Return whether a process is an orphan that was reparented to this process.

        Children in our own session are helpers that this program has started without a supervisor.
        """
        if self.spawned is None or process.parent != os.getpid() or process.pid in self.spawned:
            return False
        return process.session != os.getsid(0)

    def mark_reaped(self, root: int, table: ProcessTable) -> None:
        """Record that a root was reaped, and remember the processes it left behind."""
        try:
            os.killpg(root, 0)
            group_exists = True
        except OSError as error:
            group_exists = not isinstance(error, ProcessLookupError)
        if group_exists:
            # A process that forks and exits in a loop can escape every scan, so its group is remembered in any case.
            self.orphaned_groups.add(root)
            if _is_group_alive(root, table):
                self.find_members(table)
        self.roots.discard(root)

    def add_leftovers(self, other: ProcessTree) -> None:
        """Add the processes that a finished command left behind. This tree must already have the command's tags."""
        self.since = min(self.since, other.since)
        self.last_members |= other.last_members
        self.orphaned_groups |= other.orphaned_groups

    def merge(self, other: ProcessTree) -> None:
        """Add all evidence from another tree."""
        self.add_leftovers(other)
        self.roots |= other.roots
        self.tags |= other.tags
        self.signaled |= other.signaled


def _with_descendants(members: set[ProcessInfo], processes: Collection[ProcessInfo]) -> set[ProcessInfo]:
    """Return the members with all processes in their sessions and all their descendants."""
    own_sessions = {0, os.getsid(0)}
    size = -1
    while size != len(members):
        size = len(members)
        pids = {process.pid for process in members}
        sessions = {process.session for process in members} - own_sessions
        members = members | {process for process in processes if process.session in sessions or process.parent in pids}
    return {process for process in members if process.pid != os.getpid()}


def _is_group_alive(group: int, table: ProcessTable) -> bool:
    """Return whether a process group has a running process."""
    # perf: reading every process would take 3 ms of each sandboxed command, whose namespace ends after it.
    for pid in psutil.pids():
        try:
            process = table.get_process(pid) if os.getpgid(pid) == group else None
        except OSError:
            continue
        if process is not None and not process.is_zombie:
            return True
    return False


def is_alive(table: ProcessTable, identity: ProcessIdentity) -> bool:
    """Return whether this process is still running and its pid has not been reused."""
    process = table.get_process(identity.pid)
    return process is not None and process.identity == identity and not process.is_zombie


def new_tag(name: str) -> str:
    """Return a unique tag for one command, or for all commands under a supervisor.

    Raises:
        ValueError: the name is empty or contains a separator.
    """
    if not name or {TAG_SEPARATOR, _TOKEN_SEPARATOR, "\0"} & set(name):
        raise ValueError(f"a tag must not be empty or contain ':', '@' or NUL, not {name!r}")
    return f"{name}{_TOKEN_SEPARATOR}{secrets.token_hex(6)}"


def tag_name(tag: str) -> str:
    """Return the name in a tag that `new_tag` has made."""
    return tag.partition(_TOKEN_SEPARATOR)[0]


_STAT_SIZE = 1024
_ENVIRONMENT_CHUNK = 1 << 17
# Indexes of the fields in /proc/PID/stat, counted after the name in parentheses; see proc(5).
_STATE, _PARENT, _GROUP, _SESSION, _THREADS, _STARTED = 0, 1, 2, 3, 17, 19


class ProcFs:
    """The process table in /proc.

    perf: ten times as fast as psutil. Listing 97 processes takes 0.96 ms instead of 9.4 ms, one process 9 µs instead
    of 93 µs, and every terminated command needs at least one listing in the event loop.
    """

    def list_processes(self) -> Mapping[int, ProcessInfo]:
        """Return all visible processes, keyed by pid."""
        processes = (self.get_process(int(name)) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208 - three times as fast
        return {process.pid: process for process in processes if process is not None}

    def get_process(self, pid: int) -> ProcessInfo | None:
        """Return one process, or None if it does not exist."""
        try:
            data = _read_proc_file(f"/proc/{pid}/stat", _STAT_SIZE)
        except OSError:
            return None
        # The name may contain spaces and parentheses; the last parenthesis closes it.
        fields = data[data.rfind(b")") + 2 :].split()
        return ProcessInfo(
            pid=pid,
            parent=int(fields[_PARENT]),
            group=int(fields[_GROUP]),
            session=int(fields[_SESSION]),
            started=int(fields[_STARTED]),
            # A process whose first thread ended looks like a zombie while its other threads run.
            is_zombie=fields[_STATE] in b"ZX" and int(fields[_THREADS]) <= 1,
        )

    def env_tags(self, pid: int) -> frozenset[str]:
        """Return the tags in a process's environment; empty if it cannot be read."""
        try:
            environment = _read_proc_file(f"/proc/{pid}/environ", _ENVIRONMENT_CHUNK)
        except OSError:
            return frozenset()
        if _TAG_ENTRY not in environment:  # the usual case
            return frozenset()
        values = (
            entry.removeprefix(_TAG_ENTRY).decode(errors="replace")
            for entry in environment.split(b"\0")
            if entry.startswith(_TAG_ENTRY)
        )
        return frozenset(tag for value in values for tag in value.split(TAG_SEPARATOR))


def _read_proc_file(path: str, chunk: int) -> bytes:
    """Read a whole file without the built-in `open`, which would cost more than the read."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(descriptor, chunk)
        while len(data) % chunk == 0 and (more := os.read(descriptor, chunk)):
            data += more
        return data
    finally:
        os.close(descriptor)


class PsutilTable:
    """The process table for systems without /proc."""

    def list_processes(self) -> Mapping[int, ProcessInfo]:
        """Return all visible processes, keyed by pid."""
        processes = (_read_psutil_process(process) for process in psutil.process_iter())
        return {process.pid: process for process in processes if process is not None}

    def get_process(self, pid: int) -> ProcessInfo | None:
        """Return one process, or None if it does not exist."""
        try:
            return _read_psutil_process(psutil.Process(pid))
        except psutil.Error:
            return None

    def env_tags(self, pid: int) -> frozenset[str]:
        """Return the tags in a process's environment; empty if it cannot be read."""
        try:
            value = psutil.Process(pid).environ().get(TAG_VARIABLE)
        except (psutil.Error, OSError):
            return frozenset()
        return frozenset(value.split(TAG_SEPARATOR)) if value else frozenset()


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


_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37


@dataclass(frozen=True)
class ProcessPlatform:
    """The process table and the system features in use."""

    table: ProcessTable
    has_pidfd: bool  # hold processes by descriptor, so that signals cannot reach a reused pid and exits need no polling
    kill_timeout: float = 5.0
    """The maximum time in seconds for a killed process to end. One stuck in the kernel may take longer."""

    @classmethod
    def detect(cls) -> ProcessPlatform:
        """Return the best platform supported by this machine."""
        has_pidfd = sys.platform == "linux"
        if has_pidfd:
            try:
                os.close(os.pidfd_open(os.getpid()))
            except OSError as error:
                # Old kernels and some sandboxes lack the call; other errors are temporary.
                has_pidfd = error.errno not in (errno.ENOSYS, errno.EPERM, errno.EINVAL)
        return cls(_select_table(), has_pidfd)

    @property
    def limitations(self) -> list[str]:
        """A sentence for each feature that works less well here than on a current Linux."""
        missing = []
        if not self.has_pidfd:
            missing.append("No pidfd: toolspan polls for the end of processes every few milliseconds.")
        if not isinstance(_select_table(), ProcFs):
            missing.append("No /proc: the environment of some processes cannot be searched for the tag.")
        if sys.platform != "linux":
            missing.append("No subreaper: the system reaps the orphans of a command.")
        return missing


def become_subreaper() -> bool:
    """Have orphaned descendants reparented to this process, or return False if that is not possible.

    Only for toolspan's own command-line processes: a library must not change which process reaps
    the children of its program.
    """
    return sys.platform == "linux" and _call_prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1)) == 0


def is_subreaper() -> bool:
    """Return whether orphaned descendants are reparented to this process."""
    if sys.platform != "linux":
        return False
    value = ctypes.c_int(0)
    return _call_prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(value)) == 0 and value.value == 1


def find_survivors(tag: str) -> list[int]:
    """Return the sorted pids of running processes with this tag, with or without its token."""
    table = _select_table()
    return sorted(
        process.pid
        for process in table.list_processes().values()
        if not process.is_zombie and any(tag in (found, tag_name(found)) for found in table.env_tags(process.pid))
    )


def _select_table() -> ProcessTable:
    has_procfs = sys.platform == "linux" and Path(f"/proc/{os.getpid()}/stat").exists()
    return ProcFs() if has_procfs else PsutilTable()


def _call_prctl(option: int, argument: object) -> int:
    zero = ctypes.c_ulong(0)
    result: int = ctypes.CDLL(None, use_errno=True).prctl(option, argument, zero, zero, zero)
    return result
