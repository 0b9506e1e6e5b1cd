r"""The files of a recorded session: their paths, and a writer that appends whole lines.

Each write appends whole lines, so that the output of two processes never mixes within a line. A partially written line
is completed if possible; otherwise the next write removes it, or begins with `\n` where the file cannot be shortened.
Failures are reported to a callback and never raised.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
import string
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from toolspan.errors import ToolspanError
from toolspan.formats import json_repair
from toolspan.formats.claude import paths
from toolspan.formats.evidence import read_boot_id
from toolspan.formats.jsonl import encode_json, make_folder
from toolspan.formats.processes import host_name, process_start
from toolspan.formats.registry import recorded_format
from toolspan.formats.side_files import hook_log_path, session_folder
from toolspan.runtime.profiles import Layout
from toolspan.types.ids import SessionId

if sys.platform != "win32":
    import fcntl

_BASE36_DIGITS = string.digits + string.ascii_lowercase
_FORBIDDEN_CHARACTERS = frozenset("/\\\0")
_LOCK_ATTEMPTS = 200
_LOCK_INTERVAL = 0.01
_LOCKS_PATH = Path("/proc/locks")
_PID_FIELD, _INODE_FIELD = 4, 5
_SYNCED_PARENTS = 3
"""The number of parent folders to sync with a new transcript, because they may also be new."""
_TAIL_CHUNK = 1 << 16
_TORN_STARTS = (b"{", b"\0")
"""The first bytes of an incomplete record. File systems fill lost blocks with zeros."""
_OPEN_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOCTTY", 0)


def transcript_path(session_id: SessionId, cwd: Path, config: Path | None = None) -> Path:
    """Return the path where the client stores a session's transcript.

    `config` is the client's configuration folder.

    Raises:
        ToolspanError: the id cannot be used as a file name.
    """
    check_session_id(session_id)
    projects = (config or recorded_format().home()) / "projects"
    return projects / _project_folder_name(projects, str(cwd.resolve())) / f"{session_id}.jsonl"


def check_session_id(session_id: str) -> None:
    """Check that a session id can be used as a file name.

    Raises:
        ToolspanError: the id cannot be used as a file name.
    """
    if session_id in ("", ".", "..") or not _FORBIDDEN_CHARACTERS.isdisjoint(session_id):
        raise ToolspanError(f"the session id {session_id!r} cannot be used as a file name")


def append_to_hook_log(transcript: Path, rows: bytes) -> None:
    """Append rows to the hook log of a transcript with a single write.

    Raises:
        OSError: it cannot be written.
    """
    file = hook_log_path(transcript)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(file, _OPEN_FLAGS | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        os.write(descriptor, rows)
    finally:
        os.close(descriptor)


def agent_path(transcript: Path, agent_id: str, layout: Layout) -> Path:
    """Return the path of a subagent's transcript."""
    name = f"agent-{agent_id}.jsonl"
    if layout == "beside":
        return transcript.with_name(name)
    return session_folder(transcript) / "subagents" / name


def results_folder(transcript: Path) -> Path:
    """Return the folder for output that is too large for the conversation."""
    return session_folder(transcript) / "tool-results"


def _project_folder_name(projects: Path, cwd: str) -> str:
    """Return a project's folder name. Long names are truncated and end with a hash.

    The client and the SDK hash differently, so an existing folder takes precedence.
    """
    name = paths.project_name(cwd)
    if len(name) < paths.MAX_PROJECT_NAME_LENGTH or len(cwd) <= paths.MAX_PROJECT_NAME_LENGTH:
        return name
    existing = sorted(folder.name for folder in projects.glob(f"{name}-*") if folder.is_dir())
    if existing:
        return existing[0]
    number = 0  # the hash of the public SDK, in base 36
    for character in cwd:
        number = (number * 31 + ord(character)) & 0xFFFFFFFF
    number = abs(number - (1 << 32) if number >> 31 else number)
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = _BASE36_DIGITS[digit] + digits
    return f"{name}-{digits or '0'}"


class LockOwner(NamedTuple):
    """Another process that holds the lock on a file."""

    pid: int | None
    """The process id, or None if the system does not reveal it."""

    def __str__(self) -> str:
        return "another process" if self.pid is None else f"process {self.pid}"


class TranscriptWriter:
    """An append-only file that is created with its first line and readable only by its owner."""

    def __init__(self, path: Path, on_failure: Callable[[str], None]) -> None:
        """`on_failure` receives the reason when lines could not be written. It must not raise."""
        self.path = path
        self.owner: LockOwner | None = None
        """The other process that has locked the file, if any. Set when the file is opened."""
        self._on_failure = on_failure
        self._descriptor: int | None = None
        self._ends_mid_line = False
        self._end = 0
        """The expected file size, unless another program has written to the file."""
        self._is_new = False
        """True until a new file's folder entry has been synced."""

    @property
    def ends_mid_line(self) -> bool:
        """True if the last line has no newline yet."""
        return self._ends_mid_line

    @property
    def is_changed(self) -> bool:
        """True if the file has changed since this writer opened it or last wrote to it."""
        try:
            status = self.path.stat()
        except OSError:
            return False
        return stat.S_ISREG(status.st_mode) and status.st_size != self._end

    def ensure_open(self) -> bool:
        """Open the file if needed. Return False if it was removed and a new one was started."""
        if self._descriptor is not None and os.fstat(self._descriptor).st_nlink:
            return True
        was_removed = self._descriptor is not None
        self.close()
        if was_removed:
            self._on_failure("the file was removed, and the records in it are lost")
        try:
            make_folder(self.path.parent)
            self._descriptor = file = os.open(self.path, _OPEN_FLAGS, 0o600)
            size = os.fstat(file).st_size
            self._is_new = not size
            self._end = size
            self.owner = _lock_file(file)
            self._ends_mid_line = size > 0 and os.pread(file, 1, size - 1) != b"\n"
        except OSError as error:
            self._on_failure(_os_error_text(error))
        return not was_removed

    def write_lines(self, lines: Sequence[bytes], *, sync: bool = False) -> int:
        """Append lines, including their newlines, and return how many were written completely."""
        file = self._descriptor
        if file is None:
            return 0
        if self._ends_mid_line and self.owner is None:
            self._remove_torn_line(file)
        prefix = b"\n" if self._ends_mid_line else b""
        data = prefix + b"".join(lines)
        written = 0
        try:
            while written < len(data):
                count = os.write(file, data[written:])
                if not count:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                written += count
        except OSError as error:
            self._on_failure(_os_error_text(error))
        if written:
            self._ends_mid_line = not data.endswith(b"\n", 0, written)
            self._end += written
        written_lines = len(lines)
        if written < len(data):  # a complete line may lack its newline
            ends = itertools.accumulate(map(len, lines))
            written_lines = sum(written - len(prefix) >= end - 1 for end in ends)
        if sync and written_lines:
            try:
                os.fsync(file)
                if self._is_new:
                    self._is_new = False
                    _sync_folders(self.path.parent)
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # pipes and the like cannot be synced
                    self._on_failure(_os_error_text(error))
        return written_lines

    def close(self) -> None:
        """Close the file. `ensure_open` opens it again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _remove_torn_line(self, file: int) -> None:
        """Remove an incomplete record at the end, which no reader can use. A complete one lacks only its newline."""
        end = position = os.fstat(file).st_size
        tail = b""
        while position and b"\n" not in tail:
            start = max(0, position - _TAIL_CHUNK)
            tail = os.pread(file, position - start, start) + tail
            position = start
        line = tail[tail.rfind(b"\n") + 1 :]
        if not line.startswith(_TORN_STARTS) or json_repair.recover_objects(line).pieces:
            return
        try:
            os.ftruncate(file, end - len(line))
        except OSError:  # a pipe, a device or an append-only file: the next line begins after the torn one
            return
        self._end -= len(line)
        self._ends_mid_line = False


_claimed_transcripts: set[str] = set()
"""The transcripts that sessions in this process are recording. A file lock belongs to the whole process, so it
cannot distinguish two sessions, and a transcript without records has no file to lock.
"""


def claim_transcript(path: Path) -> bool:
    """Claim a transcript for one session in this process, or return False if another session has claimed it."""
    key = os.path.realpath(path)
    if key in _claimed_transcripts:
        return False
    _claimed_transcripts.add(key)
    return True


def is_transcript_claimed(path: Path) -> bool:
    """Return whether a session in this process is recording this transcript."""
    return os.path.realpath(path) in _claimed_transcripts


def is_transcript_locked(path: Path) -> bool:
    """Return whether another process is recording this transcript."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        return _try_to_lock(file) is not None
    finally:
        os.close(file)


def release_transcript(path: Path) -> None:
    """Release a transcript that a session in this process has claimed."""
    _claimed_transcripts.discard(os.path.realpath(path))


def _lock_file(file: int) -> LockOwner | None:
    """Lock an open file for this process. If another process has locked it, return that owner.

    A child of a killed owner keeps the lock until it runs its own program, so wait a moment for a dead owner, and for
    an unknown one: the child may have released the lock since it was tried.
    """
    owner: LockOwner | None = None
    for _ in range(_LOCK_ATTEMPTS):
        owner = _try_to_lock(file)
        if owner is None or (owner.pid is not None and Path(f"/proc/{owner.pid}").exists()):
            return owner
        time.sleep(_LOCK_INTERVAL)
    return owner


def _try_to_lock(file: int) -> LockOwner | None:
    if sys.platform == "win32":
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pass
    except OSError:  # a file system without locks
        return None
    else:
        return None
    # A line of /proc/locks: `1: FLOCK ADVISORY WRITE 4711 08:01:393217 0 EOF`
    inode_suffix = f":{os.fstat(file).st_ino}"  # some file systems report a different device number than `stat`
    try:
        lines = _LOCKS_PATH.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return LockOwner(None)
    pids = {
        int(fields[_PID_FIELD])
        for fields in map(str.split, lines)
        if len(fields) > _INODE_FIELD and fields[1] == "FLOCK" and fields[_INODE_FIELD].endswith(inode_suffix)
    }
    pid = pids.pop() if len(pids) == 1 and min(pids) > 0 else None
    return None if pid == os.getpid() else LockOwner(pid)


def _sync_folders(folder: Path) -> None:
    """Sync a folder and its parents, because a file's content is useless if its name is lost."""
    for parent in (folder, *folder.parents[:_SYNCED_PARENTS]):
        descriptor = os.open(parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _os_error_text(error: OSError) -> str:
    return error.strerror or str(error)


class StoredLog(Protocol):
    """The store of a session, as its intent log sees it."""

    @property
    def is_reliable(self) -> bool:
        """True if no call starts before the store has its intent."""
        ...

    def notify(self) -> None:
        """Tell the store that there are new lines."""
        ...

    async def wait_until_stored(self, *, is_intent: bool = False) -> None:
        """Wait until the store has everything written so far."""
        ...


class IntentLog:
    """A thread-safe log of calls that a session and its subagents intend to run."""

    def __init__(
        self,
        path: Path,
        on_failure: Callable[[str, Path], None],
        *,
        fsync: str,
        boot: str | None = None,
        stored: StoredLog | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`stored` is the store that gets a copy of the log; its calls start when it has their intents."""
        self.path = path
        self.started_calls: set[str] = set()
        self._stored = stored
        self._clock = clock
        self._unwritten: set[str] = set()
        """Calls whose start could not be written."""
        self._writer = TranscriptWriter(path, lambda reason: on_failure(reason, path))
        self._sync_starts = fsync != "never"
        boot = read_boot_id() if boot is None else boot
        self._first_records: list[dict[str, object]] = [
            {
                "open": os.getpid(),
                "started": process_start(os.getpid()),
                "boot": boot,
                "fsync": fsync,
                "host": host_name(),
                "at": clock(),
                **({} if stored is None else {"store": "store" if stored.is_reliable else "local"}),
            }
        ]
        """Records to write before the next one, so that a session without side effects has no log."""
        self._lock = threading.Lock()

    def add_tag(self, tag: str) -> None:
        """Record the tag in the environment of all processes that a supervisor starts, with the next record."""
        with self._lock:
            self._first_records.append({"tag": tag})

    def record_process(self, call_id: str, pid: int) -> None:
        """Record the shell of a command, which leads its own process group and session."""
        self._write_record({"process": call_id, "pid": pid, "group": pid, "started": process_start(pid)})

    def record_ended(self, call_id: str, pids: Sequence[int], note: str) -> None:
        """Record that a command of a killed session was still running, and how it ended."""
        self._write_record({"ended": call_id, "pids": pids, "note": note})

    def record_workspace(self, digest: str) -> None:
        """Record the digest of the project's files."""
        self._write_record({"workspace": digest, "at": self._clock()})

    def record_requested(self, calls: Sequence[str]) -> None:
        """Record that these calls are about to be written to the transcript."""
        self._write_record({"asked": calls})

    def begin(self, call_id: str, tool: str, **change: str | None) -> None:
        """Record that a call is starting, synced to disk unless `fsync` is "never".

        Only this line is synced. Losing any other line makes the evidence incomplete but not incorrect.

        `change` describes a file that the call replaces: its `path`, the digest `before` (None if
        the file does not exist) and the digest `after`.
        """
        self.started_calls.add(call_id)
        record: dict[str, object] = {"begin": call_id, "tool": tool, "at": self._clock(), **change}
        if not self._write_record(record, sync=self._sync_starts):
            self._unwritten.add(call_id)

    @property
    def is_stored(self) -> bool:
        """True if a store has a copy of the log."""
        return self._stored is not None

    async def wait_until_stored(self, call_id: str) -> None:
        """Wait until the store has the start of a call. Without a store, this returns at once.

        Raises:
            ToolspanError: the call must not start: its intent cannot be stored, or another host has the session.
        """
        if self._stored is None:
            return
        if call_id in self._unwritten:
            raise ToolspanError(f"it could not be recorded in {self.path.parent}")
        await self._stored.wait_until_stored(is_intent=True)

    def refuse(self, calls: Sequence[str]) -> None:
        """Let calls not start, because they could not be written to the transcript. This needs a store."""
        self._unwritten.update(calls)

    def record_finished(self, call_id: str, state: str) -> None:
        """Record that a call finished, if its start was recorded."""
        if call_id in self.started_calls:
            self.started_calls.discard(call_id)
            self._write_record({"settled": call_id, "state": state})

    def close(self) -> None:
        """Close the file. The next record reopens it."""
        with self._lock:
            self._writer.close()

    def _write_record(self, record: dict[str, object], *, sync: bool = False) -> bool:
        """Write a record, and return whether it is complete."""
        with self._lock:
            self._writer.ensure_open()
            lines = [encode_json(each) + b"\n" for each in (*self._first_records, record)]
            written = self._writer.write_lines(lines, sync=sync)
            if written:
                self._first_records = []
        if self._stored is not None:
            self._stored.notify()
        return written == len(lines)
