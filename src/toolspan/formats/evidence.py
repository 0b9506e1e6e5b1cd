"""Determine the outcome of unanswered calls from the intent log, a side file of a transcript.

After a crash, the log shows which calls had started, and file digests show whether a change was made. `IntentLog`
in `session/recording/writer.py` writes the log. Start at `collect_evidence`.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from toolspan.errors import SourceError
from toolspan.formats.jsonl import read_lines
from toolspan.formats.processes import host_name, is_running
from toolspan.formats.side_files import INTENT_LOG_NAME, intent_path
from toolspan.formats.source import source_for_path

_CHUNK_BYTES = 1 << 20
_DIGEST_BYTES = 16
"""The length of the BLAKE2b digests in the log."""
_MAX_FILE_BYTES = 1 << 30
_MAX_LOGS = 20
_TAIL_BYTES = 1 << 16
_BOOT_ID_PATH = Path("/proc/sys/kernel/random/boot_id")


def read_boot_id() -> str:
    """Return the id of the machine's current boot, or an empty string if the system has none."""
    try:
        return _BOOT_ID_PATH.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


EvidenceOutcome = Literal["never_started", "happened", "did_not_happen", "unknown"]


class CallEvidence(msgspec.Struct, frozen=True):
    """The outcome of a call, as far as side files reveal it."""

    outcome: EvidenceOutcome
    explanation: str = ""
    """A sentence that states the evidence; empty if there is none."""


NO_EVIDENCE = CallEvidence("unknown")
UNANSWERED_MESSAGE = (
    "[Tool call interrupted: the session ended before this call's result was recorded, so its"
    " outcome is unknown. Check whether it took effect before relying on it or running it again.]"
)
LOST_BEGINNING_MESSAGE = "[The beginning of this conversation was lost.]"
"""The replacement for a lost first prompt, since a conversation must begin with a user message."""


def format_unanswered(evidence: CallEvidence) -> str:
    """Return the replacement for a missing result: the client's standard message, followed by the evidence."""
    return f"{UNANSWERED_MESSAGE}\n[On record: {evidence.explanation}.]" if evidence.explanation else UNANSWERED_MESSAGE


class _IntentLine(msgspec.Struct):
    """Any line of the intent log."""

    open: int | None = None
    started: str | None = None
    boot: str = ""
    fsync: str = "never"
    host: str = ""
    at: float = 0.0
    store: str = ""
    asked: list[str] | None = None
    begin: str | None = None
    path: str | None = None
    before: str | None = None
    after: str | None = None
    settled: str | None = None
    state: str = ""
    tag: str | None = None
    process: str | None = None
    pid: int = 0
    workspace: str | None = None
    ended: str | None = None
    pids: list[int] = []
    note: str = ""


@dataclass(slots=True)
class _CallIntents:
    """The intent log lines about one call."""

    is_reliable: bool
    """True if a missing `begin` line proves that the call did not start."""
    owner: _IntentLine | None = None
    """The process that was about to run the call, if it was on another host."""
    begin: _IntentLine | None = None
    settled: _IntentLine | None = None
    ended: _IntentLine | None = None


def _read_log(path: Path) -> Iterator[_IntentLine]:
    """Yield the lines of an intent log. One that the crash has torn is skipped, and so is an unreadable rest."""
    with suppress(SourceError):
        for data in read_lines(source_for_path(path)) if path.is_file() else ():
            with suppress(msgspec.MsgspecError, UnicodeError):
                yield msgspec.json.decode(data.data, type=_IntentLine)


class RecordedProcess(NamedTuple):
    """The shell of a command, as the intent log names it."""

    pid: int
    started: str | None


class RecordedWorkspace(NamedTuple):
    """The files of the project, as a session last saw them."""

    digest: str
    host: str
    at: float


def read_workspace(transcript: Path) -> RecordedWorkspace | None:
    """Return the last digest of the project's files in a session's intent log; None if there is none."""
    host, recorded = "", None
    for line in _read_log(intent_path(transcript)):
        host = line.host or host
        if line.workspace is not None:
            recorded = RecordedWorkspace(line.workspace, host, line.at)
    return recorded


@dataclass(slots=True)
class RecordedProcesses:
    """The processes that sessions of a transcript have started since the machine was booted."""

    tags: set[str] = field(default_factory=set)
    """Tags in the environment of everything that the sessions started."""
    commands: dict[str, RecordedProcess] = field(default_factory=dict)
    """The latest command of each call."""
    calls: set[str] = field(default_factory=set)
    """All calls in the log."""
    ended: dict[str, str] = field(default_factory=dict)
    """Notes on commands that were still running when the session was resumed, by call."""
    session: RecordedProcess | None = None
    """The process that wrote the last part of the log."""

    def running(self) -> dict[str, int]:
        """Return the commands that are still running: the process id by call."""
        return {call: command.pid for call, command in self.commands.items() if is_running(*command)}


def read_processes(transcript: Path) -> RecordedProcesses:
    """Return the processes in a session's intent log. Those from before the last boot are left out."""
    recorded, boot = RecordedProcesses(), read_boot_id()
    for line in _read_log(intent_path(transcript)):
        if line.open is not None:
            is_same_boot = line.boot == boot
            recorded.session = RecordedProcess(line.open if is_same_boot else 0, line.started)
            if not is_same_boot:
                recorded.tags, recorded.commands = set(), {}
        if line.tag is not None:
            recorded.tags.add(line.tag)
        if line.process is not None:
            recorded.commands[line.process] = RecordedProcess(line.pid, line.started)
        if line.ended is not None:
            recorded.ended[line.ended] = line.note
        recorded.calls.update(line.asked or ())
    return recorded


def collect_evidence(transcript: Path, calls: Iterable[str], *, boot: str | None = None) -> dict[str, CallEvidence]:
    """Return the evidence for `calls`; `boot` overrides the id of the machine's current boot."""
    call_ids = list(calls)
    if not call_ids:
        return {}
    boot = read_boot_id() if boot is None else boot
    intents: dict[str, _CallIntents] = {}
    is_reliable = False
    owner: _IntentLine | None = None
    for line in _read_log(intent_path(transcript)):
        if line.open is not None:
            has_all = line.fsync != "never" or (bool(line.boot) and line.boot == boot)
            is_reliable = line.store == "store" or (has_all and not line.store)
            owner = line if line.host not in ("", host_name()) else None
        for call in line.asked or ():
            intents[call] = _CallIntents(is_reliable, owner)
        if line.begin is not None:
            intents.setdefault(line.begin, _CallIntents(is_reliable=False, owner=owner)).begin = line
        if line.settled is not None:
            intents.setdefault(line.settled, _CallIntents(is_reliable=False)).settled = line
        if line.ended is not None:
            intents.setdefault(line.ended, _CallIntents(is_reliable=False)).ended = line
    return {call: _judge_call(intents[call]) if call in intents else NO_EVIDENCE for call in call_ids}


def unfinished_folders(transcript: Path) -> list[Path]:
    """Return the folders to which calls were writing when recent sessions of this project were killed.

    Never raises. Only the newest intent logs and their last lines are read.
    """
    logs: list[tuple[float, Path]] = []
    with suppress(OSError):
        candidates = [intent_path(transcript), *transcript.parent.glob(f"*/{INTENT_LOG_NAME}")]
        logs = sorted(((path.stat().st_mtime, path) for path in {*candidates} if path.is_file()), reverse=True)
    paths: dict[str, str] = {}
    for _, log in logs[:_MAX_LOGS]:
        with suppress(OSError), log.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL_BYTES))
            for data in file:
                try:
                    line = msgspec.json.decode(data, type=_IntentLine)
                except (msgspec.MsgspecError, UnicodeError):
                    continue
                if line.begin is not None and line.path is not None:
                    paths[line.begin] = line.path
                elif line.settled is not None:
                    paths.pop(line.settled, None)
    return list(dict.fromkeys(Path(path).parent for path in paths.values()))


def _judge_call(intents: _CallIntents) -> CallEvidence:
    begin, settled = intents.begin, intents.settled
    if begin is not None and begin.path is not None and begin.after is not None:
        # The file's current content shows whether the change was made.
        path, digest = begin.path, _file_digest(Path(begin.path))
        if digest == begin.after:
            return CallEvidence("happened", f"{path} has exactly the content that it was to give it")
        if intents.owner is not None and settled is None:
            return CallEvidence("unknown", f"it was about to write {path} {_describe_owner(intents.owner, begin)}")
        if digest == (begin.before or ""):
            difference = "still has the content of before" if begin.before else "still does not exist"
            return CallEvidence("did_not_happen", f"{path} {difference}")
        if settled is not None and settled.state == "succeeded":
            return CallEvidence("happened", f"it wrote {path}, which was changed again since")
        difference = "which now has neither the content of before nor the one it was to get"
        reason = "which cannot be read now" if digest is None else difference
        return CallEvidence("unknown", f"it was about to write {path}, {reason}")
    if settled is not None:
        explanation = f"it ran to its end ({settled.state}), only its output was not recorded"
        return CallEvidence("happened", explanation)
    if intents.ended is not None:
        return CallEvidence("unknown", intents.ended.note)
    if begin is not None and intents.owner is not None:
        return CallEvidence("unknown", f"it was started {_describe_owner(intents.owner, begin)}")
    if begin is not None:
        return CallEvidence("unknown", "it was started, and nothing tells how far it got")
    if intents.is_reliable:
        return CallEvidence("never_started", "it was never started")
    return CallEvidence("unknown", "the machine went down since, and what was not on the disk is lost")


def _describe_owner(owner: _IntentLine, begin: _IntentLine) -> str:
    """Return where another host ran a call."""
    at = f" at {datetime.fromtimestamp(begin.at, UTC).isoformat(timespec='seconds')}" if begin.at else ""
    return f"on another host ({owner.host}, process {owner.open}){at}, and nothing tells how far it got there"


def _file_digest(path: Path) -> str | None:
    """Return the digest of a file's content; empty if the file does not exist, None if it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with open(descriptor, "rb") as stream:  # noqa: PTH123 - a descriptor, so that a pipe does not block
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_FILE_BYTES:
                return None
            digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
            while data := stream.read(_CHUNK_BYTES):
                digest.update(data)
            return digest.hexdigest()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, ValueError):
        return None
